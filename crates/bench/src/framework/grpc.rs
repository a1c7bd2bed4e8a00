// SPDX-License-Identifier: MIT OR Apache-2.0
//! gRPC with tonic: a unary method, which answers each payload with a payload, and a stream method,
//! which receives many payloads in one call.
//!
//! The service is written like the output of tonic's code generator, so no protobuf compiler is
//! needed. All clients (requesters) of a measurement share one channel of tonic, which is one
//! HTTP/2 connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result, ensure};
use hyper::Uri;
use hyper::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::server::{ClientStreamingService, NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::connection::{ByteClient, ByteServer};
use super::{Requester, Verifier, payload};
use crate::harness::cell::Cell;

/// The request and the response of both gRPC methods, unary and stream: the bytes of one payload.
#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Makes the clients of a measurement, one for each call in flight. They share one channel of
/// tonic.
pub(super) async fn requesters<C>(cell: Cell, client: &C) -> Result<Vec<GrpcRequester>>
where
    C: ByteClient<Connection: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send>,
{
    let endpoint = Endpoint::from_static("http://bench");
    let channel = endpoint.connect_with_connector(Connector(client.clone())).await?;
    Ok((0..cell.streams).map(|_| GrpcRequester(Grpc::new(channel.clone()))).collect())
}

/// Serves the unary and the stream method on every connection that `server` accepts.
pub(super) async fn serve<S>(mut server: S, verifier: Verifier) -> Result<()>
where
    S: ByteServer<
        Connection: tokio::io::AsyncRead
                        + tokio::io::AsyncWrite
                        + tonic::transport::server::Connected<ConnectInfo: Clone + Send + Sync>
                        + Unpin
                        + Send
                        + 'static,
    >,
{
    let (connections, accepted) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let connection = server.accept().await.map_err(std::io::Error::other);
            if connections.send(connection).await.is_err() {
                return;
            }
        }
    });
    let service = Methods { verifier };
    let served = Server::builder().add_service(service);
    Ok(served.serve_with_incoming(ReceiverStream::new(accepted)).await?)
}

/// A client of the gRPC service, with one call in flight at a time.
pub(super) struct GrpcRequester(Grpc<Channel>);

impl Requester for GrpcRequester {
    async fn call(&mut self, payload: Vec<u8>) -> Result<Vec<u8>> {
        self.0.ready().await.context("waiting for the channel")?;
        let request = Request::new(Payload { bytes: payload });
        let path = PathAndQuery::from_static(UNARY);
        let codec = ProstCodec::<Payload, Payload>::default();
        let response = self.0.unary(request, path, codec).await.context("calling")?;
        Ok(response.into_inner().bytes)
    }

    async fn stream(&mut self, cell: Cell, first: u64, amount: u64) -> Result<()> {
        self.0.ready().await.context("waiting for the channel")?;
        let messages =
            (first..first + amount).map(move |sequence| Payload { bytes: payload(cell, sequence) });
        let path = PathAndQuery::from_static(STREAM);
        let codec = ProstCodec::<Payload, Payload>::default();
        let request = Request::new(tokio_stream::iter(messages));
        let response = self.0.client_streaming(request, path, codec).await.context("streaming")?;
        let counted = response.into_inner().bytes;
        ensure!(counted == amount.to_le_bytes(), "the server counted other messages");
        Ok(())
    }
}

/// Opens connections of the measured transport for tonic; the URI that tonic passes is ignored.
#[derive(Clone)]
struct Connector<C>(C);

impl<C: ByteClient<Connection: Send>> Service<Uri> for Connector<C> {
    type Response = TokioIo<C::Connection>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Boxed<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(client.open().await?)) })
    }
}

/// The gRPC service with the unary and the stream method.
#[derive(Clone)]
struct Methods {
    verifier: Verifier,
}

impl NamedService for Methods {
    const NAME: &'static str = "bench.Payloads";
}

impl Service<hyper::Request<Body>> for Methods {
    type Response = hyper::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<hyper::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        let method = Method { verifier: self.verifier.clone() };
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Payload, Payload>::default());
            Ok(match request.uri().path() {
                UNARY => grpc.unary(method, request).await,
                STREAM => grpc.client_streaming(method, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// The server's part of one gRPC call: verifies the payloads, and returns the response.
struct Method {
    verifier: Verifier,
}

impl UnaryService<Payload> for Method {
    type Response = Payload;
    type Future = Boxed<Response<Payload>, Status>;

    fn call(&mut self, request: Request<Payload>) -> Self::Future {
        let verifier = self.verifier.clone();
        Box::pin(async move {
            let reply = verifier.reply(&request.into_inner().bytes).map_err(corrupted)?;
            Ok(Response::new(Payload { bytes: reply }))
        })
    }
}

impl ClientStreamingService<Payload> for Method {
    type Response = Payload;
    type Future = Boxed<Response<Payload>, Status>;

    fn call(&mut self, request: Request<Streaming<Payload>>) -> Self::Future {
        let verifier = self.verifier.clone();
        Box::pin(async move {
            let mut messages = request.into_inner();
            let (mut previous, mut count) = (None, 0_u64);
            while let Some(message) = messages.message().await? {
                verifier.next(&message.bytes, &mut previous).map_err(corrupted)?;
                count += 1;
            }
            Ok(Response::new(Payload { bytes: count.to_le_bytes().into() }))
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes the error by value")]
fn corrupted(error: anyhow::Error) -> Status {
    Status::data_loss(format!("{error:#}"))
}

/// The paths of the gRPC methods, which distinguish unary calls from streams.
const UNARY: &str = "/bench.Payloads/Unary";
const STREAM: &str = "/bench.Payloads/Stream";
