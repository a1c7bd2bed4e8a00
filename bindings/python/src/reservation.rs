// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved memory of a message as a writable Python buffer.
//!
//! ```text
//!   channel.reserve(n) ─▶ Reservation ── memoryview ─▶ views
//!                             ├─ commit: sent; BufferError while a view exists
//!                             └─ abort:  freed; BufferError while a view exists
//! ```
#![allow(unsafe_code, reason = "the methods of the buffer protocol receive a pointer")]

use crate::buffer;
use crate::channel::Channel;
use crate::error;
use crate::stream::Stream;
use crate::wait::Deadline;
use partywall::OwnedReservation;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory for one message: a writable buffer. Fill it through `memoryview(reservation)` or
/// `numpy.frombuffer(reservation, dtype)`, release the views, then `commit()`.
///
/// `with channel.reserve(n) as reservation:` commits at the end of the block, and aborts if the
/// block raises. A view must not be used in a forked child: there the memory is not mapped, and the
/// access ends the child.
#[pyclass(frozen, module = "partywall")]
pub struct Reservation {
    sender: Sender,
    process: u32,
    state: Mutex<State>,
}

/// The channel or stream that has reserved the memory, and that sends it.
pub enum Sender {
    Channel(Py<Channel>),
    Stream(Py<Stream>),
}

impl From<Py<Channel>> for Sender {
    fn from(channel: Py<Channel>) -> Self {
        Self::Channel(channel)
    }
}

impl From<Py<Stream>> for Sender {
    fn from(stream: Py<Stream>) -> Self {
        Self::Stream(stream)
    }
}

struct State {
    reservation: Option<OwnedReservation>,
    len: usize,
    /// Number of views of the memory. While there is one, the memory is neither sent nor freed.
    views: usize,
}

impl Reservation {
    pub fn new(sender: Sender, reservation: OwnedReservation) -> Self {
        let len = reservation.len();
        let state = Mutex::new(State { reservation: Some(reservation), len, views: 0 });
        Self { sender, process: process::id(), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> PyResult<OwnedReservation> {
        let mut state = self.state();
        state.refuse_with_views()?;
        state.reservation.take().ok_or_else(|| error::closed_here("reservation"))
    }
}

impl State {
    fn refuse_with_views(&self) -> PyResult<()> {
        if self.views == 0 {
            return Ok(());
        }
        let text = format!("{} views of the reservation exist: release them first", self.views);
        Err(PyBufferError::new_err(text))
    }
}

#[pymethods]
impl Reservation {
    /// Sends the message. Raises BufferError while a view of the memory exists. If a commit raises,
    /// the reservation is kept and can be committed again, with one exception: a stream that has
    /// waited for room in vain drops the message.
    #[pyo3(signature = (timeout = None))]
    fn commit(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let reservation = self.take()?;
        let sent = match &self.sender {
            Sender::Channel(channel) => channel.get().commit(py, reservation, &deadline),
            Sender::Stream(stream) => stream.get().commit(py, reservation, &deadline),
        };
        match sent {
            Ok(()) => Ok(()),
            Err((back, error)) => {
                self.state().reservation = back;
                Err(error)
            }
        }
    }

    /// Frees the memory without sending a message. Raises BufferError while a view of the memory
    /// exists. Does nothing after a commit.
    fn abort(&self) -> PyResult<()> {
        let mut state = self.state();
        state.refuse_with_views()?;
        state.reservation = None;
        Ok(())
    }

    /// Shortens the message to `length` bytes. Raises BufferError while a view of the memory
    /// exists.
    fn truncate(&self, length: usize) -> PyResult<()> {
        let mut state = self.state();
        state.refuse_with_views()?;
        if length > state.len {
            let text = format!("the reservation has {} bytes, fewer than {length}", state.len);
            return Err(PyValueError::new_err(text));
        }
        let reservation = state.reservation.as_mut();
        reservation.ok_or_else(|| error::closed_here("reservation"))?.truncate(length);
        state.len = length;
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.state().len
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exception = None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if exception.is_some() {
            return self.abort();
        }
        if self.state().reservation.is_none() {
            return Ok(()); // the block has committed or aborted
        }
        self.commit(py, None)
    }

    fn __repr__(&self) -> String {
        format!("<partywall.Reservation of {} bytes>", self.state().len)
    }

    /// Exports a writable view of the reserved memory.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if process::id() != this.process {
            let text = "this reservation belongs to the parent process: connect anew after fork()";
            return Err(error::numbered(slf.py(), 1, text));
        }
        let mut state = this.state();
        let Some(reservation) = &mut state.reservation else {
            return Err(error::closed_here("reservation"));
        };
        let memory = (reservation.as_mut_ptr(), reservation.len());
        // SAFETY: CPython passes the place for the view. `views` keeps the reservation from being
        // sent or freed, and only views access its memory.
        unsafe { buffer::export(slf.as_any(), view, memory, true, flags) }?;
        state.views += 1;
        Ok(())
    }

    /// Ends one view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().views -= 1;
    }
}
