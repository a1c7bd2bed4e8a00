// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that only one thread at a time can take, such as a sending stream. Unlike the lock of a
//! mutex, waiting for the value has a deadline.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Lends a value, such as a sending stream, to one thread at a time.
#[derive(Debug)]
pub(super) struct Turn<T> {
    place: Mutex<Place<T>>,
    returned: Condvar,
}

#[derive(Debug)]
struct Place<T> {
    value: Option<T>,
    /// The function that a thread passed to [`Turn::apply`] while another thread had taken the
    /// value. The other thread calls the function when it returns the value.
    work: Option<fn(&mut T)>,
}

/// The value that a thread has taken from a [`Turn`]. Dropping this guard gives the value back, for
/// other threads.
#[derive(Debug)]
pub(super) struct Taken<'a, T> {
    turn: &'a Turn<T>,
    value: Option<T>,
}

impl<T> Turn<T> {
    pub(super) fn new(value: T) -> Self {
        let place = Place { value: Some(value), work: None };
        Self { place: Mutex::new(place), returned: Condvar::new() }
    }

    /// Takes the lent value. If another thread has taken it, waits until that thread returns it;
    /// returns `None` if the value is not free before `deadline`.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<Taken<'_, T>> {
        let is_away = |place: &mut Place<T>| place.value.is_none();
        let value = wait_while(&self.returned, self.lock(), deadline, is_away).value.take()?;
        Some(Taken { turn: self, value: Some(value) })
    }

    /// Takes the lent value if no other thread has it; returns `None` otherwise.
    pub(super) fn try_take(&self) -> Option<Taken<'_, T>> {
        let value = self.lock().value.take()?;
        Some(Taken { turn: self, value: Some(value) })
    }

    /// Calls `work` with the lent value: at once if no thread has taken it, otherwise when the
    /// thread that has taken it gives it back.
    pub(super) fn apply(&self, work: fn(&mut T)) {
        let mut place = self.lock();
        match &mut place.value {
            Some(value) => work(value),
            None => place.work = Some(work),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().unwrap_or_else(|| unreachable!("it goes back only in `drop`"))
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap_or_else(|| unreachable!("it goes back only in `drop`"))
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut place = self.turn.lock();
        if let (Some(work), Some(value)) = (place.work.take(), &mut self.value) {
            work(value);
        }
        place.value = self.value.take();
        drop(place);
        self.turn.returned.notify_one();
    }
}

/// Waits on the condition variable `changed` as long as `condition` holds, at most until
/// `deadline`.
pub(super) fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
    mut condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let Some(deadline) = deadline else {
        return changed.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let waited = changed.wait_timeout_while(guard, left, &mut condition);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Waits for one notification of the condition variable `changed`, at most until `deadline`.
pub(super) fn wait_once<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Instant,
) -> MutexGuard<'a, T> {
    let left = deadline.saturating_duration_since(Instant::now());
    changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
}
