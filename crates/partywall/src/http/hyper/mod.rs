// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP over streams, with hyper: one stream is one connection, HTTP/1.1 or HTTP/2.
//!
//! ```text
//!   legacy::Client ─▶ Connector ─▶ Session or Pool ═════▶ Incoming ─▶ serve ─▶ your Service
//!                       a stream for each connection      the streams of all sessions
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use http_body_util::{BodyExt, Full};
//! use hyper::{Request, Response, body::Bytes, service::service_fn};
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use partywall::hyper::{Connector, serve};
//! use partywall::tokio::{ConnectInfo, Incoming, Listener, connect};
//!
//! let incoming = Incoming::new(Listener::bind(&address)?);
//! let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
//!     let caller = request.extensions().get::<ConnectInfo>().ok_or("who?")?;
//!     let greeting = format!("hello, user {}", caller.uid().ok_or("nobody knows")?);
//!     Ok::<_, &str>(Response::new(Full::new(Bytes::from(greeting))))
//! });
//! let server = tokio::spawn(serve(incoming, service, std::future::pending()));
//!
//! let session = connect(&address).await?;
//! let client: Client<_, Full<Bytes>> =
//!     Client::builder(TokioExecutor::new()).build(Connector::from(session));
//! let response = client.get("http://app/".parse()?).await?;
//! let greeting = response.into_body().collect().await?.to_bytes();
//! assert!(greeting.starts_with(b"hello, user "));
//! # server.abort();
//! # Ok(())
//! # }
//! ```

mod connect;
mod serve;

pub use connect::Connector;
pub use serve::serve;
