// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener for channels.

use crate::channel::Channel;
use crate::config::{Config, address};
use crate::error;
use crate::wait::{Deadline, wait_readable};
use partywall::AcceptError;
use pyo3::prelude::*;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Listens at an address, and accepts channels.
///
/// The address is text: `unix:/path`, `unix:@name` (abstract) or `tcp:host:port`. The listener is a
/// context manager and an iterable of channels.
#[pyclass(frozen, module = "partywall")]
pub struct Listener {
    inner: Mutex<Option<partywall::Listener>>,
    config: Config,
}

impl Listener {
    fn with<T>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut partywall::Listener) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut inner = self.inner.try_lock().map_err(|_| error::busy(py))?;
        act(inner.as_mut().ok_or_else(|| error::closed_here("listener"))?)
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
        let config = config.map_or_else(Config::default, |config| config.get().clone());
        let inner = partywall::Listener::bind_with(&address, &config.inner)
            .map_err(|error| error::exception(py, &error))?;
        Ok(Self { inner: Mutex::new(Some(inner)), config })
    }

    /// Waits for the next channel, at most `timeout` seconds, and returns it.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Channel> {
        let deadline = Deadline::after(timeout)?;
        self.with(py, |listener| {
            loop {
                match py.detach(|| listener.try_accept()) {
                    Ok(channel) => return Ok(Channel::new(channel, &self.config)),
                    Err(error @ AcceptError::TimedOut) if deadline.has_passed() => {
                        return Err(error::exception(py, &error));
                    }
                    Err(AcceptError::TimedOut) => {
                        wait_readable(py, listener.as_fd(), &deadline)?;
                    }
                    Err(error) => return Err(error::exception(py, &error)),
                }
            }
        })
    }

    /// The address, as text. A TCP listener of port 0 has the port that the system chose.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |listener| {
            Ok(match listener.local_socket_addr() {
                Some(address) => format!("tcp:{address}"),
                None => listener.local_address().to_string(),
            })
        })
    }

    /// Number of connections that were refused.
    #[getter]
    fn refused(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |listener| Ok(listener.refused()))
    }

    /// Stops listening. Accepted channels go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.try_lock().map_err(|_| error::busy(py))?.take();
        py.detach(|| drop(inner));
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Channel> {
        self.accept(py, None)
    }
}
