// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of all sessions of a listener, as if they were the connections of one socket.
//!
//! ```text
//!   listener ─▶ session ─▶ its task ─┐
//!            ─▶ session ─▶ its task ─┼─▶ at most STREAMS_WAITING_MAX ─▶ accept
//!            ─▶ session ─▶ its task ─┘
//! ```
//!
//! It serves nothing itself. A stream that was accepted goes on after this is dropped, and its session
//! with it; only nobody accepts any more, and the other sides are asked to open elsewhere.

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

/// The streams of all sessions of a listener, one after the other; accepting them never fails.
///
/// Dropping it closes the listener and sends `go_away` on each session. Streams that were accepted go on;
/// others are [refused](crate::REFUSED), which tells whoever opened them that nobody has seen them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// After a failure, until the listener is looked at again.
    pause: Option<Pin<Box<Sleep>>>,
    failed: u64,
}

/// Streams that were taken from their sessions and not accepted yet; further ones wait in those.
const STREAMS_WAITING_MAX: usize = 64;
const SESSIONS_MAX: usize = 1024;
/// How long the listener is left alone when no session could be accepted, as at the descriptor limit.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// The code of `go_away` when nobody accepts any more.
const GONE: u32 = 0;

impl Incoming {
    /// Accepts sessions from `listener`, and the streams that are opened in them.
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

    /// How many sessions there may be at a time, at least 1; further ones wait in the backlog.
    /// Default: 1,024.
    #[must_use]
    pub fn sessions_max(mut self, count: usize) -> Self {
        self.sessions_max = count.max(1);
        self
    }

    /// The next stream, and who opened it. Cancel-safe.
    ///
    /// Failures to accept a session are counted ([`failed`](Self::failed)); the listener is then left
    /// alone for 100 ms.
    pub async fn accept(&mut self) -> (StreamIo, ConnectInfo) {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// As [`accept`](Self::accept), for those who write futures by hand.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<(StreamIo, ConnectInfo)> {
        self.poll_sessions(context);
        // There is always a sender: our own.
        let Some(stream) = ready!(self.streams.poll_recv(context)) else { return Poll::Pending };
        let caller = ConnectInfo::from(&stream);
        Poll::Ready((stream, caller))
    }

    /// Where it listens, with the port that the system chose where 0 was asked for.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        self.listener.local_address()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// How often the system could not give us a connection; see
    /// [`AcceptError`](crate::AcceptError).
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// How many connections were not let in.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.listener.refused()
    }

    /// Accepts the sessions that are there, and forgets those that are over.
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
        // The sessions' tasks see it, and take their leave.
        self.streams.close();
        self.sessions.detach_all();
        while let Ok(mut unseen) = self.streams.try_recv() {
            unseen.refuse();
        }
    }
}

/// Hands on the streams of a session, until it is over or nobody wants them.
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
