// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel, whose two directions may be used by two threads at a time.
//!
//! ```text
//!   send ─▶ try_send ─▶ Full  ─▶ arm, wait ─▶ try_send     over a socket: then flush
//!   recv ─▶ try_recv ─▶ Empty ─▶ spin, arm, wait ─▶ try_recv
//! ```
//!
//! The first attempt keeps the GIL: it takes less time than giving the GIL up and taking it again.

use crate::buffer::Payload;
use crate::config::{Config, Settings, address};
use crate::error;
use crate::message::Message;
use crate::peer::{Peer, ReceiverStats, SenderStats};
use crate::reservation::Reservation;
use crate::wait::{Deadline, SIGNAL_CHECK_EVERY, Work, wait_readable};
use partywall::{
    BackPressure, Closed, OwnedReservation, Readiness, RecvError, SendError, Transport,
    TryRecvError, TrySendError, Wait,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// One pipe of messages in each direction, to one other process.
///
/// One thread may send while another receives. A second thread in the same direction gets
/// BusyError. A channel is a context manager, and an iterable of received messages.
#[pyclass(frozen, module = "partywall")]
pub struct Channel {
    sender: Mutex<Option<partywall::Sender>>,
    receiver: Mutex<Option<partywall::Receiver>>,
    is_finished: OnceLock<()>,
    peer: partywall::Peer,
    transport: Transport,
    wait: Wait,
    spin_budget: Duration,
    policy: BackPressure,
}

/// Opens a channel with the listener at `address`.
///
/// The call waits for the handshake, at most for the `handshake_timeout` of the config.
#[pyfunction]
#[pyo3(signature = (address, config = None))]
pub fn connect(
    py: Python<'_>,
    #[pyo3(from_py_with = address)] address: String,
    config: Option<&Bound<'_, Config>>,
) -> PyResult<Channel> {
    // During the handshake a rule of admission of the config decides on the listener, so the config
    // is kept.
    let (settings, _config) = Config::of(config);
    let inner = settings.inner.clone();
    // The handshake goes on after EINTR, so it runs in a thread of its own, and a signal ends only
    // the wait for it. That thread then ends at the latest by the handshake timeout, and drops its
    // channel.
    let connect = move || partywall::connect_with(&address, &inner);
    let channel = Work::start("partywall-connect", connect)?.wait(py)?;
    Ok(Channel::new(channel.map_err(|error| error::exception(py, &error))?, &settings))
}

impl Channel {
    pub fn new(channel: partywall::Channel, settings: &Settings) -> Self {
        let (peer, transport) = (channel.peer().clone(), channel.transport());
        let (sender, receiver) = channel.split();
        Self {
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(receiver)),
            is_finished: OnceLock::new(),
            peer,
            transport,
            wait: settings.wait,
            spin_budget: settings.spin_budget,
            policy: settings.inner.back_pressure_policy(),
        }
    }

    /// Takes the sending direction out of this channel.
    pub fn take_sender(&self, py: Python<'_>) -> PyResult<partywall::Sender> {
        let taken = self.sender.try_lock().map_err(|_| error::busy(py))?.take();
        taken.ok_or_else(|| self.no_sender(py))
    }

    /// Takes the receiving direction out of this channel, and returns it with the setting `wait`.
    pub fn take_receiver(&self, py: Python<'_>) -> PyResult<(partywall::Receiver, Wait)> {
        let taken = self.receiver.try_lock().map_err(|_| error::busy(py))?.take();
        Ok((taken.ok_or_else(|| error::closed_here("channel"))?, self.wait))
    }

    fn no_sender(&self, py: Python<'_>) -> PyErr {
        // If the receiver is locked, another thread is using it, so the channel still has it.
        let receives = self.receiver.try_lock().map_or(true, |receiver| receiver.is_some());
        if self.is_finished.get().is_some() && receives {
            return error::finished_here(py, "channel");
        }
        error::closed_here("channel")
    }

    fn receive(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<partywall::Message>> {
        let mut guard = self.receiver.try_lock().map_err(|_| error::busy(py))?;
        let receiver = guard.as_mut().ok_or_else(|| error::closed_here("channel"))?;
        let mut spins = true;
        loop {
            match receiver.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Empty) => {}
                Err(error) => return Err(error::exception(py, &error)),
            }
            if matches!(deadline, Deadline::Now) {
                return Err(error::exception(py, &TryRecvError::Empty));
            }
            if deadline.has_passed() {
                return Err(error::exception(py, &RecvError::TimedOut));
            }
            if let Some(slice) = self.spin_slice(spins) {
                let end = deadline.within(slice);
                match py.detach(|| receiver.recv_deadline(end)) {
                    Ok(message) => return Ok(message),
                    Err(RecvError::TimedOut) => {}
                    Err(error) => return Err(error::exception(py, &error)),
                }
                py.check_signals()?;
            }
            spins = false;
            if matches!(self.wait, Wait::Spin | Wait::Poll(_)) {
                continue;
            }
            match receiver.arm().map_err(|fault| error::exception(py, &fault))? {
                Readiness::Ready => let_others_run(py)?,
                Readiness::WillNotify => wait_readable(py, receiver.as_fd(), deadline)?,
            }
        }
    }

    /// Returns for how long a receiving call waits within the Rust crate, which spins or polls at
    /// intervals, before its thread sleeps in `poll`; `None` if the thread sleeps at once.
    fn spin_slice(&self, is_first: bool) -> Option<Duration> {
        match self.wait {
            Wait::Spin | Wait::Poll(_) => Some(SIGNAL_CHECK_EVERY),
            Wait::Adaptive if is_first && !self.spin_budget.is_zero() => Some(self.spin_budget),
            _ => None,
        }
    }

    /// Calls `attempt` with the sender again and again until the channel has room, at most until
    /// the deadline.
    fn attempt<T>(
        &self,
        py: Python<'_>,
        deadline: &Deadline,
        mut attempt: impl FnMut(&mut partywall::Sender) -> Result<T, TrySendError>,
    ) -> PyResult<T> {
        let mut guard = self.sender.try_lock().map_err(|_| error::busy(py))?;
        let sender = guard.as_mut().ok_or_else(|| self.no_sender(py))?;
        loop {
            match attempt(sender) {
                Ok(value) => {
                    let waits = self.policy != BackPressure::Error;
                    if waits && !matches!(self.transport, Transport::SharedMemory) {
                        flush(py, sender, deadline)?;
                    }
                    return Ok(value);
                }
                Err(TrySendError::Full) => {}
                Err(error) => return Err(error::exception(py, &error)),
            }
            if self.policy == BackPressure::Error || matches!(deadline, Deadline::Now) {
                return Err(error::exception(py, &TrySendError::Full));
            }
            if deadline.has_passed() {
                return Err(error::exception(py, &SendError::TimedOut));
            }
            match sender.arm().map_err(|fault| error::exception(py, &fault))? {
                Readiness::Ready => let_others_run(py)?,
                Readiness::WillNotify => wait_readable(py, sender.as_fd(), deadline)?,
            }
        }
    }

    /// Sends the message that is written in `reservation`. An error comes with the reservation, for
    /// another attempt.
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn commit(
        &self,
        py: Python<'_>,
        reservation: OwnedReservation,
        deadline: &Deadline,
    ) -> Result<(), (Option<OwnedReservation>, PyErr)> {
        let mut left = Some(reservation);
        let sent = self.attempt(py, deadline, |sender| {
            let Some(reservation) = left.take() else { return Ok(()) };
            sender.try_commit_owned(reservation).map_err(|(back, error)| {
                left = Some(back);
                error
            })
        });
        sent.map_err(|error| (left, error))
    }
}

