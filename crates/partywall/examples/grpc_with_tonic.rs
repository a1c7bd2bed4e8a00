// SPDX-License-Identifier: MIT OR Apache-2.0
//! gRPC over shared memory, with tonic at both ends. The service is written by hand; an application
//! would generate it. The example ends by itself.
//!
//! `cargo run -p partywall --features tonic --example grpc_with_tonic`

use axum::http::uri::PathAndQuery;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use partywall::tokio::{Listener, Pool, PoolConfig};
use partywall::tonic::{ConnectInfo, Connector, Incoming};
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// The message type of both the request and the response of the service.
#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The method `Greet` of the service `app.Greeter`.
struct Greet;

impl UnaryService<Text> for Greet {
    type Response = Text;
    type Future = Boxed<Response<Text>, Status>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        let who = request.extensions().get::<ConnectInfo>().map(ConnectInfo::to_string);
        Box::pin(async move {
            let who = who.ok_or_else(|| Status::internal("nobody calls"))?;
            let text = format!("hello {}, you are {who}", request.into_inner().text);
            Ok(Response::new(Text { text }))
        })
    }
}

#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "app.Greeter";
}

impl Service<HttpRequest<Body>> for Greeter {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Boxed<HttpResponse<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != "/app.Greeter/Greet" {
                return Ok(Status::unimplemented("only Greet").into_http());
            }
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Text, Text>::default());
            Ok(grpc.unary(Greet, request).await)
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("unix:{}/app.sock", directory.path().display());
    let incoming = Incoming::new(Listener::bind(&address)?);
    let server = Server::builder().add_service(Greeter).serve_with_incoming(incoming);
    let server = tokio::spawn(server);

    let pool = Pool::new(&address, PoolConfig::default())?;
    let connector = Connector::from(pool.clone());
    let channel = Endpoint::from_static("http://app").connect_with_connector(connector).await?;
    let mut client = tonic::client::Grpc::new(channel);
    for name in ["north", "south"] {
        client.ready().await?;
        let question = Request::new(Text { text: name.into() });
        let path = PathAndQuery::from_static("/app.Greeter/Greet");
        let codec = ProstCodec::<Text, Text>::default();
        println!("{}", client.unary(question, path, codec).await?.into_inner().text);
    }
    pool.close().await;
    server.abort();
    Ok(())
}
