// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a link stands, in positions: for who commits something of its own beside it.
//!
//! ```text
//!   sent_position       what is sent next begins here         ┐ both are in the link's memory, and so in the file
//!   acked_position   what was committed ends here          ┘ of one that is killed
//! ```
//!
//! Whoever writes one of them down before it sends, or before it works on what it received, sees after a restart
//! whether that came about: the position is the same, or it has risen.

use super::fault::Stopped;
use super::handle::Link;

/// A place in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// Which stream: a number by chance, never 0. Another epoch, or a file made anew, has another.
    pub stream: u64,
    /// How many bytes of it lie before, counted as in a ring. It rises with each message.
    pub position: u64,
}

impl Link {
    /// Where the next message that is sent will begin, or a little before. It is the same after a restart, unless something was sent
    /// in between.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        let (stream, end) = self.end().with_core(|core| core.sent_to())?;
        Ok(StreamPosition { stream: stream.0.get(), position: end.0 })
    }

    /// Up to where what is received was committed; `None` before this end has met a stream of this epoch.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        let acked_offset = self.end().with_core(|core| core.acked_offset())?;
        Ok(acked_offset.map(|acked_offset| StreamPosition {
            stream: acked_offset.stream.0.get(),
            position: acked_offset.position.0,
        }))
    }
}
