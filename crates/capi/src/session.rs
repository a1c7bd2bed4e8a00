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
use crate::error::Errors;
use crate::event_loop::{self, LoopObject};
use crate::export::export;
use crate::failure::{BUFFER_TOO_SHORT, FINISHED, Failure};
use crate::stream::{self, StreamObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::{blocking, event};
use std::sync::Arc;

/// The type of sessions.
pub(crate) struct SessionObject;

static SESSIONS: Table<SessionObject> = Table::new();

impl Object for SessionObject {
    type First = ();
    /// Calls share the session, and lock this part only to get at it.
    type Second = Arc<Session>;
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

/// The type of listeners for sessions.
pub(crate) struct SessionListenerObject;

static LISTENERS: Table<SessionListenerObject> = Table::new();

impl Object for SessionListenerObject {
    type First = Accepting;
    type Second = ();
    const KIND: u8 = 9;
    const NAME: &'static str = "partywall_session_listener";

    fn table() -> &'static Table<Self> {
        &LISTENERS
    }
}

/// A listener for sessions, alone or in a loop.
pub(crate) enum Accepting {
    Threaded(Box<blocking::Listener>),
    InLoop(Box<event::Listener>),
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
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Threaded(listener) => listener.local_address().to_string(),
            Self::InLoop(listener) => listener.local_address().to_string(),
        }
    }
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

    /// Stops listening, and frees the listener. A null pointer is allowed.
    fn partywall_session_listener_free(listener: Handle<SessionListenerObject>) {
        if !listener.is_null() {
            listener.remove()?;
        }
        Ok(())
    }

    /// Returns the next session that is established.
    fn partywall_session_listener_accept(
        listener: Handle<SessionListenerObject>, tag: u64, session: Out<Handle<SessionObject>>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let session = session.require("session")?;
        let accepted = listener.first()?.accept(tag, Timeout::new(timeout_ns))?;
        session.write(insert(accepted)?);
        Ok(())
    }

    /// Copies the bound address into `buffer`, without a zero byte at its end.
    fn partywall_session_listener_address(
        listener: Handle<SessionListenerObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        let len = len.require("len")?;
        buffer.check(capacity, "buffer")?;
        let address = listener.first()?.address();
        len.write(address.len());
        if address.len() > capacity {
            return Err(Failure::state(BUFFER_TOO_SHORT));
        }
        buffer.write(address.as_bytes());
        Ok(())
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

    /// Asks the peer to open no more streams.
    fn partywall_session_go_away(session: Handle<SessionObject>, code: u32, error: Errors)
    reports error {
        match &*session.share_second()? {
            Session::Threaded(session) => session.go_away(code),
            Session::InLoop(session) => session.go_away(code),
        }
        Ok(())
    }

    /// Ends the session with all its streams.
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

    /// Waits until the session is over, and everything that it sent is written or given up.
    fn partywall_session_wait_finished(
        session: Handle<SessionObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        session.share_second()?.finished(Timeout::new(timeout_ns))
    }
}
