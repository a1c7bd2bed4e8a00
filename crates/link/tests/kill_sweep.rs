// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a link that dies at any of the instructions of what it does leaves what was before or
//! what is after.
//!
//! Each act is stepped through, instruction by instruction; some of what its file was is judged,
//! and some workers are killed for real. `cargo xtask torture --sweep` judges all of it:
//! `PARTYWALL_SWEEP_KILLS` says how many workers of each act, and `PARTYWALL_SWEEP_ACT` chooses one
//! act.
// Elsewhere a step between load-linked and store-conditional breaks the pair, for ever.
#![cfg(target_arch = "x86_64")]

mod support_ends;
mod support_sweep;

use support_sweep::act::Act;
use support_sweep::sweep::{self, Settings};
use support_sweep::worker;

/// The second process: one end of the link. The process ends by itself if it is not killed.
#[test]
fn sweep_worker() {
    worker::main();
}

#[test]
fn kill_at_any_instruction_keeps_the_link_whole() {
    let settings = Settings::from_variables();
    // The worker runs on the processor of the thread that traces it: a step is then a switch
    // between two threads, and wakes no processor.
    let cpus = partywall_sys::cpu::affinity().unwrap();
    partywall_sys::cpu::set_affinity(cpus[cpus.len() - 1]).unwrap();
    let (mut boundaries, mut images, mut judged, mut kills) = (0, 0, 0, 0);
    for act in Act::chosen() {
        let figures = sweep::run(act, settings).unwrap_or_else(|why| panic!("{act}: {why}"));
        println!("{figures}");
        // Every operation on a link changes its file more than once.
        assert!(figures.boundaries > 20 && figures.images >= 2, "{figures}");
        boundaries += figures.boundaries;
        images += figures.images;
        judged += figures.judged;
        kills += figures.kills;
    }
    println!(
        "{boundaries} boundaries, {images} images, {judged} judged, {kills} kills, 0 violations"
    );
}
