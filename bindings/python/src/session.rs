// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions, which carry many streams over one connection, by calls that block.
//!
//! ```text
//!   connect, SessionListener.accept ─▶ Session ─ open, accept ─▶ Stream (stream.rs)
//! ```
//!
//! The thread of `runtime.rs` drives every session, so a peer gets its answers while this process
//! computes. Any number of threads may use a session.

use crate::accept_threads::AcceptThreads;
use crate::buffer::Payload;
use crate::config::{Config, OptionalConfig, address};
use crate::error;
use crate::peer::{Peer, SenderStats};
use crate::runtime::{self, wait};
use crate::shmipc::Shmipc;
use crate::stream::Stream;
use crate::wait::Deadline;
use partywall::{BackPressure, ErrorCode, OpenError, Transport, WaitError};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Listens at an address, and accepts sessions.
///
/// The listener is a context manager and an iterable of sessions. Any thread may close it, which
/// ends `accept`.
#[pyclass(frozen, module = "partywall._native")]
pub struct SessionListener {
    inner: Mutex<Option<Arc<partywall::tokio::Listener>>>,
    /// A semaphore without permits, on which calls wait for the end of the listener. Closing it
    /// ends those calls.
    closing: Semaphore,
    accept_threads: AcceptThreads,
    address: String,
    policy: BackPressure,
    config: OptionalConfig,
}

impl SessionListener {
    fn listener(&self) -> Option<Arc<partywall::tokio::Listener>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn accept_until(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<Session>> {
        let _stay = self.accept_threads.enter();
        let Some(listener) = self.listener() else { return Ok(None) };
        let accepting = async {
            tokio::select! {
                biased;
                _ = self.closing.acquire() => None,
                accepted = listener.accept() => Some(accepted),
            }
        };
        let waited = wait(py, deadline, accepting);
        // The GIL is given up, because this may be the last reference, and dropping the listener
        // removes its socket file.
        py.detach(|| drop(listener));
        match waited? {
            None => Err(error::exception(py, &partywall::AcceptError::TimedOut)),
            Some(None) => Ok(None),
            Some(Some(Ok(session))) => Ok(Some(Session::new(session, self.policy))),
            Some(Some(Err(error))) => Err(error::exception(py, &error)),
        }
    }
}

#[pymethods]
impl SessionListener {
    #[new]
    #[pyo3(signature = (address, config = None, *, shmipc = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        config: Option<&Bound<'_, Config>>,
        shmipc: Option<&Bound<'_, Shmipc>>,
    ) -> PyResult<Self> {
        let (settings, config) = Config::of(config);
        let runtime = runtime::handle(py)?;
        // The GIL is given up, because the name of a host may have to be resolved.
        let bound = py.detach(|| {
            let _entered = runtime.enter();
            partywall::tokio::Listener::bind_with(&address, &settings.inner)
        });
        let mut listener = bound.map_err(|error| error::exception(py, &error))?;
        if let Some(shmipc) = shmipc {
            listener = listener.with_protocol(shmipc.get().protocol());
        }
        let address = listener.local_address().to_string();
        Ok(Self {
            inner: Mutex::new(Some(Arc::new(listener))),
            closing: Semaphore::new(0),
            accept_threads: AcceptThreads::default(),
            address,
            policy: settings.inner.back_pressure_policy(),
            config,
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)
    }

    /// Waits for the next session, at most `timeout` seconds, and returns it. Raises ValueError if
    /// the listener is closed, also while the call waits.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Session> {
        let accepted = self.accept_until(py, &Deadline::after(timeout)?)?;
        accepted.ok_or_else(|| error::closed_here("listener"))
    }

    /// The address that the listener is bound to, as text. A TCP listener of port 0 has the port
    /// that the system chose.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Number of connections that the listener has refused.
    #[getter]
    fn refused(&self, py: Python<'_>) -> PyResult<u64> {
        let listener = self.listener().ok_or_else(|| error::closed_here("listener"))?;
        // The GIL is given up, because another thread may hold the lock of the listener while it
        // runs a rule of admission in Python.
        Ok(py.detach(|| listener.refused()))
    }

