// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of links as objects with plain attributes: status, events, counters, logins.

use crate::error::in_python;
use crate::peer::{Peer, counters};
use partywall_link::{Event, ReportSnapshot, Stats, Status, StreamPosition};
use pyo3::prelude::*;

/// The status of a link: whether messages flow, and if not, why.
#[pyclass(frozen, get_all, module = "partywall._native")]
pub struct LinkStatus {
    /// The state of the link: "detached", "attaching", "attached", "fenced", "quarantined" or
    /// "closed".
    kind: &'static str,
    /// The transport as text; `None` unless the link is attached.
    transport: Option<String>,
    text: String,
}

impl From<&Status> for LinkStatus {
    fn from(status: &Status) -> Self {
        let (kind, transport) = match status {
            Status::Detached => ("detached", None),
            Status::Attaching => ("attaching", None),
            Status::Attached { transport, .. } => ("attached", Some(transport.to_string())),
            Status::Fenced => ("fenced", None),
            Status::Quarantined => ("quarantined", None),
            Status::Closed => ("closed", None),
            _ => ("unknown", None),
        };
        Self { kind, transport, text: status.to_string() }
    }
}

#[pymethods]
impl LinkStatus {
    fn __repr__(&self) -> String {
        format!("<partywall.links.Status: {}>", self.text)
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

/// An event of a link, such as a lost connection. A received message is no event.
#[pyclass(frozen, get_all, module = "partywall._native")]
pub struct LinkEvent {
    /// The kind of the event: "attached", "detached", "refused", "epoch", "fenced", "quarantined",
    /// "loss_possible", "repeat_possible" or "file_replaced".
    kind: &'static str,
    /// Whether the connection ended because the peer closed its end in good order.
    is_farewell: bool,
    text: String,
}

impl From<&Event> for LinkEvent {
    fn from(event: &Event) -> Self {
        let kind = match event {
            Event::Attached { .. } => "attached",
            Event::Detached { .. } => "detached",
            Event::Refused { .. } => "refused",
            Event::Epoch { .. } => "epoch",
            Event::Fenced => "fenced",
            Event::Quarantined => "quarantined",
            Event::LossPossible => "loss_possible",
            Event::RepeatPossible => "repeat_possible",
            Event::FileReplaced => "file_replaced",
            _ => "unknown",
        };
        Self { kind, is_farewell: event.is_farewell(), text: in_python(&event.to_string()) }
    }
}

#[pymethods]
impl LinkEvent {
    fn __repr__(&self) -> String {
        format!("<partywall.links.Event: {}>", self.text)
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

/// A report of a link: a range of positions whose messages were skipped, dropped or kept in
/// quarantine.
#[pyclass(frozen, module = "partywall._native")]
pub struct LinkReport {
    pub inner: ReportSnapshot,
}

#[pymethods]
impl LinkReport {
    /// The kind of the report: "gap", "lost", "undelivered" or "quarantined".
    #[getter]
    const fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// Whether the range is in the received stream; if false, it is in the sent stream.
    #[getter]
    const fn is_receiving(&self) -> bool {
        self.inner.is_receiving
    }

    /// Whether all messages of the range were dropped; if false, perhaps only some of them.
    #[getter]
    const fn is_exact(&self) -> bool {
        self.inner.is_exact
    }

    /// The epoch of the link in which the messages of the range were sent.
    #[getter]
    const fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// The first position of the range, and the first position behind it.
    #[getter]
    const fn range(&self) -> (u64, u64) {
        (self.inner.from, self.inner.to)
    }

    fn __repr__(&self) -> String {
        format!("<partywall.links.Report: {}>", self.inner)
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }
}

/// A position in one stream of a link. Positions rise with each message.
#[pyclass(frozen, get_all, eq, hash, module = "partywall._native")]
#[derive(PartialEq, Eq, Hash)]
pub struct LinkPosition {
    /// The id of the stream of the link. Each epoch and each new file has an id of its own.
    stream: u64,
    position: u64,
}

#[pymethods]
impl LinkPosition {
    fn __repr__(&self) -> String {
        format!("Position(stream={:#x}, position={})", self.stream, self.position)
    }
}

impl From<StreamPosition> for LinkPosition {
    fn from(from: StreamPosition) -> Self {
        Self { stream: from.stream, position: from.position }
    }
}

/// Counters of one end of a link, from the time at which this process opened it.
#[pyclass(frozen, get_all, module = "partywall._native")]
pub struct LinkStats {
    messages_sent: u64,
    bytes_sent: u64,
    messages_received: u64,
    bytes_received: u64,
    connections: u64,
    acknowledgements: u64,
}

impl From<Stats> for LinkStats {
    fn from(from: Stats) -> Self {
        Self {
            messages_sent: from.messages_sent,
            bytes_sent: from.bytes_sent,
            messages_received: from.messages_received,
            bytes_received: from.bytes_received,
            connections: from.connections,
            acknowledgements: from.acknowledgements,
        }
    }
}

#[pymethods]
impl LinkStats {
    fn __repr__(&self) -> String {
        counters(
            "Stats",
            &[
                ("messages_sent", self.messages_sent),
                ("bytes_sent", self.bytes_sent),
                ("messages_received", self.messages_received),
                ("bytes_received", self.bytes_received),
                ("connections", self.connections),
                ("acknowledgements", self.acknowledgements),
            ],
        )
    }
}

/// A client that asks a server to attach to a link.
#[pyclass(frozen, get_all, module = "partywall._native")]
pub struct LoginRequest {
    /// The name that the client says it has.
    client: String,
    link: String,
    /// The bytes of the client's setting `login`.
    login: Vec<u8>,
    transport: String,
    peer: Py<Peer>,
}

impl LoginRequest {
    pub fn new(py: Python<'_>, request: &partywall_link::LoginRequest) -> PyResult<Self> {
        Ok(Self {
            client: request.key.remote().to_owned(),
            link: request.key.link().to_owned(),
            login: request.login.clone(),
            transport: request.transport.to_string(),
            peer: Py::new(py, Peer::from(&request.peer))?,
        })
    }
}
