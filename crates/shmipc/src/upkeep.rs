// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an application asks of all sessions of one value of the protocol: to be handed over, and their figures.
//!
//! ```text
//!   old process                       new process
//!   Shmipc::hot_restart(7)            listens at the same address, before
//!   Shmipc::hot_restarted(7) ─▶ Done  has the clients' sessions
//! ```
//!
//! It closes nothing: the old process goes on until its sessions have ended, or the application has waited for long
//! enough.

use crate::Shmipc;
use crate::hot_restart::{HandoverError, HandoverState};
use crate::stats::SessionMetrics;
use std::time::Instant;

impl Shmipc {
    /// Tells the clients of all sessions that were accepted that a new process listens at the same address: they
    /// connect to it, open their new streams there, and say so. Those in use go on; nobody closes them but the
    /// application, once their calls are over. `epoch` is 1 or more, and another one each time.
    ///
    /// How the new process comes by the address is up to the application: of a Unix socket, the file is removed, and
    /// bound anew. It must listen *before* this is called. Clients that the old one still accepts afterwards are
    /// told as well, and come again.
    ///
    /// Our clients close their old sessions by themselves, when the last stream in use has ended and not before 2 s have
    /// passed; those of shmipc-go keep theirs until the old process closes them.
    ///
    /// It is over when each client has moved or hung up, or after 2 s: ask [`hot_restart_state`](Self::hot_restart_state).
    ///
    /// # Who takes part
    ///
    /// Sessions of shmipc only: Partywall's own clients at the same address are told with `go_away`, then
    /// `drained`, then `close`. Clients of shmipc-go, all of which have a session manager, and ours that have a `SessionManager`. A client
    /// of ours without one ignores it, and stays. A client of the crate `shmipc` 0.2.1 does *not*
    /// know the message: it hangs up, which fails the calls under way on that session, and connects anew after its
    /// `rebuild_interval`. Nothing on the wire tells it from a client of shmipc-go: a server of such clients closes its
    /// sessions instead, between their calls. Who was told and did neither move nor hang up is counted in
    /// [`StabilityMetrics::hot_restart_error_count`](crate::StabilityMetrics::hot_restart_error_count).
    ///
    /// # Errors
    /// See [`HandoverError`]; nobody was told then.
    pub fn hot_restart(&self, epoch: u64) -> Result<(), HandoverError> {
        self.lines().begin(epoch, Instant::now())
    }

    /// How far the last hot restart is now. Time goes on only when this is asked, or
    /// `hot_restarted` is awaited: whoever uses neither tokio nor threads asks now and then.
    #[must_use]
    pub fn hot_restart_state(&self) -> HandoverState {
        self.lines().look(Instant::now())
    }

    /// Whether the last hot restart has succeeded: not before there was one, and not after one that took too long.
    #[must_use]
    pub fn is_hot_restart_done(&self) -> bool {
        matches!(self.hot_restart_state(), HandoverState::Done { .. })
    }

    /// Waits until the hot restart of this epoch is over: [`Done`](HandoverState::Done) or
    /// [`TimedOut`](HandoverState::TimedOut); after 2 s at most. If another one has begun meanwhile, how far that is.
    /// Cancel-safe.
    #[cfg(feature = "tokio")]
    pub async fn hot_restarted(&self, epoch: u64) -> HandoverState {
        self.lines().over(epoch).await
    }

    /// What each session counted that this value has connected or accepted, and that has not ended; the oldest first.
    #[must_use]
    pub fn metrics(&self) -> Vec<SessionMetrics> {
        self.lines().metrics()
    }

    /// Tells the [`monitor`](crate::Config::monitor) of each session whose interval is over. Sessions do so by themselves
    /// whenever they come to rest, and at their end; one that is idle does nothing at all, so who wants
    /// to hear of idle ones as well calls this now and then. A `SessionManager` does.
    pub fn tell_monitor(&self) {
        self.lines().tell_monitor();
    }
}
