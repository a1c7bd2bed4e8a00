// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bounds of one exploration, and the safeguard that is taken out of it.
//!
//! ```text
//!   Bounds   the most that may happen: messages, connections, crashes, losses …
//!   Fault    one rule of SPEC 12 that the world does not follow
//! ```

/// The most that may happen. Pairs are of the client and of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Messages that each side sends on its own.
    pub messages: [u8; 2],
    /// Replies that each side sends, each in one commit with the acknowledgement of a message.
    pub replies: [u8; 2],
    /// Records that a side may keep.
    pub window: u64,
    /// Connections that the client makes.
    pub connections: u8,
    /// Of those, how many are made while another one is active.
    pub switches: u8,
    /// Every second connection is over shared memory, where records are not sent but read.
    pub shms: bool,
    /// Cuts by the network.
    pub cuts: u8,
    /// Old connections whose bytes arrive once more.
    pub replays: u8,
    /// Crashes of each side.
    pub crashes: [u8; 2],
    /// Files lost while a side is down.
    pub losses: [u8; 2],
    /// Files put back to an older copy while a side is down.
    pub rollbacks: [u8; 2],
    /// Epochs that each side begins on its own.
    pub epochs: [u8; 2],
    /// Whether trimming is a step of its own.
    pub lazy_trim: bool,
    /// The safeguard that is taken out.
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

    /// Whether the safeguard of `fault` is taken out.
    pub fn forgets(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A safeguard that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A position is believed without its digest.
    NoDigest,
    /// CONFIRM need not echo the nonce.
    NoNonce,
    /// A connection may be confirmed after a newer one.
    OlderConnection,
    /// The server replaces its connection when it answers ATTACH.
    ReplacedAtAttach,
    /// A receiver acknowledges what it received.
    AckReceived,
    /// A consume is acknowledged when it is prepared, before the reply commits it.
    AckBeforeCommit,
    /// A sender trims what it has sent.
    TrimSent,
    /// A side forgets the past of an epoch that it left.
    PastForgotten,
    /// Reports of an epoch are not marked as stored.
    NeverSettled,
    /// A receiver does not compare stream ids.
    NoStreamId,
    /// `ack_pos` of every record is believed, whatever stream it was of.
    AckOfAnyStream,
    /// After a crash only the stored word counts, not the reply.
    ReplyNotCounted,
    /// A reply is trimmed before the word it commits was stored.
    TrimBeforeStored,
    /// A report is stored after the change it reports.
    ReportLater,
    /// A decision is applied although the receiver has moved on.
    MovedIgnored,
    /// The server resumes as it decided, although an old connection has made it trim since.
    TrimmedSinceIgnored,
    /// A record that is known already is consumed again.
    KnownTaken,
    /// An acknowledgement waits for a record that carries it.
    AckWithData,
    /// On a new connection, what was consumed since the view counts as acknowledged.
    AckedTooMuch,
    /// Views do not name the last skip.
    SkipUnreported,
    /// The sender resumes at its tail.
    ResumeAtTail,
    /// The pasts of the higher epoch are ignored when it is adopted.
    AdoptedSilently,
}
