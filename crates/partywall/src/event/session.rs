// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session in an event loop: opens and accepts streams over one connection, by calls that never
//! block. The loop runs the session's driver, so the session has no thread.

use super::event::Kinds;
use super::registration::{Registration, Shared};
use super::stream::Stream;
use super::task::SessionTask;
use crate::address::Address;
use crate::config::Config;
use crate::error::{ConnectError, HandshakeError};
use crate::handshake::{Established, establish};
use crate::peer::Peer;
use crate::protocol::Protocol;
use crate::session::{Handle, OpenError, Opening, SessionError, WaitError};
use crate::stats::SenderStats;
use crate::transport::Transport;
use partywall_layout::hello::SERVICE_SESSION;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A connection that carries many streams, and whose driver an event loop runs.
///
/// The loop reports the session's tag as opened while there may be streams to accept. It reports
/// the tag as writable once a stream may be opened after an attempt that was refused. It reports
/// the tag as ended once the session is over and everything that it sent is written.
///
/// Clones share one session. The session lives until either side [`close`](Self::close)s it, until
/// all clones and streams are dropped, or until the loop is dropped. Nothing of a session advances
/// while no thread runs the loop.
#[derive(Clone, Debug)]
pub struct Session {
    handle: Handle,
    registration: Arc<Registration>,
    accepter: Waker,
    opener: Waker,
}

impl Session {
    pub(super) fn start(
        shared: &Arc<Shared>,
        established: Established,
        config: &Config,
        tag: u64,
    ) -> io::Result<Self> {
        let (handle, registration) = SessionTask::start(shared, established, config, tag)?;
        let accepter = registration.waker(Kinds::OPENED);
        let opener = registration.waker(Kinds::WRITABLE);
        // The peer may have opened streams before the session was added to the loop, so they are
        // looked for once. Later streams cause an event by the waker `accepter`.
        if handle.poll_opened(&Context::from_waker(&accepter)).is_ready() {
            registration.mark(Kinds::OPENED);
        }
        Ok(Self { handle, registration, accepter, opener })
    }

    pub(super) fn connect(
        shared: &Arc<Shared>,
        address: &Address,
        config: &Config,
        protocol: Option<Arc<dyn Protocol>>,
        tag: u64,
    ) -> Result<Self, ConnectError> {
        let established = establish(address, config, SERVICE_SESSION, protocol)?;
        Self::start(shared, established, config, tag).map_err(|source| {
            let (peer, what) = (address.to_string(), "adding the session to the loop");
            HandshakeError::System { peer, what, source }.into()
        })
    }

    /// Opens a stream, with at most [`METADATA_BYTES_MAX`](crate::METADATA_BYTES_MAX) bytes of
    /// metadata for the peer, if that is possible now. The loop reports events of the stream with
    /// `tag`.
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`] if as many streams are open as the peer allows, or room is
    /// lacking: the loop reports the session as writable once a stream may be opened. Other errors
    /// as of [`blocking::Session::open`](crate::blocking::Session::open).
    pub fn try_open(&self, metadata: &[u8], tag: u64) -> Result<Stream, OpenError> {
        let context = Context::from_waker(&self.opener);
        let mut opening = Opening::default();
        match self.handle.poll_open(&context, metadata, &mut opening) {
            Poll::Ready(opened) => Ok(Stream::new(self.registration.shared(), opened?, tag)),
            Poll::Pending if opening.waits_for_room() => {
                // `opening`, the attempt to open a stream, has a waker among those of the users
                // that wait for room. Dropping the attempt removes that waker, so the attempt is
                // dropped before a waker of this session is registered.
                drop(opening);
                self.handle.wake_for_room(&context);
                Err(OpenError::WouldBlock)
            }
            Poll::Pending => Err(OpenError::WouldBlock),
        }
    }

    /// Returns the next stream that the peer has opened, or `None` once either side has closed the
    /// session. The loop reports events of the stream with `tag`.
    ///
    /// # Errors
    /// [`WaitError::WouldBlock`] if the peer has opened no further stream: the loop reports the
    /// session as opened once the peer has opened one. Other errors as of
    /// [`blocking::Session::accept`](crate::blocking::Session::accept).
    pub fn try_accept(&self, tag: u64) -> Result<Option<Stream>, WaitError> {
        let context = Context::from_waker(&self.accepter);
        let accept = || self.handle.poll_accept(&context);
        let polled = self.registration.attempt(Kinds::OPENED, accept);
        match polled {
            Poll::Ready(Ok(Some(halves))) => {
                Ok(Some(Stream::new(self.registration.shared(), halves, tag)))
            }
            Poll::Ready(ended) => {
                self.registration.clear(Kinds::OPENED);
                ended.map(|_| None).map_err(WaitError::from)
            }
            Poll::Pending => Err(WaitError::WouldBlock),
        }
    }

    /// Asks the peer to open no more streams, and refuses streams that the peer opens nevertheless.
    pub fn go_away(&self, code: u32) {
        self.handle.shared.go_away(code);
    }

    /// Ends the session immediately, with all its streams, as
    /// [`blocking::Session::close`](crate::blocking::Session::close) does.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn close(&self, code: u32, reason: &str) {
        self.handle.close(code, reason);
    }

    /// Whether the session is over, and everything that it sent is written or was given up. The
    /// process may then exit without losing anything.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.poll_finished(&Context::from_waker(Waker::noop())).is_ready()
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

    /// Frees all unused memory for large messages.
    pub fn trim(&self) {
        self.handle.trim();
    }

    /// Returns the counters of everything that this side sends over the session.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.handle.shared.outbox().stats()
    }
}
