// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wait strategies: spin; spin for a budget and then block; block; or poll at intervals.
//!
//! ```text
//!   Spin      poll ── poll ── poll ── poll ── ...           occupies a core, the least latency
//!   Adaptive  poll for a budget ── arm ── poll ── block     the budget grows on hits
//!   Park      yield, if it pays off ── arm ── poll ── block no CPU time while nothing comes
//!   Poll      arm (quietly) ── poll ── block for a period   the sender never notifies
//! ```
//!
//! Each side of a channel chooses its strategy at any time, separately for records and for room.
//! This file contains the strategies and the spinning; the transports arm and block. A thread that
//! arms declares to the peer that it is about to sleep, and so asks the peer to wake it. A thread
//! that arms quietly does not ask for that.

use crate::short_sleeps::ShortSleeps;
use crate::yields::Yields;
use std::hint::spin_loop;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How a thread waits for a record, or for room in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Poll without pause. This strategy has the least latency and occupies a core.
    Spin,
    /// Poll for at most the spin budget, then block. The budget grows while polling succeeds and
    /// shrinks to zero while polling fails. On a single CPU or under a CPU quota the budget is
    /// zero, after three waits of the process whose polls found nothing.
    #[default]
    Adaptive,
    /// Arm (ask the peer to wake this thread), poll once and block, without spinning first. As long
    /// as it pays off, the thread yields its processor once before it arms: a peer that waits for
    /// the same processor then answers without a wake-up.
    Park,
    /// Poll once per period, and ask the peer for no notifications. This strategy suits receivers
    /// for which latency does not matter, such as a log agent.
    Poll(Duration),
}

/// The result of [`Spinner::spin`]: why the thread has stopped polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinOutcome {
    /// A poll found the record or the room that the thread waits for.
    Ready,
    /// The spin budget is used up, so the caller blocks.
    Exhausted,
    /// A periodic check is due: the caller checks its deadline and whether the peer lives, then
    /// calls [`Spinner::spin`] again.
    CheckDue,
}

/// Polls according to a [`Wait`], and adapts the time that it spends on polling (its spin budget)
/// to whether polling finds what the thread waits for.
#[derive(Debug)]
pub struct Spinner {
    budget: SpinBudget,
    /// For how long the present wait has polled, if its budget is longer than
    /// [`SPIN_CHECK_EVERY`].
    spun: Duration,
    yields: Yields,
    sleeps: ShortSleeps,
}

/// The time for which a waiting thread polls before it blocks: longer after hits, shorter and
/// finally zero after misses.
#[derive(Debug)]
pub struct SpinBudget {
    time: Duration,
    time_max: Duration,
    /// Number of the next waits that block without polling first.
    skip: u32,
    /// Value from which `skip` last counted down; it doubles with each failure of polling.
    skipped: u32,
    /// Whether it is still unknown if spinning keeps the peer from running, as on a single CPU. The
    /// first waits in vain find it out.
    is_unchecked: bool,
}

/// Interval at which a spinning thread checks its deadline and whether its peer lives.
pub const SPIN_CHECK_EVERY: Duration = Duration::from_millis(2);
/// A spin budget of less than this time counts as zero: the thread blocks without polling first.
const BUDGET_MIN: Duration = Duration::from_micros(1);
/// Maximum number of waits that block without polling before polling is tried again, because it may
/// pay off by then.
const SKIP_MAX: u32 = 256;
/// Maximum number of polls between two reads of the clock. It bounds by how much polling exceeds
/// its budget.
const POLLS_PER_CLOCK_READ_MAX: u32 = 32;
/// Number of polls between two reads of the clock, per microsecond of the spin budget.
///
/// A poll of shared memory takes about 60 ns, and a poll of a socket about 500 ns. So the polls
/// between two reads take an eighth of the budget if they poll shared memory, and at most all of it
/// if they poll a socket.
const POLLS_PER_BUDGET_US: u32 = 2;

impl Spinner {
    /// A spinner for one waiting thread, which polls for at most `budget_max` under
    /// [`Wait::Adaptive`].
    #[must_use]
    pub fn new(budget_max: Duration) -> Self {
        Self {
            budget: SpinBudget::new(budget_max),
            spun: Duration::ZERO,
            yields: Yields::default(),
            sleeps: ShortSleeps::default(),
        }
    }

