// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements the traits of the conformance traffic (`Client`, `Server`, `Conversation`) with
//! sessions and streams of `partywall-shmipc`.

use std::sync::Arc;

use anyhow::{Context, Result};
use conformance_traffic::{Client, Conversation, Receiver, Sender, Server};
use partywall::Message;
use partywall::tokio::{Listener, RecvStream, SendStream, Session};
use partywall_shmipc::{HandoverState, PooledIo, SessionManager, SessionMetrics, Shmipc};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// A stream of `partywall-shmipc` that carries the traffic of a conformance test. It is a stream of
/// bytes if the option `--put-back` returns it to the stream pool after use; otherwise it is a
/// stream of messages.
pub enum Talk {
    /// A stream of messages of `partywall-shmipc`, which is closed after use.
    Messages(SendStream, RecvStream),
    /// A stream of bytes, which goes back to the session manager's stream pool after use.
    Bytes(Box<PooledIo>),
}

/// The writing half of a [`Talk`].
pub enum Writing {
    /// The writing half of a stream that carries messages.
    Messages(SendStream),
    /// The writing half of a stream that carries bytes.
    Bytes(WriteHalf<Box<PooledIo>>),
}

/// The reading half of a [`Talk`].
pub enum Reading {
    /// The reading half of a stream of messages, with the rest of a message that was read in part.
    Messages(RecvStream, Option<(Message, usize)>),
    /// The reading half of a stream that carries bytes.
    Bytes(ReadHalf<Box<PooledIo>>),
}

impl Talk {
    fn new(stream: partywall::tokio::Stream) -> Self {
        let (send, recv) = stream.into_split();
        Self::Messages(send, recv)
    }
}

impl Conversation for Talk {
    type Sender = Writing;
    type Receiver = Reading;

    fn split(self) -> (Writing, Reading) {
        match self {
            Self::Messages(send, recv) => (Writing::Messages(send), Reading::Messages(recv, None)),
            Self::Bytes(io) => {
                let (reading, writing) = tokio::io::split(io);
                (Writing::Bytes(writing), Reading::Bytes(reading))
            }
        }
    }

