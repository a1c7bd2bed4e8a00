// SPDX-License-Identifier: MIT OR Apache-2.0
//! On what the numbers were measured: without this they are not numbers.

use anyhow::Result;
use partywall_sys::limits;

use super::arguments::Pin;
use super::host::{self, BUILD, COMMIT, Host};

/// Where to put the processes if nobody says.
pub fn default_pin() -> Result<Pin> {
    Ok(host::two_cpus()?.map_or(Pin::None, |(first, second)| Pin::To(first, second)))
}

/// Machine, kernel, commit and build in one line for people.
pub fn summary() -> String {
    let Host { cpu, cpus, kernel, is_virtual, load } = Host::look();
    let place = if is_virtual { ", virtual machine" } else { "" };
    let governor = limits::cpu_governor(0).unwrap_or_else(|| "not visible".to_owned());
    format!(
        "{cpu} ({cpus} CPUs{place}), {kernel}, governor {governor}, load {load}, commit {COMMIT} ({BUILD})"
    )
}

/// Where two processes ran, in words.
pub fn placement(pin: Pin) -> String {
    let Pin::To(parent, child) = pin else {
        return "not pinned (not comparable)".to_owned();
    };
    let relation = host::relation(parent, child).map(|words| format!(", {words}"));
    format!("on CPUs {parent} and {child}{}", relation.unwrap_or_default())
}
