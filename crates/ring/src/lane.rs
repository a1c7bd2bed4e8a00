// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of a lane: a lock around a value, which refuses a second thread instead of letting
//! it wait. A lane favours the thread that claims it again and again: that thread then enters
//! without an atomic read-modify-write. The generation in the word of the lane tells a call whether
//! the lane still holds the object that the call means.
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
//! The presence of a thread is one word, the same for all lanes: it names the lane that the thread
//! is inside without an exchange. Only its own thread writes it, so a thread that was held up
//! between two steps cannot change the presence of another thread. A thread that is inside one lane
//! without an exchange claims further lanes by an atomic exchange of their words.
//!
//! This file has neither the values nor the numbers of the threads nor the barrier of the operating
//! system: its user has all of these.

use crate::sync::{AtomicU64, Ordering, light_barrier};
use partywall_layout::seeded_fault;

/// The presence of one thread: the address of the lane that the thread is inside without an atomic
/// exchange, or 0. The presence has a cache line of its own, because its thread writes it in each
/// call.
#[derive(Debug)]
#[repr(align(64))]
pub struct Presence(AtomicU64);

/// A thread, as lanes know it by its presence.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    presence: &'a Presence,
    /// The lower 32 bits of the word of a lane that favours this thread: the number of the thread,
    /// and the state "favours one thread".
    mark: u64,
}

impl<'a> Thread<'a> {
    /// The thread that has `presence`, which no other running thread has. `number` is the number of
    /// that presence, from 1 to [`NUMBER_MAX`].
    #[must_use]
    pub const fn new(presence: &'a Presence, number: u32) -> Self {
        Self { presence, mark: (number as u64) << NUMBER_SHIFT | FAVOURED }
    }

    /// The number by which the words of lanes name this thread: that of its presence.
    #[must_use]
    pub const fn number(&self) -> u32 {
        number_of(self.mark)
    }

    /// Returns the word of a lane that favours this thread and holds the object of this generation.
    #[inline]
    const fn favoured(&self, generation: u32) -> u64 {
        (generation as u64) << GENERATION_SHIFT | self.mark
    }
}

/// The services of the process that a thread needs in order to claim a lane that favours another
/// thread.
pub trait Process {
    /// Returns the presence with this number.
    fn presence(&self, number: u32) -> Option<&Presence>;

    /// Makes every thread of the process execute a full barrier. Returns whether that succeeded.
    fn heavy_barrier(&self) -> bool;

    /// Whether the thread that had the presence with this number has ended, and no other thread has
    /// that presence now. A lock protects the list of ended threads, so everything that such a
    /// thread did happens before this call returns.
    fn has_ended(&self, number: u32) -> bool;

    /// Lets other threads run, between two reads of the word of a lane.
    fn pause(&self);
}

/// The reason why a thread could not claim a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The object for which the caller claimed the lane is gone: the lane holds no object now, or a
    /// later one.
    Gone,
    /// Another call is inside the lane.
    Busy,
    /// A panic in an earlier call has left the lane's value in an unknown state.
    Poisoned,
}

/// Proof that a thread has claimed a lane by an atomic exchange of its word.
#[derive(Debug)]
#[must_use = "the lane stays claimed until it is released"]
pub struct Claim {
    /// The word that releases the lane. It frees the lane for all threads, unless the claim found a
    /// word that favours the claiming thread or says "poisoned": then it is that word.
    after: u64,
}

/// A lane: a lock around a value that it does not hold itself. The module documentation describes
/// the protocol of its words.
#[derive(Debug)]
pub struct Lane {
    word: AtomicU64,
    /// The number of the thread that claimed the lane last, and after how many further claims in a
    /// row the lane favours that thread. Only a thread that has claimed the lane touches this word.
    habit: AtomicU64,
    /// Number of claims in a row after which the lane favours a thread. Only a thread that has
    /// claimed the lane touches this word.
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
    /// Makes a lane that holds no object yet. Its first object has the generation 1.
    #[must_use]
    pub fn new() -> Self {
        let needed = AtomicU64::new(NEEDED_MIN);
        Self { word: AtomicU64::new(word(1, VACANT)), habit: AtomicU64::new(0), needed }
    }

    /// Returns the generation of the lane's object; while the lane is vacant, that of its next
    /// object.
    #[must_use]
    pub fn generation(&self) -> u32 {
        // ORDER: Relaxed: no access to the lane's value depends on this load.
        generation_of(self.word.load(Ordering::Relaxed))
    }

