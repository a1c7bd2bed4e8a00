// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event loop of the Rust crate, with its sessions and streams, for `partywall.aio`.
//!
//! ```text
//!   asyncio ── add_reader(fileno) ─▶ EventLoop.poll ─▶ (tag, kinds) … ─▶ try_accept, try_recv …
//! ```
//!
//! No call waits: a thread does the work of `connect`, and `poll_spinning` spins for a moment at
//! most. A call returns `None` if it cannot succeed now. The loop reports the object's tag once
//! another attempt may succeed.

use crate::buffer::Payload;
use crate::config::{Config, OptionalConfig, address};
use crate::error;
use crate::peer::Peer;
use crate::shmipc::Shmipc;
use crate::wait::Work;
use partywall::event::{Event, Kinds, Listener, Loop, Session, Stream};
use partywall::{
    AcceptError, ConnectError, OpenError, StreamRecvError, StreamSendError, WaitError,
};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// An event loop for listeners, sessions and streams. Its descriptor can be watched by any other
/// event loop.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventLoop {
    inner: Arc<Loop>,
}

/// Events as Python receives them: pairs of an object's tag and its kinds of events.
type Pairs = Vec<(u64, u8)>;

#[pymethods]
impl EventLoop {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self { inner: Arc::new(Loop::new()?) })
    }

    /// The descriptor of the loop, which is readable while `poll` may find events.
    fn fileno(&self) -> i32 {
        self.inner.as_fd().as_raw_fd()
    }

    /// Returns the events that listeners, sessions and streams have now, as pairs of a tag and a
    /// sum of kinds: 1 readable, 2 writable, 4 opened, 8 ended.
    fn poll(&self) -> PyResult<Pairs> {
        let mut events = Vec::new();
        self.inner.poll(&mut events)?;
        Ok(pairs(&events))
    }

    /// Returns the events that listeners, sessions and streams have now, as pairs of a tag and a
    /// sum of kinds. If there are none, spins for at most the spin budget until there are. After a
    /// call that returns events, the loop's descriptor may stay quiet, so poll again. After a call
    /// that returns none, the descriptor becomes readable for the next event.
    fn poll_spinning(&self, py: Python<'_>) -> PyResult<Pairs> {
        let mut events = Vec::new();
        py.detach(|| self.inner.poll_spinning(&mut events))?;
        Ok(pairs(&events))
    }

    /// Listens for sessions. The loop reports `tag` while there may be a session to accept.
    #[pyo3(signature = (address, tag, config = None, shmipc = None))]
    fn bind(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        tag: u64,
        config: Option<&Bound<'_, Config>>,
        shmipc: Option<&Bound<'_, Shmipc>>,
    ) -> PyResult<EventListener> {
        let (settings, config) = Config::of(config);
        // The GIL is given up, because the name of a host may have to be resolved.
        let bound = py.detach(|| self.inner.bind(&address, &settings.inner, tag));
        let mut listener = bound.map_err(|error| error::exception(py, &error))?;
        if let Some(shmipc) = shmipc {
            listener = listener.with_protocol(shmipc.get().protocol());
        }
        Ok(EventListener { inner: Mutex::new(Some(listener)), config })
    }

    /// Begins to open a session, in a thread of its own that ends with the handshake.
    #[pyo3(signature = (address, tag, config = None, shmipc = None))]
    fn connect(
        &self,
        #[pyo3(from_py_with = address)] address: String,
        tag: u64,
        config: Option<&Bound<'_, Config>>,
        shmipc: Option<&Bound<'_, Shmipc>>,
    ) -> PyResult<Connecting> {
        let (settings, config) = Config::of(config);
        let (inner, protocol) =
            (Arc::clone(&self.inner), shmipc.map(|shmipc| shmipc.get().protocol()));
        let connect = move || match protocol {
            None => inner.connect(&address, &settings.inner, tag),
            Some(it) => inner.connect_with_protocol(&address, &settings.inner, it, tag),
        };
        let work = Mutex::new(Work::start("partywall-connect", connect)?);
        Ok(Connecting { work, config })
    }
}

fn pairs(events: &[Event]) -> Pairs {
    events.iter().map(|event| (event.tag, bits(event.kinds))).collect()
}

fn bits(kinds: Kinds) -> u8 {
    u8::from(kinds.is_readable())
        | u8::from(kinds.is_writable()) << 1
        | u8::from(kinds.is_opened()) << 2
        | u8::from(kinds.is_ended()) << 3
}

/// A session that a thread is opening. Dropping this object gives the session up.
#[pyclass(frozen, module = "partywall._native")]
pub struct Connecting {
    work: Mutex<Work<Result<Session, ConnectError>>>,
    config: OptionalConfig,
}

#[pymethods]
impl Connecting {
    /// A descriptor that is readable once the handshake of the session is over.
    fn fileno(&self) -> i32 {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).as_fd().as_raw_fd()
    }

    /// Takes the session whose handshake is over; `None` while it is not.
    fn take(&self, py: Python<'_>) -> PyResult<Option<EventSession>> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match work.try_take(py)? {
            Some(Ok(inner)) => Ok(Some(EventSession { inner })),
            Some(Err(error)) => Err(error::exception(py, &error)),
            None => Ok(None),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)
    }
}

