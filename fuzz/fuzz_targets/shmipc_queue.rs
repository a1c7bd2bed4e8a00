// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uses both rings of a shmipc queue while the peer writes any values into their counters.
//!
//! The input format is that of `crates/shmipc/tests/support_hostile/mod.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::queue(input);
});
