// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the allocator keeps after it was freed, for the scenarios of gRPC and HTTP.
//!
//! tonic and hyper allocate and free the buffers of each call. glibc returns freed memory to the
//! kernel above a threshold, and the next call pays a page fault for each page of it. Whether this
//! happens depends on the layout of the heap, which differs from run to run. At 1 MiB, such a call
//! takes up to three times as long, over any transport.

use std::env;
use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

/// Environment variables from which glibc takes its thresholds, and their values in bytes: freed
/// memory below them stays with the process.
const THRESHOLDS: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "268435456"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// Starts this program again in place of this process, with thresholds that exceed the buffers of
/// one run, so that the allocator keeps freed memory. glibc reads the thresholds only when a
/// program starts. Returns if the thresholds are set already, by this function or by the user.
pub fn keep_freed_memory() -> Result<()> {
    if cfg!(not(target_env = "gnu")) || THRESHOLDS.iter().any(|(name, _)| is_set(name)) {
        return Ok(());
    }
    let program = env::current_exe().context("finding this program")?;
    let error: Error = Command::new(program).args(env::args_os().skip(1)).envs(THRESHOLDS).exec();
    Err(error).context("starting this program again with thresholds of the allocator")
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some()
}
