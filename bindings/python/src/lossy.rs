// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that a full channel may drop: logs and samples on their way to an agent.
//!
//! ```text
//!   LossySender.log ─▶ channel ─▶ LossyReceiver.recv ─▶ Record with the number lost before it
//! ```

use crate::buffer::Payload;
use crate::channel::{Channel, let_others_run};
use crate::error;
use crate::message::Message;
use crate::peer::counters;
use crate::runtime::Detached;
use crate::setting_value::impossible;
use crate::wait::{Deadline, FAR, SIGNAL_CHECK_EVERY, Work, duration, wait_readable};
use partywall::{ErrorCode, Readiness, RecvError, SendError, TryRecvError, Wait};
use partywall_extras::lossy::{self, DropReason, LossyConfig, LossyRecvError, OnFull, SendOutcome};
use pyo3::prelude::*;
use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Sends records that may be lost, from any number of threads, over the sending direction of a
/// channel, which it takes. `log` waits for the receiving agent only if `on_full` says so.
#[pyclass(frozen, module = "partywall._native")]
pub struct LossySender {
    sender: Detached<lossy::LossySender>,
    /// Maximum wait for room in a call without a timeout; `None` if the policy `on_full` does not
    /// wait.
    waits_for: Option<Duration>,
}

impl LossySender {
    fn sender(&self) -> PyResult<&lossy::LossySender> {
        self.sender.get().ok_or_else(|| error::closed_here("sender"))
    }
}

#[pymethods]
impl LossySender {
    #[new]
    #[pyo3(signature = (
        channel,
        on_full = None,
        *,
        queue_records = 1024,
        queue_bytes = 1_048_576,
        flush_on_drop = 0.1
    ))]
    fn new(
        channel: &Bound<'_, Channel>,
        on_full: Option<&Bound<'_, PyAny>>,
        queue_records: usize,
        queue_bytes: usize,
        flush_on_drop: f64,
    ) -> PyResult<Self> {
        let policy = on_full.map_or(Ok(OnFull::DropNewest), policy)?;
        let waits_for = match policy {
            OnFull::Block(at_most) => Some(at_most),
            _ => None,
        };
        let config = LossyConfig::new(policy)
            .queue_records(queue_records)
            .queue_bytes(queue_bytes)
            .flush_on_drop(duration(flush_on_drop)?);
        let sender = channel.get().take_sender(channel.py())?;
        let sender = Detached::new(lossy::LossySender::with(sender, config));
        Ok(Self { sender, waits_for })
    }

    /// Logs a record. Returns "sent", "queued", or why the record was dropped: "full", "too_large",
    /// "closed". With a `timeout` in seconds the call waits for room, whatever the policy. If
    /// Ctrl-C ends the wait, the record may still be sent before its deadline.
    #[pyo3(signature = (record, timeout = None))]
    fn log(
        &self,
        py: Python<'_>,
        record: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        let record = Payload::of(record)?;
        let sender = self.sender()?;
        let bytes = record.as_slice();
        let deadline = match (timeout, self.waits_for) {
            (Some(_), _) => Some(Deadline::after(timeout)?),
            (None, Some(at_most)) => Some(Deadline::At(Instant::now() + at_most.min(FAR))),
            (None, None) => None,
        };
        let outcome = match deadline {
            None => py.detach(|| sender.log(bytes)),
            Some(deadline) => match py.detach(|| sender.log_without_wait(bytes)) {
                Some(outcome) => outcome,
                None => log_later(py, sender, bytes, &deadline)?,
            },
        };
        Ok(match outcome {
            SendOutcome::Sent => "sent",
            SendOutcome::Queued => "queued",
            SendOutcome::Dropped(DropReason::Full) => "full",
            SendOutcome::Dropped(DropReason::TooLarge) => "too_large",
            SendOutcome::Dropped(_) => "closed",
        })
    }

    /// Sends queued records and the count of lost records, as far as there is room now.
    fn try_flush(&self, py: Python<'_>) -> PyResult<()> {
        let sender = self.sender()?;
        py.detach(|| sender.try_flush());
        Ok(())
    }

    /// Waits until every record that was logged before, and the count of lost records, are in the
    /// channel.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let until = Deadline::after(timeout)?.instant();
        let sender = self.sender()?;
        let flushed = match py.detach(|| sender.flush(Instant::now())) {
            Err(SendError::TimedOut) => {
                let sender = sender.clone();
                Work::start("partywall-flush", move || sender.flush(until))?.wait(py)?
            }
            flushed => flushed,
        };
        flushed.map_err(|error| error::exception(py, &error))
    }

    /// Returns the counters of this sender.
    fn stats(&self, py: Python<'_>) -> PyResult<LossyStats> {
        let sender = self.sender()?;
        Ok(py.detach(|| sender.stats()).into())
    }

    /// Whether the receiving agent is gone, so that every record is dropped.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        let sender = self.sender()?;
        Ok(py.detach(|| sender.is_closed()))
    }
}

/// Waits for room for a record until `deadline`, in a thread of its own, because the wait of the
/// Rust crate goes on after EINTR. If a signal ends this call, that thread goes on until the
/// deadline.
fn log_later(
    py: Python<'_>,
    sender: &lossy::LossySender,
    record: &[u8],
    deadline: &Deadline,
) -> PyResult<SendOutcome> {
    let (sender, record, until) = (sender.clone(), record.to_vec(), deadline.instant());
    Work::start("partywall-log", move || sender.log_deadline(&record, until))?.wait(py)
}