    /// Opens a vacant lane for the object of `generation`. The caller has just stored the object,
    /// and no other thread knows of it yet.
    pub fn fill(&self, generation: u32) {
        // ORDER: Relaxed for both counters (claims in a row so far, and claims needed for favour):
        // the Release store of the lane's word below makes them visible to the next thread that
        // claims the lane.
        self.habit.store(0, Ordering::Relaxed);
        self.needed.store(NEEDED_MIN, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire exchange by which a thread claims the lane: that
        // thread sees the object that the caller has just stored.
        self.word.store(word(generation, IDLE), Ordering::Release);
    }

    /// Makes a claimed lane vacant. Its next object will have `generation`.
    #[inline]
    pub fn vacate(&self, generation: u32) {
        // ORDER: Relaxed: nobody reads the lane's value through this store. The next object is put
        // in by this thread, or by a thread that learns under a lock that the lane is vacant.
        self.word.store(word(generation, VACANT), Ordering::Relaxed);
    }

    /// Enters the lane without an exchange, if the lane favours `thread` and that thread is inside
    /// no other lane in this way. The thread stays inside until [`leave`](Self::leave) or
    /// [`break_inside`](Self::break_inside).
    #[inline]
    #[must_use]
    pub fn enter(&self, generation: u32, thread: Thread<'_>) -> bool {
        let favoured = thread.favoured(generation);
        // ORDER: Relaxed for both loads: the lane's word is only a hint, which this function checks
        // by a second load below; and the thread alone writes its presence.
        if self.word.load(Ordering::Relaxed) != favoured
            || thread.presence.0.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        // ORDER: the thread first names this lane in its presence, and then checks whether the lane
        // still favours it. The light barrier in between, with the heavy barrier of a thread that
        // ends the favour, orders the two accesses. Release: a thread that reads the presence sees
        // what this thread did in lanes before.
        thread.presence.0.store(self.id(), Ordering::Release);
        if !seeded_fault("no_light_barrier_of_lane") {
            light_barrier();
        }
        // ORDER: the thread, whose presence names this lane, checks that the lane still favours it.
        // Acquire keeps the accesses to the value after this load.
        if self.word.load(Ordering::Acquire) == favoured {
            return true;
        }
        Self::leave(thread);
        false
    }

    /// Leaves the lane that `thread` has entered as its favoured thread, without an atomic
    /// exchange.
    #[inline]
    pub fn leave(thread: Thread<'_>) {
        // ORDER: the thread clears its presence. Release pairs with the Acquire load by which a
        // thread that wants the lane checks the presence: this thread's accesses to the value
        // happen before those of that thread.
        thread.presence.0.store(0, Ordering::Release);
    }

    /// Poisons the lane that `thread` has entered, because a panic has left the value in an unknown
    /// state. Then leaves the lane.
    #[cold]
    pub fn break_inside(&self, thread: Thread<'_>, process: &impl Process) {
        // While a thread is inside a lane, the generation in the lane's word does not change.
        let generation = self.generation();
        let (from, to) = (thread.favoured(generation), word(generation, POISONED));
        // ORDER: Release pairs with the Acquire exchange by which a thread claims the poisoned lane
        // to free its value: that thread sees what this thread did to the value.
        while self.word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_err() {
            // The word differs only because another thread tries to end the favour of this thread.
            // That thread will find this thread inside the lane and restore the word; this thread
            // waits for that.
            process.pause();
        }
        Self::leave(thread);
    }

    /// Claims the lane by an atomic exchange of its word. A poisoned lane is claimed only if
    /// `takes_poisoned` is true.
    ///
    /// # Errors
    /// A [`Refusal`], if the lane has another generation, another call is inside, or an earlier
    /// call has poisoned the lane.
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
            // ORDER: Relaxed: this load only chooses the next step. The lane is claimed by an
            // atomic exchange of the same word, which is an Acquire access.
            let found = self.word.load(Ordering::Relaxed);
            if generation_of(found) != generation {
                return Err(Refusal::Gone);
            }
            let is_claimed = match found & STATES {
                IDLE => self.exchange(found, word(generation, BUSY)),
                POISONED if takes_poisoned => self.exchange(found, word(generation, BUSY)),
                FAVOURED => self.claim_favoured(found, thread, process)?,
                REVOKED => {
                    // Another thread is ending the favour of a third one, which takes no longer
                    // than a system call. This thread then looks at the lane's word again.
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

    /// Claims a lane that favours a thread: for that thread itself, or for another one, which ends
    /// the favour. Returns `false` if the word of the lane has changed meanwhile, so that the
    /// caller reads it again.
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
        // ORDER: Acquire pairs with the Release store by which the favoured thread clears its
        // presence when it leaves the lane. If this load already finds the favoured thread inside,
        // no heavy barrier disturbs that thread.
        if presence.0.load(Ordering::Acquire) == self.id() {
            return Err(Refusal::Busy);
        }
        if own.is_some() {
            return Ok(self.exchange(found, word(generation, BUSY)));
        }
        if !self.exchange(found, word(generation, REVOKED)) {
            return Ok(false);
        }
        // If no heavy barrier is available, the lane can still be taken from a thread that has
        // ended. A new thread that was given the number of the ended one since then does not enter:
        // it got the number under the same lock under which `has_ended` looks, and so sees that the
        // lane's favour is ending.
        let has_passed = seeded_fault("no_heavy_barrier_of_lane")
            || process.heavy_barrier()
            || process.has_ended(number);
        // ORDER: this thread, which has ended the favour of another thread, checks whether that
        // thread is inside the lane. Acquire pairs with the Release store by which a leaving thread
        // clears its presence.
        let is_present = presence.0.load(Ordering::Acquire) == self.id();
        if !has_passed || is_present && !seeded_fault("no_look_for_presence") {
            // ORDER: this thread restores the word of the lane, which it could not claim. Release:
            // the thread that claims the lane next sees what the last claim did, or the call that
            // put the object in.
            self.word.store(found, Ordering::Release);
            return Err(Refusal::Busy);
        }
        // ORDER: Relaxed: from the store by which this thread ended the favour until it claims the
        // lane, no other thread changes the lane's word or touches the counters `habit` and
        // `needed`.
        let needed = self.needed.load(Ordering::Relaxed).saturating_mul(2).min(NEEDED_MAX);
        self.needed.store(needed, Ordering::Relaxed);
        self.word.store(word(generation, BUSY), Ordering::Relaxed);
        Ok(true)
    }

    #[inline]
    fn exchange(&self, from: u64, to: u64) -> bool {
        // ORDER: Acquire pairs with the Release store by which the lane was last released, or its
        // object put in: this thread sees the lane's value as that call left it.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases a claimed lane. If the lane favoured the claiming thread before, it favours that
    /// thread again.
    #[inline]
    pub fn release(&self, claim: &Claim) {
        // ORDER: Release pairs with the Acquire exchange by which a thread claims the lane next:
        // that thread sees the lane's value as the present call has left it.
        self.word.store(claim.after, Ordering::Release);
    }

    /// Releases a claimed lane, and favours `thread` if it has claimed the lane often enough in a
    /// row. Claims that end with [`release`](Self::release) are not counted.
    pub fn release_to(&self, claim: &Claim, thread: Thread<'_>) {
        // ORDER: Relaxed: only a thread that has claimed the lane touches `habit` and `needed`. The
        // Release store of `release` passes both on to the next thread.
        let (habit, needed) =
            (self.habit.load(Ordering::Relaxed), self.needed.load(Ordering::Relaxed));
        let is_same = habit >> GENERATION_SHIFT == u64::from(thread.number());
        let left = if is_same { (habit & HABIT_LEFT).saturating_sub(1) } else { needed };
        let habit = u64::from(thread.number()) << GENERATION_SHIFT | left;
        // ORDER: Relaxed: the Release store of the lane's word, which follows in `release`, passes
        // the new value of `habit` on to the next thread that claims the lane.
        self.habit.store(habit, Ordering::Relaxed);
        let generation = generation_of(claim.after);
        let after = if left == 0 { thread.favoured(generation) } else { claim.after };
        self.release(&Claim { after });
    }

    /// Releases a claimed lane as poisoned, because a panic has left its value in an unknown state.
    #[cold]
    pub fn break_claimed(&self, claim: &Claim) {
        let generation = generation_of(claim.after);
        // ORDER: Release pairs with the Acquire exchange by which a thread claims the poisoned lane
        // to free its value: that thread sees what this thread did to the value.
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

/// Greatest number by which the word of a lane can name a thread (by its presence): the word has 29
/// bits for the number.
pub const NUMBER_MAX: u32 = (1 << 29) - 1;

const VACANT: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
const POISONED: u64 = 3;
const FAVOURED: u64 = 4;
const REVOKED: u64 = 5;

/// Maximum number of attempts of one call to claim a lane whose word other threads change at the
/// same time. After them the call refuses the claim as `Busy`.
const LOOKS_MAX: u32 = 10_000;
/// Number of further claims in a row after which a new lane favours the claiming thread for the
/// first time.
const NEEDED_MIN: u64 = if cfg!(loom) { 0 } else { 16 };
/// Upper bound of the number of claims in a row after which a lane favours a thread. Each time that
/// the favour is taken away, this number doubles.
const NEEDED_MAX: u64 = 1 << 16;
