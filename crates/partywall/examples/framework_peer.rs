// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frameworks over streams, as a process that the tests of another implementation start. The other
//! process is a server or a client of the same framework in another language.
//!
//! ```text
//! framework_peer TASK ADDRESS
//!
//! axum         serves HTTP: POST /echo sends back the body, GET /who the caller
//! tonic        serves grpc.testing.TestService: UnaryCall, StreamingOutputCall,
//!              StreamingInputCall and FullDuplexCall
//! call-http    posts bodies to /echo by HTTP/1.1 and HTTP/2, and checks the answers
//! call-tonic   calls each method of the service, and checks the answers
//! give-up      makes calls that are not answered: it cancels one after a line of its standard
//!              input, and lets the deadline of another pass
//! survive      prints `waits` and makes a call; once its server is killed, it prints
//!              `unavailable`, and `recovered` after a call to the next server
//! ```
//!
//! A server prints `ready` and is killed. UnaryCall with the response size -1 is not answered: the
//! server prints `waits` at its beginning, and `ended` at its end. A client ends with code 0, or
//! with code 1 and a text.

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
use std::time::{Duration, Instant};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{
    ClientStreamingService, NamedService, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

type Outcome = Result<(), Box<dyn Error>>;
type Boxed<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, address] = &arguments[..] else {
        return Err("framework_peer axum|tonic|call-http|call-tonic|give-up|survive ADDRESS".into());
    };
    match &**task {
        "axum" => serve_http(address).await,
        "tonic" => serve_calls(address).await,
        "call-http" => post_bodies(address).await,
        "call-tonic" => make_calls(address).await,
        "give-up" => give_up(address).await,
        "survive" => survive(address).await,
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

/// Returns a text that names the calling process, as the kernel reports it.
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

type Calls = tonic::client::Grpc<Channel>;

async fn client(pool: &Pool) -> Result<Calls, Box<dyn Error>> {
    let connector = Connector::from(pool.clone());
    let channel =
        Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
    Ok(Calls::new(channel).max_decoding_message_size(BYTES_MAX))
}

async fn make_calls(address: &str) -> Outcome {
    let pool = Pool::new(address, PoolConfig::default())?;
    let mut client = client(&pool).await?;
    for size in SIZES {
        call_unary(&mut client, size).await?;
    }
    stream_both_ways(&mut client).await?;
    stream_output(&mut client).await?;
    stream_input(&mut client).await?;
    pool.close().await;
    Ok(())
}

async fn call_unary(client: &mut Calls, size: usize) -> Outcome {
    let own = format!("process {},", std::process::id());
    let answer = unary(client, Request::new(Question::new(size))).await?;
    if answer.payload != Question::new(size).payload || !answer.username.starts_with(&own) {
        return Err(format!("{size} bytes: the answer to {} is another", answer.username).into());
    }
    Ok(())
}

async fn unary(client: &mut Calls, question: Request<Question>) -> Result<Answer, Status> {
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let (path, codec) = (PathAndQuery::from_static(UNARY), Codec::default());
    Ok(client.unary(question, path, codec).await?.into_inner())
}

async fn stream_both_ways(client: &mut Calls) -> Outcome {
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
    match answers.message().await? {
        None => Ok(()),
        Some(_) => Err("an answer instead of the end of the stream".into()),
    }
}

/// Calls StreamingOutputCall, whose server streams responses of the sizes that the request lists,
/// and checks them.
async fn stream_output(client: &mut Calls) -> Outcome {
    client.ready().await?;
    let sizes: Vec<i32> = (0..STREAM_MESSAGES as i32).map(|i| i * i % 9000).collect();
    let parameters = sizes.iter().map(|&size| Parameters { size }).collect();
    let (path, codec) =
        (PathAndQuery::from_static(OUTPUT), ProstCodec::<Wanted, Answer>::default());
    let wanted = Request::new(Wanted { parameters });
    let mut answers = client.server_streaming(wanted, path, codec).await?.into_inner();
    for (i, &size) in sizes.iter().enumerate() {
        let answer = answers.message().await?.ok_or("the stream of responses ends early")?;
        let found = answer.payload.unwrap_or_default().body;
        if found != numbered(i, size as usize) {
            return Err(format!("response {i} of {size} bytes has {} others", found.len()).into());
        }
    }
    match answers.message().await? {
        None => Ok(()),
        Some(_) => Err("a response instead of the end of the stream".into()),
    }
}

/// Calls StreamingInputCall, whose server answers a stream of requests with the sum of their sizes,
/// and checks the sum.
async fn stream_input(client: &mut Calls) -> Outcome {
    client.ready().await?;
    let part = |i: usize| Part { payload: Some(Payload { body: body(i * 97) }) };
    let parts = tokio_stream::iter((0..STREAM_MESSAGES).map(part));
    let (path, codec) = (PathAndQuery::from_static(INPUT), ProstCodec::<Part, Sum>::default());
    let sum = client.client_streaming(Request::new(parts), path, codec).await?.into_inner().bytes;
    let expected = (0..STREAM_MESSAGES).map(|i| i * 97).sum::<usize>();
    if usize::try_from(sum) == Ok(expected) {
        return Ok(());
    }
    Err(format!("the sum is {sum}, not {expected}").into())
}

async fn give_up(address: &str) -> Outcome {
    let pool = Pool::new(address, PoolConfig::default())?;
    let mut client = client(&pool).await?;
    let mut own = client.clone();
    let waiting =
        tokio::spawn(async move { unary(&mut own, Request::new(Question::unanswered())).await });
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    waiting.abort();
    if !waiting.await.is_err_and(|error| error.is_cancelled()) {
        return Err("the call has ended before it was cancelled".into());
    }
    call_unary(&mut client, 100).await?;
    let mut late = Request::new(Question::unanswered());
    late.set_timeout(Duration::from_millis(500));
    // tonic reports Cancelled if its own timer ends the call, and also if the server's timer ends
    // the call by a reset.
    match unary(&mut client, late).await {
        Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {}
        other => return Err(format!("a call ends after its deadline with {other:?}").into()),
    }
    call_unary(&mut client, 100).await?;
    pool.close().await;
    Ok(())
}

async fn survive(address: &str) -> Outcome {
    // While no server runs, the pool opens no stream, and a call fails after 500 ms.
    let config = PoolConfig::default().open_timeout(Duration::from_millis(500));
    let pool = Pool::new(address, config)?;
    // On a busy machine 500 ms may be too short for the first stream, too.
    let first = Instant::now() + RECOVERY;
    let mut client = loop {
        match client(&pool).await {
            Ok(client) => break client,
            Err(error) if Instant::now() > first => return Err(error),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    call_unary(&mut client, 100).await?;
    println!("waits");
    match unary(&mut client, Request::new(Question::unanswered())).await {
        // tonic reports a connection that broke during the call as Unknown.
        Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown) => {}
        other => return Err(format!("a call to a killed server ends with {other:?}").into()),
    }
    let deadline = Instant::now() + RECOVERY;
    loop {
        match unary(&mut client, Request::new(Question::new(1))).await {
            Err(status) if status.code() == Code::Unavailable => break,
            other if Instant::now() > deadline => {
                return Err(format!("a call without a server ends with {other:?}").into());
            }
            _ => tokio::task::yield_now().await,
        }
    }
    println!("unavailable");
    while let Err(error) = call_unary(&mut client, 100).await {
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::task::yield_now().await;
    }
    println!("recovered");
    Ok(())
}

/// The message SimpleRequest of UnaryCall, and StreamingOutputCallRequest of FullDuplexCall, as far
/// as the service reads them.
#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(int32, tag = "2")]
    response_size: i32,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
}

/// The message StreamingOutputCallRequest of StreamingOutputCall.
#[derive(Clone, PartialEq, prost::Message)]
struct Wanted {
    #[prost(message, repeated, tag = "2")]
    parameters: Vec<Parameters>,
}

/// The message ResponseParameters: the size of one response of StreamingOutputCall.
#[derive(Clone, PartialEq, prost::Message)]
struct Parameters {
    #[prost(int32, tag = "1")]
    size: i32,
}

/// The message StreamingInputCallRequest, a request of StreamingInputCall.
#[derive(Clone, PartialEq, prost::Message)]
struct Part {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

/// The message StreamingInputCallResponse, the response of StreamingInputCall.
#[derive(Clone, PartialEq, prost::Message)]
struct Sum {
    #[prost(int32, tag = "1")]
    bytes: i32,
}

/// The messages SimpleResponse and StreamingOutputCallResponse, the responses of UnaryCall,
/// StreamingOutputCall and FullDuplexCall.
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
        Self { response_size: 0, payload: Some(Payload { body: body(size) }) }
    }

    /// A request for which the server sends no answer, so that a test can end the call in another
    /// way.
    const fn unanswered() -> Self {
        Self { response_size: UNANSWERED, payload: None }
    }
}

