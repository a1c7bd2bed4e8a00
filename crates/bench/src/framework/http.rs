// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1.1 with hyper: each requester (client) has a connection of its own and posts payloads on
//! it.
//!
//! ```text
//! POST /unary    the body is one payload     the answer's body is the reply
//! POST /stream   a chunk for each message    the answer's body is their number
//! ```

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{ByteClient, ByteServer};
use super::{Requester, Verifier, payload};
use crate::harness::cell::Cell;

/// The body of an HTTP request: one payload, or a stream of messages.
type RequestBody = Either<Full<Bytes>, Messages>;

/// Makes the clients of a measurement, one for each request in flight, each with a connection of
/// its own.
pub(super) async fn requesters<C>(cell: Cell, client: &C) -> Result<Vec<HttpRequester>>
where
    C: ByteClient<Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static>,
{
    let mut requesters = Vec::with_capacity(cell.streams);
    for _ in 0..cell.streams {
        let io = TokioIo::new(client.open().await?);
        let (sender, connection) = client::handshake(io).await.context("beginning HTTP/1.1")?;
        tokio::spawn(connection);
        requesters.push(HttpRequester(sender));
    }
    Ok(requesters)
}

/// Serves HTTP requests for `/unary` and `/stream` on every connection that `server` accepts.
pub(super) async fn serve<S>(mut server: S, verifier: Verifier) -> Result<()>
where
    S: ByteServer<Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static>,
{
    loop {
        let io = TokioIo::new(server.accept().await?);
        let verifier = verifier.clone();
        let answer = service_fn(move |request| answer(request, verifier.clone()));
        tokio::spawn(server::Builder::new().serve_connection(io, answer));
    }
}

/// An HTTP client with one connection, and one request in flight at a time.
pub(super) struct HttpRequester(SendRequest<RequestBody>);

impl Requester for HttpRequester {
    async fn call(&mut self, payload: Vec<u8>) -> Result<Vec<u8>> {
        let body = Either::Left(Full::new(Bytes::from(payload)));
        Ok(self.post(UNARY, body).await?.into())
    }

    async fn stream(&mut self, cell: Cell, first: u64, amount: u64) -> Result<()> {
        let messages = Messages { cell, next: first, end: first + amount };
        let counted = self.post(STREAM, Either::Right(messages)).await?;
        ensure!(counted[..] == amount.to_le_bytes(), "the server counted other messages");
        Ok(())
    }
}

impl HttpRequester {
    async fn post(&mut self, path: &str, body: RequestBody) -> Result<Bytes> {
        self.0.ready().await.context("waiting for the connection")?;
        let request = Request::post(path).header("host", "bench").body(body)?;
        let response = self.0.send_request(request).await.context("sending a request")?;
        ensure!(response.status().is_success(), "the server answered {}", response.status());
        let body = response.into_body().collect().await.context("reading a response")?;
        Ok(body.to_bytes())
    }
}

/// The body of a `/stream` request: the messages `next..end`, each in one piece of the body, which
/// hyper calls a frame.
struct Messages {
    cell: Cell,
    next: u64,
    end: u64,
}

impl Body for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next == self.end {
            return Poll::Ready(None);
        }
        let message = payload(self.cell, self.next);
        self.next += 1;
        Poll::Ready(Some(Ok(Frame::data(message.into()))))
    }
}

/// Answers one HTTP request. An error of this function ends the connection, so that the client
/// fails, too.
async fn answer(request: Request<Incoming>, verifier: Verifier) -> Result<Response<Full<Bytes>>> {
    let answer = match request.uri().path() {
        UNARY => {
            let body = request.into_body().collect().await.context("reading a request")?;
            verifier.reply(&body.to_bytes())?
        }
        STREAM => count(request.into_body(), &verifier).await?.to_le_bytes().into(),
        other => anyhow::bail!("a request of {other}"),
    };
    Ok(Response::new(Full::new(Bytes::from(answer))))
}

/// Verifies the messages in the body of a `/stream` request, and returns their number. A piece of
/// the body, as hyper delivers it, need not end where a message does.
async fn count(mut body: Incoming, verifier: &Verifier) -> Result<u64> {
    let size = verifier.cell.size;
    let mut message = Vec::with_capacity(size);
    let (mut previous, mut count) = (None, 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.context("reading a stream")?;
        let mut data = frame.data_ref().map_or(&[][..], |data| data);
        while !data.is_empty() {
            let (part, rest) = data.split_at(data.len().min(size - message.len()));
            message.extend_from_slice(part);
            data = rest;
            if message.len() == size {
                verifier.next(&message, &mut previous)?;
                message.clear();
                count += 1;
            }
        }
    }
    ensure!(message.is_empty(), "the stream ended within a message");
    Ok(count)
}

/// The paths of HTTP requests with one payload, and of those with a stream of messages.
const UNARY: &str = "/unary";
const STREAM: &str = "/stream";
