// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message as a Python object with the buffer protocol.
//!
//! ```text
//!   recv ─▶ Message ── memoryview, numpy.frombuffer ─▶ views: each keeps the message alive
//!              └─ release(), or the last reference is gone ─▶ the sender may use the memory again
//! ```
//!
//! Messages of links, records and requests are subclasses, which have the same bytes and views.
#![allow(unsafe_code, reason = "the methods of the buffer protocol receive a pointer")]

use crate::buffer::{self, Payload};
use crate::error;
use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A received message: a read-only buffer of bytes.
///
/// `memoryview(message)` and `numpy.frombuffer(message, dtype)` take views without copying. A view
/// keeps the message alive, and the message keeps its memory, which for a long message is the
/// sender's. `release()` gives the memory back at once; otherwise that happens when the last
/// reference is gone. `with` releases at the end of the block.
#[pyclass(frozen, subclass, module = "partywall")]
pub struct Message {
    state: Mutex<State>,
}

struct State {
    message: Option<Content>,
    views: usize,
}

/// The bytes of a message. They stay at the same address while this value lives.
pub enum Content {
    /// A message of a channel or stream, which may lie in shared memory of its sender.
    Message(partywall::Message),
    /// A message of a link, in memory of this process.
    Bytes(Bytes),
}

impl Content {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Message(message) => message,
            Self::Bytes(bytes) => bytes,
        }
    }

    fn is_zero_copy(&self) -> bool {
        match self {
            Self::Message(message) => message.is_zero_copy(),
            Self::Bytes(_) => false,
        }
    }
}

impl Message {
    pub fn new(message: partywall::Message) -> Self {
        Self::of(Content::Message(message))
    }

    pub fn of(content: Content) -> Self {
        Self { state: Mutex::new(State { message: Some(content), views: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, read: impl FnOnce(&Content) -> T) -> PyResult<T> {
        self.state().message.as_ref().map(read).ok_or_else(|| error::closed_here("message"))
    }
}

#[pymethods]
impl Message {
    /// Whether the bytes lie in memory of their sender, and were never copied.
    #[getter]
    fn is_zero_copy(&self) -> PyResult<bool> {
        self.with(Content::is_zero_copy)
    }

    /// Returns a copy of the bytes.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(|message| PyBytes::new(py, message.as_slice()))
    }

    /// Gives the memory back to the sender. Raises BufferError while a view exists. Releasing a
    /// message again does nothing.
    fn release(&self) -> PyResult<()> {
        let mut state = self.state();
        if state.views > 0 {
            let text = format!("{} views of the message exist: release them first", state.views);
            return Err(PyBufferError::new_err(text));
        }
        state.message = None;
        Ok(())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|message| message.as_slice().len())
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if slf.is(other) {
            return Ok(true);
        }
        // The view of `other` is taken before this message is locked, because taking it may run
        // Python code of `other`.
        let Ok(other) = Payload::of(other) else { return Ok(false) };
        slf.get().with(|message| message.as_slice() == other.as_slice())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __repr__(&self) -> String {
        match &self.state().message {
            Some(message) => {
                format!("<partywall.Message of {} bytes>", message.as_slice().len())
            }
            None => "<partywall.Message, released>".to_owned(),
        }
    }

    /// Exports a read-only view of the message's bytes.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let mut state = slf.get().state();
        let Some(message) = &state.message else { return Err(error::closed_here("message")) };
        let bytes = message.as_slice();
        let memory = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: CPython passes the place for the view. `views` keeps the message alive: its bytes
        // are within this object, which never moves, or in memory that the message holds.
        unsafe { buffer::export(slf.as_any(), view, memory, false, flags) }?;
        state.views += 1;
        Ok(())
    }

    /// Ends one view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().views -= 1;
    }
}
