// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session on tokio: opens and accepts streams over one connection.

use super::runtime::within_budget;
use super::stream::Stream;
use crate::peer::Peer;
use crate::session::{Handle, OpenError, Opening, SessionError, WaitError};
use crate::stats::SenderStats;
use crate::transport::Transport;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A connection that carries many streams.
///
/// Clones share one session. The session lives until either side [`close`](Self::close)s it, or
/// until all clones and streams are dropped. Once no clone is left, streams that the peer opens are
/// refused.
#[derive(Clone, Debug)]
pub struct Session {
    handle: Handle,
}

impl Session {
    pub(super) const fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Opens a stream, with at most [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX) bytes of
    /// metadata for the peer. Waits while as many streams are open as the peer allows. Opening
    /// takes no round trip.
    ///
    /// # Errors
    /// Returns [`OpenError`] if no stream was opened.
    pub async fn open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let mut opening = Opening::default();
        let opened = poll_fn(|context| {
            within_budget(context, |context| self.handle.poll_open(context, metadata, &mut opening))
        })
        .await?;
        Ok(Stream::new(opened))
    }

    /// Opens a stream, like [`open`](Self::open), if that is possible without waiting.
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
    /// [`OpenError::WouldBlock`] if opening would have to wait; others as [`open`](Self::open).
    pub fn try_open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let context = Context::from_waker(Waker::noop());
        match self.handle.poll_open(&context, metadata, &mut Opening::default()) {
            Poll::Ready(opened) => Ok(Stream::new(opened?)),
            Poll::Pending => Err(OpenError::WouldBlock),
        }
    }

    /// Waits for the next stream that the peer opens. Returns `None` once either side has closed
    /// the session.
    ///
    /// # Errors
    /// Returns [`SessionError`] if the session ended without a close: the peer died, or a fault
    /// ended the session.
    pub async fn accept(&self) -> Result<Option<Stream>, SessionError> {
        let accept = |context: &mut Context<'_>| {
            within_budget(context, |context| self.handle.poll_accept(context))
        };
        Ok(poll_fn(accept).await?.map(Stream::new))
    }

    /// Returns the next stream that the peer has opened. Never waits.
    ///
    /// # Errors
    /// [`WaitError::WouldBlock`] if the peer has opened no further stream; others as
    /// [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>, WaitError> {
        match self.handle.poll_accept(&Context::from_waker(Waker::noop())) {
            Poll::Ready(accepted) => Ok(accepted?.map(Stream::new)),
            Poll::Pending => Err(WaitError::WouldBlock),
        }
    }

    /// Measures how long the peer takes to answer a PING. The task of the peer's session answers,
    /// not the peer's application.
    ///
    /// # Errors
    /// Returns [`SessionError`], the reason why the session is over.
    pub async fn ping(&self) -> Result<Duration, SessionError> {
        let asked = Instant::now();
        let token = self.handle.ask()?;
        poll_fn(|context| self.handle.poll_answer(context, token)).await?;
        Ok(asked.elapsed())
    }

    /// Asks the peer to open no more streams, and refuses streams that the peer opens nevertheless.
    /// Open streams continue; see [`drained`](Self::drained).
    pub fn go_away(&self, code: u32) {
        self.handle.shared.go_away(code);
    }

    /// Waits until the peer calls `go_away`, after which the peer accepts no more streams. Returns
    /// the code that the peer gave.
    ///
    /// # Errors
    /// Returns [`SessionError`], the reason why the session is over.
    pub async fn going_away(&self) -> Result<u32, SessionError> {
        poll_fn(|context| self.handle.poll_going_away(context)).await
    }

    /// Waits until every stream of the session has ended.
    ///
    /// # Errors
    /// Returns [`SessionError`], the reason why the session is over.
    pub async fn drained(&self) -> Result<(), SessionError> {
        poll_fn(|context| self.handle.poll_drained(context)).await
    }

    /// Ends the session immediately, with all its streams. Sent messages are still delivered if the
    /// peer receives them within [`Config::linger`](crate::Config::linger).
    ///
    /// Later operations of this side report `code` and `reason`, in [`SessionError::ClosedHere`].
    /// The peer reports both in [`SessionError::ClosedByPeer`], unless the record that carries them
    /// found no room within the linger time. A reason longer than 255 bytes is cut. Other protocols
    /// transmit neither code nor reason.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn close(&self, code: u32, reason: &str) {
        self.handle.close(code, reason);
    }

    /// Waits until the session is over. Returns the reason for its end.
    pub async fn closed(&self) -> SessionError {
        poll_fn(|context| self.handle.poll_closed(context)).await
    }

    /// Waits until the session is over and its task has ended. By then sent messages and pending
    /// records are written, or were given up after [`Config::linger`](crate::Config::linger). The
    /// runtime and the process may then end without losing any of them. `finished` does not end the
    /// session by itself.
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

    /// Returns the reason why the session is over, or `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<SessionError> {
        self.handle.shared.check().err()
    }

    /// Returns the identity of the peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.handle.shared.peer.get()
    }

    /// Returns the transport of the session; for a socket, with the reason why memory is not
    /// shared.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.handle.shared.transport.get()
    }

    /// Returns the number of open streams, opened by either side.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.handle.shared.state().live
    }

    /// Frees all unused memory for large messages. Freeing needs room in the ring to notify the
    /// peer, and stops when there is none. Unused memory is also freed after
    /// [`Config::idle_memory_timeout`](crate::Config::idle_memory_timeout).
    pub fn trim(&self) {
        self.handle.trim();
    }

    /// Returns the counters of everything that this side sends over the session.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.handle.shared.outbox().stats()
    }
}
