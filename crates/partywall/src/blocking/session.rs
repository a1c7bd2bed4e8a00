// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: it opens and accepts streams.

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

/// Many streams over one connection.
///
/// Clones are the same session. It goes on while a clone or a stream of it lives, or until either
/// side [`close`](Self::close)s it. Once no clone is left, streams that the peer opens are refused.
///
/// Dropping the last handle, a clone or a stream, waits until sent messages and pending records are
/// written. That is a moment if the peer reads, one round trip over TCP, and never more than
/// [`Config::linger`](crate::Config::linger), on a socket 2 s more. So a process may exit right
/// after it.
#[derive(Clone, Debug)]
pub struct Session {
    handle: Handle,
    wait: Wait,
    spin_budget: Duration,
    // Declared after the handle, so that it is dropped after it.
    thread: Arc<ThreadHandle>,
}

impl Session {
    pub(super) const fn new(handle: Handle, thread: Arc<ThreadHandle>, config: &Config) -> Self {
        Self { handle, wait: config.wait, spin_budget: config.spin_budget, thread }
    }

    /// Opens a stream, with `metadata` for the peer's `accept`: at most
    /// [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX) bytes. Waits while as many streams are
    /// open as the peer allows. There is no round trip.
    ///
    /// # Errors
    /// Returns [`OpenError`] if it fails.
    pub fn open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        self.open_until(metadata, None)
    }

    /// As [`open`](Self::open), but only until `deadline`.
    ///
    /// # Errors
    /// [`OpenError::TimedOut`], and as `open`.
    pub fn open_deadline(&self, metadata: &[u8], deadline: Instant) -> Result<Stream, OpenError> {
        self.open_until(metadata, Some(deadline))
    }

    /// As [`open`](Self::open), if it needs no waiting.
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`] if it does, and as `open`.
    pub fn try_open(&self, metadata: &[u8]) -> Result<Stream, OpenError> {
        let mut opening = Opening::default();
        let opened = poll_once(|context| self.handle.poll_open(context, metadata, &mut opening));
        Ok(self.stream(opened.unwrap_or(Err(OpenError::WouldBlock))?))
    }

    /// Waits for the next stream that the peer opens. `None` once the session has ended in good
    /// order, closed by either side.
    ///
    /// # Errors
    /// Returns [`SessionError`] if it fails.
    pub fn accept(&self) -> Result<Option<Stream>, SessionError> {
        loop {
            if let Ok(accepted) = self.wait(None, |context| self.handle.poll_accept(context)) {
                return Ok(accepted?.map(|halves| self.stream(halves)));
            }
        }
    }

    /// As [`accept`](Self::accept), but only until `deadline`.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], and as `accept`.
    pub fn accept_deadline(&self, deadline: Instant) -> Result<Option<Stream>, WaitError> {
        let accepted = self.wait(Some(deadline), |context| self.handle.poll_accept(context))??;
        Ok(accepted.map(|halves| self.stream(halves)))
    }

    /// The next stream if the peer has opened one by now. Never waits.
    ///
    /// # Errors
    /// [`WaitError::WouldBlock`] if it has not, and as [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>, WaitError> {
        let accepted = poll_once(|context| self.handle.poll_accept(context));
        Ok(accepted.ok_or(WaitError::WouldBlock)??.map(|halves| self.stream(halves)))
    }

    /// How long the peer takes to answer: its session's driver, not its application.
    ///
    /// # Errors
    /// Returns [`WaitError`] if it fails.
    pub fn ping(&self, deadline: Option<Instant>) -> Result<Duration, WaitError> {
        let asked = Instant::now();
        let token = self.handle.ask()?;
        self.wait(deadline, |context| self.handle.poll_answer(context, token))??;
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
    /// [`WaitError::TimedOut`] if the deadline passes first, or why the session is over.
    pub fn going_away(&self, deadline: Option<Instant>) -> Result<u32, WaitError> {
        Ok(self.wait(deadline, |context| self.handle.poll_going_away(context))??)
    }

    /// Waits until no stream is left.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first, or why the session is over.
    pub fn drained(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        Ok(self.wait(deadline, |context| self.handle.poll_drained(context))??)
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
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if it is not by then.
    pub fn closed(&self, deadline: Option<Instant>) -> Result<SessionError, WaitError> {
        self.wait(deadline, |context| self.handle.poll_closed(context))
    }

    /// Waits until the session is over and its thread has ended: sent messages and pending records
    /// are written, or were given up after [`Config::linger`](crate::Config::linger). Then the
    /// process may exit without losing any of it. It does not end the session by itself.
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
    /// [`WaitError::TimedOut`] if it has not by then.
    pub fn finished(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        self.wait(deadline, |context| self.handle.poll_finished(context))
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