    /// Calls `poll` repeatedly, according to `wait`.
    ///
    /// [`SpinOutcome::CheckDue`] asks the caller to make its periodic checks and to call again.
    /// Only [`Wait::Spin`] returns it, and [`Wait::Adaptive`] with a budget of more than
    /// [`SPIN_CHECK_EVERY`].
    #[inline]
    pub fn spin(&mut self, wait: Wait, poll: impl FnMut() -> bool) -> SpinOutcome {
        let outcome = match wait {
            Wait::Spin => {
                if poll_for(SPIN_CHECK_EVERY, poll) {
                    SpinOutcome::Ready
                } else {
                    SpinOutcome::CheckDue
                }
            }
            Wait::Adaptive => self.spin_adaptively(poll),
            Wait::Park => self.yield_once(poll),
            // A sleep until the next poll has a timer anyway.
            Wait::Poll(_) => return SpinOutcome::Exhausted,
        };
        if outcome == SpinOutcome::Exhausted {
            self.sleeps.begin();
        }
        outcome
    }

    fn spin_adaptively(&mut self, poll: impl FnMut() -> bool) -> SpinOutcome {
        let Some(time) = self.budget.spin_time() else { return self.yield_once(poll) };
        if time > SPIN_CHECK_EVERY {
            return self.spin_in_slices(time, poll);
        }
        if poll_for(time, poll) {
            self.budget.hit();
            return SpinOutcome::Ready;
        }
        self.budget.miss();
        SpinOutcome::Exhausted
    }

    /// Yields the processor once instead of spinning, and then polls once. Does neither while
    /// yields do not pay off.
    fn yield_once(&mut self, poll: impl FnMut() -> bool) -> SpinOutcome {
        if self.yields.poll(poll) { SpinOutcome::Ready } else { SpinOutcome::Exhausted }
    }

    /// Polls until the next periodic check is due, or the budget is used up. It serves a spin
    /// budget that is longer than the interval between two checks.
    #[cold]
    fn spin_in_slices(&mut self, time: Duration, poll: impl FnMut() -> bool) -> SpinOutcome {
        let slice = time.saturating_sub(self.spun).min(SPIN_CHECK_EVERY);
        let is_ready = poll_for(slice, poll);
        self.spun += slice;
        if !is_ready && self.spun < time {
            return SpinOutcome::CheckDue;
        }
        self.spun = Duration::ZERO;
        if is_ready {
            self.budget.hit();
            return SpinOutcome::Ready;
        }
        self.budget.miss();
        SpinOutcome::Exhausted
    }
}

impl SpinBudget {
    /// A spin budget that starts at `time_max` and never exceeds it. The budget is zero where this
    /// process has found spinning to be futile: on one CPU, or under a CPU quota.
    #[must_use]
    pub fn new(time_max: Duration) -> Self {
        let known = FUTILE.get().copied();
        let time_max = if known == Some(true) { Duration::ZERO } else { time_max };
        Self { time: time_max, time_max, skip: 0, skipped: 0, is_unchecked: known.is_none() }
    }

    /// How long the present wait polls before it blocks, or `None` if it blocks without spinning.
    #[inline]
    pub fn spin_time(&mut self) -> Option<Duration> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.time < BUDGET_MIN {
            self.time = self.time_max;
        }
        (self.time >= BUDGET_MIN).then_some(self.time)
    }

    /// Records that a wait ended in time: polling found what the thread waits for, within the
    /// budget.
    #[inline]
    pub fn hit(&mut self) {
        self.skipped = 0;
        // Mostly the budget is at its maximum already. A comparison takes less time than doubling.
        if self.time != self.time_max {
            self.time = self.time_max.min(self.time.saturating_mul(2));
        }
    }

    /// Records that a wait did not end in time: the spin budget was used up before polling found
    /// anything.
    pub fn miss(&mut self) {
        if self.is_unchecked {
            if let Some(is_futile) = futile_after_misses() {
                self.note_futile(is_futile);
            }
        }
        self.time /= 2;
        if self.time < (self.time_max / 4).max(BUDGET_MIN) {
            // After three waits in a row whose polls found nothing, the next waits block without
            // spinning. The number of such waits doubles each time.
            self.time = Duration::ZERO;
            self.skipped = (self.skipped * 2).clamp(4, SKIP_MAX);
            self.skip = self.skipped;
        }
    }

    /// Notes whether spinning keeps the peer from running. If so, no further wait spins.
    fn note_futile(&mut self, is_futile: bool) {
        self.is_unchecked = false;
        if is_futile {
            (self.time, self.time_max) = (Duration::ZERO, Duration::ZERO);
        }
    }
}

/// Calls `poll` until it returns `true` or `budget` is used up. Returns whether `poll` returned
/// `true`.
///
/// The budget is exceeded by at most the polls between two reads of the clock: 2 per microsecond of
/// the budget, at least 1 and at most 32.
#[inline]
pub fn poll_for(budget: Duration, poll: impl FnMut() -> bool) -> bool {
    poll_by_clock(budget, poll, Instant::now)
}

