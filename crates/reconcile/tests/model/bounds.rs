// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bounds of one exploration of the model, and the one safeguard of the protocol that the
//! exploration leaves out.
//!
//! ```text
//!   Bounds   the maximum number of messages, connections, crashes, losses …
//!   Fault    one rule of SPEC 12 that the world does not follow
//! ```

/// Upper limits of the events in one exploration. The first of a pair is for the client, the second
/// for the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Upper limit: number of messages that each side sends of its own accord.
    pub messages: [u8; 2],
    /// Upper limit: number of replies that each side sends. Each reply is in the same commit as the
    /// acknowledgement of its request.
    pub replies: [u8; 2],
    /// Upper limit: number of records that a side may keep unacknowledged.
    pub window: u64,
    /// Upper limit: number of connections that the client makes.
    pub connections: u8,
    /// Upper limit: number of connections that the client makes while another connection is active.
    pub switches: u8,
    /// Whether every second connection uses shared memory, where the receiver reads records in the
    /// sender's memory.
    pub shms: bool,
    /// Upper limit: number of times that the network cuts a connection.
    pub cuts: u8,
    /// Upper limit: number of old connections whose bytes arrive a second time.
    pub replays: u8,
    /// Upper limit: number of crashes of each side.
    pub crashes: [u8; 2],
    /// Upper limit: number of times that a side loses its file while it is down.
    pub losses: [u8; 2],
    /// Upper limit: number of times that a side's file is replaced by an older copy while the side
    /// is down.
    pub rollbacks: [u8; 2],
    /// Upper limit: number of epochs that each side begins of its own accord.
    pub epochs: [u8; 2],
    /// Whether trimming is a step of its own, instead of following each acknowledgement.
    pub lazy_trim: bool,
    /// The safeguard that the world leaves out; `None` to follow all rules.
    pub fault: Option<Fault>,
}

impl Bounds {
    /// The bounds from which the bounds of all explorations are derived: two messages of the
    /// client, one of the server, a window of two records, two connections, no fault.
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

    /// Whether the world leaves out the safeguard of `fault`.
    pub fn forgets(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A seeded fault: one safeguard of SPEC 12 is left out. The model must find the invariant that
/// then breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Seeded fault: a side believes a position without comparing its digest.
    NoDigest,
    /// Seeded fault: the server accepts a CONFIRM that does not echo its nonce.
    NoNonce,
    /// Seeded fault: the server accepts a CONFIRM of an older connection after that of a newer
    /// connection.
    OlderConnection,
    /// Seeded fault: the server replaces its present connection when it answers ATTACH, before
    /// CONFIRM.
    ReplacedAtAttach,
    /// Seeded fault: a receiver acknowledges messages that it has received but not consumed.
    AckReceived,
    /// Seeded fault: a receiver acknowledges a request when the reply is prepared, before the reply
    /// commits the acknowledgement.
    AckBeforeCommit,
    /// Seeded fault: a sender trims records that were sent but not acknowledged.
    TrimSent,
    /// Seeded fault: a side forgets its past, the stored state of the streams of the epoch that it
    /// left.
    PastForgotten,
    /// Seeded fault: a side that reports the ranges of an epoch does not store that it has reported
    /// them.
    NeverSettled,
    /// Seeded fault: a receiver does not compare stream ids.
    NoStreamId,
    /// Seeded fault: a side believes the acknowledged position (`ack_pos`) of every record,
    /// whatever stream that position belongs to.
    AckOfAnyStream,
    /// Seeded fault: after a crash, an owner recovers only the stored acked offset, and ignores an
    /// acked offset that a reply carries.
    ReplyNotCounted,
    /// Seeded fault: a sender trims a reply before the acked offset that the reply carries was
    /// stored.
    TrimBeforeStored,
    /// Seeded fault: a side stores a report in a later commit than the change that it reports.
    ReportLater,
    /// Seeded fault: a receiver applies a decision although its acked offset has changed since its
    /// view.
    MovedIgnored,
    /// Seeded fault: the server resumes at the position that it decided, although an old
    /// connection's acknowledgement has made it trim further since.
    TrimmedSinceIgnored,
    /// Seeded fault: a receiver consumes again a record that it had received before.
    KnownTaken,
    /// Seeded fault: a receiver sends an acknowledgement only together with a record.
    AckWithData,
    /// Seeded fault: on a new connection, a receiver assumes that everything it consumed since its
    /// view was acknowledged.
    AckedTooMuch,
    /// Seeded fault: a receiver's view does not contain its last skip, the range that it passed
    /// over without consuming it.
    SkipUnreported,
    /// Seeded fault: the sender resumes at its tail instead of the position that the receiver
    /// needs.
    ResumeAtTail,
    /// Seeded fault: a side that adopts a higher epoch ignores the pasts, and reports nothing.
    AdoptedSilently,
}
