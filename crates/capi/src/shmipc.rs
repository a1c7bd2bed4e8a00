// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol shmipc: its configuration, and sessions that speak it as server and as client.
//!
//! ```text
//!   partywall_shmipc ─┬─ partywall_session_listener_add_shmipc ─▶ serves clients of shmipc, too
//!                     └─ partywall_shmipc_connect ─────────▶ a session with a server of shmipc
//! ```

use crate::argument::{Out, Text};
use crate::config::{self, ConfigObject, choose, narrow};
use crate::error::Errors;
use crate::event_loop::{self, LoopObject};
use crate::export::export;
use crate::failure::Failure;
use crate::session::{self, SessionListenerObject, SessionObject};
use crate::table::{Handle, Object, Table};
use partywall_shmipc::{Config, HandoverState, MemMapType, Shmipc, SizePercentPair};
use std::sync::Arc;

pub(crate) struct ShmipcConfigObject;

static CONFIGS: Table<ShmipcConfigObject> = Table::new();

impl Object for ShmipcConfigObject {
    type First = Settings;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 19;
    const NAME: &'static str = "partywall_shmipc_config";

    fn table() -> &'static Table<Self> {
        &CONFIGS
    }
}

/// A configuration of shmipc with the classes of slices that the program has added. If it has added
/// none, the default classes are used.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    config: Config,
    classes: Vec<SizePercentPair>,
}

/// The protocol shmipc, with its settings and shared memory, as C programs have a handle to it.
pub(crate) struct ShmipcObject;

static PROTOCOLS: Table<ShmipcObject> = Table::new();

impl Object for ShmipcObject {
    type First = ();
    type Second = ();
    /// The protocol's settings and memory, which all threads share: each function of the C
    /// interface copies the reference to them.
    type Shared = Arc<Shmipc>;
    const KIND: u8 = 20;
    const NAME: &'static str = "partywall_shmipc";

    fn table() -> &'static Table<Self> {
        &PROTOCOLS
    }
}

/// Makes the protocol shmipc with the settings of `config`, or with the default settings if the
/// handle is null.
fn protocol(config: Handle<ShmipcConfigObject>) -> Result<Shmipc, Failure> {
    if config.is_null() {
        return Ok(Shmipc::default());
    }
    let Settings { config, classes } = config.first()?.clone();
    Ok(Shmipc::new(if classes.is_empty() { config } else { config.buffer_slice_sizes(classes) })?)
}

fn set(config: Config, key: &str, value: u64) -> Result<Config, Failure> {
    Ok(match key {
        "queue_cap" => config.queue_cap(narrow(key, value)?),
        "share_memory_buffer_cap" => config.share_memory_buffer_cap(narrow(key, value)?),
        "mem_map_type" => config.mem_map_type(choose(key, value, &MEM_MAP_TYPES)?),
        "region_bytes_max" => config.region_bytes_max(narrow(key, value)?),
        "queue_entries_max" => config.queue_entries_max(narrow(key, value)?),
        "fallback_unread_max" => config.fallback_unread_max(value),
        "fallback_message_max" => config.fallback_message_max(narrow(key, value)?),
        "files_without_credentials" => {
            config.files_without_credentials(choose(key, value, &[false, true])?)
        }
        "guard_against_truncation" => {
            config.guard_against_truncation(choose(key, value, &[false, true])?)
        }
        _ => return Err(Failure::argument(&format!("shmipc has no setting {key:?}"))),
    })
}

fn set_text(config: Config, key: &str, value: &str) -> Result<Config, Failure> {
    Ok(match key {
        "share_memory_path_prefix" => config.share_memory_path_prefix(value),
        "directory" => config.directory(value),
        _ => return Err(Failure::argument(&format!("shmipc has no setting {key:?} with a text"))),
    })
}

// Kinds of memory in the order of their numbers in `partywall.h`.
const MEM_MAP_TYPES: [MemMapType; 2] = [MemMapType::MemFd, MemMapType::DevShmFile];

/// Returns the number of the constant in `partywall.h`, such as `PARTYWALL_HOT_RESTART_DONE`, for
/// the state of a hot restart.
const fn number(state: HandoverState) -> i32 {
    match state {
        HandoverState::Never => 0,
        HandoverState::Pending { .. } => 1,
        HandoverState::Done { .. } => 2,
        HandoverState::TimedOut { .. } => 3,
    }
}