#[inline]
fn poll_by_clock(
    budget: Duration,
    mut poll: impl FnMut() -> bool,
    mut now: impl FnMut() -> Instant,
) -> bool {
    let polls = polls_per_clock_read(budget);
    // The first group of polls runs before any read of the clock, because a read costs a tenth of
    // the time of a short message.
    if poll_times(polls, &mut poll) {
        return true;
    }
    let started = now();
    // The clock is read after each group of polls and not before the first group, which saves one
    // read. So the first group is assumed to have taken as long as the second.
    let mut first_polls = None;
    loop {
        if poll_times(polls, &mut poll) {
            return true;
        }
        let elapsed = now().saturating_duration_since(started);
        if elapsed.saturating_add(*first_polls.get_or_insert(elapsed)) >= budget {
            return false;
        }
    }
}

#[inline]
fn poll_times(polls: u32, poll: &mut impl FnMut() -> bool) -> bool {
    for _ in 0..polls {
        if poll() {
            return true;
        }
        spin_loop();
    }
    false
}

#[inline]
fn polls_per_clock_read(budget: Duration) -> u32 {
    const BUDGET_OF_MAX: Duration =
        Duration::from_micros((POLLS_PER_CLOCK_READ_MAX / POLLS_PER_BUDGET_US) as u64);
    if budget >= BUDGET_OF_MAX {
        return POLLS_PER_CLOCK_READ_MAX;
    }
    (budget.subsec_micros() * POLLS_PER_BUDGET_US).max(1)
}

/// Returns whether spinning keeps the peer from running: on one CPU, or under a CPU quota that
/// spinning uses up. The result is `None` until the polls of some waits of this process have found
/// nothing.
///
/// The answer is in several files of `/proc` and `/sys`. To read these takes longer than to open a
/// connection, so a process whose waits are short never reads them.
#[cold]
fn futile_after_misses() -> Option<bool> {
    if FUTILE.get().is_none() {
        // A child may be forked while another thread holds the lock of `MISSES`, a count of waits.
        // In the child the lock then stays locked for ever, so no thread blocks on it.
        let mut misses = MISSES.try_lock().ok()?;
        *misses += 1;
        if *misses < MISSES_UNCHECKED {
            return None;
        }
    }
    Some(*FUTILE.get_or_init(|| {
        let has_one_cpu = partywall_sys::cpu::online_cpus().is_ok_and(|cpus| cpus.len() < 2);
        has_one_cpu || partywall_sys::cpu::cpu_quota().is_some()
    }))
}

/// Whether spinning keeps the peers of this process from running, as on a single CPU. The cell is
/// empty until a wait of this process has found that out.
static FUTILE: OnceLock<bool> = OnceLock::new();

/// Number of waits of this process whose polls found nothing. It is counted only until the process
/// knows whether spinning is futile (`FUTILE`).
static MISSES: Mutex<u32> = Mutex::new(0);

