// SPDX-License-Identifier: MIT OR Apache-2.0
//! The evidence that a link file last used before a reboot gives of its own contents. `reboot.rs`
//! makes the evidence. By it an operator, and the code that opens the file, decide whether the link
//! goes on.

use std::fmt;

/// Facts that a link file last used before a reboot proves of its own contents. They matter because
/// a power loss may have taken any part of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// Whether the last owner closed the file in good order.
    pub is_closed: bool,
    /// Number of kept messages, from the first one up to the first that is damaged or missing.
    pub messages: u64,
    /// Position at which the first kept message begins.
    pub from: u64,
    /// Position at which the last whole message ends, before the first that is damaged or missing.
    pub to: u64,
    /// Position up to which this end acknowledged received messages; an older position if the page
    /// with the latest position was lost.
    pub consumed: u64,
    /// Reason why the link cannot continue even with the whole messages alone; `None` if it can.
    pub damage: Option<String>,
    /// Whether the file still holds everything that its last owner had stored in it.
    pub(super) is_whole: bool,
    /// File offset of the slot after the last whole message, if that slot is not 0. Whoever adopts
    /// the file zeroes this slot, because a 0 ends the stream.
    pub(super) cut_at: Option<u64>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_closed {
            true => "its last owner closed it, but not everything that it held is there",
            false => "its last owner did not close it, so that pages of it may be missing or old",
        })?;
        let Self { messages, from, to, consumed, damage, .. } = self;
        match damage {
            None => write!(f, "; {messages} kept messages are whole (positions {from}..{to})")?,
            Some(damage) => write!(f, "; its kept messages cannot be gone on with: {damage}")?,
        }
        write!(f, ", received ones are acknowledged up to position {consumed}, or further")
    }
}
