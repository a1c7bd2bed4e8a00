// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uses a buffer region of shmipc into which the peer writes anything, before and during the use.
//!
//! The input format is that of `crates/shmipc/tests/support_hostile/mod.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::region(input);
    hostile::image(input);
});
