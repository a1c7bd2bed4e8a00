// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of links, as keyword arguments, and groups of links.

use crate::buffer::Payload;
use crate::callback::{Callback, WeakCallback};
use crate::config::{AdmissionRule, TRANSPORTS};
use crate::error;
use crate::link_state::LoginRequest;
use crate::runtime::{self, Detached, wait};
use crate::setting_value::{choice, listing, named, seconds, whole};
use crate::wait::Deadline;
use partywall_link::{AfterReboot, Delivery, LoginAnswer};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::sync::Arc;

/// Settings of links, each a keyword with a default: `Config(delivery="at_most_once")`. The text of
/// a config lists the values of all settings, so `print(Config())` prints the defaults.
///
/// | keyword | value |
/// |---|---|
/// | ring_bytes, slab_bytes | bytes that a new file keeps until the peer has acknowledged them |
/// | peer_max | the ring and the slab of the peer that are accepted: a pair of bytes |
/// | transport | "auto", "shm" or "socket" |
/// | delivery | "at_least_once" or "at_most_once" |
/// | after_reboot | "refuse" or "adopt_proven": a file of another boot that was not closed |
/// | attempts_max | deliveries after which `is_poison` is true |
/// | login | bytes that a client sends with each connection |
/// | on_login | a callable of LoginRequest: bytes or True admit; False or a text refuse |
/// | admit | a callable of Credentials: False or a text refuses the peer |
/// | admit_users, admit_groups | the numbers of the users and groups that are admitted |
/// | retry | the shortest and the longest pause between two attempts to connect, in seconds |
/// | handshake_timeout, dead_after | seconds |
/// | handshakes_max, links_max, backlog | counts |
/// | socket_mode | the permission bits of the socket file |
/// | allow_remote | whether other hosts may reach a TCP listener |
/// | allow_anonymous_tcp | whether a TCP listener without `on_login` is allowed |
#[pyclass(frozen, module = "partywall._native")]
pub struct LinkConfig {
    inner: partywall_link::Config,
    /// The callables of the settings. Only this object owns them, so that the garbage collector
    /// finds cycles (`callback.rs`).
    callbacks: Vec<Arc<Callback>>,
}

/// The config that a client or server was made with. The client or server keeps it, because the
/// config owns the callables.
pub type OptionalConfig = Option<Py<LinkConfig>>;

impl LinkConfig {
    /// Returns the settings of the argument `config`, and the reference to the config that the
    /// object which uses them has to keep.
    pub fn of(config: Option<&Bound<'_, Self>>) -> (partywall_link::Config, OptionalConfig) {
        match config {
            Some(config) => (config.get().inner.clone(), Some(config.clone().unbind())),
            None => (partywall_link::Config::default(), None),
        }
    }
}

#[pymethods]
impl LinkConfig {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut inner = partywall_link::Config::default();
        let (mut rule, mut callbacks) = (AdmissionRule::default(), Vec::new());
        for (key, value) in settings.into_iter().flatten() {
            let key: String = key.extract()?;
            match key.as_str() {
                "admit" | "admit_users" | "admit_groups" => {
                    rule.set(&key, &value, &mut callbacks)?;
                }
                "on_login" => {
                    let callback = Callback::new(&key, &value)?;
                    inner = on_login(inner, callback.downgrade());
                    callbacks.push(callback);
                }
                _ => {
                    let with = with(inner, &key, &value);
                    inner = with.map_err(|raised| named(value.py(), &key, raised))?;
                }
            }
        }
        if let Some(rule) = rule.finish()? {
            inner = inner.admit(rule);
        }
        Ok(Self { inner, callbacks })
    }

    fn __repr__(&self) -> String {
        listing("partywall.links.Config", &self.inner)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callbacks.iter().try_for_each(|callback| callback.traverse(&visit))
    }

    fn __clear__(&self) {
        self.callbacks.iter().for_each(|callback| callback.clear());
    }
}

