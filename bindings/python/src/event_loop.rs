// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event loop of the Rust crate, with its sessions and streams, for `partywall.aio`.
//!
//! ```text
//!   asyncio ── add_reader(fileno) ─▶ EventLoop.poll ─▶ (tag, kinds) … ─▶ try_accept, try_recv …
//! ```
//!
//! No call waits, but `connect`, which `partywall.aio` runs in a thread. `None` stands for "not
//! now": the loop reports the tag once another attempt may succeed.

use crate::buffer::Payload;
use crate::config::{Config, address};
use crate::error;
use crate::peer::Peer;
use partywall::event::{Event, Kinds, Listener, Loop, Session, Stream};
use partywall::{AcceptError, OpenError, StreamRecvError, StreamSendError, WaitError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;

/// One event loop for listeners, sessions and streams. Its descriptor fits any other event loop.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventLoop {
    inner: Loop,
}

#[pymethods]
impl EventLoop {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self { inner: Loop::new()? })
    }

    /// The descriptor, which is readable while `poll` may find events.
    fn fileno(&self) -> i32 {
        self.inner.as_fd().as_raw_fd()
    }

    /// Returns the events that sources have now, as pairs of a tag and the kinds: 1 readable, 2
    /// writable, 4 opened, 8 ended.
    fn poll(&self) -> PyResult<Vec<(u64, u8)>> {
        let mut events = Vec::new();
        self.inner.poll(&mut events)?;
        Ok(events.iter().map(|event: &Event| (event.tag, bits(event.kinds))).collect())
    }

    /// Listens for sessions. The loop reports `tag` while there may be one to accept.
    #[pyo3(signature = (address, tag, config = None))]
    fn bind(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        tag: u64,
        config: Option<&Bound<'_, Config>>,
    ) -> PyResult<EventListener> {
        let config = config.map_or_else(Config::default, |config| config.get().clone());
        let bound = self.inner.bind(&address, &config.inner, tag);
        let listener = bound.map_err(|error| error::exception(py, &error))?;
        Ok(EventListener { inner: Mutex::new(Some(listener)) })
    }

    /// Opens a session. Waits for the handshake without the GIL.
    #[pyo3(signature = (address, tag, config = None))]
    fn connect(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        tag: u64,
        config: Option<&Bound<'_, Config>>,
    ) -> PyResult<EventSession> {
        let config = config.map_or_else(Config::default, |config| config.get().clone());
        let connected = py.detach(|| self.inner.connect(&address, &config.inner, tag));
        let inner = connected.map_err(|error| error::exception(py, &error))?;
        Ok(EventSession { inner })
    }
}

fn bits(kinds: Kinds) -> u8 {
    u8::from(kinds.is_readable())
        | u8::from(kinds.is_writable()) << 1
        | u8::from(kinds.is_opened()) << 2
        | u8::from(kinds.is_ended()) << 3
}

/// A listener for sessions in a loop.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventListener {
    inner: Mutex<Option<Listener>>,
}

#[pymethods]
impl EventListener {
    /// Returns the next session, which reports `tag`; `None` if none is established now.
    fn try_accept(&self, py: Python<'_>, tag: u64) -> PyResult<Option<EventSession>> {
        let mut inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        let listener = inner.as_mut().ok_or_else(|| error::closed_here("listener"))?;
        match py.detach(|| listener.try_accept(tag)) {
            Ok(inner) => Ok(Some(EventSession { inner })),
            Err(AcceptError::TimedOut) => Ok(None),
            Err(error) => Err(error::exception(py, &error)),
        }
    }

    /// The address, as text, with the port that the system chose.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        let listener = inner.as_ref().ok_or_else(|| error::closed_here("listener"))?;
        Ok(listener.local_address().to_string())
    }

    /// Stops listening. Accepted sessions go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?.take();
        py.detach(|| drop(inner));
        Ok(())
    }
}

/// A session in a loop. It ends when this object and all its streams are gone.
#[pyclass(frozen, module = "partywall._native")]
pub struct EventSession {
    inner: Session,
}

#[pymethods]
impl EventSession {
    /// Opens a stream, which reports `tag`; `None` if the peer allows no further stream now.
    fn try_open(&self, py: Python<'_>, tag: u64) -> PyResult<Option<EventStream>> {
        match self.inner.try_open(b"", tag) {
            Ok(stream) => Ok(Some(EventStream::new(stream))),
            Err(OpenError::WouldBlock) => Ok(None),
            Err(error) => Err(error::exception(py, &error)),
        }
    }

    /// Returns whether the session goes on, and the next stream that the peer has opened, if there
    /// is one. The stream reports `tag`.
    fn try_accept(&self, tag: u64) -> (bool, Option<EventStream>) {
        match self.inner.try_accept(tag) {
            Ok(Some(stream)) => (true, Some(EventStream::new(stream))),
            Err(WaitError::WouldBlock) => (true, None),
            // Each stream reports for itself that the session is over, and why.
            Ok(None) | Err(_) => (false, None),
        }
    }
}

/// A stream in a loop, as bytes without the boundaries of messages.
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

    /// Returns the next bytes, empty at the end; `None` if none have arrived.
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

    /// Has the loop report the stream as readable no longer, until the next `try_recv`.
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.receiver().pause();
            Ok(())
        })
    }

    /// Ends the sending direction: the peer receives what was sent, then the end.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.finish();
            Ok(())
        })
    }

    /// Ends both directions at once: the peer's calls fail.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |stream| {
            stream.reset(0);
            Ok(())
        })
    }

    /// Drops the stream, which finishes the sending direction. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?.take();
        drop(inner);
        Ok(())
    }

    /// The process at the other end.
    #[getter]
    fn peer(&self) -> Peer {
        Peer::from(&self.peer)
    }

    /// The transport, as text.
    #[getter]
    fn transport(&self) -> String {
        self.transport.to_string()
    }
}

/// Longest message in bytes: four of them and their headers fit the default window of a stream.
const WRITE_MAX: usize = (64 << 10) - 64;
