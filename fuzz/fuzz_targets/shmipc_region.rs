// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer region of shmipc that its peer writes at will, before and while it is used.
//!
//! The input format is that of the crate's own tests.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::region(input);
    hostile::image(input);
});
