// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a new connection of a link may replace the present one (SPEC 12.2). The server
//! of a link calls `admit` for each client that asks to attach.
//!
//! ```text
//!  client ── ATTACH ───▶ server  `admit`: Accept, Stale or Fenced; the server stores and replaces
//!                                nothing
//!  client ◀── ATTACHED ─ server  the client checks its echoed nonce, and by `compare` the server's
//!                                owner
//!  client ── CONFIRM ──▶ server  the server checks its echoed nonce, calls `admit` once more, and
//!                                only then replaces its connection
//! ```
//!
//! The server calls `admit` twice, because a newer connection may have been confirmed between
//! ATTACH and CONFIRM. It replaces no connection before CONFIRM, because bytes of an old connection
//! that are replayed or late look like an ATTACH. Only a client that has just read the server's
//! fresh nonce can echo that nonce.

use crate::identity::{ConnectionNumber, Identity, Incarnation, StoreId};

/// The identity of the peer that the local side stores, to compare it with the claim of a peer that
/// attaches later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The store id of the peer.
    pub store_id: StoreId,
    /// The highest incarnation of the peer's store that the local side has met.
    pub incarnation: Incarnation,
}

/// How the identity that an attaching peer claims compares with the peer that the local side has
/// stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerOrder {
    /// The peer has the store and the incarnation of the stored peer, or no peer was stored before.
    Same,
    /// The peer has the store of the stored peer, and a later incarnation.
    Newer,
    /// The peer has another store than the stored peer, so its former store was lost.
    Stranger,
    /// The peer is an earlier owner of the store than the known one, whose incarnation is given.
    /// The earlier owner was replaced, or its file is an older copy.
    Older(Incarnation),
}

impl Peer {
    /// Compares the identity that a peer claims with `known`, the peer that the local side has
    /// stored.
    #[must_use]
    pub fn compare(known: Option<&Self>, claim: &Identity) -> PeerOrder {
        let Some(known) = known else { return PeerOrder::Same };
        if known.store_id != claim.store_id {
            return PeerOrder::Stranger;
        }
        if claim.incarnation < known.incarnation {
            return PeerOrder::Older(known.incarnation);
        }
        if claim.incarnation == known.incarnation { PeerOrder::Same } else { PeerOrder::Newer }
    }

    /// The peer as the local side stores it once the connection is confirmed: the store id and the
    /// incarnation of the identity `claim`, which the peer stated.
    #[must_use]
    pub const fn of(claim: &Identity) -> Self {
        Self { store_id: claim.store_id, incarnation: claim.incarnation }
    }
}

/// Identifies a connection of a link: its client, and the client's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The client that made the connection.
    pub peer: Peer,
    /// The number that the client gave to this connection.
    pub connection_number: ConnectionNumber,
}

/// The last connection that a server process confirmed for a link, even if that connection has
/// ended since; `None` if it has confirmed none.
pub type Present = Option<Connection>;

/// The server's answer to a client that asks to attach: the result of [`admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The server answers ATTACHED, and replaces the present connection once the client confirms.
    Accept,
    /// The server refuses, because the connection number is not above that of the present
    /// connection, which is given. The client tries again with a higher number.
    Stale(ConnectionNumber),
    /// The server refuses, because a later owner of the client's store, with the given incarnation,
    /// has already attached.
    Fenced(Incarnation),
}

/// Decides whether a client that asks to attach is admitted. The server calls `admit` again when
/// that client confirms, because another connection may have been confirmed meanwhile.
///
/// ```
/// use partywall_reconcile::attach::{admit, Admission, Connection, Peer};
/// use partywall_reconcile::{Epoch, ConnectionNumber, Identity, Incarnation, StoreId};
/// let (store_id, incarnation) = (StoreId(1), Incarnation(1));
/// let connection_number = ConnectionNumber(4);
/// let claim = Identity { store_id, incarnation, connection_number, epoch: Epoch(1) };
/// let present = Connection { peer: Peer::of(&claim), connection_number };
/// assert_eq!(admit(None, None, &claim), Admission::Accept);
/// let admission = admit(Some(&present.peer), Some(present), &claim);
/// assert_eq!(admission, Admission::Stale(connection_number));
/// ```
#[must_use]
pub fn admit(known: Option<&Peer>, present: Present, claim: &Identity) -> Admission {
    if let PeerOrder::Older(highest) = Peer::compare(known, claim) {
        return Admission::Fenced(highest);
    }
    match present {
        Some(present)
            if present.peer == Peer::of(claim)
                && claim.connection_number <= present.connection_number =>
        {
            Admission::Stale(present.connection_number)
        }
        _ => Admission::Accept,
    }
}

/// A random number that one side draws for one connection, and that the peer must echo to prove
/// that it is not a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

impl Nonce {
    /// Whether `echo`, which came from the peer, is this nonce. If so, the peer has read a frame of
    /// this very connection.
    #[must_use]
    pub fn is_echoed_by(self, echo: Self) -> bool {
        self == echo
    }
}
