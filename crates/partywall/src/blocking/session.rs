// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session without a runtime: opens and accepts streams over one connection.

use super::park::{poll_once, wait_for};
use super::stream::Stream;
use super::thread::ThreadHandle;
use crate::config::Config;
use crate::peer::Peer;
use crate::session::{Handle, OpenError, Opening, SessionError, WaitError};
use crate::stats::SenderStats;
use crate::transport::Transport;
use partywall_wait::{Spinner, Wait};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A connection that carries many streams.
///
/// Clones share one session. The session lives until either side [`close`](Self::close)s it, or
/// until all clones and streams are dropped. Once no clone is left, streams that the peer opens are
/// refused.
///
/// Dropping the last handle, a clone or a stream, waits until sent messages and pending records are
/// written. If the peer reads, that takes a moment, or one round trip over TCP. Dropping never
/// takes longer than [`Config::linger`](crate::Config::linger), and 2 s more on a socket. The
/// process may exit afterwards.
#[derive(Clone, Debug)]
pub struct Session {
    handle: Handle,
    wait: Wait,
    spin_budget: Duration,
    // The field `thread` is declared after `handle`, so that the handle is dropped first, which
    // ends the session. Dropping `thread` then waits for the session's thread.
    thread: Arc<ThreadHandle>,
}

impl Session {
    pub(super) const fn new(handle: Handle, thread: Arc<ThreadHandle>, config: &Config) -> Self {
        Self { handle, wait: config.wait, spin_budget: config.spin_budget, thread }
    }

    /// Opens a stream, with at most [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX) bytes of
    /// metadata for the peer. Waits while as many streams are open as the peer allows. Opening
    /// takes no round trip.
    ///
    /// # Errors
    /// Returns [`OpenError`] if no stream was opened.
    pub fn open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        self.open_until(metadata, None)
    }

    /// Opens a stream, like [`open`](Self::open), but waits only until `deadline`.
    ///
    /// # Errors
    /// [`OpenError::TimedOut`] if the deadline passed; others as [`open`](Self::open).
    pub fn open_deadline(&self, metadata: &[u8], deadline: Instant) -> Result<Stream, OpenError> {
        self.open_until(metadata, Some(deadline))
    }

    /// Opens a stream, like [`open`](Self::open), if that is possible without waiting.
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`] if opening would have to wait; others as [`open`](Self::open).
    pub fn try_open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let mut opening = Opening::default();
        let opened = poll_once(|context| self.handle.poll_open(context, metadata, &mut opening));
        Ok(self.stream(opened.unwrap_or(Err(OpenError::WouldBlock))?))
    }

    /// Waits for the next stream that the peer opens. Returns `None` once either side has closed
    /// the session.
    ///
    /// # Errors
    /// Returns [`SessionError`] if the session ended without a close: the peer died, or a fault
    /// ended the session.
    pub fn accept(&self) -> Result<Option<Stream>, SessionError> {
        loop {
            if let Ok(accepted) = self.wait(None, |context| self.handle.poll_accept(context)) {
                return Ok(accepted?.map(|halves| self.stream(halves)));
            }
        }
    }

    /// Waits for the next stream that the peer opens, like [`accept`](Self::accept), but only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passed; others as [`accept`](Self::accept).
    pub fn accept_deadline(&self, deadline: Instant) -> Result<Option<Stream>, WaitError> {
        let accepted = self.wait(Some(deadline), |context| self.handle.poll_accept(context))??;
        Ok(accepted.map(|halves| self.stream(halves)))
    }

    /// Returns the next stream that the peer has opened. Never waits.
    ///
    /// # Errors
    /// [`WaitError::WouldBlock`] if the peer has opened no further stream; others as
    /// [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>, WaitError> {
        let accepted = poll_once(|context| self.handle.poll_accept(context));
        Ok(accepted.ok_or(WaitError::WouldBlock)??.map(|halves| self.stream(halves)))
    }

    /// Measures how long the peer takes to answer a PING. The driver of the peer's session answers,
    /// not the peer's application.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first; otherwise the reason why the session
    /// is over.
    pub fn ping(&self, deadline: Option<Instant>) -> Result<Duration, WaitError> {
        let asked = Instant::now();
        let token = self.handle.ask()?;
        self.wait(deadline, |context| self.handle.poll_answer(context, token))??;
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
    /// [`WaitError::TimedOut`] if the deadline passes first; otherwise the reason why the session
    /// is over.
    pub fn going_away(&self, deadline: Option<Instant>) -> Result<u32, WaitError> {
        Ok(self.wait(deadline, |context| self.handle.poll_going_away(context))??)
    }

    /// Waits until every stream of the session has ended.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first; otherwise the reason why the session
    /// is over.
    pub fn drained(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        Ok(self.wait(deadline, |context| self.handle.poll_drained(context))??)
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
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first.
    pub fn closed(&self, deadline: Option<Instant>) -> Result<SessionError, WaitError> {
        self.wait(deadline, |context| self.handle.poll_closed(context))
    }

    /// Waits until the session is over and its thread has ended. By then sent messages and pending
    /// records are written, or were given up after [`Config::linger`](crate::Config::linger). The
    /// process may then exit without losing any of them. `finished` does not end the session by
    /// itself.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::blocking::Listener::bind(&address)?;
    /// # let server = std::thread::spawn(move || listener.accept().unwrap());
    /// # let session = partywall::blocking::connect(&address)?;
    /// session.open(b"last words")?.send(b"good-bye")?;
    /// session.close(0, "done");
    /// session.finished(None)?;
    /// # drop(server.join());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first.
    pub fn finished(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        self.wait(deadline, |context| self.handle.poll_finished(context))
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

    fn open_until(&self, metadata: &[u8], deadline: Option<Instant>) -> Result<Stream, OpenError> {
        let mut opening = Opening::default();
        let opened =
            self.wait(deadline, |context| self.handle.poll_open(context, metadata, &mut opening));
        Ok(self.stream(opened.map_err(|_| OpenError::TimedOut)??))
    }

    fn stream(&self, halves: (crate::session::SendHalf, crate::session::RecvHalf)) -> Stream {
        Stream::new(halves, &self.thread, self.wait, self.spin_budget)
    }

    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, WaitError> {
        let mut spinner = Spinner::new(Duration::ZERO);
        wait_for(Wait::Park, &mut spinner, deadline, poll).ok_or(WaitError::TimedOut)
    }
}
