// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of an end of a link, and the numbers that identify stores, owners, connections,
//! epochs and streams (SPEC 12.1).
//!
//! ```text
//!  store id           a store           random, made with the store: another store has another one
//!  incarnation        its owner         rises at every open
//!  connection number  a connection      rises at every connect of an incarnation
//!  epoch              both directions   chosen by the application, only rises; its streams begin
//!                                       empty, at position 0
//!  stream id          one direction     random, made when its sender begins it
//! ```
//!
//! This file draws no random numbers. Store ids and stream ids have no order; the other numbers
//! only rise.

use core::num::NonZeroU64;

/// Identifies a store: a random number, drawn when the store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

/// The number of an owner among the owners of a store; the first owner has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of a connection among the connections of one incarnation of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(pub u64);

impl ConnectionNumber {
    /// The next connection number, above both `self` and `other`.
    ///
    /// `None` after the highest number: the owner then has to open its store again, as a new
    /// incarnation.
    #[must_use]
    pub fn next_above(self, other: Self) -> Option<Self> {
        self.max(other).0.checked_add(1).map(Self)
    }
}

/// A period in the life of a link, such as a trading day. Both directions begin anew with each
/// epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Identifies one stream of one direction: a random number other than 0, drawn by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub NonZeroU64);

impl StreamId {
    /// The stream id with this number; `None` for 0, which means "no stream".
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// The identity that a side sends to its peer when a connection begins: its store, its owner, the
/// connection and its epoch. The frames ATTACH and ATTACHED carry the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The store id of the side that sends this identity.
    pub store_id: StoreId,
    /// The incarnation of the side's store.
    pub incarnation: Incarnation,
    /// The number of the connection; a server repeats the client's number.
    pub connection_number: ConnectionNumber,
    /// The epoch in which the side is when it sends this identity.
    pub epoch: Epoch,
}
