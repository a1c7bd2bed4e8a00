// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions under shuttle: users and both drivers are threads, run in thousands of random
//! orders.
//!
//! ```text
//!   users ─▶ SendHalf, RecvHalf, Handle ─▶ outbox ─▶ shared memory ─▶ driver of the peer
//!     every lock, every publication and every sleep is a point where threads switch
//!
//!   sides.rs   two sessions over private memory, a thread that drives each, and how users wait
//!   model.rs   random users, checked against queues: the model of tests/sessions/model.rs
//!   plan.rs    the random plan of one execution of the model
//!   races.rs   one race per test: a waiter, and another thread that acts meanwhile
//!   ends.rs    races with the end of the session   acts.rs   the operations of users in both
//! ```
//!
//! `cargo xtask test --only shuttle` runs these tests. They find messages that are lost, doubled,
//! torn or on the wrong stream, and violations between two honest sides. They also find lost
//! wake-ups: a thread that blocks for ever is a deadlock, and one that polls for ever exceeds the
//! step limit. They sample the orders and do not try all. Threads switch only at the points named
//! above.
//!
//! Each exploration runs under two schedulers. One picks any runnable thread at each point. Under
//! PCT, a thread runs until it blocks, except for a few changes of priority. Both have a fixed
//! seed, so each run explores the same orders. `SHUTTLE_RANDOM_SEED=…` explores other orders.
//! `PARTYWALL_SHUTTLE_TIMES=…` multiplies the number of executions (0.1: a tenth). A failure prints
//! the schedule that shuttle needs to repeat it.

mod acts;
mod ends;
mod model;
mod plan;
mod races;
mod sides;

use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Runs the test `body` `executions` times under each of the two schedulers, each time in another
/// order of its threads.
pub(crate) fn explore(executions: usize, body: fn()) {
    let times = std::env::var("PARTYWALL_SHUTTLE_TIMES").ok().and_then(|times| times.parse().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let executions = (executions as f64 * times.unwrap_or(1.0)).ceil().max(1.0) as usize;
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    Runner::new(RandomScheduler::new_from_seed(SEED, executions), config.clone()).run(body);
    Runner::new(PctScheduler::new_from_seed(SEED, PCT_DEPTH, executions), config).run(body);
}

/// Random numbers that choose the actions of users. Their seed comes from shuttle's schedule, so
/// repeating a schedule repeats the actions too.
struct Chance(u64);

impl Chance {
    /// Makes the generator of random numbers for one execution of a test, which is one order of its
    /// threads.
    fn of_execution() -> Self {
        Self(shuttle::rand::thread_rng().next_u64())
    }

    /// Returns the next random number, by the algorithm splitmix64.
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

/// Returns bytes that differ from those of any message with another length or seed.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed ^ len as u64);
    (0..len).map(|_| chance.next() as u8).collect()
}

/// Seed of both schedulers. It is fixed, so that each run explores the same orders of threads.
const SEED: u64 = 11;
/// The depth of the PCT scheduler. With depth 4 the scheduler makes three priority changes in each
/// execution, at random points.
const PCT_DEPTH: usize = 4;
/// Stack size of each thread in bytes. Debug builds need this much to format errors.
const STACK_BYTES: usize = 256 << 10;
/// Most steps of a thread; a thread that takes more steps polls for ever. The longest correct
/// execution takes a tenth of this number.
const STEPS_MAX: usize = 200_000;
