// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that dies at any instruction of an operation on its link (such as a send) leaves the
//! state before the operation or the state after it.
//!
//! The test traces a second process, the worker, through each operation, instruction by
//! instruction. It checks a sample of the link file's contents, and really kills some workers.
//! `cargo xtask torture --sweep` checks the contents after every instruction.
//! `PARTYWALL_SWEEP_KILLS` sets the number of killed workers for each operation, and
//! `PARTYWALL_SWEEP_ACT` selects one operation.
// On other architectures, single-stepping between load-linked and store-conditional makes the store
// fail forever.
#![cfg(target_arch = "x86_64")]

mod support_ends;
mod support_sweep;

use support_sweep::act::Act;
use support_sweep::sweep::{self, Settings};
use support_sweep::worker;

/// The role of the second process (the worker): it is one end of the link, makes the tested
/// operation in single steps, and runs until it is killed.
#[test]
fn sweep_worker() {
    worker::main();
}

#[test]
fn kill_at_any_instruction_keeps_the_link_whole() {
    let settings = Settings::from_variables();
    // The worker, which this test single-steps, runs on the processor of the test's thread. So each
    // step only switches between two threads, and wakes no other processor.
    let cpus = partywall_sys::cpu::affinity().unwrap();
    partywall_sys::cpu::set_affinity(cpus[cpus.len() - 1]).unwrap();
    let (mut boundaries, mut images, mut judged, mut kills) = (0, 0, 0, 0);
    for act in Act::chosen() {
        let figures = sweep::run(act, settings).unwrap_or_else(|why| panic!("{act}: {why}"));
        println!("{figures}");
        // Expected result: every operation on a link changes a link file at least once, so there
        // are at least two images (contents of both link files): one before and one after the
        // change.
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
