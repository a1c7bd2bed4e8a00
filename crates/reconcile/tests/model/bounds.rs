// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much may happen in one exploration, and which safeguard is taken out of it.
//!
//! ```text
//!  Bounds   what the world may do at most: messages, connections, crashes, losses …
//!  Fault    one rule of SPEC 12 that the world forgets
//! ```

/// How much may happen. Pairs are of the client and of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Messages each side sends of its own accord.
    pub messages: [u8; 2],
    /// Replies each side sends, each in one commit with the consuming of a message.
    pub replies: [u8; 2],
    /// Records a side may keep.
    pub window: u64,
    /// Connections that the client makes.
    pub connections: u8,
    /// Of those, how many while another one is active.
    pub switches: u8,
    /// Every connection after the first odd one is over a wall, where nothing is sent but looked at.
    pub shms: bool,
    /// Cuts by the network.
    pub cuts: u8,
    /// Old connections whose bytes come once more.
    pub replays: u8,
    /// Crashes of each side.
    pub crashes: [u8; 2],
    /// Files lost while a side is down.
    pub losses: [u8; 2],
    /// Files put back to an older copy while a side is down.
    pub rollbacks: [u8; 2],
    /// Epochs that each side begins of its own accord.
    pub epochs: [u8; 2],
    /// Whether trimming is a step of its own.
    pub lazy_trim: bool,
    /// What is forgotten.
    pub fault: Option<Fault>,
}

impl Bounds {
    /// Two messages one way, one the other, two connections; and nothing goes wrong.
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

    /// Whether `fault` is taken out.
    pub fn forgets(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A safeguard that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A position is believed without its proof.
    NoDigest,
    /// CONFIRM need not echo the nonce.
    NoNonce,
    /// A connection may be confirmed after a newer one.
    OlderConnection,
    /// The server replaces its connection when it answers ATTACH.
    ReplacedAtAttach,
    /// What was received is acknowledged.
    AckReceived,
    /// A consume is acknowledged when it is prepared, before the reply commits it.
    AckBeforeCommit,
    /// A sender trims what it has sent.
    TrimSent,
    /// What an epoch left is forgotten.
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
    /// The server goes on as it decided although an old connection has made it trim since.
    TrimmedSinceIgnored,
    /// A record that is known already is consumed again.
    KnownTaken,
    /// An acknowledgement waits for a record to ride on.
    AckWithData,
    /// On a new connection, what was consumed since the view counts as told.
    AckedTooMuch,
    /// Views do not name the last skip.
    SkipUnreported,
    /// The sender resumes at its tail.
    ResumeAtTail,
    /// The higher epoch's pasts are not looked at before it is adopted.
    AdoptedSilently,
}