    fn join(writing: Writing, reading: Reading) -> Self {
        match (writing, reading) {
            (Writing::Messages(send), Reading::Messages(recv, _)) => Self::Messages(send, recv),
            (Writing::Bytes(writing), Reading::Bytes(reading)) => {
                Self::Bytes(reading.unsplit(writing))
            }
            _ => unreachable!("halves of one stream"),
        }
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Sender for Writing {
    async fn send(&mut self, message: &[u8]) -> Result<()> {
        let sent = match self {
            Self::Messages(send) => send.send(message).await.map_err(anyhow::Error::from),
            Self::Bytes(writing) => match writing.write_all(message).await {
                Ok(()) => writing.flush().await.map_err(anyhow::Error::from),
                Err(error) => Err(error.into()),
            },
        };
        sent.with_context(|| format!("sending {}", message.len()))
    }
}

impl Receiver for Reading {
    async fn receive(&mut self, size_max: usize, out: &mut Vec<u8>) -> Result<usize> {
        let (recv, rest) = match self {
            Self::Messages(recv, rest) => (recv, rest),
            Self::Bytes(reading) => {
                let before = out.len();
                out.resize(before + size_max.min(PIECE_BYTES_MAX), 0);
                let count = reading.read(&mut out[before..]).await.context("receiving")?;
                out.truncate(before + count);
                return Ok(count);
            }
        };
        let (message, read) = match rest.take() {
            Some(rest) => rest,
            None => match recv.recv().await.context("receiving")? {
                Some(message) => (message, 0),
                None => return Ok(0),
            },
        };
        let count = size_max.min(message.len() - read);
        out.extend_from_slice(&message[read..read + count]);
        if read + count < message.len() {
            *rest = Some((message, read + count));
        }
        Ok(count)
    }
}

/// The client of the traffic: a pool whose session manager opens and leases the streams.
pub struct Pool {
    manager: SessionManager,
    puts_back: bool,
}

impl Pool {
    /// Makes a pool over a session manager that is already connected. If `puts_back` is true,
    /// streams carry bytes instead of messages, because only such streams can go back to the pool.
    pub fn new(manager: SessionManager, puts_back: bool) -> Self {
        Self { manager, puts_back }
    }
}

impl Client for Pool {
    type Stream = Talk;

    async fn open(&self) -> Result<Talk> {
        let stream = self.manager.get_stream().await.context("opening")?;
        Ok(if self.puts_back {
            Talk::Bytes(Box::new(stream.into_io()))
        } else {
            Talk::new(stream.into_inner())
        })
    }

    async fn put_back(&self, talk: Talk) {
        if let Talk::Bytes(io) = talk {
            io.put_back();
        }
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        let metrics = self.manager.stats().total;
        self.manager.close().await;
        figures(&metrics)
    }
}

/// The counters of a session's metrics, each under the name that the programs for shmipc-go and
/// shmipc-rs print.
fn figures(metrics: &SessionMetrics) -> Vec<(&'static str, u64)> {
    let (performance, stability) = (&metrics.performance, &metrics.stability);
    vec![
        ("fallback_write_count", stability.fallback_write_count),
        ("fallback_read_count", stability.fallback_read_count),
        ("alloc_shm_error_count", stability.alloc_shm_error_count),
        ("queue_full_error_count", stability.queue_full_error_count),
        ("active_stream_count", stability.active_stream_count),
        ("receive_sync_event_count", performance.receive_sync_event_count),
        ("send_sync_event_count", performance.send_sync_event_count),
        ("out_flow_bytes", performance.out_flow_bytes),
        ("in_flow_bytes", performance.in_flow_bytes),
    ]
}

/// The server of the traffic: a listener, and a task for each session that it accepted.
pub struct Accepting {
    accepted: mpsc::Receiver<Result<Session>>,
    streams: mpsc::Receiver<Talk>,
    opened: mpsc::Sender<Talk>,
    sessions: Vec<Session>,
    protocol: Arc<Shmipc>,
}

impl Accepting {
    /// Makes the server of the traffic from a listener that is already bound.
    pub fn new(listener: Listener, protocol: Arc<Shmipc>) -> Self {
        let (accepting, accepted) = mpsc::channel(16);
        tokio::spawn(async move {
            loop {
                let session = listener.accept().await.context("accepting a session");
                if accepting.send(session).await.is_err() {
                    break;
                }
            }
        });
        let (opened, streams) = mpsc::channel(1024);
        Self { accepted, streams, opened, sessions: Vec::new(), protocol }
    }
}

impl Server for Accepting {
    type Stream = Talk;

    async fn accept(&mut self) -> Result<Talk> {
        loop {
            tokio::select! {
                Some(session) = self.accepted.recv() => {
                    let session = session?;
                    self.sessions.push(session.clone());
                    let opened = self.opened.clone();
                    tokio::spawn(async move {
                        while let Ok(Some(stream)) = session.accept().await {
                            if opened.send(Talk::new(stream)).await.is_err() {
                                break;
                            }
                        }
                    });
                }
                Some(talk) = self.streams.recv() => return Ok(talk),
            }
        }
    }

    #[expect(refining_impl_trait, reason = "this is how one says that it borrows nothing")]
    fn hot_restart(&mut self, epoch: u64) -> impl Future<Output = Result<()>> + Send + use<> {
        let protocol = Arc::clone(&self.protocol);
        async move {
            protocol.hot_restart(epoch)?;
            let state = protocol.hot_restarted(epoch).await;
            let is_done = matches!(state, HandoverState::Done { .. });
            anyhow::ensure!(is_done, "it ended {state:?}");
            Ok(())
        }
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        let metrics: Vec<_> = self.protocol.metrics().iter().flat_map(figures).collect();
        for session in self.sessions {
            session.close(0, "");
            session.finished().await;
        }
        metrics
    }
}

const PIECE_BYTES_MAX: usize = 1 << 20;
