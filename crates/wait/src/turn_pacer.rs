// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pacing of turns: the driver of many busy streams lets records collect in its ring.
//!
//! ```text
//!   without  driver   turn  turn  turn  turn    few records in each turn; driver and senders
//!            senders   r  r  r  r  r  r  r      fetch the same cache lines from each other
//!   with     driver   turn . . . pause . . turn
//!            senders   r r r r r r r r r r r    cache lines move once for many records
//! ```
//!
//! If each of `n` streams has one message on its way, and a message arrives each `t`, then a
//! message and the next one of its stream lie `n * t` apart. During a pause of a quarter of that
//! time the peer still has messages to answer, so nobody waits for the driver. If less than half of
//! the expected records come until the ring is empty again, the pause was too long: fewer messages
//! were on their way. Then the driver makes no pauses for some time, and for twice that time
//! whenever it happens again. Pauses that pay off shorten the time. Pacing affects only time, never
//! which record is received.

use std::time::{Duration, Instant};

/// Decides how long the driver of a session leaves its ring alone, when it has found the ring
/// empty.
#[derive(Debug, Default)]
pub struct TurnPacer {
    /// Number of records that the driver has ever counted.
    records: u64,
    /// Value of `records` when the ring was last found empty.
    when_empty: u64,
    /// The number of the window in which the rate of records is measured; 0 before the first.
    window: u32,
    /// Beginning of the window, `None` before the first, and the value of `records` at that time.
    began: Option<Instant>,
    when_begun: u64,
    /// Number of streams that had a record since the window began. A stream that was opened since
    /// counts for itself, also if it has the number of one that ended.
    streams: u32,
    /// Length of the pauses; zero while the driver makes none.
    pause: Duration,
    /// Number of records below which a pause has not paid off.
    records_min: u64,
    /// Value of `records` when the last pause began; `None` if that pause was judged, or there was
    /// none.
    when_paused: Option<u64>,
    /// How many pauses have paid off since one last failed to, or `hold_off` was last halved.
    paid: u32,
    /// How often the driver will find the ring empty after records until it may pause again.
    held_off: u32,
    /// Half of the value from which `held_off` counts down when the next pause does not pay off. It
    /// is doubled then, and halved whenever several pauses have paid off.
    hold_off: u32,
}

/// Number of records after which the length of the pauses is computed anew.
const WINDOW_RECORDS: u64 = 1024;
/// Least number of streams with which the driver pauses. With 32 streams a pause gains 2 %.
const STREAMS_MIN: u32 = 48;
/// Most nanoseconds between two records with which the driver pauses. If they come more slowly, the
/// cache lines have time to move.
const RECORD_NS_MAX: u64 = 666;
/// Longest pause in nanoseconds. A message waits so long even if its sender waits for no other one.
const PAUSE_NS_MAX: u64 = 16_000;
const HOLD_OFF_FIRST: u32 = 64;
const HOLD_OFF_MAX: u32 = 1 << 16;
/// Number of pauses after which `hold_off` is halved, if all have paid off.
const PAUSES_PAID: u32 = 16;

impl TurnPacer {
    /// Counts a record of a stream. `counted` belongs to the stream, and must be 0 at first: the
    /// window in which the stream was last counted.
    #[inline]
    pub const fn count(&mut self, counted: &mut u32) {
        self.records += 1;
        if *counted != self.window {
            *counted = self.window;
            self.streams += 1;
        }
    }

    /// Notes that the driver has found the ring empty. Returns the time until which the driver
    /// should leave the ring alone; `None` if it should look again as soon as other tasks have run,
    /// or may not pause because it is about to sleep. `clock` returns the current time, and is
    /// called only where the time is needed.
    #[inline]
    pub fn pause_until(
        &mut self,
        may_pause: bool,
        clock: impl FnOnce() -> Instant,
    ) -> Option<Instant> {
        let has_found = self.records != self.when_empty;
        self.when_empty = self.records;
        if !(has_found && may_pause) {
            if self.when_paused.is_some() {
                self.judge();
            }
            return None;
        }
        let is_held_off = self.held_off > 0;
        self.held_off = self.held_off.saturating_sub(1);
        if !self.is_window_over() && (is_held_off || self.pause.is_zero()) {
            return None;
        }
        self.pause_from(clock(), is_held_off)
    }

