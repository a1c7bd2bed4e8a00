// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our sessions and streams, as the traffic wants them.

use std::sync::Mutex;

use anyhow::{Context, Result};
use conformance_traffic::{Client, Conversation, Receiver, Sender, Server};
use partywall::tokio::{Listener, RecvStream, SendStream, Session};
use partywall::{Message, StreamRecvError};
use tokio::sync::mpsc;

/// A stream.
pub struct Talk {
    send: SendStream,
    reading: Reading,
}

/// The writing half.
pub struct Writing(SendStream);

/// The reading half, with what is left of a message of which a part was read.
pub struct Reading {
    recv: RecvStream,
    rest: Option<(Message, usize)>,
}

impl Talk {
    fn new(stream: partywall::tokio::Stream) -> Self {
        let (send, recv) = stream.into_split();
        Self { send, reading: Reading { recv, rest: None } }
    }
}

impl Conversation for Talk {
    type Sender = Writing;
    type Receiver = Reading;

    fn split(self) -> (Writing, Reading) {
        (Writing(self.send), self.reading)
    }

    fn join(writing: Writing, reading: Reading) -> Self {
        Self { send: writing.0, reading }
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Sender for Writing {
    async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message).await.with_context(|| format!("sending {}", message.len()))
    }
}

impl Receiver for Reading {
    async fn receive(&mut self, size_max: usize, out: &mut Vec<u8>) -> Result<usize> {
        let (message, read) = match self.rest.take() {
            Some(rest) => rest,
            None => match self.recv.recv().await {
                Ok(message) => (message, 0),
                Err(StreamRecvError::Finished) => return Ok(0),
                Err(error) => return Err(error).context("receiving"),
            },
        };
        let count = size_max.min(message.len() - read);
        out.extend_from_slice(&message[read..read + count]);
        if read + count < message.len() {
            self.rest = Some((message, read + count));
        }
        Ok(count)
    }
}

/// The client: sessions, and streams that were put back.
pub struct Pool {
    sessions: Vec<Session>,
    idle: Mutex<Vec<Talk>>,
    opened: Mutex<usize>,
}

impl Pool {
    /// Sessions that are connected.
    pub fn new(sessions: Vec<Session>) -> Self {
        Self { sessions, idle: Mutex::default(), opened: Mutex::default() }
    }
}

impl Client for Pool {
    type Stream = Talk;

    async fn open(&self) -> Result<Talk> {
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        if let Some(talk) = idle {
            return Ok(talk);
        }
        let turn = self.opened.lock().map_or(0, |mut opened| {
            *opened += 1;
            *opened
        });
        let session = &self.sessions[turn % self.sessions.len()];
        Ok(Talk::new(session.open(&[]).await.context("opening")?))
    }

    async fn put_back(&self, talk: Talk) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(talk);
        }
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        drop(self.idle);
        let mut fallbacks = 0;
        for session in self.sessions {
            fallbacks += session.stats().overflows;
            let _ = session.drained().await;
            session.close();
            session.finished().await;
        }
        vec![("fallback_write_count", fallbacks)]
    }
}

/// The server: a listener, and a task for each session that it accepted.
pub struct Accepting {
    accepted: mpsc::Receiver<Result<Session>>,
    streams: mpsc::Receiver<Talk>,
    opened: mpsc::Sender<Talk>,
    sessions: Vec<Session>,
}

impl Accepting {
    /// A listener that listens.
    pub fn new(mut listener: Listener) -> Self {
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
        Self { accepted, streams, opened, sessions: Vec::new() }
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
                        while let Ok(stream) = session.accept().await {
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

    async fn hot_restart(&mut self, _: u64) -> Result<()> {
        anyhow::bail!("not yet")
    }

    async fn close(self) -> Vec<(&'static str, u64)> {
        let fallbacks = self.sessions.iter().map(|session| session.stats().overflows).sum();
        for session in self.sessions {
            session.close();
            session.finished().await;
        }
        vec![("fallback_write_count", fallbacks)]
    }
}