/// A listener for sessions in an event loop.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventListener {
    inner: Mutex<Option<Listener>>,
    config: OptionalConfig,
}

#[pymethods]
impl EventListener {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)
    }

    /// Returns the next session, whose events carry `tag`; `None` if no session is established now.
    fn try_accept(&self, py: Python<'_>, tag: u64) -> PyResult<Option<EventSession>> {
        let mut inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        let listener = inner.as_mut().ok_or_else(|| error::closed_here("listener"))?;
        match py.detach(|| listener.try_accept(tag)) {
            Ok(inner) => Ok(Some(EventSession { inner })),
            Err(AcceptError::TimedOut) => Ok(None),
            Err(error) => Err(error::exception(py, &error)),
        }
    }

    /// The address that the listener is bound to, as text, with the port that the system chose.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        let listener = inner.as_ref().ok_or_else(|| error::closed_here("listener"))?;
        Ok(listener.local_address().to_string())
    }

    /// Stops listening for sessions. Accepted sessions go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?.take();
        py.detach(|| drop(inner));
        Ok(())
    }
}

/// A session in an event loop. It ends when this object and all its streams are gone.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventSession {
    inner: Session,
}

#[pymethods]
impl EventSession {
    /// Opens a stream, whose events carry `tag`; `None` if the peer allows no further stream now.
    fn try_open(&self, py: Python<'_>, tag: u64) -> PyResult<Option<EventStream>> {
        match self.inner.try_open(b"", tag) {
            Ok(stream) => Ok(Some(EventStream::new(stream))),
            Err(OpenError::WouldBlock) => Ok(None),
            Err(error) => Err(error::exception(py, &error)),
        }
    }

    /// Returns whether the session goes on, and the next stream that the peer has opened, or
    /// `None`. Events of the stream carry `tag`.
    fn try_accept(&self, tag: u64) -> (bool, Option<EventStream>) {
        match self.inner.try_accept(tag) {
            Ok(Some(stream)) => (true, Some(EventStream::new(stream))),
            Err(WaitError::WouldBlock) => (true, None),
            // The session is over. Each of its streams reports that, with the reason.
            Ok(None) | Err(_) => (false, None),
        }
    }
}

/// A stream of a session in an event loop. It carries bytes without the boundaries of messages.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventStream {
    inner: Mutex<Option<Stream>>,
    peer: partywall::Peer,
    transport: partywall::Transport,
}

impl EventStream {
    fn new(stream: Stream) -> Self {
        let (peer, transport) = (stream.peer().clone(), stream.transport());
        Self { inner: Mutex::new(Some(stream)), peer, transport }
    }

    fn with<T>(&self, py: Python<'_>, act: impl FnOnce(&mut Stream) -> PyResult<T>) -> PyResult<T> {
        let mut inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        act(inner.as_mut().ok_or_else(|| error::closed_here("stream"))?)
    }
}

#[pymethods]
impl EventStream {
    /// Sends the bytes from index `start`, in messages of almost 64 KiB, while there is room.
    /// Returns the index of the first byte that was not sent.
    fn try_send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        start: usize,
    ) -> PyResult<usize> {
        let payload = Payload::of(payload)?;
        self.with(py, |stream| {
            let mut sent = start;
            for piece in payload.as_slice().get(start..).unwrap_or_default().chunks(WRITE_MAX) {
                match stream.try_send(piece) {
                    Ok(()) => sent += piece.len(),
                    Err(StreamSendError::Full) => break,
                    Err(error) => return Err(error::exception(py, &error)),
                }
            }
            Ok(sent)
        })
    }

    /// Returns the next bytes of the stream, empty at its end; `None` if none have arrived.
    fn try_recv<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with(py, |stream| {
            loop {
                match stream.try_recv() {
                    Ok(Some(message)) if message.is_empty() => {}
                    Ok(Some(message)) => return Ok(Some(PyBytes::new(py, &message))),
                    Ok(None) => return Ok(Some(PyBytes::new(py, b""))),
                    Err(StreamRecvError::Empty) => return Ok(None),
                    Err(error) => return Err(error::exception(py, &error)),
                }
            }
        })
    }

    /// Makes the loop stop reporting the stream as readable until the next `try_recv`.
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.receiver().pause();
            Ok(())
        })
    }

    /// Ends the stream's sending direction: the peer receives what was sent, then the end.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.finish();
            Ok(())
        })
    }

    /// Ends both directions of the stream at once: the peer's calls fail.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.reset(0);
            Ok(())
        })
    }

    /// Drops the stream, which ends its sending direction in good order. Closing a stream again
    /// does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?.take();
        drop(inner);
        Ok(())
    }

    /// The peer: the process at the other end of the stream's session.
    #[getter]
    fn peer(&self) -> Peer {
        Peer::from(&self.peer)
    }

    /// The transport of the stream's session, as text.
    #[getter]
    fn transport(&self) -> String {
        self.transport.to_string()
    }
}

/// Maximum length in bytes of a message that `try_send` makes: four such messages and their headers
/// fit the default window of a stream.
const WRITE_MAX: usize = (64 << 10) - 64;
