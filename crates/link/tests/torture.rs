// SPDX-License-Identifier: MIT OR Apache-2.0
//! The torture test of links: either end of a link is killed, stopped or cut off at any instant.
//! Every sent message must be consumed once and in order, and every request answered once. Messages
//! that an epoch drops must be reported.
//!
//! `cargo xtask torture` runs these tests for longer. `PARTYWALL_TORTURE_KILLS`, `_CUTS`, `_SEED`
//! and `_MINUTES` choose the number of kills and cuts, the seed and the duration.

mod support_torture;

use support_torture::{director, end, settings::Settings};

/// The role of the second processes: each is the client or the server of the link that the torture
/// test disturbs, and runs until it is killed.
#[test]
fn torture_end() {
    if let Some(role) = partywall_testkit::variable(end::ROLE) {
        end::run(&role);
    }
}

#[test]
fn no_kill_loses_or_repeats_a_message() {
    let settings = Settings::from_variables();
    let figures = director::run(&settings);
    println!("{figures}");
    assert!(figures.kills() >= settings.kills || settings.is_timed(), "{figures}");
    assert!(figures.consumed > figures.kills() && figures.cuts > 0, "{figures}");
    assert!(figures.shared > 0, "{figures}");
}

/// Rule: cuts of the network lose and repeat no message. In a long run, each link must also recover
/// within a bound. A short run, beside other tests, is too disturbed to check these times.
#[test]
fn no_cut_loses_or_repeats_a_message() {
    let settings = Settings::from_variables();
    let figures = director::cut(&settings);
    println!("{figures}");
    let count = figures.recoveries.len() as u64;
    assert!(count >= settings.cuts || settings.is_timed(), "{figures}");
    assert!(count > 0 && figures.late > 0, "{figures}");
    assert!(figures.are_in_time() || !settings.is_long_of_cuts, "{figures}");
}
