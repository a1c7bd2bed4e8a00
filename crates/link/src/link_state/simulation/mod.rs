// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation of two ends, a network that loses, cuts and delays bytes, and owners that die: each
//! message is consumed exactly once.
//!
//! ```text
//!   sides[0] client  file ─ core      wires: bytes under way in each direction
//!   sides[1] server  file ─ core      cut wire: the bytes under way may still arrive, no others
//!                     └──────┴──────▶ on every other wire, each end reads the other's file
//! ```
//!
//! `core` is the state of the link at that end (a `LinkState`). A seed determines the order of
//! events. The simulated application uses a message and acknowledges it in one step. So the
//! consumed messages must be exactly those that were sent, in order, and the reports must name the
//! rest of an epoch.

mod lies;
pub(super) mod memory;
mod oracle;
mod world;

use super::End;
use world::{CLIENT, SERVER, World};

/// Numbers of messages by the code path that they took, in one run of the simulation or in several.
/// A test checks that every path was used.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    pulled: u64,
    /// Number of messages received from shared memory that were delivered at once, without the
    /// queue of the inbox.
    at_once: u64,
    sent_fast: u64,
    received_fast: u64,
}

/// Runs the simulation: `steps` random events, then a time without faults in which all messages
/// must arrive. Fails if a message is lost or consumed twice.
fn run(seed: u64, steps: u32, epochs: bool) -> Messages {
    let mut world = World::new(seed, epochs);
    for _ in 0..steps {
        world.step();
        world.check();
    }
    world.settle();
    world.check_all_arrived();
    let [sent_fast, received_fast] = world.streamed;
    Messages {
        pulled: world.pulled + world.at_once,
        at_once: world.at_once,
        sent_fast,
        received_fast,
    }
}

#[test]
fn each_message_is_consumed_once_in_any_order_of_events() {
    let runs = seeds(0..400).map(|seed| run(seed, 500, false));
    let all = runs.fold(Messages::default(), |all, run| Messages {
        pulled: all.pulled + run.pulled,
        at_once: all.at_once + run.at_once,
        sent_fast: all.sent_fast + run.sent_fast,
        received_fast: all.received_fast + run.received_fast,
    });
    assert!(all.pulled > 400 && all.at_once > 100, "{all:?}");
    assert!(all.sent_fast > 500 && all.received_fast > 100, "{all:?}");
}

#[test]
fn undelivered_messages_of_an_epoch_are_reported() {
    for seed in seeds(100_000..100_200) {
        run(seed, 500, true);
    }
}

#[test]
fn each_owner_that_delivered_counts_as_one_attempt() {
    let mut world = World::new(1, false);
    (0..3).for_each(|_| world.send(CLIENT));
    assert_eq!(world.hand_out(SERVER, 3), [1, 1, 1]);
    // Rule: if a message is delivered to the same owner again, its delivery count stays the same.
    assert_eq!(world.hand_out(SERVER, 1), [1]);
    world.reopen(SERVER);
    // Rule: an owner that ended before a message was delivered to it does not raise the delivery
    // count of the message.
    world.reopen(SERVER);
    assert_eq!(world.hand_out(SERVER, 2), [2, 2]);
    world.reopen(SERVER);
    assert_eq!(world.hand_out(SERVER, 3), [3, 3, 2]);
}

#[test]
fn answer_to_another_connection_is_refused() {
    assert_eq!(World::new(1, false).receive_an_old_answer(), Err(End::NotFresh));
}

/// Returns the seeds of the simulation runs: `usual`, or as many as the environment variable
/// `PARTYWALL_SEEDS` says.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let asked = std::env::var("PARTYWALL_SEEDS").ok().and_then(|count| count.parse::<u64>().ok());
    usual.start..asked.map_or(usual.end, |count| usual.start + count)
}
