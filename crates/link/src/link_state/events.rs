// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a link that its application may want to know, and their queue.

use std::collections::VecDeque;
use std::fmt;

use super::end::End;

/// An event of a link. Messages are no events; skipped or dropped messages are in the link's
/// reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The link is attached, and records flow again.
    Attached {
        /// Whether the peer's stream continues at the position where it was on the last connection.
        /// If not, this end receives the peer's stream for the first time, or the peer has begun a
        /// new stream.
        resumed: bool,
    },
    /// The connection has ended; a client attaches again by itself.
    Detached {
        /// The reason why the connection ended, as text for an operator.
        reason: String,
    },
    /// An attempt to attach (to join the two ends of a link over a new connection) failed. A client
    /// tries again by itself.
    Refused {
        /// The reason why the attempt failed, as text for an operator.
        reason: String,
    },
    /// This end is now in the epoch with this number. The peer takes this epoch over when both ends
    /// attach.
    Epoch {
        /// The number of the epoch that has begun.
        epoch: u64,
    },
    /// A later process has opened this end and has attached to the peer. So this process attaches
    /// no more.
    Fenced,
    /// The files of the two ends contradict each other: both ends keep all bytes until an operator
    /// decides.
    Quarantined,
    /// The link file of this end was last owned before a reboot, and was not closed in good order.
    /// Messages that this end had sent may be lost. See [`AfterReboot`](crate::AfterReboot).
    LossPossible,
    /// The link file of this end was last owned before a reboot, and was not closed in good order.
    /// Messages that this end had received and acknowledged may come again.
    RepeatPossible,
    /// This end had a link file before in this boot, and that file is gone: a new file begins
    /// empty. The messages that the former file kept are lost.
    FileReplaced,
}

impl Event {
    /// Whether this event says that the peer has closed its end in good order. All messages that
    /// the peer had sent arrived before such an event.
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
            Self::LossPossible => f.write_str(
                "the file is of another boot and was not closed whole: sent messages may be lost",
            ),
            Self::RepeatPossible => f.write_str(
                "the file is of another boot and was not closed whole: acknowledged messages may come again",
            ),
            Self::FileReplaced => f.write_str(
                "the file that this link had in this boot was removed: a new one begins empty",
            ),
        }
    }
}

/// The events that the application has not taken yet, at most [`EVENTS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    /// Number of events that were dropped because the queue was full.
    dropped: u64,
}

impl Events {
    /// Adds an event to the queue, or counts it as dropped if the queue is full.
    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() >= EVENTS_MAX {
            self.dropped += 1;
            return;
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn last(&self) -> Option<&Event> {
        self.queue.back()
    }
}

/// Maximum number of events in the queue; later ones are counted as dropped. It bounds memory, and
/// no report is lost: reports of skipped or dropped messages are in the link's state.
const EVENTS_MAX: usize = 1024;

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
