// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a node of the crate `iceoryx2` for one measurement, which no other program with that crate
//! sees.
//!
//! ```text
//! registry        <private directory>/iceoryx2/          instead of /tmp/iceoryx2
//! shared memory   /dev/shm/bench-peers-<pid>-…           instead of /dev/shm/iox2_…
//! ```
//! The registry is the directory in which the crate lists its nodes and services. All these names
//! contain the run's name, so the run can find and remove the files at its end. Services are of the
//! kind `ipc`, the fastest between processes. Payloads are words of 8 bytes. The receiver polls, as
//! in the benchmark of that crate.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use iceoryx2::prelude::{
    Config, FileName, LogLevel, Node, NodeBuilder, Path, SemanticString, ServiceName,
    SignalHandlingMode, ipc, set_log_level,
};
use partywall_bench::harness::workspace::Setup;

use crate::arguments::WORD_BYTES;

/// Makes an `iceoryx2` node whose files carry the name of this run.
pub fn node(setup: &Setup) -> Result<Node<ipc::Service>> {
    set_log_level(LogLevel::Error);
    let root = setup.directory.join("iceoryx2");
    let root = root.to_str().context("the temporary directory has no UTF-8 name")?;
    let mut config = Config::default();
    let path = Path::new(root.as_bytes()).map_err(|error| anyhow!("{error:?}: {root}"))?;
    config.global.set_root_path(&path);
    let prefix = format!("{}-", setup.run_name);
    config.global.prefix =
        FileName::new(prefix.as_bytes()).map_err(|error| anyhow!("{error:?}: {prefix}"))?;
    NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()
        .context("making an iceoryx2 node")
}

/// The name of an `iceoryx2` service that belongs to this measurement.
pub fn service_name(setup: &Setup, role: &str) -> Result<ServiceName> {
    let name = format!("ping/{}/{role}", setup.number);
    ServiceName::new(&name).with_context(|| format!("naming the service {name}"))
}

/// Number of 8-byte words in a message of `size` bytes; `iceoryx2` carries the message as a slice
/// of words.
pub const fn word_count(size: usize) -> usize {
    size / WORD_BYTES
}

/// Calls `poll` without a pause until it returns a value, for ten seconds at most.
#[inline]
pub fn spin_until<R>(mut poll: impl FnMut() -> Result<Option<R>>) -> Result<R> {
    let mut polls: u32 = 0;
    let mut deadline = None;
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            check(&mut deadline)?;
        }
    }
}

#[cold]
fn check(deadline: &mut Option<Instant>) -> Result<()> {
    let now = Instant::now();
    if now > *deadline.get_or_insert(now + TIMEOUT) {
        bail!("no message for {} s; the peer process may have failed", TIMEOUT.as_secs());
    }
    Ok(())
}

/// Number of polls between two reads of the clock. A clock read takes longer than a poll, so a read
/// for each poll would delay the receipt of a message.
const POLLS_PER_CLOCK_READ: u32 = 1 << 16;

/// Maximum wait for a message; a working peer answers within microseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
