// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: it opens and accepts streams.

use super::runtime::within_budget;
use super::stream::Stream;
use crate::peer::Peer;
use crate::session::{Handle, OpenError, Opening, SessionError, WaitError};
use crate::stats::SenderStats;
use crate::transport::Transport;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Many streams over one connection.
///
/// Clones are the same session. It goes on while a clone or a stream of it lives, or until either
/// side [`close`](Self::close)s it. Once no clone is left, streams that the peer opens are refused.
#[derive(Clone, Debug)]
pub struct Session {
    handle: Handle,
}

impl Session {
    pub(super) const fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Opens a stream, with `metadata` for the peer's `accept`: at most
    /// [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX) bytes. Waits while as many streams are
    /// open as the peer allows. There is no round trip.
    ///
    /// # Errors
    /// Returns [`OpenError`] if it fails.
    pub async fn open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let mut opening = Opening::default();
        let opened = poll_fn(|context| {
            within_budget(context, |context| self.handle.poll_open(context, metadata, &mut opening))
        })
        .await?;
        Ok(Stream::new(opened))
    }

    /// As [`open`](Self::open), if it needs no waiting.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let listener = partywall::tokio::Listener::bind(&address)?;
    /// # let (session, _other) =
    /// #     tokio::join!(partywall::tokio::connect(&address), listener.accept());
    /// # let session = session?;
    /// use partywall::OpenError;
    ///
    /// match session.try_open(b"now or never") {
    ///     Ok(_stream) => println!("opened"),
    ///     Err(OpenError::WouldBlock) => println!("not now"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`] if it does, and as `open`.
    pub fn try_open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let context = Context::from_waker(Waker::noop());
        match self.handle.poll_open(&context, metadata, &mut Opening::default()) {
            Poll::Ready(opened) => Ok(Stream::new(opened?)),
            Poll::Pending => Err(OpenError::WouldBlock),
        }
    }

    /// The next stream that the peer opens. `None` once the session has ended in good order, closed
    /// by either side.
    ///
    /// # Errors
    /// Returns [`SessionError`] if it fails.
    pub async fn accept(&self) -> Result<Option<Stream>, SessionError> {
        let accept = |context: &mut Context<'_>| {
            within_budget(context, |context| self.handle.poll_accept(context))
        };
        Ok(poll_fn(accept).await?.map(Stream::new))
    }

    /// The next stream if the peer has opened one by now. Never waits.
    ///
    /// # Errors
    /// [`WaitError::WouldBlock`] if it has not, and as [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>, WaitError> {
        match self.handle.poll_accept(&Context::from_waker(Waker::noop())) {
            Poll::Ready(accepted) => Ok(accepted?.map(Stream::new)),
            Poll::Pending => Err(WaitError::WouldBlock),
        }
    }

    /// How long the peer takes to answer: its session's task, not its application.
    ///
    /// # Errors
    /// Returns [`SessionError`] if it fails.
    pub async fn ping(&self) -> Result<Duration, SessionError> {
        let asked = Instant::now();
        let token = self.handle.ask()?;
        poll_fn(|context| self.handle.poll_answer(context, token)).await?;
        Ok(asked.elapsed())
    }

    /// Asks the peer to open no more streams, and refuses those that it opens all the same. Open
    /// streams go on; see [`drained`](Self::drained).
    pub fn go_away(&self, code: u32) {
        self.handle.shared.go_away(code);
    }

    /// Waits until the peer asks for no more streams. Returns its code.
    ///
    /// # Errors
    /// Returns [`SessionError`] if it fails.
    pub async fn going_away(&self) -> Result<u32, SessionError> {
        poll_fn(|context| self.handle.poll_going_away(context)).await
    }

    /// Waits until no stream is left.
    ///
    /// # Errors
    /// Returns [`SessionError`] if it fails.
    pub async fn drained(&self) -> Result<(), SessionError> {
        poll_fn(|context| self.handle.poll_drained(context)).await
    }

    /// Ends the session at once, with all its streams. Messages that were sent are delivered if the
    /// peer receives them within [`Config::linger`](crate::Config::linger).
    ///
    /// This side's operations report `code` and `reason`, in [`SessionError::ClosedHere`]. Neither
    /// is transmitted: the peer learns only that the session ended in good order.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn close(&self, code: u32, reason: &str) {
        self.handle.close(code, reason);
    }

    /// Waits until the session is over. Returns the reason.
    pub async fn closed(&self) -> SessionError {
        poll_fn(|context| self.handle.poll_closed(context)).await
    }

    /// Waits until the session is over and its task has ended: sent messages and pending records
    /// are written, or were given up after [`Config::linger`](crate::Config::linger). Then the
    /// runtime and the process may end without losing any of it. It does not end the session by
    /// itself.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let listener = partywall::tokio::Listener::bind(&address)?;
    /// # let (session, _other) =
    /// #     tokio::join!(partywall::tokio::connect(&address), listener.accept());
    /// # let session = session?;
    /// session.open(b"last words").await?.send(b"good-bye").await?;
    /// session.close(0, "done");
    /// session.finished().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finished(&self) {
        poll_fn(|context| self.handle.poll_finished(context)).await;
    }

    /// The reason why the session is over, if it is.
    #[must_use]
    pub fn close_reason(&self) -> Option<SessionError> {
        self.handle.shared.check().err()
    }

    /// The peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.handle.shared.peer
    }

    /// The session's transport, and the reason for it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.handle.shared.transport
    }

    /// Number of streams, opened by either side.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.handle.shared.state().live
    }

    /// Frees all memory for large messages that is not in use, as far as there is room to notify
    /// the peer. Idle memory is also freed after
    /// [`Config::idle_memory_timeout`](crate::Config::idle_memory_timeout).
    pub fn trim(&self) {
        self.handle.trim();
    }

    /// Counters of what this side sends.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.handle.shared.outbox().stats()
    }
}
