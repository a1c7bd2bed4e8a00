// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and their listeners, each with a thread of its own or in a loop. Any number of threads
//! may call a session.
//!
//! ```text
//!   partywall_session_connect, _listener_accept ─┬─ loop is NULL ─▶ Threaded: calls may wait
//!                                                └─ a loop ───────▶ InLoop: timeout 0 alone
//! ```

use crate::argument::{Buffer, Bytes, Out, Text};
use crate::config::{self, ConfigObject};
use crate::error::{self, Errors};
use crate::event_loop::{self, LoopObject};
use crate::export::export;
use crate::failure::{FINISHED, Failure};
use crate::peer::{self, CPeer, CSenderStats};
use crate::stream::{self, StreamObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::event::Loop;
use partywall::protocol::Protocol;
use partywall::{Config, Peer, SenderStats, SessionError, Transport, blocking, event};
use std::mem;
use std::sync::Arc;

pub(crate) struct SessionObject;

static SESSIONS: Table<SessionObject> = Table::new();

impl Object for SessionObject {
    type First = ();
    /// The session. A call locks this part of the handle only while it copies the reference to the
    /// session, so any number of threads may use the session.
    type Second = Arc<Session>;
    type Shared = ();
    const KIND: u8 = 8;
    const NAME: &'static str = "partywall_session";

    fn table() -> &'static Table<Self> {
        &SESSIONS
    }
}

/// A session, with a thread of its own or in a loop.
pub(crate) enum Session {
    Threaded(blocking::Session),
    InLoop(event::Session),
}

impl Session {
    fn open(
        &self,
        metadata: &[u8],
        tag: u64,
        timeout: Timeout,
    ) -> Result<Handle<StreamObject>, Failure> {
        match self {
            Self::Threaded(session) => {
                let stream = match (timeout, timeout.deadline()) {
                    (Timeout::Zero, _) => session.try_open(metadata)?,
                    (_, Some(deadline)) => session.open_deadline(metadata, deadline)?,
                    (_, None) => session.open(metadata)?,
                };
                stream::insert_threaded(stream)
            }
            Self::InLoop(session) => {
                timeout.require_zero()?;
                stream::insert_in_loop(session.try_open(metadata, tag)?)
            }
        }
    }

    fn accept(&self, tag: u64, timeout: Timeout) -> Result<Handle<StreamObject>, Failure> {
        let ended = || Failure::state(FINISHED);
        match self {
            Self::Threaded(session) => {
                let accepted = match (timeout, timeout.deadline()) {
                    (Timeout::Zero, _) => session.try_accept()?,
                    (_, Some(deadline)) => session.accept_deadline(deadline)?,
                    (_, None) => session.accept()?,
                };
                stream::insert_threaded(accepted.ok_or_else(ended)?)
            }
            Self::InLoop(session) => {
                timeout.require_zero()?;
                stream::insert_in_loop(session.try_accept(tag)?.ok_or_else(ended)?)
            }
        }
    }

    fn peer(&self) -> &Peer {
        match self {
            Self::Threaded(session) => session.peer(),
            Self::InLoop(session) => session.peer(),
        }
    }

    fn transport(&self) -> Transport {
        match self {
            Self::Threaded(session) => session.transport(),
            Self::InLoop(session) => session.transport(),
        }
    }

    fn stats(&self) -> SenderStats {
        match self {
            Self::Threaded(session) => session.stats(),
            Self::InLoop(session) => session.stats(),
        }
    }

    fn streams(&self) -> usize {
        match self {
            Self::Threaded(session) => session.streams(),
            Self::InLoop(session) => session.streams(),
        }
    }

    fn finished(&self, timeout: Timeout) -> Result<(), Failure> {
        match self {
            Self::Threaded(session) => Ok(session.finished(timeout.deadline())?),
            Self::InLoop(session) => {
                timeout.require_zero()?;
                let timed_out = partywall::WaitError::TimedOut;
                if session.is_finished() { Ok(()) } else { Err(timed_out.into()) }
            }
        }
    }

    /// Waits until the session is over, and returns the reason.
    fn closed(&self, timeout: Timeout) -> Result<SessionError, Failure> {
        let reason = match self {
            Self::Threaded(session) if timeout == Timeout::Zero => session.close_reason(),
            Self::Threaded(session) => return Ok(session.closed(timeout.deadline())?),
            Self::InLoop(session) => {
                timeout.require_zero()?;
                session.close_reason()
            }
        };
        reason.ok_or_else(|| partywall::WaitError::TimedOut.into())
    }

    fn drained(&self, timeout: Timeout) -> Result<(), Failure> {
        match self {
            Self::Threaded(session) => Ok(session.drained(timeout.deadline())?),
            Self::InLoop(session) => {
                timeout.require_zero()?;
                let timed_out = partywall::WaitError::TimedOut;
                if session.streams() == 0 { Ok(()) } else { Err(timed_out.into()) }
            }
        }
    }
}

