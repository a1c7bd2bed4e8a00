// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of sessions: those of the standard library and of `partywall-sys`, or shuttle's under
//! `--cfg shuttle`.
//!
//! ```text
//!   shared.rs, stream.rs ──▶ sync.rs ──┬─ std::sync, partywall_sys
//!                                      └─ shuttle::sync    every lock a point where others may run
//! ```
//!
//! The locks that every message takes are [`AsymmetricMutex`]es (decision 0062).
//!
//! No other file of `session/`, nor the ready list of `event/`, imports a lock, so shuttle can
//! choose every interleaving of its threads. `Arc` and wakers are exceptions: shuttle's `Arc` is
//! the standard one, and `tokio/`, `blocking/` and `event/` make the wakers.

#[cfg(shuttle)]
pub(crate) use asymmetric_mutex::{AsymmetricMutex, AsymmetricMutexGuard};
#[cfg(shuttle)]
pub(crate) use once::OnceLock;
#[cfg(not(shuttle))]
pub(crate) use partywall_sys::{AsymmetricMutex, AsymmetricMutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::OnceLock;
#[cfg(any(feature = "tokio", shuttle))]
pub(crate) use std::sync::PoisonError;
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, fence};
#[cfg(all(feature = "tokio", not(shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// The replacement of `AsymmetricMutex` in builds under shuttle: a mutex of shuttle.
#[cfg(shuttle)]
mod asymmetric_mutex {
    use shuttle::sync::{Mutex, MutexGuard};
    use std::sync::PoisonError;

    /// A mutex without poisoning. Each `lock` is a point where shuttle can switch threads.
    #[derive(Debug, Default)]
    pub(crate) struct AsymmetricMutex<T>(Mutex<T>);

    pub(crate) type AsymmetricMutexGuard<'a, T> = MutexGuard<'a, T>;

    impl<T> AsymmetricMutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> AsymmetricMutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// The replacement of `OnceLock` in builds under shuttle, which provides no such type.
#[cfg(shuttle)]
mod once {
    use shuttle::sync::Mutex;
    use std::sync::PoisonError;

    /// A value that is set once. Its lock makes every access a point where shuttle can switch
    /// threads. The standard `OnceLock` contains the value, because a reference cannot outlive the
    /// guard of a lock.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        is_set: Mutex<bool>,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) const fn new() -> Self {
            Self { is_set: Mutex::new(false), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            let is_set = *self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
            if is_set { self.value.get() } else { None }
        }

        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            let mut is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
            *is_set = true;
            self.value.get_or_init(init)
        }
    }
}
