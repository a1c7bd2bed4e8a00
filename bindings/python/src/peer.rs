// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a peer, and the counters of a channel, as objects with plain attributes.

use crate::error::in_python;
use pyo3::prelude::*;

/// Process, user and group of a peer, as the kernel attests them.
#[pyclass(frozen, get_all, module = "partywall")]
#[derive(Clone)]
pub struct Credentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

impl From<&partywall::Credentials> for Credentials {
    fn from(from: &partywall::Credentials) -> Self {
        Self { pid: from.pid, uid: from.uid, gid: from.gid }
    }
}

#[pymethods]
impl Credentials {
    fn __repr__(&self) -> String {
        format!("Credentials(pid={}, uid={}, gid={})", self.pid, self.uid, self.gid)
    }
}

/// The peer: the process at the other end of a connection, and how far it is trusted.
#[pyclass(frozen, get_all, module = "partywall")]
pub struct Peer {
    /// Process, user and group of the peer; `None` over TCP.
    credentials: Option<Credentials>,
    is_trusted: bool,
    /// Why the peer is not trusted; `None` if it is trusted.
    distrust: Option<String>,
    label: String,
    text: String,
}

impl From<&partywall::Peer> for Peer {
    fn from(from: &partywall::Peer) -> Self {
        Self {
            credentials: from.credentials.as_ref().map(Credentials::from),
            is_trusted: from.trust == partywall::Trust::Trusted,
            distrust: from.distrust.map(|reason| in_python(&reason.to_string())),
            label: from.label.clone(),
            text: from.to_string(),
        }
    }
}

#[pymethods]
impl Peer {
    fn __repr__(&self) -> String {
        format!("<partywall.Peer: {}>", self.text)
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

/// Returns a text of counters for a log: the name of their class, and each counter with its name.
pub fn counters(class: &str, counters: &[(&str, u64)]) -> String {
    let counters: Vec<_> = counters.iter().map(|(name, count)| format!("{name}={count}")).collect();
    format!("{class}({})", counters.join(", "))
}

/// Counters of the sending direction of a connection.
#[pyclass(frozen, get_all, module = "partywall")]
pub struct SenderStats {
    messages: u64,
    bytes: u64,
    zero_copy: u64,
    overflows: u64,
    wakeups_sent: u64,
    sleeps: u64,
    memory_bytes: u64,
    memory_used_bytes: u64,
    blocks_in_flight: u64,
}

impl From<partywall::SenderStats> for SenderStats {
    fn from(from: partywall::SenderStats) -> Self {
        Self {
            messages: from.messages,
            bytes: from.bytes,
            zero_copy: from.zero_copy,
            overflows: from.overflows,
            wakeups_sent: from.wakeups_sent,
            sleeps: from.sleeps,
            memory_bytes: from.memory_bytes,
            memory_used_bytes: from.memory_used_bytes,
            blocks_in_flight: from.blocks_in_flight,
        }
    }
}

/// Counters of the receiving direction of a connection.
#[pyclass(frozen, get_all, module = "partywall")]
pub struct ReceiverStats {
    messages: u64,
    bytes: u64,
    zero_copy: u64,
    wakeups_sent: u64,
    sleeps: u64,
    spin_hits: u64,
}

impl From<partywall::ReceiverStats> for ReceiverStats {
    fn from(from: partywall::ReceiverStats) -> Self {
        Self {
            messages: from.messages,
            bytes: from.bytes,
            zero_copy: from.zero_copy,
            wakeups_sent: from.wakeups_sent,
            sleeps: from.sleeps,
            spin_hits: from.spin_hits,
        }
    }
}

#[pymethods]
impl SenderStats {
    fn __repr__(&self) -> String {
        counters(
            "SenderStats",
            &[
                ("messages", self.messages),
                ("bytes", self.bytes),
                ("zero_copy", self.zero_copy),
                ("overflows", self.overflows),
                ("wakeups_sent", self.wakeups_sent),
                ("sleeps", self.sleeps),
                ("memory_bytes", self.memory_bytes),
                ("memory_used_bytes", self.memory_used_bytes),
                ("blocks_in_flight", self.blocks_in_flight),
            ],
        )
    }
}

#[pymethods]
impl ReceiverStats {
    fn __repr__(&self) -> String {
        counters(
            "ReceiverStats",
            &[
                ("messages", self.messages),
                ("bytes", self.bytes),
                ("zero_copy", self.zero_copy),
                ("wakeups_sent", self.wakeups_sent),
                ("sleeps", self.sleeps),
                ("spin_hits", self.spin_hits),
            ],
        )
    }
}
