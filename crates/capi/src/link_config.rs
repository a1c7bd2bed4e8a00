// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configurations of links: one function sets every setting, by the setting's name and a number.

use crate::argument::{Out, Text};
use crate::config::{TRANSPORTS, WAITS, choose, choose_mode, narrow};
use crate::error::Errors;
use crate::export::export;
use crate::failure::Failure;
use crate::table::{Handle, Object, Table};
use partywall::Wait;
use partywall_link::{AfterReboot, Config, Delivery, Group};
use std::time::Duration;

pub(crate) struct LinkConfigObject;

static CONFIGS: Table<LinkConfigObject> = Table::new();

impl Object for LinkConfigObject {
    type First = Config;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 15;
    const NAME: &'static str = "partywall_link_config";

    fn table() -> &'static Table<Self> {
        &CONFIGS
    }
}

/// Returns a copy of the configuration with the handle `config`, or the default configuration if
/// the handle is null.
pub(crate) fn copy(config: Handle<LinkConfigObject>) -> Result<Config, Failure> {
    if config.is_null() { Ok(Config::default()) } else { Ok(config.first()?.clone()) }
}

/// Puts the links of all clients and servers that are made with this configuration into `group`.
pub(crate) fn set_group(config: Handle<LinkConfigObject>, group: &Group) -> Result<(), Failure> {
    let mut config = config.first()?;
    let changed = config.clone().group(group);
    *config = changed;
    Ok(())
}

export! {
    /// Makes a configuration of links with the default settings.
    fn partywall_link_config_new(config: Out<Handle<LinkConfigObject>>, error: Errors)
    reports error {
        let config = config.require("config")?;
        config.write(Handle::insert(Config::default(), ())?);
        Ok(())
    }

    /// Makes a copy of a configuration of links. The copy names the same group of links.
    fn partywall_link_config_copy(
        config: Handle<LinkConfigObject>, copy: Out<Handle<LinkConfigObject>>, error: Errors,
    ) reports error {
        let copy = copy.require("copy")?;
        let settings = config.first()?.clone();
        copy.write(Handle::insert(settings, ())?);
        Ok(())
    }

    /// Frees a configuration of links. A null pointer is allowed.
    fn partywall_link_config_free(config: Handle<LinkConfigObject>) {
        if !config.is_null() {
            config.remove()?;
        }
        Ok(())
    }

    /// Sets the setting `key` of a configuration of links to `value`.
    fn partywall_link_config_set(
        config: Handle<LinkConfigObject>, key: Text, value: u64, error: Errors,
    ) reports error {
        let mut config = config.first()?;
        let changed = set(config.clone(), key.get("key")?, value)?;
        *config = changed;
        Ok(())
    }
}

fn set(config: Config, key: &str, value: u64) -> Result<Config, Failure> {
    let time = Duration::from_nanos(value);
    Ok(match key {
        "ring_bytes" => config.ring_bytes(value),
        "slab_bytes" => config.slab_bytes(value),
        "transport" => config.transport(choose(key, value, &TRANSPORTS)?),
        "wait" => config.wait(choose(key, value, &WAITS)?),
        "poll_period_ns" => config.wait(Wait::Poll(time)),
        "spin_budget_ns" => config.spin_budget(time),
        "delivery" => config.delivery(choose(key, value, &DELIVERIES)?),
        "after_reboot" => config.after_reboot(choose(key, value, &AFTER_REBOOT)?),
        "attempts_max" => config.attempts_max(narrow(key, value)?),
        "handshake_timeout_ns" => config.handshake_timeout(time),
        "handshakes_max" => config.handshakes_max(narrow(key, value)?),
        "dead_after_ns" => config.dead_after(time),
        "links_max" => config.links_max(narrow(key, value)?),
        "backlog" => config.backlog(narrow(key, value)?),
        "socket_mode" => config.socket_mode(choose_mode(key, value)?),
        "allow_remote" => config.allow_remote(choose(key, value, &[false, true])?),
        "allow_anonymous_tcp" => config.allow_anonymous_tcp(choose(key, value, &[false, true])?),
        _ => {
            return Err(Failure::argument(&format!(
                "links have no setting {key:?}: partywall.h lists theirs"
            )));
        }
    })
}

// Lists of the values of a setting. The index of a value is its number in `partywall.h`.
const DELIVERIES: [Delivery; 2] = [Delivery::AtLeastOnce, Delivery::AtMostOnce];
const AFTER_REBOOT: [AfterReboot; 2] = [AfterReboot::Refuse, AfterReboot::AdoptProven];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_and_values_are_refused() {
        let code = |key, value| set(Config::default(), key, value).err().map(|it| it.code());
        assert_eq!(code("slab_bytes", 4096), None);
        assert_eq!(code("stream_window", 1), Some(901));
        assert_eq!(code("delivery", 2), Some(13));
        assert_eq!(code("after_reboot", 2), Some(13));
    }
}