    const fn is_window_over(&self) -> bool {
        self.records - self.when_begun >= WINDOW_RECORDS
    }

    fn pause_from(&mut self, now: Instant, is_held_off: bool) -> Option<Instant> {
        let is_held_off = is_held_off || !self.judge();
        if self.is_window_over() {
            self.begin_window(now);
        }
        if is_held_off || self.pause.is_zero() {
            return None;
        }
        self.when_paused = Some(self.records);
        Some(now + self.pause)
    }

    /// Judges the last pause, if it was not judged yet. Returns `false` if it has not paid off.
    fn judge(&mut self) -> bool {
        let Some(before) = self.when_paused.take() else { return true };
        if self.records - before < self.records_min {
            self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
            self.held_off = self.hold_off;
            self.paid = 0;
            return false;
        }
        self.paid += 1;
        if self.paid == PAUSES_PAID {
            self.hold_off /= 2;
            self.paid = 0;
        }
        true
    }

    /// Computes pauses from the window that ends at `now`, and begins the next window.
    fn begin_window(&mut self, now: Instant) {
        let elapsed = self.began.map(|began| now.saturating_duration_since(began));
        let pauses = elapsed.and_then(|elapsed| self.pauses_after(elapsed));
        (self.pause, self.records_min) = pauses.unwrap_or_default();
        (self.began, self.when_begun, self.streams) = (Some(now), self.records, 0);
        self.window = self.window.wrapping_add(1);
    }

