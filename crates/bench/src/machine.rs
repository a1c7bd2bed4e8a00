// SPDX-License-Identifier: MIT OR Apache-2.0
//! On what the numbers were measured: without this they are not numbers.

use anyhow::Result;
use partywall_sys::limits;
use serde::Serialize;

use super::arguments::Pin;
use super::host::{self, BUILD, COMMIT, Host};

/// The machine, the placement and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// As the CPU calls itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Where the two processes ran.
    pub placement: String,
    /// How the clock speed is chosen, if the kernel shows it.
    pub governor: String,
    /// Whether a hypervisor lies in between: wake-ups are dearer then.
    pub virtual_machine: bool,
    /// Runnable threads on average over the last minute, before the run.
    pub load: String,
    /// The commit this program was built from.
    pub commit: &'static str,
    /// Optimised or not.
    pub build: &'static str,
}

impl Machine {
    /// Looks around.
    pub fn look(pin: Pin) -> Self {
        let Host { cpu, cpus, kernel, is_virtual, load } = Host::look();
        Self {
            cpu,
            cpus,
            kernel,
            placement: placement(pin),
            governor: governor(pin),
            virtual_machine: is_virtual,
            load,
            commit: COMMIT,
            build: BUILD,
        }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let Self { cpu, cpus, kernel, placement, governor, commit, build, .. } = self;
        let host = if self.virtual_machine { ", virtual machine" } else { "" };
        format!(
            "{cpu} ({cpus} CPUs{host}), {kernel}, {placement}, governor {governor}, \
             commit {commit} ({build})"
        )
    }
}

/// Where to put the processes if nobody says.
pub fn default_pin() -> Result<Pin> {
    Ok(host::two_cpus()?.map_or(Pin::None, |(first, second)| Pin::To(first, second)))
}

fn placement(pin: Pin) -> String {
    let (parent, child) = match pin {
        Pin::To(parent, child) => (parent, child),
        Pin::None => return "not pinned (ratios to sockets are not comparable)".to_owned(),
        Pin::OneProcess => return "both ends in one process, not pinned".to_owned(),
    };
    let relation = host::relation(parent, child).map(|words| format!(" ({words})"));
    let relation = relation.unwrap_or_default();
    format!("sender on CPU {parent}, receiver on CPU {child}{relation}")
}

fn governor(pin: Pin) -> String {
    let cpu = if let Pin::To(parent, _) = pin { parent } else { 0 };
    limits::cpu_governor(cpu).unwrap_or_else(|| "not visible".to_owned())
}
