// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of all sessions of a listener, accepted one after the other like connections.
//!
//! ```text
//!   listener ─▶ session ─▶ its task ─┐
//!            ─▶ session ─▶ its task ─┼─▶ at most STREAMS_WAITING_MAX ─▶ accept
//!            ─▶ session ─▶ its task ─┘
//! ```
//!
//! `Incoming` serves no stream itself. An accepted stream and its session continue after `Incoming`
//! is dropped. Streams that were not accepted are then refused, and peers are asked to open no
//! more.

use super::connect_info::ConnectInfo;
use super::io::StreamIo;
use super::listener::Listener;
use super::session::Session;
use crate::address::Address;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

/// Accepts the streams of all sessions of a listener, one after the other. Accepting never fails.
///
/// Dropping the `Incoming` closes the listener and sends `go_away` on each session. Accepted
/// streams continue. Streams that were not accepted are [refused](crate::REFUSED), which tells
/// their openers that no application has seen them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// use partywall::tokio::{Incoming, Listener, connect};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let mut incoming = Incoming::new(Listener::bind(&address)?);
/// let server = tokio::spawn(async move {
///     let (mut stream, caller) = incoming.accept().await;
///     stream.write_all(&caller.metadata).await?;
///     stream.shutdown().await
/// });
///
/// let mut stream = connect(&address).await?.open(b"who am I?").await?.into_io();
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer).await?;
/// assert_eq!(answer, "who am I?");
/// # server.await??;
/// # Ok(())
/// # }
/// ```
pub struct Incoming {
    listener: Listener,
    sessions: JoinSet<()>,
    sessions_max: usize,
    opened: mpsc::Sender<StreamIo>,
    streams: mpsc::Receiver<StreamIo>,
    /// The pause of the listener after an error of accepting; `None` while the listener accepts.
    pause: Option<Pin<Box<Sleep>>>,
    failed: u64,
}

/// Most streams that are queued for `accept`, of all sessions together. Further streams wait in
/// their sessions.
const STREAMS_WAITING_MAX: usize = 64;
const SESSIONS_MAX: usize = 1024;
/// Pause of the listener after an error of accepting a session, such as the descriptor limit.
/// Without a pause, the error would repeat in a loop until descriptors are closed.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// Code of the `go_away` that dropping an `Incoming` sends; 0 names no particular reason.
const GONE: u32 = 0;

impl Incoming {
    /// Makes an `Incoming` that accepts sessions from `listener`, and streams from these sessions.
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        let (opened, streams) = mpsc::channel(STREAMS_WAITING_MAX);
        let sessions = JoinSet::new();
        Self {
            listener,
            sessions,
            sessions_max: SESSIONS_MAX,
            opened,
            streams,
            pause: None,
            failed: 0,
        }
    }

    /// Sets the largest number of sessions at a time, at least 1. Further connections wait in the
    /// backlog. Default: 1,024.
    #[must_use]
    pub fn sessions_max(mut self, count: usize) -> Self {
        self.sessions_max = count.max(1);
        self
    }

    /// Waits for the next stream, and returns it with the identity of its opener. Cancel-safe.
    ///
    /// [`failed`](Self::failed) counts sessions that could not be accepted. After each such
    /// failure, the listener pauses for 100 ms.
    pub async fn accept(&mut self) -> (StreamIo, ConnectInfo) {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for the next stream and the identity of its opener, like [`accept`](Self::accept), for
    /// futures that are written by hand.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<(StreamIo, ConnectInfo)> {
        self.poll_sessions(context);
        // `poll_recv` never returns `None`, because `self` owns a sender of the queue.
        let Some(stream) = ready!(self.streams.poll_recv(context)) else { return Poll::Pending };
        let caller = ConnectInfo::from(&stream);
        Poll::Ready((stream, caller))
    }

    /// Returns the bound address. For a port of 0 it contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        self.listener.local_address()
    }

    /// Returns the number of living sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of sessions that could not be accepted; see
    /// [`AcceptError`](crate::AcceptError).
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the number of connections that the listener refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.listener.refused()
    }

    /// Accepts the sessions that are established, and removes the sessions that are over.
    fn poll_sessions(&mut self, context: &mut Context<'_>) {
        loop {
            while let Poll::Ready(Some(_)) = self.sessions.poll_join_next(context) {}
            if self.sessions.len() >= self.sessions_max {
                return;
            }
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return;
                }
                self.pause = None;
            }
            match self.listener.poll_accept(context) {
                Poll::Pending => return,
                Poll::Ready(Ok(session)) => {
                    self.sessions.spawn(hand_on(session, self.opened.clone()));
                }
                Poll::Ready(Err(_)) => {
                    self.failed += 1;
                    self.pause = Some(Box::pin(sleep(FAILED_PAUSE)));
                }
            }
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("address", &self.local_address().to_string())
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Closes the queue of streams that wait for `accept`. The task of each session notices
        // that, and sends `go_away`.
        self.streams.close();
        self.sessions.detach_all();
        while let Ok(mut unseen) = self.streams.try_recv() {
            unseen.refuse();
        }
    }
}

/// Queues the streams of one session for `accept`, until the session is over or `Incoming` is
/// dropped.
async fn hand_on(session: Session, opened: mpsc::Sender<StreamIo>) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = opened.closed() => break,
            accepted = session.accept() => accepted,
        };
        let Ok(Some(stream)) = accepted else { return };
        if let Err(mpsc::error::SendError(mut unseen)) = opened.send(stream.into_io()).await {
            unseen.refuse();
            break;
        }
    }
    session.go_away(GONE);
}
