// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of a lane: a lock that refuses instead of waiting, with a generation, and without
//! an atomic read-modify-write for the thread that claims it again and again.
//!
//! ```text
//!  word   generation (32 bits) │ number of the favoured thread (29 bits) │ state (3 bits)
//!
//!  VACANT ─fill─▶ IDLE ◀─claim, release─▶ BUSY ─favour─▶ FAVOURED ◀─┐ its thread enters
//!                  ▲                       ▲  panic ─▶ POISONED     │
//!                  │                       └── absent ── REVOKED ───┘ present: refused
//!
//!  F, the favoured thread, enters              R, another thread, claims the lane
//!  ──────────────────────────────              ──────────────────────────────────
//!  E1  presence of F = this lane               V1  FAVOURED ─▶ REVOKED
//!  E2  light barrier                           V2  heavy barrier
//!  E3  if the word favours F: F is inside      V3  presence of F is this lane? word back, refused
//!      else: presence of F = 0                     else: REVOKED ─▶ BUSY, R is inside
//!  E4  presence of F = 0
//! ```
//!
//! F and R are never inside at the same time, because one of the two barriers comes first, as in
//! `bias.rs`. If V2 is first, E3 sees V1 and F does not enter. If E2 is first, V3 sees E1.
//!
//! Each thread has one presence for all lanes, so a thread that was held up between two steps can
//! change no other thread's. A thread that is inside one lane this way claims further ones by
//! exchange.
//!
//! The user of this file has the values, the threads' numbers, and the barrier of the system.

use crate::sync::{AtomicU64, Ordering, light_barrier};
use partywall_layout::seeded_fault;

/// The lane that one thread is inside without an exchange, or 0. It has a cache line of its own,
/// because its thread writes it in each call.
#[derive(Debug)]
#[repr(align(64))]
pub struct Presence(AtomicU64);

/// A thread as lanes know it.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    presence: &'a Presence,
    /// The number of the presence and the state FAVOURED, as in the word of a lane.
    mark: u64,
}

impl<'a> Thread<'a> {
    /// The thread that has `presence`, which no other running thread has. `number` is that of the
    /// presence, from 1 to [`NUMBER_MAX`].
    #[must_use]
    pub const fn new(presence: &'a Presence, number: u32) -> Self {
        Self { presence, mark: (number as u64) << NUMBER_SHIFT | FAVOURED }
    }

    /// The number of the thread's presence.
    #[must_use]
    pub const fn number(&self) -> u32 {
        number_of(self.mark)
    }

    /// The word of a lane that favours the thread.
    #[inline]
    const fn favoured(&self, generation: u32) -> u64 {
        (generation as u64) << GENERATION_SHIFT | self.mark
    }
}

/// What a lane asks of the process when another thread is favoured.
pub trait Process {
    /// Returns the presence with this number.
    fn presence(&self, number: u32) -> Option<&Presence>;

    /// Makes every thread of the process execute a full barrier. Returns whether it did.
    fn heavy_barrier(&self) -> bool;

    /// Whether the thread that had the presence with this number has ended, and no other thread has
    /// it now. The numbers of ended threads have a lock, so what such a thread did happens before
    /// the return of the call.
    fn has_ended(&self, number: u32) -> bool;

    /// Lets other threads run, between two looks at a lane.
    fn pause(&self);
}

/// Why a lane could not be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The lane has another generation, or is vacant.
    Gone,
    /// Another call is inside.
    Busy,
    /// A panic has left the value in an unknown state.
    Poisoned,
}

/// Proof that a lane was claimed by exchange.
#[derive(Debug)]
#[must_use = "the lane stays claimed until it is released"]
pub struct Claim {
    /// The word that releases the lane: free for all, or as the claim found it, if that is
    /// favouring the claiming thread or poisoned.
    after: u64,
}

/// The words of a lane. The module documentation describes the protocol.
#[derive(Debug)]
pub struct Lane {
    word: AtomicU64,
    /// The number of the thread that claimed the lane last, and how many further claims in a row
    /// favour it. Only the thread that has claimed the lane touches it.
    habit: AtomicU64,
    /// Number of claims in a row that favour a thread. Only the thread that has claimed the lane
    /// touches it.
    needed: AtomicU64,
}

impl Presence {
    /// The presence of a thread that is inside no lane.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane {
    /// Makes a vacant lane whose first object has generation 1.
    #[must_use]
    pub fn new() -> Self {
        let needed = AtomicU64::new(NEEDED_MIN);
        Self { word: AtomicU64::new(word(1, VACANT)), habit: AtomicU64::new(0), needed }
    }

    /// The generation of the lane's object, or of its next one.
    #[must_use]
    pub fn generation(&self) -> u32 {
        // ORDER: Relaxed: the word guards nothing here.
        generation_of(self.word.load(Ordering::Relaxed))
    }

