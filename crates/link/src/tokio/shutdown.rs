// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing a link in good order.
//!
//! ```text
//!   a future waits for a connection ─▶ a blocking thread drives the group: all bytes out, LEAVE,
//!        │                             the peer's system has them
//!        │ dropped: closed now            │ dropped: closed now, and the thread ends
//! ```
//!
//! Only the blocking call reports when all bytes are out, so a thread of the runtime makes it. The
//! alternative that lost, a future of its own, would be a second set of rules for leaving.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::link::Handle;
use super::notices::Notices;
use crate::{Observation, Stopped, WaitError};

pub(super) async fn close(handle: &Handle) -> Result<(), WaitError> {
    let mut closing = Closing { notices: &handle.notices, phase: Phase::Waiting };
    // The call below returns the same error.
    let _ = handle.notices.until(can_leave).await;
    closing.phase = Phase::Leaving;
    handle.notices.shared.begin_closing();
    let observer = handle.notices.observer.clone();
    let left = tokio::task::spawn_blocking(move || observer.close(None)).await;
    closing.phase = Phase::Left;
    handle.notices.shared.end_closing();
    handle.notices.acted(None);
    left.map_err(|error| Stopped::System(Arc::new(io::Error::other(error))))?
}

/// Whether nothing remains to wait for but that bytes go out.
fn can_leave(seen: &Observation) -> bool {
    seen.snapshot.is_attached || seen.snapshot.acked >= seen.tail
}

/// Closes the link at once when the future is dropped.
struct Closing<'a> {
    notices: &'a Notices,
    phase: Phase,
}

enum Phase {
    Waiting,
    /// A thread closes the link, and reports that to the server.
    Leaving,
    Left,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        match self.phase {
            Phase::Waiting => {
                // With a deadline that has passed it waits for nothing, and its result does not
                // matter.
                let _ = self.notices.observer.close(Some(Instant::now()));
            }
            Phase::Leaving => {
                self.notices.observer.abandon();
                self.notices.shared.end_closing();
            }
            Phase::Left => return,
        }
        self.notices.acted(None);
        self.notices.shared.nudge.notify_one();
    }
}
