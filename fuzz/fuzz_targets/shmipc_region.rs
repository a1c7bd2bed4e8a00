// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer region of shmipc that its other side writes at will, before and while it is used.
//!
//! The same game as in the tests of the crate, which say what an input is.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/shmipc/tests/support_hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::region(input);
    hostile::image(input);
});
