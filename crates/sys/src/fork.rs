// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fork guard: detects that the calling process is a forked child of the process that took the
//! guard.
//!
//! ```text
//!   one private page, MADV_WIPEONFORK          process      word
//!   ┌──────────────┐                           parent       A        guard(A): owner
//!   │ word: u64    │      fork()               child        0        guard(A): child
//!   └──────────────┘                           child, later B        guard(A): child,
//!                                                                    guard(B): owner
//! ```
//!
//! In a child the kernel fills this page with zeros. A guard remembers the word that the page had
//! when the guard was taken. A check is one relaxed load and one comparison, cheap enough for the
//! path of a message. A child that takes a guard of its own writes a *different* word, so inherited
//! guards stay recognisable.
//!
//! Without the page (Linux before 4.14, or no memory) a guard compares process ids, with the same
//! results: that costs one system call per check.
//!
//! The guard does not detect `vfork`, nor `clone` with shared memory: such a child runs in its
//! parent's memory.
//!
//! # Invariants
//!
//! - The word is zero only in a forked child that has taken no guard yet.
//! - Two processes of one line of descent never write the same word: it contains the process id and
//!   the time.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Identifies the process that took the guard. Every object that a forked child must not touch
/// holds such a guard.
///
/// ```
/// let guard = partywall_sys::ForkGuard::current();
/// assert!(!guard.is_child());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    word: &'static AtomicU64,
    value: u64,
}

impl ForkGuard {
    /// Takes a guard for the calling process. The first call maps the page of the guards' word,
    /// which stays mapped.
    pub fn current() -> ForkGuard {
        let word = *WORD.get_or_init(|| wiped_page().unwrap_or(&NEVER_WIPED));
        if ptr::eq(word, &NEVER_WIPED) {
            return ForkGuard { word, value: asked_pid() };
        }
        // ORDER: Relaxed, for all accesses to the word of the fork guards: the word protects no
        // other memory. Within one process the word changes only from 0, before the first guard
        // exists; across fork() the kernel orders the change.
        let seen = word.load(Ordering::Relaxed);
        if seen != 0 {
            return ForkGuard { word, value: seen };
        }
        let fresh = generation();
        // Two threads may both take the first guard of the process. The thread whose exchange of
        // the page's word fails uses the word that the other thread stored.
        let value = match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(winner) => winner,
        };
        ForkGuard { word, value }
    }

    /// Whether the calling process was forked, directly or through other children, from the process
    /// that took this fork guard.
    #[inline]
    pub fn is_child(&self) -> bool {
        // ORDER: Relaxed: the word of the fork guards protects no other memory; across fork() the
        // kernel orders its change.
        self.word.load(Ordering::Relaxed) != self.value && self.is_child_slow()
    }

    /// Whether the calling process is the one that took this fork guard.
    #[inline]
    pub fn is_owner(&self) -> bool {
        !self.is_child()
    }

    /// The word that the kernel clears in a forked child, and which equals [`value`](Self::value)
    /// in the process that took this fork guard. While the two are equal, the calling process is
    /// not a child; if they differ, [`is_child`](Self::is_child) decides. A caller that cannot
    /// afford a function call loads the word itself.
    #[inline]
    pub fn word(&self) -> &'static AtomicU64 {
        self.word
    }

    /// The value of [`word`](Self::word) in the process that took this fork guard. It is never
    /// `u64::MAX`.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value
    }

    #[cold]
    fn is_child_slow(&self) -> bool {
        // If the kernel can wipe no page, `word` refers to `NEVER_WIPED`, which stays 0 and equals
        // no process id. So in every check this function compares process ids.
        !ptr::eq(self.word, &NEVER_WIPED) || asked_pid() != self.value
    }
}

/// The id of the calling process. It takes no system call once the process has taken a fork guard.
pub fn own_pid() -> u32 {
    let guard = ForkGuard::current();
    if ptr::eq(guard.word, &NEVER_WIPED) {
        return std::process::id();
    }
    // The upper half of a guard's word is the id of the process that wrote the word, as the
    // function `generation` made it.
    u32::try_from(guard.value >> u32::BITS).unwrap_or_else(|_| std::process::id())
}

/// Maps the page that the kernel wipes in a child; `None` if the kernel cannot wipe pages.
fn wiped_page() -> Option<&'static AtomicU64> {
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the mapping is new and anonymous, at an address that the kernel chooses, so it
    // overlaps nothing.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_SIZE, read_write, private) }.ok()?;
    // SAFETY: this function has just mapped the page, and nothing in this process refers to its
    // memory yet.
    if unsafe { madvise(page, PAGE_SIZE, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: this function has just mapped the page, and no reference to it will ever exist;
        // if the call fails, the page is leaked.
        let _ = unsafe { munmap(page, PAGE_SIZE) };
        return None;
    }
    // SAFETY: the page is zeroed, page-aligned, writable, never unmapped, and only used as the
    // atomic word that this function returns.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// A nonzero word that no ancestor of this process has written: `pid << 32 | microseconds of the
/// clock`.
///
/// An ancestor with the same pid lives in another pid namespace, or is dead and its pid was reused.
/// The words of both are equal only if the ancestor also took its first guard a multiple of 71
/// minutes earlier, to the microsecond.
fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = now.as_secs().wrapping_mul(1_000_000) + u64::from(now.subsec_micros());
    asked_pid() << 32 | micros & u64::from(u32::MAX)
}

fn asked_pid() -> u64 {
    u64::from(std::process::id())
}

static WORD: OnceLock<&'static AtomicU64> = OnceLock::new();

/// The word of every fork guard if the kernel offers no page that it wipes in a child; no code
/// writes this word.
static NEVER_WIPED: AtomicU64 = AtomicU64::new(0);

/// Size in bytes of the page that the kernel wipes, as passed to mmap. mmap rounds the size up to
/// the page size of the machine.
const PAGE_SIZE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_without_page_compares_pid() {
        let own = ForkGuard { word: &NEVER_WIPED, value: asked_pid() };
        let other = ForkGuard { word: &NEVER_WIPED, value: asked_pid() + 1 };
        assert!(own.is_owner());
        assert!(other.is_child());
    }

    #[test]
    fn own_pid_is_the_one_that_the_system_reports() {
        assert_eq!(u64::from(own_pid()), asked_pid());
    }

    #[test]
    fn guards_of_one_process_agree() {
        let first = ForkGuard::current();
        let second = std::thread::spawn(ForkGuard::current).join().unwrap();
        assert_eq!(first.value, second.value);
        assert_ne!(first.value, 0);
    }
}
