// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event that an event loop reports: the tag of a source, and the kinds of events that the
//! source may have.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// An event of an event loop: the tag of a source, and what the application should try on that
/// source.
///
/// An event says what *may* be possible. The attempt may still return `Empty` or `Full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The tag that the application gave to the source.
    pub tag: u64,
    /// The kinds of events that the source has.
    pub kinds: Kinds,
}

/// A set of kinds of events that a source of an event loop may have.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// The set without any kind of event.
    pub const NONE: Self = Self(0);
    /// There may be a message to receive, a channel to accept, or a group of links with events.
    /// Each turn of the loop reports `READABLE` again until an attempt finds nothing.
    pub const READABLE: Self = Self(1);
    /// There may be room to send, after an attempt that found none. The loop reports `WRITABLE`
    /// once.
    pub const WRITABLE: Self = Self(2);
    /// There may be a stream or a session to accept. Each turn of the loop reports `OPENED` again
    /// until an attempt finds none.
    pub const OPENED: Self = Self(4);
    /// The peer has ended its direction of the stream, or the session is over. The loop reports
    /// `ENDED` once; unread messages can still be received.
    pub const ENDED: Self = Self(8);

    /// Whether this set has at least one of the kinds in `other`.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set contains no kind of event.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the source may have something to receive.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.intersects(Self::READABLE)
    }

    /// Whether the source may have room to send.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.intersects(Self::WRITABLE)
    }

    /// Whether the source may have a stream or a session to accept.
    #[must_use]
    pub const fn is_opened(self) -> bool {
        self.intersects(Self::OPENED)
    }

    /// Whether the source is a stream whose direction the peer has ended, or its session is over.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        self.intersects(Self::ENDED)
    }

    /// The kinds of events that each turn of the loop reports again, until an attempt of the
    /// application to receive, send or accept finds nothing.
    pub(super) const LEVEL: Self = Self(Self::READABLE.0 | Self::OPENED.0);
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Kinds {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Kinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Kinds {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::READABLE, "READABLE"),
            (Self::WRITABLE, "WRITABLE"),
            (Self::OPENED, "OPENED"),
            (Self::ENDED, "ENDED"),
        ];
        let set = names.iter().filter(|(kind, _)| self.intersects(*kind)).map(|(_, name)| *name);
        let names: Vec<&str> = set.collect();
        write!(f, "Kinds({})", names.join(" | "))
    }
}
