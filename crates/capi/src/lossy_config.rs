// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of senders of records that may be lost. They are keys of a configuration.

use crate::config::{choose, narrow};
use crate::failure::Failure;
use partywall_extras::lossy::{LossyConfig, OnFull};
use std::time::Duration;

/// The settings of a sender of records that may be lost.
#[derive(Clone, Default)]
pub(crate) struct LossySettings {
    policy: Policy,
    block: Duration,
    queue_records: Option<usize>,
    queue_bytes: Option<usize>,
    flush_on_drop: Option<Duration>,
}

/// What a sender does with a record for which the ring has no room. A number of the C interface
/// chooses it.
#[derive(Clone, Copy, Default)]
enum Policy {
    #[default]
    DropNewest,
    DropOldest,
    Block,
}

impl LossySettings {
    /// Sets the setting `key`. Returns false if senders of records have no setting of this name.
    ///
    /// # Errors
    /// Fails if the value is impossible.
    pub(crate) fn set(&mut self, key: &str, value: u64) -> Result<bool, Failure> {
        let time = Duration::from_nanos(value);
        match key {
            "on_full" => self.policy = choose(key, value, &POLICIES)?,
            "on_full_block_ns" => self.block = time,
            "queue_records" => self.queue_records = Some(narrow(key, value)?),
            "queue_bytes" => self.queue_bytes = Some(narrow(key, value)?),
            "flush_on_drop_ns" => self.flush_on_drop = Some(time),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the settings in the form that the Rust library's sender of records takes.
    pub(crate) fn config(&self) -> LossyConfig {
        let mut config = LossyConfig::new(match self.policy {
            Policy::DropNewest => OnFull::DropNewest,
            Policy::DropOldest => OnFull::DropOldest,
            Policy::Block => OnFull::Block(self.block),
        });
        if let Some(count) = self.queue_records {
            config = config.queue_records(count);
        }
        if let Some(bytes) = self.queue_bytes {
            config = config.queue_bytes(bytes);
        }
        if let Some(time) = self.flush_on_drop {
            config = config.flush_on_drop(time);
        }
        config
    }
}

// Policies in the order of their numbers in `partywall.h`.
const POLICIES: [Policy; 3] = [Policy::DropNewest, Policy::DropOldest, Policy::Block];