    /// Opens a vacant lane, whose value the caller has just stored and which it alone knows.
    pub fn fill(&self, generation: u32) {
        // ORDER: Relaxed: the store of the word, below, passes both words on.
        self.habit.store(0, Ordering::Relaxed);
        self.needed.store(NEEDED_MIN, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `claim`: whoever claims sees the value.
        self.word.store(word(generation, IDLE), Ordering::Release);
    }

    /// Makes a claimed lane vacant for the object of `generation`.
    #[inline]
    pub fn vacate(&self, generation: u32) {
        // ORDER: Relaxed: the lane is filled by this thread, or by one that learns of it by a lock.
        self.word.store(word(generation, VACANT), Ordering::Relaxed);
    }

    /// Enters the lane without an exchange, if it favours `thread` and that is inside no other.
    /// The thread stays inside until [`leave`](Self::leave) or
    /// [`break_inside`](Self::break_inside).
    #[inline]
    #[must_use]
    pub fn enter(&self, generation: u32, thread: Thread<'_>) -> bool {
        let favoured = thread.favoured(generation);
        // ORDER: Relaxed for both loads: the word is only a hint here, and the thread alone writes
        // its presence.
        if self.word.load(Ordering::Relaxed) != favoured
            || thread.presence.0.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        // ORDER: step E1 of the protocol. The barriers of E2 and V2 order it before the load of
        // step E3. Release, so that whoever reads it sees what the thread did in lanes before.
        thread.presence.0.store(self.id(), Ordering::Release);
        if !seeded_fault("no_light_barrier_of_lane") {
            light_barrier();
        }
        // ORDER: step E3 of the protocol. Acquire keeps accesses to the value behind this load.
        if self.word.load(Ordering::Acquire) == favoured {
            return true;
        }
        Self::leave(thread);
        false
    }

    /// Leaves the lane that `thread` has entered.
    #[inline]
    pub fn leave(thread: Thread<'_>) {
        // ORDER: step E4 of the protocol. Release pairs with the Acquire of step V3: this thread's
        // accesses to the value happen before those of the thread that claims the lane.
        thread.presence.0.store(0, Ordering::Release);
    }

    /// Poisons the lane that `thread` has entered, and leaves it.
    #[cold]
    pub fn break_inside(&self, thread: Thread<'_>, process: &impl Process) {
        // A lane that a thread is inside keeps its generation.
        let generation = self.generation();
        let (from, to) = (thread.favoured(generation), word(generation, POISONED));
        // ORDER: Release pairs with the Acquire in `exchange`: the call that frees sees the value.
        while self.word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_err() {
            // Another thread has revoked the favour, finds this one present, and puts it back.
            process.pause();
        }
        Self::leave(thread);
    }

    /// Claims the lane by exchange, also a poisoned one if `takes_poisoned`.
    ///
    /// # Errors
    /// A [`Refusal`], if the lane has another generation, another call is inside, or a panic was.
    #[inline]
    pub fn claim(
        &self,
        generation: u32,
        takes_poisoned: bool,
        thread: Option<Thread<'_>>,
        process: &impl Process,
    ) -> Result<Claim, Refusal> {
        let idle = word(generation, IDLE);
        if self.exchange(idle, word(generation, BUSY)) {
            return Ok(Claim { after: idle });
        }
        self.claim_slowly(generation, takes_poisoned, thread, process)
    }

    #[cold]
    fn claim_slowly(
        &self,
        generation: u32,
        takes_poisoned: bool,
        thread: Option<Thread<'_>>,
        process: &impl Process,
    ) -> Result<Claim, Refusal> {
        for _ in 0..LOOKS_MAX {
            // ORDER: Relaxed: the exchange that follows has the order.
            let found = self.word.load(Ordering::Relaxed);
            if generation_of(found) != generation {
                return Err(Refusal::Gone);
            }
            let is_claimed = match found & STATES {
                IDLE => self.exchange(found, word(generation, BUSY)),
                POISONED if takes_poisoned => self.exchange(found, word(generation, BUSY)),
                FAVOURED => self.claim_favoured(found, thread, process)?,
                REVOKED => {
                    // Another thread is between V1 and V3, no longer than a system call takes.
                    process.pause();
                    false
                }
                BUSY => return Err(Refusal::Busy),
                POISONED => return Err(Refusal::Poisoned),
                _ => return Err(Refusal::Gone),
            };
            if is_claimed {
                let keeps = found & STATES == POISONED
                    || thread.is_some_and(|it| found == it.favoured(generation));
                return Ok(Claim { after: if keeps { found } else { word(generation, IDLE) } });
            }
        }
        Err(Refusal::Busy)
    }

    /// Claims a lane that favours a thread. Returns whether that succeeded; if not, the word has
    /// changed meanwhile.
    #[cold]
    fn claim_favoured(
        &self,
        found: u64,
        thread: Option<Thread<'_>>,
        process: &impl Process,
    ) -> Result<bool, Refusal> {
        let generation = generation_of(found);
        let number = number_of(found);
        let own = thread.filter(|thread| thread.number() == number);
        let favoured = own.map(|own| own.presence).or_else(|| process.presence(number));
        let Some(presence) = favoured else { return Err(Refusal::Busy) };
        // ORDER: Acquire, as in step V3. A thread that is inside is not disturbed by a barrier.
        if presence.0.load(Ordering::Acquire) == self.id() {
            return Err(Refusal::Busy);
        }
        if own.is_some() {
            return Ok(self.exchange(found, word(generation, BUSY)));
        }
        if !self.exchange(found, word(generation, REVOKED)) {
            return Ok(false);
        }
        // A thread that took the number of an ended one since V1 has seen V1 by the lock of
        // `has_ended`, and does not enter.
        let has_passed = seeded_fault("no_heavy_barrier_of_lane")
            || process.heavy_barrier()
            || process.has_ended(number);
        // ORDER: step V3 of the protocol. Acquire pairs with the Release of step E4.
        let is_present = presence.0.load(Ordering::Acquire) == self.id();
        if !has_passed || is_present && !seeded_fault("no_look_for_presence") {
            // ORDER: Release: the thread that claims next sees what `fill` or the last claim did.
            self.word.store(found, Ordering::Release);
            return Err(Refusal::Busy);
        }
        // ORDER: Relaxed: only the thread that revoked changes the word, and it guards the habits.
        let needed = self.needed.load(Ordering::Relaxed).saturating_mul(2).min(NEEDED_MAX);
        self.needed.store(needed, Ordering::Relaxed);
        self.word.store(word(generation, BUSY), Ordering::Relaxed);
        Ok(true)
    }

    #[inline]
    fn exchange(&self, from: u64, to: u64) -> bool {
        // ORDER: Acquire pairs with the Release of the call that released the lane, and of `fill`.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases a claimed lane, which favours the claiming thread if it did so before.
    #[inline]
    pub fn release(&self, claim: &Claim) {
        // ORDER: Release pairs with the Acquire in `exchange`: the next call sees the value.
        self.word.store(claim.after, Ordering::Release);
    }

    /// Releases a claimed lane, and favours `thread` if it has claimed the lane often enough in a
    /// row. Only a lane whose claims are all released like this counts them.
    pub fn release_to(&self, claim: &Claim, thread: Thread<'_>) {
        // ORDER: Relaxed: only the thread that has claimed the lane touches the two words, and
        // passes them on by the store of `release`.
        let (habit, needed) =
            (self.habit.load(Ordering::Relaxed), self.needed.load(Ordering::Relaxed));
        let is_same = habit >> GENERATION_SHIFT == u64::from(thread.number());
        let left = if is_same { (habit & HABIT_LEFT).saturating_sub(1) } else { needed };
        let habit = u64::from(thread.number()) << GENERATION_SHIFT | left;
        // ORDER: Relaxed, as above.
        self.habit.store(habit, Ordering::Relaxed);
        let generation = generation_of(claim.after);
        let after = if left == 0 { thread.favoured(generation) } else { claim.after };
        self.release(&Claim { after });
    }

    /// Poisons a claimed lane.
    #[cold]
    pub fn break_claimed(&self, claim: &Claim) {
        let generation = generation_of(claim.after);
        // ORDER: Release pairs with the Acquire in `exchange`: the call that frees sees the value.
        self.word.store(word(generation, POISONED), Ordering::Release);
    }

    /// The address of the lane, which a presence holds while its thread is inside.
    #[inline]
    fn id(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

const fn word(generation: u32, state: u64) -> u64 {
    (generation as u64) << GENERATION_SHIFT | state
}

const fn generation_of(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "29 bits")]
const fn number_of(word: u64) -> u32 {
    (word >> NUMBER_SHIFT) as u32 & NUMBER_MAX
}

const GENERATION_SHIFT: u32 = 32;
const NUMBER_SHIFT: u32 = 3;
const STATES: u64 = (1 << NUMBER_SHIFT) - 1;
const HABIT_LEFT: u64 = (1 << GENERATION_SHIFT) - 1;

/// Greatest number of a presence: the word of a lane has 29 bits for it.
pub const NUMBER_MAX: u32 = (1 << 29) - 1;

const VACANT: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
const POISONED: u64 = 3;
const FAVOURED: u64 = 4;
const REVOKED: u64 = 5;

/// Most looks at a lane that others change at the same time.
const LOOKS_MAX: u32 = 10_000;
/// Number of further claims in a row after which a thread is favoured for the first time.
const NEEDED_MIN: u64 = if cfg!(loom) { 0 } else { 16 };
/// Each revocation doubles that number, up to this one.
const NEEDED_MAX: u64 = 1 << 16;
