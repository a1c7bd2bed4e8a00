// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gRPC service of the tests. It is written by hand as the code generator of tonic would write
//! it, so that the tests need no protobuf compiler.
//!
//! ```text
//!   Unary    n            ─▶ n + 1                       HANG ─▶ never
//!   Count    n            ─▶ 0, 1, … n − 1               HANG ─▶ 0, then nothing
//!   Sum      a, b, c …    ─▶ a + b + c …
//!   Chat     a, b, c …    ─▶ a + 1, b + 1, c + 1 …
//!   Peer     anything     ─▶ process, user and transport of the caller, as text
//! ```

use axum::http::uri::PathAndQuery;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use partywall::tokio::ConnectInfo;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{
    ClientStreamingService, Grpc, NamedService, ServerStreamingService, StreamingService,
    UnaryService,
};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// A number with a payload: the only type of requests and responses of the echo service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Number {
    #[prost(uint64, tag = "1")]
    pub value: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

impl Number {
    pub fn new(value: u64) -> Self {
        Self { value, payload: Vec::new() }
    }
}

/// The value that makes the echo service never complete its response, so that a call stays open.
pub const HANG: u64 = u64::MAX;

type Boxed<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;
pub type Numbers = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;

/// The echo service. Its clones share the counter `hanging`.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    /// Number of calls with the value `HANG` that are open.
    pub hanging: Arc<AtomicU64>,
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl tower_service::Service<HttpRequest<Body>> for Echo {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Number, Number>::default())
                .max_decoding_message_size(32 << 20);
            Ok(match request.uri().path() {
                "/test.Echo/Unary" => grpc.unary(Unary(echo), request).await,
                "/test.Echo/Peer" => grpc.unary(Peer, request).await,
                "/test.Echo/Hanging" => grpc.unary(Hanging(echo), request).await,
                "/test.Echo/Count" => grpc.server_streaming(Count(echo), request).await,
                "/test.Echo/Sum" => grpc.client_streaming(Sum, request).await,
                "/test.Echo/Chat" => grpc.streaming(Chat, request).await,
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

struct Unary(Echo);
struct Peer;
struct Hanging(Echo);
struct Count(Echo);
struct Sum;
struct Chat;

impl UnaryService<Number> for Unary {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let echo = self.0.clone();
        Box::pin(async move {
            let Number { value, payload } = request.into_inner();
            if value == HANG {
                echo.hanging.fetch_add(1, Ordering::Relaxed);
                return std::future::pending().await;
            }
            Ok(Response::new(Number { value: value + 1, payload }))
        })
    }
}

impl UnaryService<Number> for Peer {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let caller = request.extensions().get::<ConnectInfo>().cloned();
        Box::pin(async move {
            let who = caller.ok_or_else(|| Status::internal("nobody"))?;
            let text = format!("{:?} {:?} {:?} {}", who.pid(), who.uid(), who.gid(), who.transport);
            Ok(Response::new(Number { value: 0, payload: text.into() }))
        })
    }
}

impl UnaryService<Number> for Hanging {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, _: Request<Number>) -> Self::Future {
        let count = self.0.hanging.load(Ordering::Relaxed);
        Box::pin(async move { Ok(Response::new(Number::new(count))) })
    }
}

impl ServerStreamingService<Number> for Count {
    type Response = Number;
    type ResponseStream = Numbers;
    type Future = Boxed<Numbers>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let end = request.into_inner().value;
        let echo = self.0.clone();
        Box::pin(async move {
            let all = if end == HANG {
                echo.hanging.fetch_add(1, Ordering::Relaxed);
                let first = tokio_stream::once(Ok(Number::new(0)));
                Box::pin(first.chain(tokio_stream::pending())) as Numbers
            } else {
                Box::pin(tokio_stream::iter((0..end).map(|value| Ok(Number::new(value)))))
            };
            Ok(Response::new(all))
        })
    }
}

impl ClientStreamingService<Number> for Sum {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        Box::pin(async move {
            let (mut numbers, mut sum) = (request.into_inner(), 0);
            while let Some(number) = numbers.message().await? {
                sum += number.value;
            }
            Ok(Response::new(Number::new(sum)))
        })
    }
}

impl StreamingService<Number> for Chat {
    type Response = Number;
    type ResponseStream = Numbers;
    type Future = Boxed<Numbers>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        let answers = request.into_inner().map(|number| {
            number.map(|Number { value, payload }| Number { value: value + 1, payload })
        });
        Box::pin(async move { Ok(Response::new(Box::pin(answers) as Numbers)) })
    }
}

/// A client of the echo service.
#[derive(Clone, Debug)]
pub struct Client {
    grpc: tonic::client::Grpc<Channel>,
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}

fn codec() -> ProstCodec<Number, Number> {
    ProstCodec::default()
}

impl Client {
    pub fn new(channel: Channel) -> Self {
        Self { grpc: tonic::client::Grpc::new(channel).max_decoding_message_size(32 << 20) }
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(error.into()))
    }

    /// Makes a call with one request and one response.
    pub async fn call(&mut self, method: &'static str, number: Number) -> Result<Number, Status> {
        self.ready().await?;
        let answer = self.grpc.unary(Request::new(number), path(method), codec()).await?;
        Ok(answer.into_inner())
    }

    pub async fn unary(&mut self, number: Number) -> Result<Number, Status> {
        self.call("/test.Echo/Unary", number).await
    }

    pub async fn count(&mut self, end: u64) -> Result<Streaming<Number>, Status> {
        self.ready().await?;
        let asked = Request::new(Number::new(end));
        let path = path("/test.Echo/Count");
        Ok(self.grpc.server_streaming(asked, path, codec()).await?.into_inner())
    }

    pub async fn sum(
        &mut self,
        numbers: impl Stream<Item = Number> + Send + 'static,
    ) -> Result<u64, Status> {
        self.ready().await?;
        let path = path("/test.Echo/Sum");
        let sum = self.grpc.client_streaming(Request::new(numbers), path, codec()).await?;
        Ok(sum.into_inner().value)
    }

    pub async fn chat(
        &mut self,
        numbers: impl Stream<Item = Number> + Send + 'static,
    ) -> Result<Streaming<Number>, Status> {
        self.ready().await?;
        let path = path("/test.Echo/Chat");
        Ok(self.grpc.streaming(Request::new(numbers), path, codec()).await?.into_inner())
    }
}
