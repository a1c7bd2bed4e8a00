// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known faults of the published peers, which tests accept.
//!
//! Each row was observed in a run of two published peers. A test still performs the exchange; with
//! a row that applies it accepts that fault, and no other. A row never excuses our implementation.

use super::roster::Peer;

/// A known fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The close goes through the ring while earlier data is still in the socket. A receiver that
    /// closes at once loses the data; data after it opens a new stream at a server.
    CloseOvertakesFallback,
    /// A server lets every user write the files of its client.
    FilesOpenToEverybody,
}

/// The fault if `sender` sends over the socket and closes at once, to `receiver`.
///
/// It needs both: a sender whose close can overtake, and a receiver that acts on it.
pub fn fallback_then_close(sender: Peer, receiver: Peer) -> Option<Fault> {
    let published = |peer| matches!(peer, Peer::Go | Peer::Rust);
    (sender == Peer::Go && published(receiver)).then_some(Fault::CloseOvertakesFallback)
}

/// The fault in the mode of a client's files after `server` has mapped them.
pub fn opening_files_to_everybody(server: Peer) -> Option<Fault> {
    (server == Peer::Rust).then_some(Fault::FilesOpenToEverybody)
}
