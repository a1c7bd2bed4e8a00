// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known faults of the published peers, which tests accept.
//!
//! Each row was observed in a run of two published peers. A test still performs the exchange. If a
//! row applies, the test accepts that fault and no other. No row excuses a fault of
//! `partywall-shmipc`.

use super::roster::Peer;

/// A known fault of a published peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sender's close goes through the ring while its earlier data is still in the socket. A
    /// receiver that acts on the close at once loses the data; at a server, data that arrives later
    /// opens a new stream.
    CloseOvertakesFallback,
    /// A server changes the mode of its client's files, so that every user can write to the files.
    FilesOpenToEverybody,
}

/// The known fault, if there is one, when `sender` sends to `receiver` over the socket and closes
/// at once.
///
/// The fault needs two faulty sides: a sender whose close can overtake data, and a receiver that
/// acts on the close at once.
pub fn fallback_then_close(sender: Peer, receiver: Peer) -> Option<Fault> {
    let published = |peer| matches!(peer, Peer::Go | Peer::Rust);
    (sender == Peer::Go && published(receiver)).then_some(Fault::CloseOvertakesFallback)
}

/// The known fault, if there is one, in the mode of a client's files after `server` has mapped
/// them.
pub fn opening_files_to_everybody(server: Peer) -> Option<Fault> {
    (server == Peer::Rust).then_some(Fault::FilesOpenToEverybody)
}
