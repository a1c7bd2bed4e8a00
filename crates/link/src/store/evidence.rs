// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a link file of another boot proves of itself, for an operator and for the code that opens
//! it. `reboot.rs` examines the file and returns an [`Evidence`].

use std::fmt;

/// What a link file of another boot proves of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// Whether the last owner closed the file.
    pub is_closed: bool,
    /// Number of kept messages that are whole, from the first one on.
    pub messages: u64,
    /// Position at which the first kept message begins.
    pub from: u64,
    /// Position at which the last of the whole messages ends.
    pub to: u64,
    /// Position up to which this end acknowledged received messages; an older position if the page
    /// with the latest position was lost.
    pub consumed: u64,
    /// Why the link cannot continue even with the whole messages alone; `None` if it can.
    pub damage: Option<String>,
    /// Whether the file still holds everything that its last owner had stored in it.
    pub(super) is_whole: bool,
    /// File offset of the slot behind the last whole message, if that slot does not hold 0 and so
    /// has to be zeroed.
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
