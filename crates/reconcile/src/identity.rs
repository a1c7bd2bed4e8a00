// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of an end of a link, and the numbers it names (SPEC 12.1).
//!
//! ```text
//!  store id           a store           random, made with the store: another store has another one
//!  incarnation        its owner         rises at every open
//!  connection number  a connection      rises at every connect of an incarnation
//!  epoch              both directions   chosen by the application, only rises: empty streams at 0
//!  stream id          one direction     random, made when its sender begins it
//! ```
//!
//! Nothing here makes the numbers. Store ids and stream ids have no order; the others only rise.

use core::num::NonZeroU64;

/// Names the file or memory of one end: a random number made with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

/// Counts the owners of a store; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Counts the connections of one incarnation of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(pub u64);

impl ConnectionNumber {
    /// The number of the next connection, above both this one and `other`.
    ///
    /// `None` after the last number there is: the owner then opens its store again.
    #[must_use]
    pub fn next_above(self, other: Self) -> Option<Self> {
        self.max(other).0.checked_add(1).map(Self)
    }
}

/// A period in the life of a link, such as a trading day. Both directions begin anew with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Names one stream of one direction: a random number other than 0, made by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub NonZeroU64);

impl StreamId {
    /// The stream of that number; `None` for 0, which means "no stream".
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// The identity that ATTACH and ATTACHED carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The id of the store.
    pub store_id: StoreId,
    /// The number of its owner.
    pub incarnation: Incarnation,
    /// The connection; a server repeats the client's number.
    pub connection_number: ConnectionNumber,
    /// The epoch the side is in.
    pub epoch: Epoch,
}
