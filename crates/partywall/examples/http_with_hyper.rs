// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1.1 and HTTP/2 over shared memory, with hyper at both ends. The example ends by itself.
//!
//! `cargo run -p partywall --features hyper --example http_with_hyper`

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming as RequestBody};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use partywall::hyper::{Connector, serve};
use partywall::tokio::{ConnectInfo, Incoming, Listener, connect};
use std::error::Error;

async fn answer(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let who =
        request.extensions().get::<ConnectInfo>().map(ConnectInfo::to_string).unwrap_or_default();
    let path = request.uri().path().to_owned();
    let bytes = request.into_body().collect().await?.to_bytes();
    let answer = format!("{} bytes for {path} from {who}", bytes.len());
    Ok(Response::new(Full::new(Bytes::from(answer))))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("unix:{}/app.sock", directory.path().display());
    let incoming = Incoming::new(Listener::bind(&address)?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(incoming, service_fn(answer), async {
        let _ = stopped.await;
    }));

    let session = connect(&address).await?;
    for is_http2 in [false, true] {
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_http2)
            .build(Connector::from(session.clone()));
        let body = Full::new(Bytes::from(vec![7; 1 << 20]));
        let response = client.request(Request::post("http://app/upload").body(body)?).await?;
        println!("{:?} {}", response.version(), response.status());
        let answer = response.into_body().collect().await?.to_bytes();
        println!("  {}", String::from_utf8_lossy(&answer));
    }
    let _ = stop.send(());
    server.await?;
    Ok(())
}
