// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes a link in good order for async code.
//!
//! ```text
//!   a future waits for a connection ─▶ a blocking thread drives the group: all bytes out, LEAVE,
//!        │                             the peer's system has them
//!        │ future dropped:                │ future dropped: the link is closed at once,
//!        ▼ the link is closed at once     ▼ and the thread ends
//! ```
//!
//! Only the blocking call reports when all bytes have gone out, so a blocking thread of the runtime
//! makes that call. An implementation as a future, without a thread, was rejected: it would
//! implement the rules for leaving a peer a second time.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::link::Handle;
use super::notices::Notices;
use crate::{Observation, Stopped, WaitError};

pub(super) async fn close(handle: &Handle) -> Result<(), WaitError> {
    let mut closing = Closing { notices: &handle.notices, phase: Phase::Waiting };
    // The future waits until the link has a connection or every sent message is acknowledged. An
    // error of this wait is ignored, because the blocking call of `close` returns the same error.
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

pub(super) async fn detach(handle: &Handle) -> Result<(), Stopped> {
    let observer = handle.notices.observer.clone();
    let detached = handle.notices.shared.close_on_a_thread(move || observer.detach()).await;
    handle.notices.acted(None);
    detached
}

/// Whether the link can leave its peer now: it has a connection, or every sent message is
/// acknowledged.
fn can_leave(seen: &Observation) -> bool {
    seen.snapshot.is_attached || seen.snapshot.acked >= seen.tail
}

/// Guard of the future that closes a link. If the future is dropped before it is ready, the guard
/// closes the link immediately.
struct Closing<'a> {
    notices: &'a Notices,
    phase: Phase,
}

enum Phase {
    Waiting,
    /// In this state of closing, a blocking thread closes the link, and reports the end of the
    /// stream to the peer.
    Leaving,
    Left,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        match self.phase {
            Phase::Waiting => {
                // The deadline given to `close_unsynced` has passed already, so the call closes the
                // link without waiting. Its result is ignored, because the link is closed in any
                // case.
                let _ = self.notices.observer.close_unsynced(Some(Instant::now()));
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
