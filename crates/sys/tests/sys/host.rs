// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that queries about this machine return plausible values on any machine that runs the
//! tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall_sys::probe::{Feature, probe};
use partywall_sys::process::{Process, resident_bytes};
use partywall_sys::{cgroup, cpu, limits, peer};

#[test]
fn required_kernel_features_are_available() {
    for feature in Feature::ALL {
        match probe(feature) {
            Ok(()) => {}
            Err(error) if feature.is_required() => panic!("{}: {error}", feature.name()),
            Err(error) => println!("without {}: {error}", feature.name()),
        }
    }
}

#[test]
fn limits_are_plausible() {
    assert!(limits::kernel_version().is_at_least(5, 3));
    let descriptors = limits::descriptors();
    assert!(descriptors.soft.unwrap_or(u64::MAX) > 10);
    assert!(descriptors.hard.unwrap_or(u64::MAX) >= descriptors.soft.unwrap_or(u64::MAX));
    assert!(limits::memory_available().unwrap() > 1 << 20);
    assert!(limits::mappings_max().unwrap() > 1000);
    assert!(limits::overcommit_policy().unwrap() <= 2);
    assert!(cgroup::memory_max().is_none_or(|max| max > 1 << 20));
    assert!(cgroup::memory_current().is_none_or(|used| used > 0));
    assert!(resident_bytes(Process::Own).unwrap() > 100 << 10);
    assert_ne!(peer::overflow_uid(), 0);
}

#[test]
fn pinned_thread_runs_on_its_cpu() {
    let allowed = cpu::affinity().unwrap();
    let online = cpu::online_cpus().unwrap();
    assert!(!allowed.is_empty() && !online.is_empty());
    assert!(cpu::cpu_quota().is_none_or(|cpus| cpus > 0.0));
    let last = *allowed.last().unwrap();
    let pinned = std::thread::spawn(move || {
        cpu::set_affinity(last).unwrap();
        cpu::affinity().unwrap()
    });
    assert_eq!(pinned.join().unwrap(), [last]);
    assert!(cpu::set_affinity(1 << 20).is_err());
    assert_eq!(cpu::affinity().unwrap(), allowed);
}
