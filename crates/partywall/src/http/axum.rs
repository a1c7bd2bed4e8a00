// SPDX-License-Identifier: MIT OR Apache-2.0
//! axum over streams: [`Incoming`] is a listener for `axum::serve`, and handlers ask for
//! `ConnectInfo<partywall::axum::ConnectInfo>`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use partywall::axum::Incoming;
//! use partywall::tokio::Listener;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let app = Router::new().route(
//!     "/",
//!     get(|ConnectInfo(caller): ConnectInfo<partywall::axum::ConnectInfo>| async move {
//!         format!("{:?}", caller.pid())
//!     }),
//! );
//! let incoming = Incoming::new(Listener::bind(&address)?);
//! let service = app.into_make_service_with_connect_info::<partywall::axum::ConnectInfo>();
//! let server = tokio::spawn(async move { axum::serve(incoming, service).await });
//!
//! // Any HTTP client will do; see partywall::hyper. This one writes by hand.
//! let mut stream = partywall::tokio::connect(&address).await?.open(b"").await?.into_io();
//! stream.write_all(b"GET / HTTP/1.1\r\nhost: app\r\nconnection: close\r\n\r\n").await?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert!(answer.ends_with(&format!("Some({})", std::process::id())), "{answer}");
//! # server.abort();
//! # Ok(())
//! # }
//! ```

pub use crate::tokio::{ConnectInfo, Incoming};

use crate::tokio::StreamIo;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;

impl Listener for Incoming {
    type Io = StreamIo;
    type Addr = ConnectInfo;

    async fn accept(&mut self) -> (StreamIo, ConnectInfo) {
        Self::accept(self).await
    }

    /// Always fails: axum wants the listener's address as a [`ConnectInfo`], which describes a
    /// caller, and a listener has none. Call [`Incoming::local_address`] before serving.
    fn local_addr(&self) -> io::Result<ConnectInfo> {
        let advice = "ask Incoming::local_address before it is served";
        Err(io::Error::new(io::ErrorKind::Unsupported, advice))
    }
}

impl Connected<IncomingStream<'_, Incoming>> for ConnectInfo {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        stream.remote_addr().clone()
    }
}
