// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main function of a torture run: runs rounds, each with a new link between two processes,
//! until the processes were killed often enough, or the network between them was cut often enough.

use super::cuts;
use super::figures::Figures;
use super::round::Round;
use super::settings::{Plan, Settings};
use partywall_testkit::Random;
use std::time::Instant;

/// Runs rounds with kills until as many client and server processes were killed as the settings
/// demand. Each round has a new link, and ends with a check of all its messages.
///
/// # Panics
///
/// If a round violates a rule: the text names the violation, the seed, and the last events.
pub fn run(settings: &Settings) -> Figures {
    let start = Instant::now();
    let mut figures = Figures { seed: settings.seed, ..Figures::default() };
    let mut seeds = Random::new(settings.seed);
    let each = (settings.kills / ROUNDS_LEAST).clamp(1, KILLS_A_ROUND);
    loop {
        let is_over = match settings.time {
            Some(time) => start.elapsed() >= time,
            None => figures.kills() >= settings.kills,
        };
        if is_over {
            figures.time = start.elapsed();
            return figures;
        }
        let mut round = Round::new(Plan::draw(seeds.next(), figures.rounds));
        if let Err(why) = round.run(each, &mut figures) {
            let words = round.autopsy(&why);
            panic!("{words}\nseed {}, round {}\n{figures:?}", settings.seed, figures.rounds);
        }
        if figures.rounds % ROUNDS_A_LINE == 0 {
            println!("{} kills, {} consumed", figures.kills(), figures.consumed);
        }
    }
}

/// Runs rounds without kills in which the network is cut, until the settings' number of cuts is
/// reached.
///
/// # Panics
///
/// If a round violates a rule: the text names the violation, the seed, and the last events.
pub fn cut(settings: &Settings) -> Figures {
    let start = Instant::now();
    let round_trip = cuts::round_trip();
    let mut figures = Figures { seed: settings.seed, round_trip, ..Figures::default() };
    let mut seeds = Random::new(settings.seed);
    let each = (settings.cuts / ROUNDS_LEAST).clamp(1, CUTS_A_ROUND);
    let is_over = |cuts| match settings.time {
        Some(time) => start.elapsed() >= time,
        None => cuts >= settings.cuts,
    };
    while !is_over(figures.cuts) {
        let mut round = Round::new(Plan::draw(seeds.next(), figures.rounds));
        if let Err(why) = round.run_cuts(each, &mut figures) {
            let words = round.autopsy(&why);
            panic!("{words}\nseed {}, round {}\n{figures:?}", settings.seed, figures.rounds);
        }
        if figures.rounds % ROUNDS_A_LINE == 0 {
            println!("{} cuts, {} consumed", figures.cuts, figures.consumed);
        }
    }
    figures.time = start.elapsed();
    figures
}

/// Minimum number of rounds of a run: 12 rounds cover each of the three message patterns (`Mode`)
/// with each of the four transports in `VIAS`.
const ROUNDS_LEAST: u64 = 12;
const KILLS_A_ROUND: u64 = 60;
const CUTS_A_ROUND: u64 = 250;
const ROUNDS_A_LINE: u64 = 10;
