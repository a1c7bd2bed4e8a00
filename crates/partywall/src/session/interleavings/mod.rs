// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions under shuttle: threads of users and of both drivers, in thousands of random orders.
//!
//! ```text
//!   users ─▶ SendHalf, RecvHalf, Handle ─▶ outbox ─▶ shared memory ─▶ driver of the peer
//!     every lock, every publication and every sleep is a point where threads switch
//!
//!   sides.rs   two sessions over private memory, a thread that drives each, and how users wait
//!   model.rs   whatever users do, streams are queues: the model of tests/sessions/model.rs
//!   plan.rs    what they do
//!   races.rs   one race each: a waiter, and what another thread does meanwhile
//!   ends.rs    the same as the session ends       acts.rs   what users do in both
//! ```
//!
//! `cargo xtask test --only shuttle` runs them. They find messages that are lost, doubled, torn or
//! on the wrong stream, violations between two honest sides, and lost wake-ups: a thread that
//! blocks for ever is a deadlock, and one that polls for ever exceeds the steps. They sample orders
//! and do not try all of them, and threads switch only at the points named above.
//!
//! Each exploration has two schedulers: one picks any runnable thread at each point; under PCT a
//! thread runs until it blocks, but for a few changes. Both are seeded, the same each time:
//! `SHUTTLE_RANDOM_SEED=…` explores other orders, `PARTYWALL_SHUTTLE_TIMES=…` that many times as
//! many (0.1: a tenth). A failure prints what shuttle needs to repeat it.

mod acts;
mod ends;
mod model;
mod plan;
mod races;
mod sides;

use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Runs `body` in this many orders of each scheduler.
fn explore(executions: usize, body: fn()) {
    let times = std::env::var("PARTYWALL_SHUTTLE_TIMES").ok().and_then(|times| times.parse().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let executions = (executions as f64 * times.unwrap_or(1.0)).ceil().max(1.0) as usize;
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    Runner::new(RandomScheduler::new_from_seed(SEED, executions), config.clone()).run(body);
    Runner::new(PctScheduler::new_from_seed(SEED, PCT_DEPTH, executions), config).run(body);
}

/// Random numbers that choose what users do. The schedule's seed is their seed, so repeating a
/// schedule repeats both.
struct Chance(u64);

impl Chance {
    /// The generator of this execution.
    fn of_execution() -> Self {
        Self(shuttle::rand::thread_rng().next_u64())
    }

    /// The next number (splitmix64).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Bytes that only this message has.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed ^ len as u64);
    (0..len).map(|_| chance.next() as u8).collect()
}

/// Seed of both schedulers.
const SEED: u64 = 11;
/// PCT changes priorities this often, minus one.
const PCT_DEPTH: usize = 4;
/// Large enough for debug builds, which format errors on it.
const STACK_BYTES: usize = 256 << 10;
/// A thread that takes this many steps polls for ever. The longest honest execution takes a tenth.
const STEPS_MAX: usize = 200_000;
