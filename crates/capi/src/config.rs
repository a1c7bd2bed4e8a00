// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configurations of channels, sessions and listeners: one function sets every setting, by the
//! setting's name and a number.

use crate::argument::{Out, Text};
use crate::error::Errors;
use crate::export::export;
use crate::failure::Failure;
use crate::lossy_config::LossySettings;
use crate::table::{Handle, Object, Table};
use partywall::{Admission, BackPressure, Begin, Config, TransportPolicy, TrustPolicy, Wait};
use partywall_extras::calls::CallsConfig;
use partywall_extras::lossy::LossyConfig;
use std::time::Duration;

pub(crate) struct ConfigObject;

static CONFIGS: Table<ConfigObject> = Table::new();

impl Object for ConfigObject {
    type First = Settings;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 2;
    const NAME: &'static str = "partywall_config";

    fn table() -> &'static Table<Self> {
        &CONFIGS
    }
}

/// A configuration, and the users and groups whose processes are admitted.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    config: Config,
    users: Vec<u32>,
    groups: Vec<u32>,
    lossy: LossySettings,
    calls: CallsConfig,
}

/// Returns a copy of the configuration with the handle `config`, or the default configuration if
/// the handle is null.
pub(crate) fn copy(config: Handle<ConfigObject>) -> Result<Config, Failure> {
    if config.is_null() {
        return Ok(Config::default());
    }
    let Settings { config, users, groups, .. } = config.first()?.clone();
    if users.is_empty() && groups.is_empty() {
        return Ok(config);
    }
    Ok(config.admit(Admission::users(users).or_groups(groups)))
}

/// Returns the settings of `config` for a sender of records that may be lost, or the default
/// settings if the handle is null.
pub(crate) fn copy_lossy(config: Handle<ConfigObject>) -> Result<LossyConfig, Failure> {
    if config.is_null() {
        return Ok(LossySettings::default().config());
    }
    Ok(config.first()?.lossy.config())
}

/// Returns the settings of `config` for calls, or the default settings if the handle is null.
pub(crate) fn copy_calls(config: Handle<ConfigObject>) -> Result<CallsConfig, Failure> {
    if config.is_null() { Ok(CallsConfig::default()) } else { Ok(config.first()?.calls) }
}

export! {
    /// Makes a configuration with the default settings.
    fn partywall_config_new(config: Out<Handle<ConfigObject>>, error: Errors) reports error {
        let config = config.require("config")?;
        config.write(Handle::insert(Settings::default(), ())?);
        Ok(())
    }

    /// Makes a copy of a configuration, which can be changed without changing the original.
    fn partywall_config_copy(
        config: Handle<ConfigObject>, copy: Out<Handle<ConfigObject>>, error: Errors,
    ) reports error {
        let copy = copy.require("copy")?;
        let settings = config.first()?.clone();
        copy.write(Handle::insert(settings, ())?);
        Ok(())
    }

    /// Frees a configuration. A null pointer is allowed.
    fn partywall_config_free(config: Handle<ConfigObject>) {
        if !config.is_null() {
            config.remove()?;
        }
        Ok(())
    }

    /// Sets the setting `key` of a configuration to `value`.
    fn partywall_config_set(
        config: Handle<ConfigObject>, key: Text, value: u64, error: Errors,
    ) reports error {
        let (mut settings, key) = (config.first()?, key.get("key")?);
        if settings.lossy.set(key, value)? || set_of_calls(&mut settings.calls, key, value)? {
            return Ok(());
        }
        let changed = set(settings.config.clone(), key, value)?;
        settings.config = changed;
        Ok(())
    }

    /// Makes a listener with this configuration admit processes of the user `uid`.
    fn partywall_config_admit_user(config: Handle<ConfigObject>, uid: u32) {
        config.first()?.users.push(uid);
        Ok(())
    }

    /// Makes a listener with this configuration admit processes of the primary group `gid`.
    fn partywall_config_admit_group(config: Handle<ConfigObject>, gid: u32) {
        config.first()?.groups.push(gid);
        Ok(())
    }
}

/// Sets the setting `key` of clients and servers of calls. Returns false if they have no setting of
/// this name.
///
/// # Errors
/// Fails if the value is impossible.
fn set_of_calls(config: &mut CallsConfig, key: &str, value: u64) -> Result<bool, Failure> {
    *config = match key {
        "in_flight_max" => config.in_flight_max(narrow(key, value)?),
        "waiting_max" => config.waiting_max(narrow(key, value)?),
        _ => return Ok(false),
    };
    Ok(true)
}

