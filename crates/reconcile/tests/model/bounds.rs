// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bounds of one exploration, and the one safeguard that it leaves out.
//!
//! ```text
//!   Bounds   the maximum number of messages, connections, crashes, losses …
//!   Fault    one rule of SPEC 12 that the world does not follow
//! ```

/// Upper limits of the events in one exploration. The first of a pair is for the client, the second
/// for the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Messages that each side sends of its own accord.
    pub messages: [u8; 2],
    /// Replies that each side sends, each in the same commit as the acknowledgement of its request.
    pub replies: [u8; 2],
    /// Maximum number of records that a side may keep unacknowledged.
    pub window: u64,
    /// Number of connections that the client makes.
    pub connections: u8,
    /// Number of connections that the client makes while another one is active.
    pub switches: u8,
    /// Whether every second connection uses shared memory, where the receiver reads records in the
    /// sender's memory.
    pub shms: bool,
    /// Number of times that the network cuts a connection.
    pub cuts: u8,
    /// Number of old connections whose bytes arrive a second time.
    pub replays: u8,
    /// Number of crashes of each side.
    pub crashes: [u8; 2],
    /// Number of times that a side loses its file while it is down.
    pub losses: [u8; 2],
    /// Number of times that a side's file is replaced by an older copy while the side is down.
    pub rollbacks: [u8; 2],
    /// Number of epochs that each side begins of its own accord.
    pub epochs: [u8; 2],
    /// Whether trimming is a step of its own, instead of following each acknowledgement.
    pub lazy_trim: bool,
    /// The safeguard that the world leaves out; `None` to follow all rules.
    pub fault: Option<Fault>,
}

impl Bounds {
    /// Two messages in one direction, one in the other, two connections, and no fault.
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

/// What goes wrong when one safeguard is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A side believes a position without comparing its digest.
    NoDigest,
    /// The server accepts a CONFIRM that does not echo its nonce.
    NoNonce,
    /// The server accepts a CONFIRM of an older connection after that of a newer one.
    OlderConnection,
    /// The server replaces its present connection when it answers ATTACH, before CONFIRM.
    ReplacedAtAttach,
    /// A receiver acknowledges messages that it has received but not consumed.
    AckReceived,
    /// A receiver acknowledges a request when the reply is prepared, before the reply commits the
    /// acknowledgement.
    AckBeforeCommit,
    /// A sender trims records that were sent but not acknowledged.
    TrimSent,
    /// A side forgets the past of an epoch that it left.
    PastForgotten,
    /// A side that reports an epoch does not store that it has reported it.
    NeverSettled,
    /// A receiver does not compare stream ids.
    NoStreamId,
    /// A side believes the `ack_pos` of every record, whatever stream that position belongs to.
    AckOfAnyStream,
    /// After a crash only the stored acked offset counts, not one carried by a reply.
    ReplyNotCounted,
    /// A reply is trimmed before the acked offset that it carries was stored.
    TrimBeforeStored,
    /// A report is stored in a later commit than the change that it reports.
    ReportLater,
    /// A receiver applies a decision although its acked offset has changed since its view.
    MovedIgnored,
    /// The server resumes where it decided, although an old connection's acknowledgement has made
    /// it trim further since.
    TrimmedSinceIgnored,
    /// A receiver consumes a record again that it had received before.
    KnownTaken,
    /// A receiver sends an acknowledgement only together with a record.
    AckWithData,
    /// On a new connection, a receiver assumes that everything it consumed since its view was
    /// acknowledged.
    AckedTooMuch,
    /// Views do not contain the last skip.
    SkipUnreported,
    /// The sender resumes at its tail instead of the position that the receiver needs.
    ResumeAtTail,
    /// A side that adopts a higher epoch ignores the pasts, and reports nothing.
    AdoptedSilently,
}