/// Number of waits whose polls find nothing, until the last of them determines whether spinning is
/// futile. The waits before the last one spin for at most two budgets together.
const MISSES_UNCHECKED: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn spinner() -> Spinner {
        spinner_of(Duration::from_micros(20))
    }

    fn spinner_of(max: Duration) -> Spinner {
        let (time, time_max) = (max, max);
        let budget = SpinBudget { time, time_max, skip: 0, skipped: 0, is_unchecked: false };
        Spinner {
            budget,
            spun: Duration::ZERO,
            yields: Yields::default(),
            sleeps: ShortSleeps::default(),
        }
    }

    #[test]
    fn long_budget_is_interrupted_for_checks() {
        let mut spinner = spinner_of(SPIN_CHECK_EVERY * 3);
        for _ in 0..2 {
            assert_eq!(spinner.spin(Wait::Adaptive, || false), SpinOutcome::CheckDue);
        }
        assert_eq!(spinner.spin(Wait::Adaptive, || false), SpinOutcome::Exhausted);
        // The failed wait has halved the spin budget. The budget is still longer than the interval
        // between two periodic checks (`SPIN_CHECK_EVERY`), so spinning stops for such a check.
        assert_eq!(spinner.spin(Wait::Adaptive, || false), SpinOutcome::CheckDue);
        assert_eq!(spinner.spin(Wait::Adaptive, || true), SpinOutcome::Ready);
    }

    #[test]
    fn budget_without_bound_is_interrupted_for_checks() {
        let mut spinner = spinner_of(Duration::MAX);
        assert_eq!(spinner.spin(Wait::Adaptive, || false), SpinOutcome::CheckDue);
        assert_eq!(spinner.spin(Wait::Adaptive, || true), SpinOutcome::Ready);
    }

    /// Makes failing polls until `budget` is used up, with a clock that each poll advances by
    /// `poll_time`. Returns the elapsed time of that clock, and the number of its reads.
    fn polled(budget: Duration, poll_time: Duration) -> (Duration, u32) {
        let (start, polled, reads) = (Instant::now(), Cell::new(Duration::ZERO), Cell::new(0));
        let poll = || {
            polled.set(polled.get() + poll_time);
            false
        };
        let now = || {
            reads.set(reads.get() + 1);
            start + polled.get()
        };
        assert!(!poll_by_clock(budget, poll, now));
        (polled.get(), reads.get())
    }

    #[test]
    fn budget_is_overrun_by_an_eighth_or_by_two_polls() {
        let poll_time = Duration::from_nanos(60);
        for budget_ns in (0..200_000).step_by(50).chain([2_000_000]) {
            let budget = Duration::from_nanos(budget_ns);
            let (time, _) = polled(budget, poll_time);
            let overrun_max = (budget / 8).max(2 * poll_time);
            assert!(time >= budget && time <= budget + overrun_max, "{budget:?}: {time:?}");
        }
    }

    #[test]
    fn budget_of_slow_polls_is_overrun_by_at_most_itself() {
        let poll_time = Duration::from_nanos(500);
        for budget_ns in (1_000..200_000).step_by(50) {
            let budget = Duration::from_nanos(budget_ns);
            let (time, _) = polled(budget, poll_time);
            assert!(time >= budget && time <= 2 * budget, "{budget:?}: {time:?}");
        }
    }

    #[test]
    fn clock_is_read_once_in_32_polls_of_the_default_budget() {
        let (time, reads) = polled(Duration::from_micros(50), Duration::from_nanos(50));
        let polls = u32::try_from(time.as_nanos() / 50).unwrap();
        assert_eq!(reads, polls / POLLS_PER_CLOCK_READ_MAX);
        let never_read = || -> Instant { panic!("the clock was read") };
        assert!(poll_by_clock(Duration::from_micros(50), || true, never_read));
    }

    #[test]
    fn misses_make_spinning_rare() {
        for budget_max_ns in [1_000, 1_500, 3_000, 20_000] {
            let mut spinner = spinner_of(Duration::from_nanos(budget_max_ns));
            let mut spun = 0;
            for _ in 0..10_000 {
                let mut polled = false;
                let never = || {
                    polled = true;
                    false
                };
                assert_eq!(spinner.spin(Wait::Adaptive, never), SpinOutcome::Exhausted);
                spun += u32::from(polled);
            }
            assert!(spun < 200, "{spun} of 10,000 waits spun");
        }
    }

    #[test]
    fn hits_after_misses_resume_spinning() {
        let mut spinner = spinner();
        for _ in 0..1000 {
            let _ = spinner.spin(Wait::Adaptive, || false);
        }
        let hits = (0..1000)
            .filter(|_| spinner.spin(Wait::Adaptive, || true) == SpinOutcome::Ready)
            .count();
        assert!(hits >= 1000 - SKIP_MAX as usize, "only {hits} of 1000");
    }

    #[test]
    fn budget_is_zero_once_spinning_is_futile() {
        let mut spinner = spinner();
        spinner.budget.note_futile(false);
        assert_eq!(spinner.spin(Wait::Adaptive, || true), SpinOutcome::Ready);
        spinner.budget.note_futile(true);
        spinner.budget.hit();
        assert_eq!(spinner.budget.spin_time(), None);
    }

    #[test]
    fn third_miss_of_the_process_finds_out_whether_spinning_is_futile() {
        let mut budget = SpinBudget::new(Duration::from_micros(20));
        for _ in 0..MISSES_UNCHECKED {
            budget.miss();
        }
        let is_futile = *FUTILE.get().unwrap();
        assert!(!budget.is_unchecked);
        assert_eq!(budget.time_max.is_zero(), is_futile);
        assert_eq!(SpinBudget::new(Duration::from_micros(20)).time.is_zero(), is_futile);
    }

    #[test]
    fn park_polls_at_most_once() {
        let (mut spinner, mut polls) = (spinner(), 0);
        for _ in 0..100 {
            let poll = || {
                polls += 1;
                false
            };
            assert_eq!(spinner.spin(Wait::Park, poll), SpinOutcome::Exhausted);
        }
        // Each yield of the processor that brings nothing suspends yields for more waits: for 4,
        // then 8, 16 and so on.
        assert!((1..=5).contains(&polls), "{polls} polls");
    }

    #[test]
    fn poll_at_intervals_never_spins() {
        let none = || -> bool { panic!("polled") };
        let wait = Wait::Poll(Duration::from_millis(1));
        assert_eq!(spinner().spin(wait, none), SpinOutcome::Exhausted);
    }

    #[test]
    fn adaptive_without_budget_never_spins() {
        let (mut spinner, mut polls) = (spinner_of(Duration::ZERO), 0);
        for _ in 0..100 {
            let poll = || {
                polls += 1;
                false
            };
            assert_eq!(spinner.spin(Wait::Adaptive, poll), SpinOutcome::Exhausted);
        }
        assert!(polls <= 5, "{polls} polls");
    }
}
