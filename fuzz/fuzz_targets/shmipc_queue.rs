// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both rings of a shmipc queue, with counters that the peer writes at will.
//!
//! The input format is that of the crate's own tests.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::queue(input);
});
