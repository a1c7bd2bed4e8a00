// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frameworks over streams, as a process that the tests of another implementation start. The other
//! process is a server or a client of the same framework in another language.
//!
//! ```text
//! framework_peer TASK ADDRESS
//!
//! axum         serves HTTP: POST /echo sends back the body, GET /who the caller
//! tonic        serves grpc.testing.TestService: UnaryCall and FullDuplexCall
//! call-http    posts bodies to /echo by HTTP/1.1 and HTTP/2, and checks the answers
//! call-tonic   calls both methods of the service, and checks the answers
//! ```
//!
//! A server prints `ready` and is killed. A client ends with code 0, or with code 1 and a text.

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit};
use axum::http::uri::PathAndQuery;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use partywall::tokio::{ConnectInfo as Caller, Incoming, Listener, Pool, PoolConfig};
use partywall::tonic::Connector;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{NamedService, StreamingService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

type Outcome = Result<(), Box<dyn Error>>;
type Boxed<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, address] = &arguments[..] else {
        return Err("framework_peer axum|tonic|call-http|call-tonic ADDRESS".into());
    };
    match &**task {
        "axum" => serve_http(address).await,
        "tonic" => serve_calls(address).await,
        "call-http" => post_bodies(address).await,
        "call-tonic" => make_calls(address).await,
        other => Err(format!("no task {other}").into()),
    }
}

fn listen(address: &str) -> Result<Incoming, Box<dyn Error>> {
    let incoming = Incoming::new(Listener::bind(address)?);
    println!("ready");
    Ok(incoming)
}

async fn serve_http(address: &str) -> Outcome {
    let app = Router::new()
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/who", get(|ConnectInfo(caller): ConnectInfo<Caller>| async move { name(&caller) }))
        .layer(DefaultBodyLimit::max(BYTES_MAX));
    axum::serve(listen(address)?, app.into_make_service_with_connect_info::<Caller>()).await?;
    Ok(())
}

/// The process that calls, as the kernel has verified it.
fn name(caller: &Caller) -> String {
    caller.pid().map_or_else(|| "nobody".to_owned(), |pid| format!("process {pid}"))
}

async fn post_bodies(address: &str) -> Outcome {
    let pool = Pool::new(address, PoolConfig::default())?;
    for is_http2 in [false, true] {
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_http2)
            .build(Connector::from(pool.clone()));
        for size in SIZES {
            let sent = body(size);
            let request =
                HttpRequest::post("http://localhost/echo").body(Full::new(sent.clone()))?;
            let answer = client.request(request).await?;
            let status = answer.status();
            let found = answer.into_body().collect().await?.to_bytes();
            if !status.is_success() || found != sent {
                let how = format!("{size} bytes come back as {}, {status}", found.len());
                return Err(format!("{how}, HTTP/2: {is_http2}").into());
            }
        }
    }
    pool.close().await;
    Ok(())
}

async fn serve_calls(address: &str) -> Outcome {
    let service = Server::builder().add_service(TestService);
    service.serve_with_incoming(listen(address)?).await?;
    Ok(())
}

async fn make_calls(address: &str) -> Outcome {
    let pool = Pool::new(address, PoolConfig::default())?;
    let connector = Connector::from(pool.clone());
    let channel =
        Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(BYTES_MAX);
    let own = format!("process {},", std::process::id());
    for size in SIZES {
        client.ready().await?;
        let (path, codec) = (PathAndQuery::from_static(UNARY), Codec::default());
        let answer =
            client.unary(Request::new(Question::new(size)), path, codec).await?.into_inner();
        if answer.payload != Question::new(size).payload || !answer.username.starts_with(&own) {
            return Err(
                format!("{size} bytes: the answer to {} is another", answer.username).into()
            );
        }
    }
    client.ready().await?;
    let questions = tokio_stream::iter((0..STREAM_MESSAGES).map(|i| Question::new(i * 97)));
    let (path, codec) = (PathAndQuery::from_static(FULL_DUPLEX), Codec::default());
    let mut answers = client.streaming(Request::new(questions), path, codec).await?.into_inner();
    for i in 0..STREAM_MESSAGES {
        let answer = answers.message().await?.ok_or("the stream ends early")?;
        if answer.payload != Question::new(i * 97).payload {
            return Err(format!("answer {i} of the stream is another").into());
        }
    }
    if answers.message().await?.is_some() {
        return Err("an answer instead of the end of the stream".into());
    }
    pool.close().await;
    Ok(())
}

/// The requests of both methods: SimpleRequest and StreamingOutputCallRequest.
#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
}

/// The responses of both methods: SimpleResponse and StreamingOutputCallResponse.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
    #[prost(string, tag = "2")]
    username: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "bytes", tag = "2")]
    body: Bytes,
}

type Codec = ProstCodec<Question, Answer>;

impl Question {
    fn new(size: usize) -> Self {
        Self { payload: Some(Payload { body: body(size) }) }
    }
}

/// The service `grpc.testing.TestService`, with two of its methods. It is written as the code
/// generator of tonic would write it.
#[derive(Clone)]
struct TestService;

impl NamedService for TestService {
    const NAME: &'static str = "grpc.testing.TestService";
}

impl tower_service::Service<HttpRequest<Body>> for TestService {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<Answer, Question>::default();
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(BYTES_MAX);
            Ok(match request.uri().path() {
                UNARY => grpc.unary(Unary, request).await,
                FULL_DUPLEX => grpc.streaming(FullDuplex, request).await,
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

/// Answers with the payload, and with the process of the caller.
struct Unary;

impl UnaryService<Question> for Unary {
    type Response = Answer;
    type Future = Boxed<Answer>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let username = request.extensions().get::<Caller>().map(name).unwrap_or_default();
        Box::pin(async move {
            Ok(Response::new(Answer { payload: request.into_inner().payload, username }))
        })
    }
}

/// Sends back the payload of each request.
struct FullDuplex;

impl StreamingService<Question> for FullDuplex {
    type Response = Answer;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;
    type Future = Boxed<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<Question>>) -> Self::Future {
        let answers = request.into_inner().map(|question| {
            question.map(|Question { payload }| Answer { payload, username: String::new() })
        });
        Box::pin(async move { Ok(Response::new(Box::pin(answers) as Self::ResponseStream)) })
    }
}

/// Bytes of which no two adjacent ones are equal.
fn body(size: usize) -> Bytes {
    (0..size).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

const UNARY: &str = "/grpc.testing.TestService/UnaryCall";
const FULL_DUPLEX: &str = "/grpc.testing.TestService/FullDuplexCall";
const SIZES: [usize; 7] = [0, 1, 1024, 65_535, 65_536, 1 << 20, 3 << 20];
const STREAM_MESSAGES: usize = 200;
/// Longest message or body in bytes.
const BYTES_MAX: usize = 32 << 20;
