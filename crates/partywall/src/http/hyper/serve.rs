// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves every stream of a listener as an HTTP connection.

use crate::tokio::{ConnectInfo, Incoming, StreamIo};
use hyper::body::{Body, Incoming as RequestBody};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::error::Error;
use std::future::Future;
use tokio::task::JoinSet;

type Cause = Box<dyn Error + Send + Sync>;

/// Serves each stream of `incoming` as a connection, HTTP/1.1 or HTTP/2 as the client begins it.
/// Once `shutdown` completes, `serve` accepts no more streams, and returns after all requests under
/// way are answered.
///
/// Every request carries its [`ConnectInfo`] among its extensions. A failure ends only its own
/// connection. Dropping the future ends all connections immediately. For other settings, replace
/// `serve` by a loop of your own: [`Incoming::accept`], then
/// `auto::Builder::serve_connection(TokioIo::new(stream), service)`.
pub async fn serve<S, B>(mut incoming: Incoming, service: S, shutdown: impl Future<Output = ()>)
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Cause>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Cause>,
{
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (stream, caller) = incoming.accept() => {
                let served = Served { service: service.clone(), caller };
                connections.spawn(serve_one(stream, served, graceful.watcher()));
            }
        }
    }
    drop(incoming);
    graceful.shutdown().await;
}

async fn serve_one<S, B>(stream: StreamIo, served: Served<S>, watcher: Watcher)
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<Cause>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Cause>,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), served);
    // The error of a connection is ignored, because the client gets an error of its own for any
    // failure.
    let _ = watcher.watch(connection).await;
}

/// A service that adds the caller's [`ConnectInfo`] to the extensions of each request.
#[derive(Debug)]
struct Served<S> {
    service: S,
    caller: ConnectInfo,
}

impl<S: Service<Request<RequestBody>>> Service<Request<RequestBody>> for Served<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<RequestBody>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        self.service.call(request)
    }
}
