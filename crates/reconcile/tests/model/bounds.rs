// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bounds of one exploration of the model of links, and the safeguard, one rule of the
//! protocol, that the exploration leaves out on purpose.
//!
//! ```text
//!   Bounds   the maximum number of messages, connections, crashes, losses …
//!   Fault    one rule of SPEC 12 that the exploration leaves out
//! ```

/// Maximum numbers of events of each kind in one exploration of the model. Of two numbers, the
/// first is for the client and the second for the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Maximum number of messages that each side sends of its own accord.
    pub messages: [u8; 2],
    /// Maximum number of replies that each side sends. Each reply is stored in the same update of
    /// the side's file as the acknowledgement of its request.
    pub replies: [u8; 2],
    /// Maximum number of records that a side keeps unacknowledged.
    pub window: u64,
    /// Maximum number of connections that the client makes.
    pub connections: u8,
    /// Maximum number of connections that the client makes while another connection is active.
    pub switches: u8,
    /// Whether every second connection uses shared memory, where the receiver reads records in the
    /// sender's memory.
    pub shms: bool,
    /// Maximum number of times that the network cuts a connection.
    pub cuts: u8,
    /// Maximum number of old connections whose bytes arrive a second time.
    pub replays: u8,
    /// Maximum number of crashes of each side.
    pub crashes: [u8; 2],
    /// Maximum number of times that a side loses its file while it is down.
    pub losses: [u8; 2],
    /// Maximum number of times that a side's file is replaced by an older copy while the side is
    /// down.
    pub rollbacks: [u8; 2],
    /// Maximum number of epochs that each side begins of its own accord.
    pub epochs: [u8; 2],
    /// Whether a sender trims acknowledged records in a later step of the model, instead of
    /// together with each acknowledgement.
    pub lazy_trim: bool,
    /// The safeguard (rule of SPEC 12) that this exploration leaves out; `None` to follow all
    /// rules.
    pub fault: Option<Fault>,
}

impl Bounds {
    /// The bounds that other explorations change in a few fields: two messages of the client, one
    /// of the server, at most two unacknowledged records of each side, two connections, no fault.
    pub const PLAIN: Self = Self {
        messages: [2, 1],
        replies: [0, 0],
        window: 2,
        connections: 2,
        switches: 0,
        shms: false,
        cuts: 0,
        replays: 0,
        crashes: [0, 0],
        losses: [0, 0],
        rollbacks: [0, 0],
        epochs: [0, 0],
        lazy_trim: false,
        fault: None,
    };

    /// Whether this exploration leaves out the safeguard that `fault` names.
    pub fn forgets(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A fault that an exploration of the model makes on purpose: it leaves out one safeguard, a rule
/// of SPEC 12. The model must find the invariant that then breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Seeded fault: a sender resumes at the position that its peer names without comparing the
    /// digest of its own record there with the peer's.
    NoDigest,
    /// Seeded fault: the server accepts a frame CONFIRM that does not echo the server's nonce.
    NoNonce,
    /// Seeded fault: the server accepts the frame CONFIRM of an older connection after it has
    /// accepted that of a newer one.
    OlderConnection,
    /// Seeded fault: the server replaces its present connection when it answers ATTACH, not when it
    /// receives CONFIRM.
    ReplacedAtAttach,
    /// Seeded fault: a receiver acknowledges messages that it has received but not consumed.
    AckReceived,
    /// Seeded fault: a receiver acknowledges a request when the reply is prepared, before the reply
    /// is published, which makes the acknowledgement valid.
    AckBeforeCommit,
    /// Seeded fault: a sender trims records that were sent but not acknowledged.
    TrimSent,
    /// Seeded fault: a side does not keep its past when it leaves an epoch.
    PastForgotten,
    /// Seeded fault: a side that reports the message ranges which an epoch dropped does not store
    /// that it has reported them.
    NeverSettled,
    /// Seeded fault: sender and receiver do not compare the stream ids in their views.
    NoStreamId,
    /// Seeded fault: a sender applies the acknowledged position (`ack_pos`) of every record that it
    /// receives, whatever stream that position belongs to.
    AckOfAnyStream,
    /// Seeded fault: after a crash, an owner recovers only the stored acked offset, and ignores an
    /// acked offset that a reply carries.
    ReplyNotCounted,
    /// Seeded fault: a sender trims a reply before the acked offset that the reply carries was
    /// stored.
    TrimBeforeStored,
    /// Seeded fault: a side stores a report in a later update of its file than the change that it
    /// reports.
    ReportLater,
    /// Seeded fault: a receiver applies the sender's decision where to resume, although the
    /// receiver's acked offset has changed since its view.
    MovedIgnored,
    /// Seeded fault: the server resumes sending at the position that it decided in the handshake.
    /// It does so even if it has trimmed further since, because an old connection brought an
    /// acknowledgement.
    TrimmedSinceIgnored,
    /// Seeded fault: a receiver consumes a record that arrives a second time, although it had
    /// received that record already.
    KnownTaken,
    /// Seeded fault: a receiver sends an acknowledgement only together with a record.
    AckWithData,
    /// Seeded fault: on a new connection, a receiver does not acknowledge the messages that it
    /// consumed after it sent its view.
    AckedTooMuch,
    /// Seeded fault: a receiver's view lacks its last skip.
    SkipUnreported,
    /// Seeded fault: the sender resumes at its tail instead of at the position that the receiver
    /// needs.
    ResumeAtTail,
    /// Seeded fault: a side that takes over its peer's higher epoch does not compare its past with
    /// the peer's, and reports nothing.
    AdoptedSilently,
}
