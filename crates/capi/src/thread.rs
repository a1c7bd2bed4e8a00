// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that call the library, as lanes (the locks of the objects behind handles) know them.
//! Each has a presence: a word that says which lane the thread is inside without an atomic
//! exchange. When a thread ends, another thread gets its presence.
//!
//! ```text
//!   first call that could favour the thread ─▶ presence, from those of ended threads or a new one
//!   end of the thread ─▶ presence goes back
//! ```
//!
//! A presence is never freed, because lanes name it by its number. Where the system has no memory
//! barrier that one thread makes all threads execute, no thread has a presence, and every call
//! locks its lane by an atomic exchange.

use partywall_ring::lane::{NUMBER_MAX, Presence, Process, Thread};
use partywall_sys::barrier;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Returns the calling thread; `None` if it has no presence yet.
#[inline]
pub(crate) fn current() -> Option<Thread<'static>> {
    CURRENT.get()
}

/// Returns the calling thread. If it has no presence yet, gives it one, provided that the system
/// has the memory barrier of all threads.
#[cold]
pub(crate) fn registered() -> Option<Thread<'static>> {
    if CURRENT.get().is_none() && barrier::is_available() {
        // A thread that is ending has dropped its thread-local values, and gets no presence.
        let _ = RETURN.try_with(|it| {
            CURRENT.set(presences().take());
            it.0.set(CURRENT.get());
        });
    }
    CURRENT.get()
}

/// This process, in which lanes look up the presence of a thread and execute a barrier in all
/// threads.
pub(crate) struct ThisProcess;

impl Process for ThisProcess {
    fn presence(&self, number: u32) -> Option<&Presence> {
        presences().all.get(number as usize - 1).copied()
    }

    fn heavy_barrier(&self) -> bool {
        barrier::in_all_threads().is_ok()
    }

    fn has_ended(&self, number: u32) -> bool {
        presences().free.contains(&number)
    }

    fn pause(&self) {
        thread::yield_now();
    }
}

/// The presences of all threads that have ever called the library.
struct Presences {
    /// Every presence. The index is the presence's number less one.
    all: Vec<&'static Presence>,
    /// The numbers of presences whose thread has ended.
    free: Vec<u32>,
}

impl Presences {
    fn take(&mut self) -> Option<Thread<'static>> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.all.len() + 1).ok();
                let number = number.filter(|number| *number <= NUMBER_MAX)?;
                self.all.push(Box::leak(Box::default()));
                number
            }
        };
        let presence = self.all.get(number as usize - 1)?;
        Some(Thread::new(presence, number))
    }
}

static PRESENCES: Mutex<Presences> = Mutex::new(Presences { all: Vec::new(), free: Vec::new() });

fn presences() -> MutexGuard<'static, Presences> {
    PRESENCES.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    // The thread-local value `CURRENT` has no destructor, so a read need not check whether the
    // thread is ending. `RETURN` has a destructor.
    static CURRENT: Cell<Option<Thread<'static>>> = const { Cell::new(None) };
    static RETURN: Return = const { Return(Cell::new(None)) };
}

/// Gives a thread's presence back for another thread when the thread ends.
struct Return(Cell<Option<Thread<'static>>>);

impl Drop for Return {
    fn drop(&mut self) {
        CURRENT.set(None);
        if let Some(thread) = self.0.take() {
            presences().free.push(thread.number());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_of_an_ended_thread_is_one_of_those_that_others_get() {
        let number = || thread::spawn(|| registered().map(|it| it.number())).join().unwrap();
        let Some(first) = number() else { return };
        assert!(presences().free.contains(&first) || presences().all.len() > 1);
        assert!(ThisProcess.presence(first).is_some());
        assert_eq!(registered().map(|it| it.number()), current().map(|it| it.number()));
    }
}