/// The service `grpc.testing.TestService`, with four of its methods. It is written as the code
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
                OUTPUT => {
                    let codec = ProstCodec::<Answer, Wanted>::default();
                    tonic::server::Grpc::new(codec).server_streaming(Output, request).await
                }
                INPUT => {
                    let codec = ProstCodec::<Sum, Part>::default();
                    tonic::server::Grpc::new(codec).client_streaming(Input, request).await
                }
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

/// The method UnaryCall: answers with the payload of the request, and with the name of the calling
/// process.
struct Unary;

impl UnaryService<Question> for Unary {
    type Response = Answer;
    type Future = Boxed<Answer>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let username = request.extensions().get::<Caller>().map(name).unwrap_or_default();
        Box::pin(async move {
            let question = request.into_inner();
            if question.response_size == UNANSWERED {
                println!("waits");
                let _waiting = Waiting;
                std::future::pending::<()>().await;
            }
            Ok(Response::new(Answer { payload: question.payload, username }))
        })
    }
}

/// The guard of a call that is not answered. It is dropped at the end of the call, and then prints
/// `ended`.
struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        println!("ended");
    }
}

/// The method StreamingOutputCall: sends a response of each size that the request lists.
struct Output;

impl ServerStreamingService<Wanted> for Output {
    type Response = Answer;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;
    type Future = Boxed<Self::ResponseStream>;

