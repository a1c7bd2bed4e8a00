// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that are in `accept` of a listener. `close` of the listener waits until they have
//! left, so that the address is free when `close` returns.

use pyo3::prelude::*;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The threads that are in `accept` of one listener, each with the id of its process: in a forked
/// child, the threads of the parent do not exist.
#[derive(Default)]
pub struct AcceptThreads {
    threads: Mutex<Vec<(u32, ThreadId)>>,
    left: Condvar,
}

/// Lives as long as one thread is in `accept` of the listener. Its drop notes that the thread has
/// left.
pub struct Stay<'a>(&'a AcceptThreads);

impl AcceptThreads {
    fn threads(&self) -> MutexGuard<'_, Vec<(u32, ThreadId)>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the calling thread is in `accept` of the listener.
    pub fn enter(&self) -> Stay<'_> {
        self.threads().push(this_thread());
        Stay(self)
    }

    /// Waits without the GIL until no thread of this process is in `accept` of the listener, at
    /// most [`LEAVE_MAX`]. A rule of admission runs within `accept`; if it closes its own listener,
    /// its thread does not wait.
    pub fn wait_until_left(&self, py: Python<'_>) {
        let this = this_thread();
        let is_in = |threads: &mut Vec<(u32, ThreadId)>| {
            !threads.contains(&this) && threads.iter().any(|(process, _)| *process == this.0)
        };
        py.detach(|| drop(self.left.wait_timeout_while(self.threads(), LEAVE_MAX, is_in)));
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        let this = this_thread();
        let mut threads = self.0.threads();
        if let Some(place) = threads.iter().position(|thread| *thread == this) {
            threads.swap_remove(place);
        }
        self.0.left.notify_all();
    }
}

fn this_thread() -> (u32, ThreadId) {
    (process::id(), thread::current().id())
}

/// Maximum time for which `close` of a listener waits for a thread in `accept`: a rule of admission
/// that runs there may take for ever.
const LEAVE_MAX: Duration = Duration::from_secs(2);
