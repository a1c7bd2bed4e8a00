// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements the traits of the conformance traffic (`Client`, `Server`, `Conversation`) with
//! sessions and streams of the published crate `shmipc`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use conformance_traffic::{Client, Conversation, Receiver, Sender, Server};
use shmipc::buffer::BufferReader;
use shmipc::session::SessionManager;
use shmipc::stream::Stream;
use shmipc::transport::{TransportConnect, TransportStream};
use shmipc::{Error, Listener};

/// A stream of the published crate `shmipc`, which carries plans and the requests that they
/// announce.
pub struct Talk {
    stream: Stream,
}

/// The writing half of a stream: one of two handles of it.
pub struct Writing(Stream);

/// The reading half of a stream: the other of two handles of it.
pub struct Reading(Stream);

impl Conversation for Talk {
    type Sender = Writing;
    type Receiver = Reading;

    fn split(self) -> (Writing, Reading) {
        (Writing(self.stream.clone()), Reading(self.stream))
    }

    fn join(_: Writing, reading: Reading) -> Self {
        Self { stream: reading.0 }
    }

    async fn close(mut self) -> Result<()> {
        self.stream.close().await.context("closing a stream")
    }
}

impl Sender for Writing {
    async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.write_bytes(message).with_context(|| format!("writing {}", message.len()))?;
        loop {
            match self.0.flush(false).await {
                Ok(()) => return Ok(()),
                // When the queue is full, the library keeps the unsent message, so the loop flushes
                // it again.
                Err(Error::QueueFull) => tokio::time::sleep(QUEUE_FULL_PAUSE).await,
                Err(error) => {
                    return Err(error).with_context(|| format!("flushing {}", message.len()));
                }
            }
        }
    }
}

impl Receiver for Reading {
    async fn receive(&mut self, size_max: usize, out: &mut Vec<u8>) -> Result<usize> {
        match self.0.peek(1).await {
            Ok(_) => {}
            Err(Error::EndOfStream) => return Ok(0),
            Err(error) => return Err(error).context("waiting for bytes"),
        }
        let there = self.0.recv_buf().len();
        let size = size_max.min(there);
        self.receive_exact(size, out).await?;
        Ok(size)
    }

    async fn receive_exact(&mut self, size: usize, out: &mut Vec<u8>) -> Result<()> {
        match self.0.read_exact_bytes(size).await {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => {
                let there = self.0.recv_buf().len();
                return Err(error).with_context(|| format!("reading {size}, of which {there}"));
            }
        }
        self.0.recv_buf().release_previous_read();
        Ok(())
    }
}

/// The client of the traffic: the session manager of the published crate, which leases the streams.
pub struct Pool<C: TransportConnect> {
    sessions: SessionManager<C>,
}

impl<C: TransportConnect> Pool<C> {
    /// A pool of the published crate's sessions, which are already connected.
    pub fn new(sessions: SessionManager<C>) -> Self {
        Self { sessions }
    }
}

impl<C> Client for Pool<C>
where
    C: TransportConnect + Send + Sync + 'static,
    C::Stream: Send,
    <C::Stream as TransportStream>::ReadHalf: Send + 'static,
    <C::Stream as TransportStream>::WriteHalf: Send + 'static,
    C::Address: Clone + Send + Sync,
{
    type Stream = Talk;

    async fn open(&self) -> Result<Talk> {
        Ok(Talk { stream: self.sessions.get_stream()? })
    }

    async fn put_back(&self, talk: Talk) {
        self.sessions.put_back(talk.stream).await;
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        let stats = self.sessions.stats_snapshot();
        // The library's `close` waits for counters of each region, which seldom reach the awaited
        // value, for up to five seconds. So this program limits the wait.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.sessions.close()).await;
        vec![
            ("fallback_write_count", stats.fallback_write_count),
            ("fallback_read_count", stats.fallback_read_count),
            ("queue_full_error_count", stats.queue_full_error_count),
            ("receive_sync_event_count", stats.recv_polling_event_count),
            ("send_sync_event_count", stats.send_polling_event_count),
            ("out_flow_bytes", stats.out_flow_bytes),
            ("in_flow_bytes", stats.in_flow_bytes),
        ]
    }
}

/// The server of the traffic: the listener of the published crate, which accepts sessions and their
/// streams.
pub struct Accepting {
    listener: Listener,
}

impl Accepting {
    /// Makes the server of the traffic from a listener that is already bound.
    pub fn new(listener: Listener) -> Self {
        Self { listener }
    }
}

impl Server for Accepting {
    type Stream = Talk;

    async fn accept(&mut self) -> Result<Talk> {
        Ok(Talk { stream: self.listener.accept().await? })
    }

    #[expect(refining_impl_trait, reason = "this is how one says that it borrows nothing")]
    fn hot_restart(&mut self, _: u64) -> impl Future<Output = Result<()>> + Send + use<> {
        std::future::ready(Err(anyhow!("the library has no hot restart")))
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.listener.close()).await;
        Vec::new()
    }
}

const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(10);
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
