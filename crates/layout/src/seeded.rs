// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeded faults: rules of the code that can be disabled one at a time, to check that some test
//! then fails.
//!
//! Only a build with `--cfg partywall_faults` contains the faults. The environment selects one of
//! them: `PARTYWALL_FAULT=NAME`, for this process and its children. One build serves all faults;
//! without a name in the environment no rule is disabled.

/// Whether the seeded fault `name` disables its rule: never, in a build without `--cfg
/// partywall_faults`.
#[cfg(not(partywall_faults))]
#[inline(always)]
#[must_use]
pub const fn seeded_fault(_name: &str) -> bool {
    false
}

/// Whether the environment variable `PARTYWALL_FAULT` selects the seeded fault `name`, which
/// disables its rule.
#[cfg(partywall_faults)]
#[must_use]
pub fn seeded_fault(name: &str) -> bool {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("PARTYWALL_FAULT").unwrap_or_default()) == name
}
