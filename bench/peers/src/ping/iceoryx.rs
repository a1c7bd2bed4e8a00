// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both patterns of the rival `iceoryx2` need: a node of its own world.
//!
//! ```text
//! registry        <private directory>/iceoryx2/          instead of /tmp/iceoryx2
//! shared memory   /dev/shm/bench-peers-<pid>-…           instead of /dev/shm/iox2_…
//! ```
//! So a run sees no other user of `iceoryx2` on the machine, is seen by none, and all it leaves has a known name.
//! Services are of the kind `ipc`, the fastest between processes. Payloads are words of 8 bytes, so that safe code
//! can write them once, in place; the rival polls, as its own benchmark does.

use anyhow::{Context, Result, anyhow};
use iceoryx2::prelude::{
    Config, FileName, LogLevel, Node, NodeBuilder, Path, SemanticString, ServiceName,
    SignalHandlingMode, ipc, set_log_level,
};

use crate::pattern::WORD;
use crate::setup::Setup;

/// A node in this run's own world.
pub fn node(setup: &Setup) -> Result<Node<ipc::Service>> {
    set_log_level(LogLevel::Error);
    let root = setup.directory.join("iceoryx2");
    let root = root.to_str().context("the temporary directory has no readable name")?;
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

/// The name of one of this measurement's services.
pub fn service_name(setup: &Setup, role: &str) -> Result<ServiceName> {
    let name = format!("ping/{}/{role}", setup.number);
    ServiceName::new(&name).with_context(|| format!("naming the service {name}"))
}

/// Words in a message of `size` bytes.
pub const fn word_count(size: usize) -> usize {
    size / WORD
}
