// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the published peers do wrong, so that a test does not ask them for it.
//!
//! Each row was seen in a run of two published peers. A test still makes the exchange; with a row that applies it
//! accepts what the row says, and nothing else. A row never excuses ours.

use super::roster::Peer;

/// What is known to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The close goes through the ring while data before it is still in the socket, so a receiver that closes on
    /// sight loses the data; what comes after it makes a new stream at a server.
    CloseOvertakesFallback,
    /// A server gives everybody the right to write the files that its client made.
    FilesOpenToEverybody,
}

/// What goes wrong when `sender` sends over the socket and closes at once, to `receiver`.
///
/// It takes two: the sender puts the close where it can overtake, and the receiver believes it.
pub fn fallback_then_close(sender: Peer, receiver: Peer) -> Option<Fault> {
    let published = |peer| matches!(peer, Peer::Go | Peer::Rust);
    (sender == Peer::Go && published(receiver)).then_some(Fault::CloseOvertakesFallback)
}

/// What goes wrong with the mode of a client's files once `server` has mapped them.
pub fn opening_files_to_everybody(server: Peer) -> Option<Fault> {
    (server == Peer::Rust).then_some(Fault::FilesOpenToEverybody)
}