pub(crate) struct SessionListenerObject;

static LISTENERS: Table<SessionListenerObject> = Table::new();

impl Object for SessionListenerObject {
    type First = Accepting;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 9;
    const NAME: &'static str = "partywall_session_listener";

    fn table() -> &'static Table<Self> {
        &LISTENERS
    }
}

/// A listener for sessions, which is either in no event loop or in one.
pub(crate) enum Accepting {
    Threaded(Box<blocking::Listener>),
    InLoop(Box<event::Listener>),
    /// The listener is gone, because a call that changed it has panicked.
    Closed,
}

impl Accepting {
    fn accept(&mut self, tag: u64, timeout: Timeout) -> Result<Session, Failure> {
        match self {
            Self::Threaded(listener) => {
                Ok(Session::Threaded(match (timeout, timeout.deadline()) {
                    (Timeout::Zero, _) => listener.try_accept()?,
                    (_, Some(deadline)) => listener.accept_deadline(deadline)?,
                    (_, None) => listener.accept()?,
                }))
            }
            Self::InLoop(listener) => {
                timeout.require_zero()?;
                Ok(Session::InLoop(listener.try_accept(tag)?))
            }
            Self::Closed => Err(closed()),
        }
    }

    fn address(&self) -> Result<String, Failure> {
        match self {
            Self::Threaded(listener) => Ok(listener.local_address().to_string()),
            Self::InLoop(listener) => Ok(listener.local_address().to_string()),
            Self::Closed => Err(closed()),
        }
    }
}

fn closed() -> Failure {
    Failure::argument("the listener is closed")
}

/// Makes a listener also serve peers that speak `protocol`.
pub(crate) fn add_protocol(
    listener: Handle<SessionListenerObject>,
    protocol: Arc<dyn Protocol>,
) -> Result<(), Failure> {
    let mut accepting = listener.first()?;
    *accepting = match mem::replace(&mut *accepting, Accepting::Closed) {
        Accepting::Threaded(it) => Accepting::Threaded(Box::new(it.with_protocol(protocol))),
        Accepting::InLoop(it) => Accepting::InLoop(Box::new(it.with_protocol(protocol))),
        Accepting::Closed => Accepting::Closed,
    };
    Ok(())
}

/// Opens a session in the protocol `protocol` with the server at `address`. The session is in the
/// event loop `events`, if that is given; otherwise it has a thread of its own.
pub(crate) fn connect_with_protocol(
    address: &str,
    config: &Config,
    protocol: Arc<dyn Protocol>,
    events: Option<Arc<Loop>>,
    tag: u64,
) -> Result<Handle<SessionObject>, Failure> {
    insert(match events {
        None => Session::Threaded(blocking::connect_with_protocol(address, config, protocol)?),
        Some(events) => {
            Session::InLoop(events.connect_with_protocol(address, config, protocol, tag)?)
        }
    })
}

fn insert(session: Session) -> Result<Handle<SessionObject>, Failure> {
    Handle::insert((), Arc::new(session))
}