/// Releases the GIL for a moment. A peer that writes to the ring without completing a message keeps
/// the receiver from sleeping, and must not stop the other threads of this process.
pub fn let_others_run(py: Python<'_>) -> PyResult<()> {
    py.detach(thread::yield_now);
    py.check_signals()
}

/// Ends both directions without the GIL, because over a socket this may wait for a peer that does
/// not read.
impl Drop for Channel {
    fn drop(&mut self) {
        let sender = self.sender.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let receiver = self.receiver.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if sender.is_some() || receiver.is_some() {
            Python::attach(|py| py.detach(|| drop((sender, receiver))));
        }
    }
}

/// Waits until the kernel has accepted the bytes of the sent messages, at most until the deadline.
/// The next call of the sender writes bytes that are left then.
fn flush(py: Python<'_>, sender: &mut partywall::Sender, deadline: &Deadline) -> PyResult<()> {
    loop {
        match sender.flush(Some(Instant::now())) {
            Ok(()) | Err(SendError::Closed(Closed::Finished)) => return Ok(()),
            Err(SendError::TimedOut | SendError::Full) if deadline.has_passed() => return Ok(()),
            Err(SendError::TimedOut | SendError::Full) => {}
            Err(error) => return Err(error::exception(py, &error)),
        }
        wait_readable(py, sender.as_fd(), deadline)?;
    }
}

#[pymethods]
impl Channel {
    /// Sends a copy of `payload`, any object with a contiguous buffer. Waits for room at most
    /// `timeout` seconds: `None` is for ever, and 0 never waits.
    ///
    /// Over a socket the call also waits until the kernel has the message.
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
        if bytes.len() >= DETACHED_COPY_MIN {
            return self.attempt(py, &deadline, |sender| py.detach(|| sender.try_send(bytes)));
        }
        self.attempt(py, &deadline, |sender| sender.try_send(bytes))
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
    /// the peer reads it. Waits for memory at most `timeout` seconds.
    #[pyo3(signature = (length, timeout = None))]
    fn reserve(
        slf: &Bound<'_, Self>,
        length: usize,
        timeout: Option<f64>,
    ) -> PyResult<Reservation> {
        let deadline = Deadline::after(timeout)?;
        let reserve = |sender: &mut partywall::Sender| sender.try_reserve_owned(length);
        let reservation = slf.get().attempt(slf.py(), &deadline, reserve)?;
        Ok(Reservation::new(slf.clone().unbind().into(), reservation))
    }

