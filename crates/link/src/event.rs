// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a link that its application may want to know.

/// Something happened to a link. Messages are not among these; what was skipped or dropped is in its reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Records flow again. `resumed`: the neighbour's stream goes on where it was; else it is another one, or the first.
    Attached {
        /// See there.
        resumed: bool,
    },
    /// The connection is over; a client attaches again by itself.
    Detached {
        /// Why, for people.
        reason: String,
    },
    /// An attempt to attach failed; a client goes on trying.
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// Both sides are now in this epoch, or will be once they attach.
    Epoch {
        /// Its number.
        epoch: u64,
    },
    /// A later owner of the same link was at the other end: this one takes no more part.
    Fenced,
    /// What both sides know contradicts itself: all bytes are kept until a person decides.
    Quarantined,
}