export! {
    /// Listens for sessions at `address`.
    fn partywall_session_listener_bind(
        address: Text, config: Handle<ConfigObject>, r#loop: Handle<LoopObject>, tag: u64,
        listener: Out<Handle<SessionListenerObject>>, error: Errors,
    ) reports error {
        let listener = listener.require("listener")?;
        let (address, config) = (address.get("address")?, config::copy(config)?);
        let bound = if r#loop.is_null() {
            Accepting::Threaded(Box::new(blocking::Listener::bind_with(address, &config)?))
        } else {
            let events = event_loop::shared(r#loop)?;
            Accepting::InLoop(Box::new(events.bind(address, &config, tag)?))
        };
        listener.write(Handle::insert(bound, ())?);
        Ok(())
    }

    /// Stops listening for sessions, and frees the listener. A null pointer is allowed.
    fn partywall_session_listener_free(listener: Handle<SessionListenerObject>) {
        if !listener.is_null() {
            listener.remove()?;
        }
        Ok(())
    }

    /// Returns the next session whose handshake is complete.
    fn partywall_session_listener_accept(
        listener: Handle<SessionListenerObject>, tag: u64, session: Out<Handle<SessionObject>>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let session = session.require("session")?;
        let accepted = listener.first()?.accept(tag, Timeout::new(timeout_ns))?;
        session.write(insert(accepted)?);
        Ok(())
    }

    /// Copies the address that the listener is bound to into `buffer`, without a zero byte at its
    /// end.
    fn partywall_session_listener_address(
        listener: Handle<SessionListenerObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        let address = listener.first()?.address()?;
        buffer.write_text(&address, capacity, len)
    }

    /// Opens a session with the listener at `address`.
    fn partywall_session_connect(
        address: Text, config: Handle<ConfigObject>, r#loop: Handle<LoopObject>, tag: u64,
        session: Out<Handle<SessionObject>>, error: Errors,
    ) reports error {
        let session = session.require("session")?;
        let (address, config) = (address.get("address")?, config::copy(config)?);
        let connected = if r#loop.is_null() {
            Session::Threaded(blocking::connect_with(address, &config)?)
        } else {
            Session::InLoop(event_loop::shared(r#loop)?.connect(address, &config, tag)?)
        };
        session.write(insert(connected)?);
        Ok(())
    }

    /// Frees the handle of a session, which lives on while it has streams. A null pointer is
    /// allowed.
    fn partywall_session_free(session: Handle<SessionObject>) {
        if !session.is_null() {
            session.remove()?;
        }
        Ok(())
    }

    /// Opens a stream, with `len` bytes of metadata for the peer.
    fn partywall_session_open(
        session: Handle<SessionObject>, metadata: Bytes, len: usize, tag: u64,
        stream: Out<Handle<StreamObject>>, timeout_ns: i64, error: Errors,
    ) reports error {
        let (stream, metadata) = (stream.require("stream")?, metadata.get(len, "metadata")?);
        let session = session.share_second()?;
        stream.write(session.open(metadata, tag, Timeout::new(timeout_ns))?);
        Ok(())
    }

    /// Returns the next stream that the peer has opened.
    fn partywall_session_accept(
        session: Handle<SessionObject>, tag: u64, stream: Out<Handle<StreamObject>>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let stream = stream.require("stream")?;
        let session = session.share_second()?;
        stream.write(session.accept(tag, Timeout::new(timeout_ns))?);
        Ok(())
    }

    /// Asks the peer to open no more streams in a session.
    fn partywall_session_go_away(session: Handle<SessionObject>, code: u32, error: Errors)
    reports error {
        match &*session.share_second()? {
            Session::Threaded(session) => session.go_away(code),
            Session::InLoop(session) => session.go_away(code),
        }
        Ok(())
    }

    /// Ends a session with all its streams.
    fn partywall_session_close(
        session: Handle<SessionObject>, code: u32, reason: Text, error: Errors,
    ) reports error {
        let (reason, code) = (reason.get("reason")?, stream::application_code(code)?);
        match &*session.share_second()? {
            Session::Threaded(session) => session.close(code, reason),
            Session::InLoop(session) => session.close(code, reason),
        }
        Ok(())
    }

    /// Waits until every stream of the session has ended.
    fn partywall_session_wait_drained(
        session: Handle<SessionObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        session.share_second()?.drained(Timeout::new(timeout_ns))
    }

    /// Waits until the session is over, and writes the reason.
    fn partywall_session_wait_closed(
        session: Handle<SessionObject>, reason: Out<i32>, cause: Errors, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = reason.require("reason")?;
        let closed = session.share_second()?.closed(Timeout::new(timeout_ns))?;
        place.write(error::report(closed.into(), cause));
        Ok(())
    }

    /// Waits until the session is over, and until everything that it sent is written to the
    /// connection or given up.
    fn partywall_session_wait_finished(
        session: Handle<SessionObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        session.share_second()?.finished(Timeout::new(timeout_ns))
    }

    /// Writes the first `size` bytes of the structure with what is known of the session's peer.
    fn partywall_session_peer(session: Handle<SessionObject>, peer: Out<CPeer>, size: usize) {
        let place = peer.require("peer")?;
        place.write_prefix(&session.share_second()?.peer().into(), size)
    }

    /// Copies a description of the session's peer into `buffer`, without a zero byte at its end.
    fn partywall_session_peer_text(
        session: Handle<SessionObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        peer::write_peer(session.share_second()?.peer(), buffer, capacity, len)
    }

    /// Writes the transport of a session, and the reason why memory is not shared.
    fn partywall_session_transport(
        session: Handle<SessionObject>, transport: Out<i32>, reason: Out<u32>,
    ) {
        let (transport, reason) = (transport.require("transport")?, reason.require("reason")?);
        peer::write_transport(session.share_second()?.transport(), transport, reason);
        Ok(())
    }

    /// Copies a description of the session's transport into `buffer`, without a zero byte at its
    /// end.
    fn partywall_session_transport_text(
        session: Handle<SessionObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        buffer.write_text(&session.share_second()?.transport().to_string(), capacity, len)
    }

    /// Writes the first `size` bytes of the structure with the counters of what the session sends.
    fn partywall_session_sender_stats(
        session: Handle<SessionObject>, stats: Out<CSenderStats>, size: usize,
    ) {
        let place = stats.require("stats")?;
        place.write_prefix(&session.share_second()?.stats().into(), size)
    }

    /// Writes the number of streams of a session that have not ended.
    fn partywall_session_streams(session: Handle<SessionObject>, count: Out<usize>) {
        let place = count.require("count")?;
        place.write(session.share_second()?.streams());
        Ok(())
    }
}
