// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams that announce themselves to the server by a first message.
//!
//! ```text
//! client   open ── 8 bytes ──►   accept, receive   server
//! ```
//! In the protocol of `shmipc` no frame opens a stream: a server accepts a stream with its first
//! message. But the benchmark accepts all streams before it sends, and expects them in the order of
//! opening. The announcement, a message of 8 bytes right after opening, makes the server accept the
//! stream at that time and in that order.

use std::marker::PhantomData;

use anyhow::Result;
use partywall_bench::harness::cell::Cell;
use partywall_bench::harness::pattern::Touch;
use partywall_bench::harness::workspace::Setup;
use partywall_bench::transport::{AsyncEndpoint, Client, Memory, Payload, Server, StreamTransport};

/// A transport with the streams of `T`, on each of which the client first sends an announcement.
pub struct Announced<T>(PhantomData<T>);

/// A client that sends an announcement on each stream it opens.
pub struct AnnouncedClient<C>(C);

/// A server that accepts each stream with its announcement, and receives the announcement before
/// the stream is used.
pub struct AnnouncedServer<S>(S);

impl<T: StreamTransport> StreamTransport for Announced<T> {
    type Endpoint = T::Endpoint;
    type Client = AnnouncedClient<T::Client>;
    type Server = AnnouncedServer<T::Server>;

    async fn bind(cell: Cell, setup: &Setup) -> Result<Self::Server> {
        Ok(AnnouncedServer(T::bind(cell, setup).await?))
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<Self::Client> {
        Ok(AnnouncedClient(T::connect(cell, setup, address).await?))
    }
}

impl<C: Client> Client for AnnouncedClient<C> {
    type Endpoint = C::Endpoint;

    async fn open(&self) -> Result<C::Endpoint> {
        let mut endpoint = self.0.open().await?;
        endpoint.send(ANNOUNCEMENT).await?;
        Ok(endpoint)
    }

    fn memory(&self) -> Option<Memory> {
        self.0.memory()
    }

    fn over_socket(&self) -> Option<u64> {
        self.0.over_socket()
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl<S: Server> Server for AnnouncedServer<S> {
    type Endpoint = S::Endpoint;

    fn address(&self) -> String {
        self.0.address()
    }

    async fn accept(&mut self) -> Result<S::Endpoint> {
        let mut endpoint = self.0.accept().await?;
        endpoint.receive(ANNOUNCEMENT).await?;
        Ok(endpoint)
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

/// The announcement: the first message of each stream, which makes the server accept the stream.
/// Its bytes have no meaning.
const ANNOUNCEMENT: Payload = Payload { size: 8, touch: Touch::None, sequence: 0 };
