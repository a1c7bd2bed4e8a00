// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who an end of a link is, and what it speaks of (SPEC 12.1).
//!
//! ```text
//!  lineage       a file          made by chance when the file is made: another file is another lineage
//!  incarnation   an owner of it  rises at every open
//!  generation    a connection    rises at every connect of an incarnation
//!  epoch         both directions chosen by the application, only rises: empty streams at position 0
//!  stream        one direction   made by chance when its sender begins it
//! ```
//!
//! Nothing here makes the numbers. Lineages and streams have no order; the others only rise.

use core::num::NonZeroU64;

/// The file (or memory) of one end: a random number made with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

/// How many owners a file has had; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A connection among those of one incarnation of the client; a later one has a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(pub u64);

impl ConnectionNumber {
    /// The next one to connect with, above both this one and one that was `heard` of.
    ///
    /// `None` after the last number there is: the owner then opens its file again.
    #[must_use]
    pub fn next_above(self, heard: Self) -> Option<Self> {
        self.max(heard).0.checked_add(1).map(Self)
    }
}

/// A time in the life of a link, such as a trading day. Both directions begin anew with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// One stream of one direction: a random number other than 0, made by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub NonZeroU64);

impl StreamId {
    /// The stream of that number; `None` for 0, which says "no stream".
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// Who speaks on a connection, as ATTACH and ATTACHED say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its file.
    pub store_id: StoreId,
    /// Its owner.
    pub incarnation: Incarnation,
    /// The connection; a server repeats the client's.
    pub connection_number: ConnectionNumber,
    /// Where it is.
    pub epoch: Epoch,
}