    /// Stops listening, and ends `accept` of other threads. Accepted sessions go on. When the call
    /// returns, the address is free, unless a rule of admission takes longer than 2 seconds.
    fn close(&self, py: Python<'_>) {
        let listener = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closing.close();
        py.detach(|| drop(listener));
        self.accept_threads.wait_until_left(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.listener().is_none() { ", closed" } else { "" };
        format!("<partywall.sessions.Listener at {}{state}>", self.address)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the iteration once another thread has closed the listener.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Session>> {
        self.accept_until(py, &Deadline::Never)
    }
}

/// Opens a session with the listener at `address`. With the argument `shmipc`, opens it with a
/// server of that protocol.
///
/// The call waits for the handshake, at most for the `handshake_timeout` of the config.
#[pyfunction]
#[pyo3(signature = (address, config = None, *, shmipc = None))]
pub fn connect_session(
    py: Python<'_>,
    #[pyo3(from_py_with = address)] address: String,
    config: Option<&Bound<'_, Config>>,
    shmipc: Option<&Bound<'_, Shmipc>>,
) -> PyResult<Session> {
    let (settings, _config) = Config::of(config);
    let protocol = shmipc.map(|shmipc| shmipc.get().protocol());
    let connecting = async {
        match protocol {
            None => partywall::tokio::connect_with(&*address, &settings.inner).await,
            Some(protocol) => {
                partywall::tokio::connect_with_protocol(&*address, &settings.inner, protocol).await
            }
        }
    };
    match wait(py, &Deadline::Never, connecting)? {
        Some(Ok(session)) => Ok(Session::new(session, settings.inner.back_pressure_policy())),
        Some(Err(error)) => Err(error::exception(py, &error)),
        None => Err(error::numbered(py, 4, "connecting timed out")),
    }
}

/// A connection that carries many streams, which both sides open.
///
/// A session is a context manager and an iterable of the streams that the peer opens. It ends when
/// either side closes it, or when this object and all its streams are gone.
#[pyclass(frozen, module = "partywall._native")]
pub struct Session {
    inner: partywall::tokio::Session,
    policy: BackPressure,
}

impl Session {
    fn new(inner: partywall::tokio::Session, policy: BackPressure) -> Self {
        Self { inner, policy }
    }

    /// Waits for `future` without the GIL, and raises its error as the exception with the error's
    /// number.
    fn wait<T: Send, E: ErrorCode + std::error::Error + Send + 'static>(
        py: Python<'_>,
        timeout: Option<f64>,
        future: impl Future<Output = Result<T, E>> + Send,
    ) -> PyResult<T> {
        match wait(py, &Deadline::after(timeout)?, future)? {
            Some(result) => result.map_err(|error| error::exception(py, &error)),
            None => Err(error::exception(py, &WaitError::TimedOut)),
        }
    }
}

#[pymethods]
impl Session {
    /// Opens a stream, with `metadata` for the peer, without a round trip. While as many streams
    /// are open as the peer allows, waits at most `timeout` seconds.
    #[pyo3(signature = (metadata = None, timeout = None))]
    fn open(
        &self,
        py: Python<'_>,
        metadata: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Stream> {
        let deadline = Deadline::after(timeout)?;
        let metadata = metadata.map(Payload::of).transpose()?;
        let bytes = metadata.as_ref().map_or(&[][..], Payload::as_slice);
        let opened = match self.inner.try_open(bytes) {
            Err(OpenError::WouldBlock) if !matches!(deadline, Deadline::Now) => {
                let opened = wait(py, &deadline, self.inner.open(bytes))?;
                opened.unwrap_or(Err(OpenError::TimedOut))
            }
            tried => tried,
        };
        let stream = opened.map_err(|error| error::exception(py, &error))?;
        Ok(Stream::new(stream, self.policy))
    }

    /// Waits for the next stream that the peer opens, at most `timeout` seconds; `None` once either
    /// side has closed the session.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Stream>> {
        let accepted = match self.inner.try_accept() {
            Err(WaitError::WouldBlock) if !matches!(timeout, Some(0.0)) => {
                Self::wait(py, timeout, self.inner.accept())?
            }
            tried => tried.map_err(|error| error::exception(py, &error))?,
        };
        Ok(accepted.map(|stream| Stream::new(stream, self.policy)))
    }

