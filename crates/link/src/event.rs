// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a link that its application may want to know.

use std::fmt;

use super::link_state::End;

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
        /// Why, for operators.
        reason: String,
    },
    /// An attempt to attach failed; a client goes on trying.
    Refused {
        /// Why, for operators.
        reason: String,
    },
    /// Both sides are now in this epoch, or will be once they attach.
    Epoch {
        /// Its number.
        epoch: u64,
    },
    /// A later owner of the same link was at the other end: this one takes no more part.
    Fenced,
    /// What both sides know contradicts itself: all bytes are kept until an operator decides.
    Quarantined,
}

impl Event {
    /// Whether the peer has closed its end in good order: all that it had sent has arrived before.
    #[must_use]
    pub fn is_farewell(&self) -> bool {
        matches!(self, Self::Detached { reason } if *reason == End::Left.to_string())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached { resumed: true } => f.write_str("attached: the peer's stream goes on"),
            Self::Attached { resumed: false } => f.write_str("attached: the peer's stream is new"),
            Self::Detached { reason } => write!(f, "detached: {reason}"),
            Self::Refused { reason } => write!(f, "not attached: {reason}"),
            Self::Epoch { epoch } => write!(f, "epoch {epoch} begins"),
            Self::Fenced => f.write_str("fenced: a later owner has taken the place of this one"),
            Self::Quarantined => {
                f.write_str("in quarantine: the two ends contradict each other, and keep all bytes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_in_good_order_is_a_farewell() {
        let detached = |reason: String| Event::Detached { reason };
        assert!(detached(End::Left.to_string()).is_farewell());
        assert!(!detached(End::Broken("the peer hung up".to_owned()).to_string()).is_farewell());
        assert!(!Event::Fenced.is_farewell());
    }

    #[test]
    fn an_event_reads_as_one_line_for_operators() {
        let reason = "the peer hung up".to_owned();
        assert_eq!(Event::Detached { reason }.to_string(), "detached: the peer hung up");
        assert_eq!(Event::Epoch { epoch: 7 }.to_string(), "epoch 7 begins");
    }
}
