// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known faults of the published shmipc libraries for Go and Rust (published peers), which tests
//! accept.
//!
//! Each fault in this file was observed in a run of two published peers. A test performs the
//! exchange even if a fault is known for its pair; it accepts that fault and no other. This file
//! excuses no fault of `partywall-shmipc`.

use super::roster::Peer;

/// A known fault of a published shmipc library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sender puts data into the socket if shared memory has no room, and its later close into
    /// the ring. A receiver that acts on the close before it reads the socket loses the data. At a
    /// server, data that arrives after the close opens a new stream.
    CloseOvertakesFallback,
    /// A server changes the mode of its client's files, so that every user can write to the files.
    FilesOpenToEverybody,
}

/// Returns the known fault of a pair in which `sender` sends over the socket and closes the stream
/// right after sending; `None` if no fault is known.
///
/// The fault needs two faulty sides: a sender whose close can overtake data, and a receiver that
/// acts on the close before it has received the data.
pub fn fallback_then_close(sender: Peer, receiver: Peer) -> Option<Fault> {
    let published = |peer| matches!(peer, Peer::Go | Peer::Rust);
    (sender == Peer::Go && published(receiver)).then_some(Fault::CloseOvertakesFallback)
}

/// Returns the known fault that every user can write to a client's files
/// ([`Fault::FilesOpenToEverybody`]) if `server` is a program that changes the mode of a client's
/// files when it maps them; otherwise `None`.
pub fn opening_files_to_everybody(server: Peer) -> Option<Fault> {
    (server == Peer::Rust).then_some(Fault::FilesOpenToEverybody)
}