    fn call(&mut self, request: Request<Wanted>) -> Self::Future {
        let wanted = request.into_inner().parameters.into_iter().enumerate();
        let answers = wanted.map(|(i, Parameters { size })| {
            let size = usize::try_from(size)
                .map_err(|_| Status::invalid_argument("a size is negative"))?;
            let payload = Some(Payload { body: numbered(i, size) });
            Ok(Answer { payload, username: String::new() })
        });
        let answers = Box::pin(tokio_stream::iter(answers)) as Self::ResponseStream;
        Box::pin(async move { Ok(Response::new(answers)) })
    }
}

/// The method StreamingInputCall: answers with the sum of the sizes of the requests.
struct Input;

impl ClientStreamingService<Part> for Input {
    type Response = Sum;
    type Future = Boxed<Sum>;

    fn call(&mut self, request: Request<Streaming<Part>>) -> Self::Future {
        Box::pin(async move {
            let mut parts = request.into_inner();
            let mut sum = 0;
            while let Some(part) = parts.message().await? {
                sum += part.payload.unwrap_or_default().body.len();
            }
            let bytes =
                i32::try_from(sum).map_err(|_| Status::out_of_range("the sum is too large"))?;
            Ok(Response::new(Sum { bytes }))
        })
    }
}

/// The method FullDuplexCall: sends back the payload of each request.
struct FullDuplex;

impl StreamingService<Question> for FullDuplex {
    type Response = Answer;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;
    type Future = Boxed<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<Question>>) -> Self::Future {
        let answers = request.into_inner().map(|question| {
            question.map(|Question { payload, .. }| Answer { payload, username: String::new() })
        });
        Box::pin(async move { Ok(Response::new(Box::pin(answers) as Self::ResponseStream)) })
    }
}

/// Returns a payload of `size` bytes, of which no two adjacent ones are equal.
fn body(size: usize) -> Bytes {
    (0..size).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// Returns the body of response number `i` of StreamingOutputCall.
fn numbered(i: usize, size: usize) -> Bytes {
    (0..size).map(|at| (i + at * 7) as u8).collect()
}

const UNARY: &str = "/grpc.testing.TestService/UnaryCall";
const FULL_DUPLEX: &str = "/grpc.testing.TestService/FullDuplexCall";
const OUTPUT: &str = "/grpc.testing.TestService/StreamingOutputCall";
const INPUT: &str = "/grpc.testing.TestService/StreamingInputCall";
/// The response size with which a request of UnaryCall asks for no answer.
const UNANSWERED: i32 = -1;
/// Longest time in which a client must reach its first server, and after that was killed the next.
const RECOVERY: Duration = Duration::from_secs(60);
const SIZES: [usize; 7] = [0, 1, 1024, 65_535, 65_536, 1 << 20, 3 << 20];
const STREAM_MESSAGES: usize = 200;
/// Longest gRPC message or HTTP body, in bytes, that the client or the server accepts.
const BYTES_MAX: usize = 32 << 20;
