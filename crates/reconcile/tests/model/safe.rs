// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explorations of the model of links with all rules of the protocol: no invariant breaks.
//!
//! Each exploration must reach a minimum number of states, so that a model that explores too little
//! fails.

use partywall_reconcile::{Cause, Direction};

use crate::bounds::Bounds;
use crate::world::World;
use crate::{explore, reaches};

/// Explores all states of the model within `bounds`, or within `more` if the environment asks for
/// large bounds. Demands at least `states_min` states without a broken invariant.
fn holds(bounds: Bounds, more: Bounds, states_min: usize) {
    let large = std::env::var("PARTYWALL_MODEL").is_ok_and(|size| size == "large");
    let verdict = explore(if large { more } else { bounds });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {} states, {} steps deep", verdict.states, verdict.depth);
    assert_eq!(verdict.broken, None);
    assert!(verdict.states >= states_min, "only {} states", verdict.states);
}

const PLAIN: Bounds = Bounds::PLAIN;

#[test]
fn cuts() {
    let bounds = Bounds { cuts: 1, ..PLAIN };
    holds(bounds, Bounds { messages: [2, 2], cuts: 2, connections: 3, ..bounds }, 59_773);
}

#[test]
fn a_full_window_one_way() {
    let bounds = Bounds { messages: [3, 0], window: 1, cuts: 1, connections: 3, ..PLAIN };
    holds(bounds, Bounds { cuts: 2, messages: [4, 0], ..bounds }, 1_274);
}

#[test]
fn crashes_of_both() {
    let bounds = Bounds { crashes: [1, 1], ..PLAIN };
    holds(bounds, Bounds { messages: [2, 2], connections: 3, ..bounds }, 102_692);
}

#[test]
fn replies_cut_and_crashed() {
    let bounds =
        Bounds { messages: [2, 0], replies: [0, 2], crashes: [1, 1], lazy_trim: true, ..PLAIN };
    holds(bounds, Bounds { cuts: 1, connections: 3, ..bounds }, 110_733);
}

#[test]
fn epochs_on_both_sides() {
    let bounds = Bounds { messages: [1, 1], connections: 3, epochs: [1, 1], ..PLAIN };
    holds(bounds, Bounds { messages: [2, 1], epochs: [2, 1], ..bounds }, 80_867);
}

#[test]
fn epochs_and_crashes() {
    let bounds = Bounds { messages: [1, 1], crashes: [1, 0], epochs: [0, 1], ..PLAIN };
    holds(bounds, Bounds { epochs: [1, 1], crashes: [1, 1], connections: 3, ..bounds }, 16_590);
}

#[test]
fn a_lost_file_of_the_client() {
    let bounds = Bounds { crashes: [1, 0], losses: [1, 0], ..PLAIN };
    holds(bounds, Bounds { cuts: 1, connections: 3, ..bounds }, 71_172);
}

#[test]
fn a_lost_file_of_the_server() {
    let bounds = Bounds { crashes: [0, 1], losses: [0, 1], ..PLAIN };
    holds(bounds, Bounds { cuts: 1, connections: 3, ..bounds }, 18_684);
}

#[test]
fn a_lost_file_and_an_epoch() {
    let bounds =
        Bounds { messages: [1, 1], crashes: [1, 0], losses: [1, 0], epochs: [0, 1], ..PLAIN };
    holds(bounds, Bounds { epochs: [1, 1], connections: 3, ..bounds }, 33_715);
}

#[test]
fn an_older_file_of_the_client() {
    let bounds = Bounds { crashes: [1, 0], rollbacks: [1, 0], ..PLAIN };
    holds(bounds, Bounds { messages: [3, 1], connections: 3, ..bounds }, 356_242);
}

#[test]
fn an_older_file_of_the_server() {
    let bounds = Bounds { crashes: [0, 1], rollbacks: [0, 1], ..PLAIN };
    holds(bounds, Bounds { messages: [3, 1], connections: 3, ..bounds }, 89_225);
}

/// Bounds of an exploration of the model in which the client crashes three times, and its file is
/// once replaced by an older copy. So the file can state a lower incarnation than the server has
/// already seen.
const OFTEN: Bounds = Bounds { messages: [1, 0], crashes: [3, 0], rollbacks: [1, 0], ..PLAIN };

#[test]
fn an_older_file_of_many_owners() {
    holds(OFTEN, Bounds { messages: [2, 0], connections: 3, ..OFTEN }, 64_900);
}

#[test]
fn one_file_lost_and_the_other_put_back() {
    let bounds = Bounds {
        messages: [2, 0],
        connections: 3,
        crashes: [1, 1],
        losses: [1, 0],
        rollbacks: [0, 1],
        ..PLAIN
    };
    holds(bounds, Bounds { messages: [2, 1], ..bounds }, 161_158);
}

#[test]
fn old_connections_come_again() {
    let bounds = Bounds { messages: [1, 0], crashes: [0, 1], replays: 1, cuts: 1, ..PLAIN };
    holds(bounds, Bounds { messages: [1, 1], ..bounds }, 27_985);
}

#[test]
fn switching_between_shm_and_socket() {
    let bounds = Bounds { switches: 1, shms: true, cuts: 1, messages: [1, 1], ..PLAIN };
    holds(bounds, Bounds { switches: 2, connections: 3, ..bounds }, 40_579);
}

#[test]
fn switching_and_crashes() {
    let bounds = Bounds { switches: 1, shms: true, crashes: [1, 0], ..PLAIN };
    holds(bounds, Bounds { connections: 3, ..bounds }, 190_428);
}

/// Whether client or server has reported lost messages, of either direction, with a cause for which
/// `is_it` holds.
fn has_reported(world: &World, is_it: fn(&Cause) -> bool) -> bool {
    let reports = |side: usize| world.sides[side].file.reports.iter();
    let by = |direction: Direction| {
        (0..2).flat_map(reports).any(|report| report.direction == direction && is_it(&report.cause))
    };
    by(Direction::Outgoing) && by(Direction::Incoming)
}

#[test]
fn every_kind_of_report_is_reached_on_both_sides() {
    let one = Bounds { messages: [1, 1], ..PLAIN };
    let lost = Bounds { crashes: [1, 0], losses: [1, 0], ..one };
    assert!(reaches(lost, |world| has_reported(world, |cause| *cause == Cause::Lost)));
    assert!(reaches(lost, |world| has_reported(world, |cause| *cause == Cause::Gap)));
    let epochs = Bounds { epochs: [1, 0], connections: 3, ..one };
    assert!(reaches(epochs, |world| has_reported(world, |cause| *cause == Cause::Undelivered)));
    let back = Bounds { crashes: [1, 0], rollbacks: [1, 0], ..one };
    let is_quarantine =
        |world: &World| has_reported(world, |cause| matches!(cause, Cause::Quarantined(_)));
    assert!(reaches(back, is_quarantine));
    assert!(reaches(OFTEN, |world| world.sides[0].fenced));
}

#[test]
fn both_transports_carry_and_every_reply_can_be_made() {
    let switch = Bounds { switches: 1, shms: true, messages: [2, 0], ..PLAIN };
    assert!(reaches(switch, |world| {
        world.sides[1].file.log.len() == 2
            && world.attached().is_some_and(|link| !world.links[link].shm)
    }));
    let replies = Bounds { replies: [0, 2], messages: [2, 0], crashes: [0, 1], ..PLAIN };
    assert!(reaches(replies, |world| {
        world.sides[0].file.log.len() == 2 && world.left.crashes[1] == 0
    }));
}