export! {
    /// Makes a configuration of shmipc with the default settings.
    fn partywall_shmipc_config_new(config: Out<Handle<ShmipcConfigObject>>, error: Errors)
    reports error {
        let place = config.require("config")?;
        place.write(Handle::insert(Settings::default(), ())?);
        Ok(())
    }

    /// Frees a configuration of shmipc. A null pointer is allowed.
    fn partywall_shmipc_config_free(config: Handle<ShmipcConfigObject>) {
        if !config.is_null() {
            config.remove()?;
        }
        Ok(())
    }

    /// Sets the setting `key` of a configuration of shmipc to `value`.
    fn partywall_shmipc_config_set(
        config: Handle<ShmipcConfigObject>, key: Text, value: u64, error: Errors,
    ) reports error {
        let mut settings = config.first()?;
        let changed = set(settings.config.clone(), key.get("key")?, value)?;
        settings.config = changed;
        Ok(())
    }

    /// Sets the setting `key` of a configuration of shmipc to a text.
    fn partywall_shmipc_config_set_text(
        config: Handle<ShmipcConfigObject>, key: Text, value: Text, error: Errors,
    ) reports error {
        let mut settings = config.first()?;
        let (key, value) = (key.get("key")?, value.get("value")?);
        let changed = set_text(settings.config.clone(), key, value)?;
        settings.config = changed;
        Ok(())
    }

    /// Adds a class of slices. The first class that is added replaces all default classes.
    fn partywall_shmipc_config_add_slices(
        config: Handle<ShmipcConfigObject>, size: u32, percent: u32,
    ) {
        config.first()?.classes.push(SizePercentPair { size, percent });
        Ok(())
    }

    /// Makes the protocol shmipc with the settings of a configuration.
    fn partywall_shmipc_new(
        config: Handle<ShmipcConfigObject>, shmipc: Out<Handle<ShmipcObject>>, error: Errors,
    ) reports error {
        let place = shmipc.require("shmipc")?;
        place.write(Handle::insert_with((), (), Arc::new(protocol(config)?))?);
        Ok(())
    }

    /// Frees the handle of the protocol shmipc. Sessions and listeners that use it go on. A null
    /// pointer is allowed.
    fn partywall_shmipc_free(shmipc: Handle<ShmipcObject>) {
        if !shmipc.is_null() {
            shmipc.remove()?;
        }
        Ok(())
    }

    /// Makes a listener also serve clients of shmipc.
    fn partywall_session_listener_add_shmipc(
        listener: Handle<SessionListenerObject>, shmipc: Handle<ShmipcObject>, error: Errors,
    ) reports error {
        session::add_protocol(listener, shmipc.shared()?)
    }

    /// Opens a session with the server of shmipc at `address`.
    fn partywall_shmipc_connect(
        shmipc: Handle<ShmipcObject>, address: Text, config: Handle<ConfigObject>,
        r#loop: Handle<LoopObject>, tag: u64, session: Out<Handle<SessionObject>>, error: Errors,
    ) reports error {
        let place = session.require("session")?;
        let (address, config) = (address.get("address")?, config::copy(config)?);
        let protocol = shmipc.shared()?;
        let events = if r#loop.is_null() { None } else { Some(event_loop::shared(r#loop)?) };
        place.write(session::connect_with_protocol(address, &config, protocol, events, tag)?);
        Ok(())
    }

    /// Begins a hot restart: sends the clients of the accepted sessions to the process that now
    /// listens at the address.
    fn partywall_shmipc_hot_restart(shmipc: Handle<ShmipcObject>, epoch: u64, error: Errors)
    reports error {
        Ok(shmipc.shared()?.hot_restart(epoch)?)
    }

    /// Writes the state of the last hot restart, such as `PARTYWALL_HOT_RESTART_DONE`.
    fn partywall_shmipc_hot_restart_state(shmipc: Handle<ShmipcObject>, state: Out<i32>) {
        let place = state.require("state")?;
        place.write(number(shmipc.shared()?.hot_restart_state()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_and_values_are_refused() {
        let code = |key, value| set(Config::default(), key, value).err().map(|it| it.code());
        assert_eq!(code("queue_cap", 16), None);
        assert_eq!(code("stream_window", 1), Some(901));
        assert_eq!(code("mem_map_type", 2), Some(13));
        assert_eq!(code("queue_cap", 1 << 32), Some(13));
        assert!(set_text(Config::default(), "directory", "/tmp").is_ok());
        assert!(set_text(Config::default(), "queue_cap", "1").is_err());
    }
}
