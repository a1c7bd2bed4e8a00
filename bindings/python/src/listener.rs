// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener for channels.
//!
//! ```text
//!   accept ─▶ try_accept ─▶ poll(listener, closing) ─┬─ a connection ─▶ try_accept
//!   close ── closing ────────────────────────────────┴─▶ the accepting thread drops the listener
//! ```

use crate::accept_threads::AcceptThreads;
use crate::channel::Channel;
use crate::config::{Config, OptionalConfig, Settings, address};
use crate::error;
use crate::wait::{Deadline, wait_any_readable};
use partywall::AcceptError;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Listens at an address, and accepts channels.
///
/// The address is text: `unix:/path`, `unix:@name` (abstract) or `tcp:host:port`. The listener is a
/// context manager and an iterable of channels. Any thread may close it, which ends `accept`.
#[pyclass(frozen, module = "partywall")]
pub struct Listener {
    /// The listener of the Rust crate. A thread locks it for the whole time for which it is in
    /// `accept`.
    inner: Mutex<Option<partywall::Listener>>,
    settings: Settings,
    config: OptionalConfig,
    address: String,
    state: Mutex<State>,
    /// An eventfd that is readable once the listener is closed.
    closing: OwnedFd,
    accept_threads: AcceptThreads,
}

/// The state of a listener that other threads read and change while one thread accepts. It is
/// locked only for a moment.
#[derive(Default)]
struct State {
    refused: u64,
    is_closed: bool,
}

impl Listener {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_until(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<Channel>> {
        let mut inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        let Some(listener) = inner.as_mut() else { return Ok(None) };
        while !self.state().is_closed {
            let accepted = py.detach(|| listener.try_accept());
            self.state().refused = listener.refused();
            match accepted {
                Ok(channel) => return Ok(Some(Channel::new(channel, &self.settings))),
                Err(error @ AcceptError::TimedOut) if deadline.has_passed() => {
                    return Err(error::exception(py, &error));
                }
                Err(AcceptError::TimedOut) => {
                    let mut descriptors = [
                        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                        PollFd::new(&self.closing, PollFlags::IN),
                    ];
                    wait_any_readable(py, &mut descriptors, deadline)?;
                }
                Err(error) => return Err(error::exception(py, &error)),
            }
        }
        Ok(None)
    }

    /// Accepts a channel, at most until the deadline; `None` once the listener is closed. Then
    /// drops the listener of the Rust crate if another thread has closed this object meanwhile.
    fn accept_or_end(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<Channel>> {
        let _stay = self.accept_threads.enter();
        let accepted = self.accept_until(py, deadline);
        // `close` sets the flag before it tries to lock the listener. So the accepting thread or
        // the closing thread, whichever is later, finds the flag set and the listener unlocked, and
        // drops the listener.
        if self.state().is_closed {
            self.drop_if_unused(py);
        }
        accepted
    }

    /// Drops the listener of the Rust crate. If a thread is in `accept`, that thread drops it when
    /// it leaves.
    fn drop_if_unused(&self, py: Python<'_>) {
        py.detach(|| {
            if let Ok(mut inner) = self.inner.try_lock() {
                drop(inner.take());
            }
        });
    }
}

#[pymethods]
impl Listener {
    #[new]
    #[pyo3(signature = (address, config = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        config: Option<&Bound<'_, Config>>,
    ) -> PyResult<Self> {
        let (settings, config) = Config::of(config);
        // The GIL is given up, because the name of a host may have to be resolved.
        let bound = py.detach(|| partywall::Listener::bind_with(&address, &settings.inner));
        let listener = bound.map_err(|error| error::exception(py, &error))?;
        let address = match listener.local_socket_addr() {
            Some(address) => format!("tcp:{address}"),
            None => listener.local_address().to_string(),
        };
        Ok(Self {
            inner: Mutex::new(Some(listener)),
            settings,
            config,
            address,
            state: Mutex::default(),
            closing: eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?,
            accept_threads: AcceptThreads::default(),
        })
    }

    /// Waits for the next channel, at most `timeout` seconds, and returns it. Raises ValueError if
    /// the listener is closed, also while the call waits.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Channel> {
        let accepted = self.accept_or_end(py, &Deadline::after(timeout)?)?;
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
    fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Stops listening, and ends `accept` of another thread. Accepted channels go on. When the call
    /// returns, the address is free, unless a rule of admission takes longer than 2 seconds.
    fn close(&self, py: Python<'_>) {
        self.state().is_closed = true;
        // The write does not wait: an eventfd holds a sum of up to 2^64 - 2, and each close adds 1.
        let _ = rustix::io::write(&self.closing, &1u64.to_ne_bytes());
        self.drop_if_unused(py);
        self.accept_threads.wait_until_left(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)
    }

    fn __repr__(&self) -> String {
        let state = if self.state().is_closed { ", closed" } else { "" };
        format!("<partywall.Listener at {}{state}>", self.address)
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
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Channel>> {
        self.accept_or_end(py, &Deadline::Never)
    }
}
