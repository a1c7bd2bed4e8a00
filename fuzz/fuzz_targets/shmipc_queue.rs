// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both rings of a shmipc queue, with counters that the other side writes at will.
//!
//! The same game as in the tests of the crate, which say what an input is.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::queue(input);
});
