// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of a session, whose two directions may be used by two threads at a time.
//!
//! ```text
//!   send ─▶ try_send ─▶ Full  ─▶ future of the Rust crate ─▶ wait (runtime.rs)
//!   recv ─▶ try_recv ─▶ Empty ─▶ future of the Rust crate ─▶ wait
//! ```
//!
//! A stream is split into its two directions at its first use. Before, `calls.rs` can take all of
//! it.

use crate::buffer::Payload;
use crate::channel::DETACHED_COPY_MIN;
use crate::error;
use crate::message::Message;
use crate::peer::Peer;
use crate::reservation::Reservation;
use crate::runtime::wait;
use crate::wait::Deadline;
use partywall::tokio::{RecvStream, SendStream};
use partywall::{BackPressure, OwnedReservation, StreamRecvError, StreamSendError, Transport};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A stream of a session: messages in two directions, with an end and back-pressure of its own.
///
/// One thread may send while another receives. A second thread in the same direction gets
/// BusyError. A stream is an iterable of received messages, and a context manager: at the end of
/// the block it is closed in good order, or reset if the block has raised.
#[pyclass(frozen, module = "partywall._native")]
pub struct Stream {
    whole: Mutex<Option<partywall::tokio::Stream>>,
    sender: Mutex<Option<SendStream>>,
    receiver: Mutex<Option<RecvStream>>,
    is_finished: OnceLock<()>,
    metadata: Vec<u8>,
    number: u32,
    peer: partywall::Peer,
    transport: Transport,
    policy: BackPressure,
}

impl Stream {
    pub fn new(stream: partywall::tokio::Stream, policy: BackPressure) -> Self {
        Self {
            metadata: stream.metadata().to_vec(),
            number: stream.number(),
            peer: stream.peer().clone(),
            transport: stream.transport(),
            whole: Mutex::new(Some(stream)),
            sender: Mutex::new(None),
            receiver: Mutex::new(None),
            is_finished: OnceLock::new(),
            policy,
        }
    }

    /// Takes the stream out of this object, which is closed then.
    ///
    /// # Errors
    /// Fails if the stream was used or closed.
    pub fn take_whole(&self) -> PyResult<partywall::tokio::Stream> {
        let taken = self.whole.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err("this stream was used or closed: open another")
        })
    }

    fn split(&self) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = whole.take() {
            let (sender, receiver) = stream.into_split();
            *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            *self.receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        }
    }

    fn sender(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<SendStream>>> {
        self.split();
        self.sender.try_lock().map_err(|_| error::busy(py))
    }

    fn receiver(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<RecvStream>>> {
        self.split();
        self.receiver.try_lock().map_err(|_| error::busy(py))
    }

    fn no_sender(&self, py: Python<'_>) -> PyErr {
        // If the receiver is locked, another thread is using it, so the stream still has it.
        let receives = self.receiver.try_lock().map_or(true, |receiver| receiver.is_some());
        if self.is_finished.get().is_some() && receives {
            return error::finished_here(py, "stream");
        }
        error::closed_here("stream")
    }

    fn receive(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<partywall::Message>> {
        let mut guard = self.receiver(py)?;
        let receiver = guard.as_mut().ok_or_else(|| error::closed_here("stream"))?;
        let received = match receiver.try_recv() {
            Err(StreamRecvError::Empty) if !matches!(deadline, Deadline::Now) => {
                let received = wait(py, deadline, receiver.recv())?;
                received.unwrap_or(Err(StreamRecvError::TimedOut))
            }
            tried => tried,
        };
        received.map_err(|error| error::exception(py, &error))
    }

    const fn waits(&self, deadline: &Deadline) -> bool {
        !matches!(self.policy, BackPressure::Error) && !matches!(deadline, Deadline::Now)
    }

    /// Sends the message that is written in `reservation`. An error comes with the reservation,
    /// unless the call has waited for room: then the message is dropped.
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn commit(
        &self,
        py: Python<'_>,
        reservation: OwnedReservation,
        deadline: &Deadline,
    ) -> Result<(), (Option<OwnedReservation>, PyErr)> {
        let mut guard = match self.sender(py) {
            Ok(guard) => guard,
            Err(busy) => return Err((Some(reservation), busy)),
        };
        let Some(sender) = guard.as_mut() else {
            return Err((Some(reservation), self.no_sender(py)));
        };
        let failed = match sender.try_commit_owned(reservation) {
            Ok(()) => return Ok(()),
            Err((back, StreamSendError::Full)) if self.waits(deadline) => back,
            Err((back, error)) => return Err((Some(back), error::exception(py, &error))),
        };
        match wait(py, deadline, sender.commit_owned(failed)) {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(error))) => Err((None, error::exception(py, &error))),
            Ok(None) => Err((None, error::exception(py, &StreamSendError::TimedOut))),
            Err(raised) => Err((None, raised)),
        }
    }
}

