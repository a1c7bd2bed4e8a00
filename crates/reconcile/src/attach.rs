// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connection replaces which (SPEC 12.2).
//!
//! ```text
//!  ATTACH   ──▶ admit: Accept, Stale, Fenced     nothing is stored, nothing replaced
//!  ◀── ATTACHED compare: the client checks the server's owner; ATTACHED echoes the client's nonce
//!  CONFIRM  ──▶ the nonce, and admit once more: only now the server's connection is replaced
//! ```
//!
//! The server admits twice because a newer connection may have been confirmed between ATTACH and
//! CONFIRM. It replaces nothing before CONFIRM because bytes of an old connection, replayed or
//! late, look like an ATTACH. Only a client that has just read the server's fresh nonce can echo
//! it.

use crate::identity::{ConnectionNumber, Identity, Incarnation, StoreId};

/// The peer as this side knows it and stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The id of its store.
    pub store_id: StoreId,
    /// The highest incarnation of it that was met.
    pub incarnation: Incarnation,
}

/// How a peer compares with the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerOrder {
    /// The same owner of the same store, or the first peer ever.
    Same,
    /// A later owner of the same store.
    Newer,
    /// Another store: the former was lost.
    Stranger,
    /// An owner before the known one, which has this number: it was replaced, or its file is an
    /// older copy.
    Older(Incarnation),
}

impl Peer {
    /// Compares `claim` with the peer known so far.
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

    /// The peer to be stored once `claim` was confirmed.
    #[must_use]
    pub const fn of(claim: &Identity) -> Self {
        Self { store_id: claim.store_id, incarnation: claim.incarnation }
    }
}

/// Names a connection: the client, and which of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The client that made it.
    pub peer: Peer,
    /// The number of its connection.
    pub connection_number: ConnectionNumber,
}

/// The connection that a server has confirmed last in its life, even if it has ended since.
pub type Present = Option<Connection>;

/// A server's answer to a connection that wants to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Answer it, and replace the present one when it confirms.
    Accept,
    /// REFUSE: it is not newer than the present one, which has this number; the client continues
    /// above that.
    Stale(ConnectionNumber),
    /// REFUSE: a later owner, of this number, has attached before.
    Fenced(Incarnation),
}

/// Decides about a connection that wants to attach, and once more when it confirms.
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

/// A random number made for one connection, which the peer must echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

impl Nonce {
    /// Whether `echo` proves that the peer has read what was sent on this very connection.
    #[must_use]
    pub fn is_echoed_by(self, echo: Self) -> bool {
        self == echo
    }
}
