// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that can be taken out of the code, one at a time, to see whether a test notices.
//!
//! Only a build with `--cfg partywall_faults` has them. There the environment chooses: `PARTYWALL_FAULT=NAME`, for this
//! process and those that it starts. One build serves for all, and without a name it behaves as any other.

/// Whether the rule of this name is taken out. Everywhere but in such a build: no, and the compiler knows it.
#[cfg(not(partywall_faults))]
#[inline(always)]
#[must_use]
pub const fn seeded_fault(_name: &str) -> bool {
    false
}

/// Whether the rule of this name is taken out.
#[cfg(partywall_faults)]
#[must_use]
pub fn seeded_fault(name: &str) -> bool {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("PARTYWALL_FAULT").unwrap_or_default()) == name
}
