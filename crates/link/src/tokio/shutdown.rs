// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing a link in good order.
//!
//! ```text
//!   waits for a connection, as a future ─▶ all out, LEAVE, the other side's system has it: a blocking thread, which drives the group
//!        │ dropped: closed now                    │ dropped: closed now, and the thread ends
//! ```
//!
//! Nothing tells when bytes are out but the call of the front for threads; so a thread of the runtime makes it. A future of our
//! own lost against the second set of rules for leaving that it would be.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::link::Handle;
use super::notices::Notices;
use crate::{Observed, Stopped, WaitError};

pub(super) async fn close(handle: &Handle) -> Result<(), WaitError> {
    let mut closing = Closing { notices: &handle.notices, phase: Phase::Waiting };
    // An error is that of what follows.
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

/// Whether there is nothing to wait for but that bytes go out.
fn can_leave(look: &Observed) -> bool {
    look.snapshot.is_attached || look.snapshot.acked >= look.tail
}

/// Closes the link at once if nobody waits for it any more.
struct Closing<'a> {
    notices: &'a Notices,
    phase: Phase,
}

enum Phase {
    Waiting,
    /// A thread does it, and tells the server.
    Leaving,
    Left,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        match self.phase {
            Phase::Waiting => {
                // With a deadline that has passed it waits for nothing; what it says is of no use to anybody.
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