fn set(config: Config, key: &str, value: u64) -> Result<Config, Failure> {
    let time = Duration::from_nanos(value);
    Ok(match key {
        "transport" => config.transport(choose(key, value, &TRANSPORTS)?),
        "begin" => config.begin(choose(key, value, &BEGINS)?),
        "back_pressure" => config.back_pressure(choose(key, value, &POLICIES)?),
        "trust" => config.trust(choose(key, value, &TRUSTS)?),
        "wait" => config.wait(choose(key, value, &WAITS)?),
        "poll_period_ns" => config.wait(Wait::Poll(time)),
        "spin_budget_ns" => config.spin_budget(time),
        "handshake_timeout_ns" => config.handshake_timeout(time),
        "handshakes_max" => config.handshakes_max(narrow(key, value)?),
        "backlog" => config.backlog(narrow(key, value)?),
        "ring_bytes" => config.ring_bytes(value),
        "peer_blocks_max" => config.peer_blocks_max(value),
        "memory_max" => config.memory_max(value),
        "message_max" => config.message_max(value),
        "map_max" => config.map_max(value),
        "segments_max" => config.segments_max(narrow(key, value)?),
        "inline_max" => config.inline_max(narrow(key, value)?),
        "idle_memory_timeout_ns" => config.idle_memory_timeout(time),
        "stream_window" => config.stream_window(value),
        "streams_max" => config.streams_max(narrow(key, value)?),
        "linger_ns" => config.linger(time),
        "socket_mode" => config.socket_mode(choose_mode(key, value)?),
        "allow_remote" => config.allow_remote(choose(key, value, &[false, true])?),
        _ => {
            return Err(Failure::argument(&format!(
                "there is no setting {key:?}: partywall.h lists them"
            )));
        }
    })
}

/// Returns the element of `choices` that the number `value` of the setting `key` stands for.
pub(crate) fn choose<T: Copy>(key: &str, value: u64, choices: &[T]) -> Result<T, Failure> {
    let choice = usize::try_from(value).ok().and_then(|index| choices.get(index));
    choice.copied().ok_or_else(|| {
        Failure::setting(&format!("{key} is {value}: choose a number below {}", choices.len()))
    })
}

/// Converts the number of the setting `key` to the type of the setting, or fails if it is too
/// large.
pub(crate) fn narrow<T: TryFrom<u64>>(key: &str, value: u64) -> Result<T, Failure> {
    T::try_from(value).map_err(|_| Failure::setting(&format!("{key} is {value}: that is too much")))
}

/// Checks that the number of the setting `key` has no bits but those of file permissions.
pub(crate) fn choose_mode(key: &str, value: u64) -> Result<u32, Failure> {
    if value > 0o777 {
        return Err(Failure::setting(&format!("{key} is {value:o}: permissions are at most 777")));
    }
    narrow(key, value)
}

// Lists of the values of a setting. The index of a value is its number in `partywall.h`.
pub(crate) const TRANSPORTS: [TransportPolicy; 3] =
    [TransportPolicy::Auto, TransportPolicy::SharedMemory, TransportPolicy::Socket];
const BEGINS: [Begin; 3] = [Begin::SharedMemory, Begin::Socket, Begin::Auto];
const POLICIES: [BackPressure; 3] =
    [BackPressure::Block, BackPressure::Error, BackPressure::Overflow];
const TRUSTS: [TrustPolicy; 4] =
    [TrustPolicy::Auto, TrustPolicy::OwnUser, TrustPolicy::Trusted, TrustPolicy::Untrusted];
pub(crate) const WAITS: [Wait; 3] = [Wait::Adaptive, Wait::Spin, Wait::Park];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_and_values_are_refused() {
        let code = |key, value| set(Config::default(), key, value).err().map(|it| it.code());
        assert_eq!(code("ring_bytes", 4096), None);
        assert_eq!(code("no such key", 1), Some(901));
        assert_eq!(code("transport", 3), Some(13));
        assert_eq!(code("allow_remote", 2), Some(13));
        assert_eq!(code("backlog", 1 << 31), Some(13));
        assert_eq!(code("socket_mode", 0o1000), Some(13));
    }

    #[test]
    fn settings_of_calls_are_found() {
        let mut config = CallsConfig::default();
        assert!(set_of_calls(&mut config, "in_flight_max", 4).unwrap());
        assert!(!set_of_calls(&mut config, "ring_bytes", 4).unwrap());
    }
}
