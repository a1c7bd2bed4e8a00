// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects an HTTP client: each of its connections is a stream of a session or of a pool.

use crate::tokio::{ConnectInfo, Pool, Session, StreamIo};
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// Opens a stream for each connection of an HTTP client: for hyper-util's `legacy::Client`, and for
/// tonic's `Endpoint::connect_with_connector`.
///
/// The session or pool determines the server, not the URI. The server reads the URI's host in
/// `Host` or `:authority`. Each response carries the server's [`ConnectInfo`] among its extensions.
///
/// If a [`Session`] is lost, every later connection fails. A [`Pool`] replaces lost sessions.
#[derive(Clone, Debug)]
pub struct Connector {
    source: Source,
    metadata: Arc<[u8]>,
}

#[derive(Clone, Debug)]
enum Source {
    Session(Session),
    Pool(Pool),
}

impl From<Session> for Connector {
    fn from(session: Session) -> Self {
        Self { source: Source::Session(session), metadata: Arc::default() }
    }
}

impl From<Pool> for Connector {
    fn from(pool: Pool) -> Self {
        Self { source: Source::Pool(pool), metadata: Arc::default() }
    }
}

impl Connector {
    /// Sets the metadata of each stream, at most [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX)
    /// bytes. The server finds it in [`ConnectInfo::metadata`]. Default: empty.
    #[must_use]
    pub fn metadata(mut self, metadata: &[u8]) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Opens a stream as a byte stream.
    ///
    /// # Errors
    /// The error wraps an [`OpenError`](crate::OpenError) of the session, or a
    /// [`PoolOpenError`](crate::tokio::PoolOpenError) of the pool.
    pub async fn open(&self) -> io::Result<StreamIo> {
        Ok(match &self.source {
            Source::Session(session) => session.open(&self.metadata).await?.into_io(),
            Source::Pool(pool) => pool.open(&self.metadata).await?.into_io(),
        })
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<StreamIo>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<StreamIo>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open().await.map(TokioIo::new) })
    }
}

impl Connection for StreamIo {
    fn connected(&self) -> Connected {
        Connected::new().extra(ConnectInfo::from(self))
    }
}