type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Returns the settings with the setting `key` changed to `value`.
fn with(
    config: partywall_link::Config,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<partywall_link::Config> {
    Ok(match key {
        "transport" => config.transport(choice(key, value, &TRANSPORTS)?),
        "delivery" => config.delivery(choice(key, value, &DELIVERIES)?),
        "after_reboot" => config.after_reboot(choice(key, value, &AFTER_REBOOT)?),
        "peer_max" => {
            let (ring, slab): Pair<'_> = value.extract()?;
            config.peer_max(whole(key, &ring)?, whole(key, &slab)?)
        }
        "retry" => {
            let (min, max): Pair<'_> = value.extract()?;
            config.retry(seconds(key, &min)?, seconds(key, &max)?)
        }
        "handshake_timeout" => config.handshake_timeout(seconds(key, value)?),
        "dead_after" => config.dead_after(seconds(key, value)?),
        "login" => config.login(Payload::of(value)?.as_slice()),
        "ring_bytes" => config.ring_bytes(whole(key, value)?),
        "slab_bytes" => config.slab_bytes(whole(key, value)?),
        "attempts_max" => config.attempts_max(whole(key, value)?),
        "handshakes_max" => config.handshakes_max(whole(key, value)?),
        "links_max" => config.links_max(whole(key, value)?),
        "backlog" => config.backlog(whole(key, value)?),
        "socket_mode" => config.socket_mode(whole(key, value)?),
        "allow_remote" => config.allow_remote(value.extract()?),
        "allow_anonymous_tcp" => config.allow_anonymous_tcp(value.extract()?),
        _ => return Err(error::unknown_setting("partywall.links.Config", key)),
    })
}

/// Sets a rule for logins that calls a Python callable. If the callable raises, the rule refuses
/// the client.
fn on_login(config: partywall_link::Config, judge: WeakCallback) -> partywall_link::Config {
    config.on_login(move |request| {
        let judged =
            judge.call(|py| LoginRequest::new(py, request), |answer| login_answer(&answer));
        judged.unwrap_or_else(|| {
            LoginAnswer::Reject("the rule for logins raised an exception".to_owned())
        })
    })
}

/// Interprets what a rule for logins returns: bytes or True admit the client; False or a text
/// refuse it.
fn login_answer(answer: &Bound<'_, PyAny>) -> PyResult<LoginAnswer> {
    if let Ok(text) = answer.cast::<PyString>() {
        return Ok(LoginAnswer::Reject(text.to_string_lossy().into_owned()));
    }
    if let Ok(admitted) = answer.cast::<PyBool>() {
        return Ok(if admitted.is_true() {
            LoginAnswer::Accept(Vec::new())
        } else {
            LoginAnswer::Reject("the login is not admitted".to_owned())
        });
    }
    answer.extract::<Vec<u8>>().map(LoginAnswer::Accept)
}

/// A group of links, an argument of `LinkClient` and `LinkServer`. It can close all its links
/// together.
#[pyclass(frozen, module = "partywall._native")]
pub struct LinkGroup {
    inner: Detached<partywall_link::tokio::Group>,
}

impl LinkGroup {
    /// Returns a handle of the group for the Rust crate.
    pub fn group(&self) -> PyResult<partywall_link::tokio::Group> {
        Ok(self.inner.get().ok_or_else(|| error::closed_here("group"))?.clone())
    }
}

#[pymethods]
impl LinkGroup {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let runtime = runtime::handle(py)?;
        let _entered = runtime.enter();
        Ok(Self { inner: Detached::new(partywall_link::tokio::Group::new()?) })
    }

    /// Closes all links of the group, and writes their files to the disk together. Waits at most
    /// `timeout` seconds for messages to go out. The links are closed even if messages have not
    /// gone out by then. Close the servers of the group before.
    #[pyo3(signature = (timeout = 5.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let until = Deadline::after(timeout)?.instant();
        let group = self.group()?;
        match wait(py, &Deadline::Never, group.close(until))? {
            Some(Err(error)) => Err(error::exception(py, &error)),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

const DELIVERIES: [(&str, Delivery); 2] =
    [("at_least_once", Delivery::AtLeastOnce), ("at_most_once", Delivery::AtMostOnce)];
const AFTER_REBOOT: [(&str, AfterReboot); 2] =
    [("refuse", AfterReboot::Refuse), ("adopt_proven", AfterReboot::AdoptProven)];