#[pymethods]
impl Stream {
    /// Sends a copy of `payload`, any object with a contiguous buffer, as one message. Waits for
    /// room at most `timeout` seconds: `None` is for ever, and 0 never waits.
    #[pyo3(signature = (payload, timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let payload = Payload::of(payload)?;
        let bytes = payload.as_slice();
        let mut guard = self.sender(py)?;
        let sender = guard.as_mut().ok_or_else(|| self.no_sender(py))?;
        let tried = if bytes.len() >= DETACHED_COPY_MIN {
            py.detach(|| sender.try_send(bytes))
        } else {
            sender.try_send(bytes)
        };
        let sent = match tried {
            Err(StreamSendError::Full) if self.waits(&deadline) => {
                let sent = wait(py, &deadline, sender.send(bytes))?;
                sent.unwrap_or(Err(StreamSendError::TimedOut))
            }
            tried => tried,
        };
        sent.map_err(|error| error::exception(py, &error))
    }

    /// Receives the next message; `None` once the peer has finished. Waits at most `timeout`
    /// seconds.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Message>> {
        Ok(self.receive(py, &Deadline::after(timeout)?)?.map(Message::new))
    }

    /// Receives the next message as `bytes`, by one copy; `None` once the peer has finished.
    #[pyo3(signature = (timeout = None))]
    fn recv_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = self.receive(py, &Deadline::after(timeout)?)?;
        Ok(message.map(|message| PyBytes::new(py, &message)))
    }

    /// Reserves memory for a message of `length` bytes. The caller writes the message there, where
    /// the peer reads it. Waits for memory at most `timeout` seconds. A `commit` that waits for
    /// room in vain drops the message.
    #[pyo3(signature = (length, timeout = None))]
    fn reserve(
        slf: &Bound<'_, Self>,
        length: usize,
        timeout: Option<f64>,
    ) -> PyResult<Reservation> {
        let (py, stream) = (slf.py(), slf.get());
        let deadline = match stream.policy {
            BackPressure::Error => Deadline::Now,
            _ => Deadline::after(timeout)?,
        };
        let mut guard = stream.sender(py)?;
        let sender = guard.as_mut().ok_or_else(|| stream.no_sender(py))?;
        let reserved = wait(py, &deadline, sender.reserve_owned(length))?;
        drop(guard);
        let in_vain = match deadline {
            Deadline::Now => StreamSendError::Full,
            _ => StreamSendError::TimedOut,
        };
        let reservation = reserved.unwrap_or(Err(in_vain));
        let reservation = reservation.map_err(|error| error::exception(py, &error))?;
        Ok(Reservation::new(slf.clone().unbind().into(), reservation))
    }

    /// Ends the sending direction: the peer receives what was sent, then `None`. The stream still
    /// receives.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        if self.sender(py)?.take().is_some() {
            let _ = self.is_finished.set(());
        }
        Ok(())
    }

    /// Ends the stream's receiving direction: the peer's sends fail with `code`.
    #[pyo3(signature = (code = 0))]
    fn stop(&self, py: Python<'_>, code: u32) -> PyResult<()> {
        error::check_application_code(code)?;
        if let Some(mut receiver) = self.receiver(py)?.take() {
            receiver.stop(code);
        }
        Ok(())
    }

    /// Ends both directions of the stream at once: the peer's calls fail with `code`.
    #[pyo3(signature = (code = 0))]
    fn reset(&self, py: Python<'_>, code: u32) -> PyResult<()> {
        error::check_application_code(code)?;
        if let Some(mut sender) = self.sender(py)?.take() {
            sender.reset(code);
        }
        self.stop(py, code)
    }

    /// Ends both directions of the stream in good order. Closing a stream again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.finish(py)?;
        *self.receiver(py)? = None;
        Ok(())
    }

    /// Returns the stream as a raw file of `io`, without the boundaries of messages. Its calls
    /// raise TimedOut after `timeout` seconds, and closing it closes the stream.
    #[pyo3(signature = (timeout = None))]
    fn makefile<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("partywall.sessions")?;
        module.getattr("StreamFile")?.call1((slf, timeout))
    }

    /// The metadata with which the peer opened the stream; empty if this side opened it.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.metadata)
    }

    /// The number of the stream within its session. After the stream has ended, another stream may
    /// get the same number.
    #[getter]
    const fn number(&self) -> u32 {
        self.number
    }

    /// The peer: the process at the other end of the stream's session.
    #[getter]
    fn peer(&self) -> Peer {
        Peer::from(&self.peer)
    }

    /// The transport of the session when the stream was opened, as text.
    #[getter]
    fn transport(&self) -> String {
        self.transport.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<partywall.sessions.Stream {} with {}>", self.number, self.peer)
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
        if exception.is_some() { self.reset(py, 0) } else { self.close(py) }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.recv(py, None)
    }
}