    /// Returns the seconds that the peer takes to answer a ping. The library of the peer answers,
    /// not its application.
    #[pyo3(signature = (timeout = None))]
    fn ping(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<f64> {
        Ok(Self::wait(py, timeout, self.inner.ping())?.as_secs_f64())
    }

    /// Asks the peer to open no more streams. Streams that are open go on.
    #[pyo3(signature = (code = 0))]
    fn go_away(&self, code: u32) -> PyResult<()> {
        error::check_application_code(code)?;
        self.inner.go_away(code);
        Ok(())
    }

    /// Waits until the peer has asked this side to open no more streams, and returns the peer's
    /// code.
    #[pyo3(signature = (timeout = None))]
    fn wait_going_away(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u32> {
        Self::wait(py, timeout, self.inner.going_away())
    }

    /// Waits until every stream of the session has ended.
    #[pyo3(signature = (timeout = None))]
    fn wait_drained(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        Self::wait(py, timeout, self.inner.drained())
    }

    /// Ends the session with all its streams. The peer gets `code` and `reason`. Messages that were
    /// sent before are still delivered. Closing a session again does nothing.
    #[pyo3(signature = (code = 0, reason = ""))]
    fn close(&self, code: u32, reason: &str) -> PyResult<()> {
        error::check_application_code(code)?;
        self.inner.close(code, reason);
        Ok(())
    }

    /// Waits until the session is over, and all that it sent is written, or was given up after the
    /// time of the setting `linger`. The process may exit then without losing anything.
    #[pyo3(signature = (timeout = None))]
    fn wait_finished(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        match wait(py, &Deadline::after(timeout)?, self.inner.finished())? {
            Some(()) => Ok(()),
            None => Err(error::exception(py, &WaitError::TimedOut)),
        }
    }

    /// Why the session is over, as the exception that its calls raise; `None` while the session
    /// lives.
    #[getter]
    fn close_reason<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let reason = self.inner.close_reason()?;
        Some(error::exception(py, &reason).into_value(py).into_bound(py).into_any())
    }

    /// The peer: the process at the other end of the session.
    #[getter]
    fn peer(&self) -> Peer {
        Peer::from(self.inner.peer())
    }

    /// The transport at present, as text: `shm: shared memory`, or `socket:` and the reason for it.
    #[getter]
    fn transport(&self) -> String {
        self.inner.transport().to_string()
    }

    /// Whether the session's messages travel through shared memory at present.
    #[getter]
    fn is_shared_memory(&self) -> bool {
        self.inner.transport() == Transport::SharedMemory
    }

    /// Number of open streams of the session, opened by either side.
    #[getter]
    fn streams(&self) -> usize {
        self.inner.streams()
    }

    /// Returns the counters of everything that this side sends over the session.
    fn stats(&self) -> SenderStats {
        self.inner.stats().into()
    }

    /// Frees all memory for long messages that is not in use.
    fn trim(&self) {
        self.inner.trim();
    }

    fn __repr__(&self) -> String {
        let peer = self.inner.peer();
        match self.inner.close_reason() {
            Some(reason) => format!("<partywall.sessions.Session with {peer}, over: {reason}>"),
            None => format!(
                "<partywall.sessions.Session with {peer}, {}, {} streams>",
                self.inner.transport(),
                self.inner.streams()
            ),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the `with` block: closes the session, and waits until it is finished unless the block
    /// has raised.
    #[pyo3(signature = (exception = None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.inner.close(0, "");
        if exception.is_some() {
            return Ok(());
        }
        self.wait_finished(py, None)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        self.accept(py, None)
    }
}