    /// Waits until the kernel has all bytes of messages sent over a socket, at most `timeout`
    /// seconds. Over shared memory the kernel gets no bytes, so the call returns at once.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let mut guard = self.sender.try_lock().map_err(|_| error::busy(py))?;
        let sender = guard.as_mut().ok_or_else(|| self.no_sender(py))?;
        flush(py, sender, &deadline)?;
        match sender.flush(Some(Instant::now())) {
            Err(error @ SendError::TimedOut) => Err(error::exception(py, &error)),
            _ => Ok(()),
        }
    }

    /// Ends the sending direction: the peer receives what was sent, then `None`. The channel still
    /// receives.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.sender.try_lock().map_err(|_| error::busy(py))?.take();
        let Some(mut sender) = taken else { return Ok(()) };
        let _ = self.is_finished.set(());
        let lingers = !matches!(self.transport, Transport::SharedMemory)
            && matches!(
                sender.flush(Some(Instant::now())),
                Err(SendError::TimedOut | SendError::Full)
            );
        if lingers {
            // The peer does not read from the socket, so dropping the sender may wait for up to a
            // second, and a signal does not end that wait. So a thread of its own drops the sender.
            return Work::start("partywall-linger", move || drop(sender))?.wait(py);
        }
        py.detach(|| drop(sender));
        Ok(())
    }

    /// Ends both directions. Closing a channel again does nothing. If another thread is waiting in
    /// `recv`, only the sending direction ends, and the call raises BusyError. That thread receives
    /// `None` once the peer has finished, too.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.finish(py)?;
        let receiver =
            self.receiver.try_lock().map_err(|_| error::numbered(py, 8, RECEIVING))?.take();
        py.detach(|| drop(receiver));
        Ok(())
    }

    /// Prepares the descriptor of the receiving direction for a selector. Returns True if a message
    /// may be there already: then receive before waiting for the descriptor.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        let mut guard = self.receiver.try_lock().map_err(|_| error::busy(py))?;
        let receiver = guard.as_mut().ok_or_else(|| error::closed_here("channel"))?;
        let armed = receiver.arm().map_err(|fault| error::exception(py, &fault))?;
        Ok(armed == Readiness::Ready)
    }

    /// The descriptor of the receiving direction. It becomes readable once a message may be there,
    /// if `arm()` has returned False. Do not read from it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let guard = self.receiver.try_lock().map_err(|_| error::busy(py))?;
        let receiver = guard.as_ref().ok_or_else(|| error::closed_here("channel"))?;
        Ok(receiver.as_fd().as_raw_fd())
    }

    /// The peer: the process at the other end of the channel.
    #[getter]
    fn peer(&self) -> Peer {
        Peer::from(&self.peer)
    }

    /// The transport when the channel was made, as text: `shm: shared memory`, or `socket:` and the
    /// reason for it.
    #[getter]
    fn transport(&self) -> String {
        self.transport.to_string()
    }

    /// Whether the channel's messages travelled through shared memory from the first message on.
    #[getter]
    fn is_shared_memory(&self) -> bool {
        self.transport == Transport::SharedMemory
    }

    /// Returns the counters of both directions: `(sender, receiver)`.
    fn stats(&self, py: Python<'_>) -> PyResult<(SenderStats, ReceiverStats)> {
        let sender = self.sender.try_lock().map_err(|_| error::busy(py))?;
        let receiver = self.receiver.try_lock().map_err(|_| error::busy(py))?;
        let received = receiver.as_ref().ok_or_else(|| error::closed_here("channel"))?.stats();
        drop(receiver);
        let sent = sender.as_ref().ok_or_else(|| self.no_sender(py))?.stats();
        Ok((sent.into(), received.into()))
    }

    fn __repr__(&self) -> String {
        let is_open = self.sender.try_lock().map_or(true, |sender| sender.is_some())
            || self.receiver.try_lock().map_or(true, |receiver| receiver.is_some());
        let state = if is_open { "" } else { ", closed" };
        format!("<partywall.Channel with {}, {}{state}>", self.peer, self.transport)
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

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.recv(py, None)
    }
}

/// The text of the error of `close` while another thread receives: only the sending direction has
/// ended.
const RECEIVING: &str = "another thread receives from this channel: its sending has ended, and that \
                         thread receives None once the peer has finished, too";
/// Length in bytes from which a message is copied without the GIL, so that other threads run.
pub const DETACHED_COPY_MIN: usize = 64 << 10;