/// Interprets the setting `on_full`, which says what to do with a record without room: the name of
/// a policy, or the seconds to wait for room.
fn policy(value: &Bound<'_, PyAny>) -> PyResult<OnFull> {
    if let Ok(seconds) = value.extract::<f64>() {
        return Ok(OnFull::Block(duration(seconds)?));
    }
    match value.extract::<String>()?.as_str() {
        "drop_newest" => Ok(OnFull::DropNewest),
        "drop_oldest" => Ok(OnFull::DropOldest),
        _ => Err(impossible("on_full", value, "\"drop_newest\", \"drop_oldest\", or seconds")),
    }
}

/// Counters of a lossy sender. The number of logged records is `sent + queued + dropped`.
#[pyclass(frozen, get_all, module = "partywall._native")]
pub struct LossyStats {
    sent: u64,
    queued: u64,
    dropped: u64,
    dropped_full: u64,
    dropped_too_large: u64,
    dropped_closed: u64,
}

impl From<lossy::LossyStats> for LossyStats {
    fn from(from: lossy::LossyStats) -> Self {
        Self {
            sent: from.sent,
            queued: from.queued,
            dropped: from.drops.total(),
            dropped_full: from.drops.full,
            dropped_too_large: from.drops.too_large,
            dropped_closed: from.drops.closed,
        }
    }
}

#[pymethods]
impl LossyStats {
    fn __repr__(&self) -> String {
        counters(
            "Stats",
            &[
                ("sent", self.sent),
                ("queued", self.queued),
                ("dropped", self.dropped),
                ("dropped_full", self.dropped_full),
                ("dropped_too_large", self.dropped_too_large),
                ("dropped_closed", self.dropped_closed),
            ],
        )
    }
}

/// Receives the records of a lossy sender. It takes the receiving direction of a channel. An
/// iterable of records.
#[pyclass(frozen, module = "partywall._native")]
pub struct LossyReceiver {
    receiver: Mutex<lossy::LossyReceiver>,
    wait: Wait,
}

impl LossyReceiver {
    fn receive(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<lossy::Record>> {
        let mut guard = self.receiver.try_lock().map_err(|_| error::busy(py))?;
        let receiver = &mut *guard;
        loop {
            match receiver.try_recv() {
                Ok(record) => return Ok(record),
                Err(LossyRecvError::Recv(TryRecvError::Empty)) => {}
                Err(error) => return Err(exception(py, &error)),
            }
            if matches!(deadline, Deadline::Now) {
                return Err(error::exception(py, &TryRecvError::Empty));
            }
            if deadline.has_passed() {
                return Err(error::exception(py, &RecvError::TimedOut));
            }
            if let Wait::Spin | Wait::Poll(_) = self.wait {
                // With a `wait` that spins or polls at intervals, the Rust crate does the waiting,
                // for a short time.
                let end = deadline.within(SIGNAL_CHECK_EVERY);
                match py.detach(|| receiver.recv_deadline(end)) {
                    Ok(record) => return Ok(record),
                    Err(LossyRecvError::Recv(RecvError::TimedOut)) => py.check_signals()?,
                    Err(error) => return Err(exception(py, &error)),
                }
                continue;
            }
            match receiver.arm().map_err(|fault| error::exception(py, &fault))? {
                Readiness::Ready => let_others_run(py)?,
                Readiness::WillNotify => wait_readable(py, receiver.as_fd(), deadline)?,
            }
        }
    }
}

fn exception<E>(py: Python<'_>, error: &LossyRecvError<E>) -> PyErr
where
    E: ErrorCode + Error + 'static,
{
    error::exception(py, error)
}

#[pymethods]
impl LossyReceiver {
    #[new]
    fn new(channel: &Bound<'_, Channel>) -> PyResult<Self> {
        let (receiver, wait) = channel.get().take_receiver(channel.py())?;
        Ok(Self { receiver: Mutex::new(lossy::LossyReceiver::new(receiver)), wait })
    }

    /// Receives the next record; `None` once the sending application has finished. Waits at most
    /// `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<Record>>> {
        let record = self.receive(py, &Deadline::after(timeout)?)?;
        record.map(|record| Record::new(py, record)).transpose()
    }

    /// Number of records received so far.
    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.receiver.try_lock().map_err(|_| error::busy(py))?.received())
    }

    /// Number of lost records that the sender has reported so far.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.receiver.try_lock().map_err(|_| error::busy(py))?.lost())
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        self.recv(py, None)
    }
}

/// A received record: a message with the number of records that were lost before it.
#[pyclass(frozen, extends = Message, module = "partywall._native")]
pub struct Record {
    lost_before: u64,
}

impl Record {
    fn new(py: Python<'_>, record: lossy::Record) -> PyResult<Py<Self>> {
        let made = Self { lost_before: record.lost_before };
        let message = Message::new(record.message);
        Py::new(py, PyClassInitializer::from(message).add_subclass(made))
    }
}

#[pymethods]
impl Record {
    /// Number of records lost between the previous received record and this one.
    #[getter]
    const fn lost_before(&self) -> u64 {
        self.lost_before
    }
}
