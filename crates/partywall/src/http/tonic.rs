// SPDX-License-Identifier: MIT OR Apache-2.0
//! gRPC over streams, with tonic. [`Incoming`] is the argument of `serve_with_incoming`,
//! [`Connector`] that of `connect_with_connector`. The extensions of each request contain its
//! [`ConnectInfo`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use partywall::tokio::{Listener, Pool, PoolConfig};
//! use partywall::tonic::{ConnectInfo, Connector, Incoming};
//! use tonic::transport::{Endpoint, Server};
//!
//! let incoming = Incoming::new(Listener::bind(&address)?);
//! let services = tonic::service::Routes::default(); // your generated services go here
//! let server = tokio::spawn(Server::builder().add_routes(services).serve_with_incoming(incoming));
//!
//! // The URI is not looked at; its host is what the server reads in `:authority`.
//! let pool = Pool::new(&address, PoolConfig::default())?;
//! let connector = Connector::from(pool);
//! let channel = Endpoint::from_static("http://app").connect_with_connector(connector).await?;
//! # let _ = channel; // your generated client goes here
//!
//! fn who<T>(request: &tonic::Request<T>) -> Option<&ConnectInfo> {
//!     request.extensions().get()
//! }
//! # let _ = who::<()>;
//! # server.abort();
//! # Ok(())
//! # }
//! ```

pub use crate::hyper::Connector;
pub use crate::tokio::{ConnectInfo, Incoming};

use crate::tokio::StreamIo;
use futures_core::Stream;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::transport::server::Connected;

impl Connected for StreamIo {
    type ConnectInfo = crate::tokio::ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        ConnectInfo::from(self)
    }
}

/// Yields the accepted streams of all sessions one after the other, without end, as tonic's server
/// expects its connections.
impl Stream for Incoming {
    type Item = Result<StreamIo, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(context).map(|(stream, _)| Some(Ok(stream)))
    }
}