    /// Returns the length of the pauses, and the least number of records that each must yield, if
    /// the window took `elapsed`; `None` if the driver is not to pause.
    fn pauses_after(&self, elapsed: Duration) -> Option<(Duration, u64)> {
        let ns = u64::try_from(elapsed.as_nanos()).ok()?.max(1);
        let records = self.records - self.when_begun;
        if self.streams < STREAMS_MIN || ns / records > RECORD_NS_MAX {
            return None;
        }
        let cycle_ns = ns.saturating_mul(self.streams.into()) / records;
        let pause_ns = (cycle_ns / 4).min(PAUSE_NS_MAX);
        Some((Duration::from_nanos(pause_ns), records * pause_ns / ns / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session in simulated time, whose driver has a pacer.
    struct Session {
        pacer: TurnPacer,
        now: Instant,
        counted: Vec<u32>,
        next: usize,
        pauses: Vec<Duration>,
        /// How often the pacer has read the clock.
        reads: u32,
    }

    impl Session {
        fn of(streams: usize) -> Self {
            let counted = vec![0; streams];
            let pacer = TurnPacer::default();
            Self { pacer, now: Instant::now(), counted, next: 0, pauses: Vec::new(), reads: 0 }
        }

        /// Receives `records` records, one each `record_ns` nanoseconds, and then finds the ring
        /// empty. A pause takes its time, in which nothing arrives.
        fn turn(&mut self, records: usize, record_ns: u64) {
            for _ in 0..records {
                self.next = (self.next + 1) % self.counted.len();
                self.pacer.count(&mut self.counted[self.next]);
                self.now += Duration::from_nanos(record_ns);
            }
            let Self { pacer, now, reads, .. } = self;
            let clock = || {
                *reads += 1;
                *now
            };
            if let Some(until) = pacer.pause_until(true, clock) {
                self.pauses.push(until - self.now);
                self.now = until;
            }
        }

        /// Runs turns that find as many records as arrive during a pause, at a record each
        /// `record_ns` nanoseconds, but at most `most`.
        fn run(&mut self, turns: usize, record_ns: u64, most: usize) {
            for _ in 0..turns {
                let pause = self.pauses.last().map_or(0, Duration::as_nanos) as u64;
                let waiting = usize::try_from(pause / record_ns).unwrap();
                self.turn(waiting.clamp(1, most), record_ns);
            }
        }
    }

    #[test]
    fn pause_is_a_quarter_of_the_time_between_messages_of_a_stream() {
        let mut session = Session::of(128);
        (0..4096).for_each(|_| session.turn(1, 200));
        let paused = session.pauses.len();
        assert!(paused > 0);
        assert_eq!(session.pauses[0], Duration::from_nanos(128 * 200 / 4));
    }

    #[test]
    fn driver_of_many_streams_pauses_in_most_turns() {
        let mut session = Session::of(199);
        session.run(10_000, 200, 100);
        // The first two windows have 1024 turns of one record each, without pauses.
        assert!(session.pauses.len() > 7_900, "{}", session.pauses.len());
        assert!(session.pauses.iter().all(|pause| pause.as_nanos() <= PAUSE_NS_MAX.into()));
    }

    #[test]
    fn few_streams_are_never_paused() {
        let mut session = Session::of(STREAMS_MIN as usize - 1);
        session.run(100_000, 200, 10);
        assert_eq!(session.pauses, []);
        let mut session = Session::of(STREAMS_MIN as usize);
        session.run(100_000, 200, 10);
        assert!(!session.pauses.is_empty());
    }

    #[test]
    fn slow_records_are_never_paused() {
        let mut session = Session::of(199);
        session.run(100_000, RECORD_NS_MAX + 1, 10);
        assert_eq!(session.pauses, []);
    }

    /// Input: 199 streams of which 4 at a time have a message on the way, so that a pause yields at
    /// most 4 records. Expected: pauses and looks at the clock are rare.
    #[test]
    fn pauses_that_yield_little_are_suspended() {
        let mut session = Session::of(199);
        session.run(100_000, 200, 4);
        let paused = session.pauses.len();
        assert!((1..20).contains(&paused), "{paused}");
        assert!(session.reads < 500, "{}", session.reads);
    }

    /// Input: a burst of a message of each stream after each pause, which itself yields nothing.
    /// Expected: the bursts are not taken for the yield of the pauses, so pauses are rare.
    #[test]
    fn pauses_that_yield_nothing_are_suspended() {
        let mut session = Session::of(199);
        for _ in 0..1000 {
            session.turn(199, 200);
            session.turn(0, 200);
        }
        let paused = session.pauses.len();
        assert!((1..20).contains(&paused), "{paused}");
    }

    /// Input: a burst of a message of each stream after each pause, and the driver sleeps until
    /// then. Expected: pauses are rare.
    #[test]
    fn pauses_before_a_sleep_are_suspended() {
        let mut session = Session::of(199);
        for _ in 0..1000 {
            session.turn(199, 200);
            assert_eq!(session.pacer.pause_until(false, Instant::now), None);
        }
        let paused = session.pauses.len();
        assert!((1..20).contains(&paused), "{paused}");
    }

    /// Input: each 300th pause yields little, because a sender was interrupted. Expected: pauses
    /// stay frequent.
    #[test]
    fn pause_that_yields_little_among_many_that_pay_off_costs_few() {
        let mut session = Session::of(199);
        for turn in 0..30_000 {
            session.turn(if turn % 300 == 0 { 2 } else { 100 }, 200);
        }
        assert!(session.pauses.len() > 20_000, "{}", session.pauses.len());
    }

    #[test]
    fn clock_is_read_rarely_without_pauses() {
        let (mut pacer, mut counted) = (TurnPacer::default(), 0);
        let mut reads = 0;
        for _ in 0..10 * WINDOW_RECORDS {
            pacer.count(&mut counted);
            let clock = || {
                reads += 1;
                Instant::now()
            };
            assert_eq!(pacer.pause_until(true, clock), None);
        }
        assert_eq!(reads, 10);
    }
}
