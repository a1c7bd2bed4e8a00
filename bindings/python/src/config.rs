// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a listener, or of a side that connects, as keyword arguments.

use crate::callback::{Callback, WeakCallback};
use crate::error;
use crate::peer::Credentials;
use crate::setting_value::{choice, ids, impossible, in_range, listing, named, seconds, whole};
use crate::wait::duration;
use partywall::{Admission, BackPressure, Begin, TransportPolicy, TrustPolicy, Wait};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Settings, each a keyword with a default: `Config(wait="park", memory_max=1 << 30)`. The text of
/// a config lists the values of all settings, so `print(Config())` prints the defaults.
///
/// | keyword | value |
/// |---|---|
/// | transport | "auto", "shm" or "socket" |
/// | begin | "auto", "shm" or "socket" |
/// | back_pressure | "block", "error" or "overflow" |
/// | trust | "auto", "own_user", "trusted" or "untrusted" |
/// | wait | "adaptive", "spin", "park", or the seconds between two polls |
/// | admit | a callable of Credentials: False or a text refuses the peer |
/// | admit_users, admit_groups | the numbers of the users and groups that are admitted |
/// | on_refused | a callable of the text that says why a connection was refused |
/// | spin_budget, handshake_timeout, idle_memory_timeout, linger | seconds |
/// | ring_bytes, memory_max, message_max, map_max, inline_max, stream_window | bytes |
/// | handshakes_max, backlog, peer_blocks_max, segments_max, streams_max | counts |
/// | socket_mode | the permission bits of the socket file |
/// | allow_remote | whether other hosts may reach a TCP listener |
#[pyclass(frozen, module = "partywall")]
pub struct Config {
    settings: Settings,
    /// The callables of the settings. Only this object owns them, so that the garbage collector
    /// finds cycles (`callback.rs`).
    callbacks: Vec<Arc<Callback>>,
}

/// The settings of a config, in the form in which other objects copy them.
#[derive(Clone)]
pub struct Settings {
    pub inner: partywall::Config,
    pub wait: Wait,
    pub spin_budget: Duration,
}

/// The config that an object was made with. The object keeps it, because the config owns the
/// callables.
pub type OptionalConfig = Option<Py<Config>>;

impl Default for Settings {
    fn default() -> Self {
        let inner = partywall::Config::default();
        Self { inner, wait: Wait::Adaptive, spin_budget: Duration::from_micros(50) }
    }
}

#[pymethods]
impl Config {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (mut made, mut callbacks) = (Settings::default(), Vec::new());
        let mut rule = AdmissionRule::default();
        for (key, value) in settings.into_iter().flatten() {
            let key: String = key.extract()?;
            match key.as_str() {
                "admit" | "admit_users" | "admit_groups" => {
                    rule.set(&key, &value, &mut callbacks)?;
                }
                "on_refused" => {
                    let callback = Callback::new(&key, &value)?;
                    made.inner = on_refused(made.inner, callback.downgrade());
                    callbacks.push(callback);
                }
                _ => {
                    let with = made.with(&key, &value);
                    made = with.map_err(|raised| named(value.py(), &key, raised))?;
                }
            }
        }
        if let Some(rule) = rule.finish()? {
            made.inner = made.inner.admit(rule);
        }
        Ok(Self { settings: made, callbacks })
    }

    fn __repr__(&self) -> String {
        listing("partywall.Config", &self.settings.inner)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callbacks.iter().try_for_each(|callback| callback.traverse(&visit))
    }

    fn __clear__(&self) {
        self.callbacks.iter().for_each(|callback| callback.clear());
    }
}

impl Config {
    /// Returns the settings of the argument `config`, and the reference to the config that the
    /// object which uses them has to keep.
    pub fn of(config: Option<&Bound<'_, Self>>) -> (Settings, OptionalConfig) {
        match config {
            Some(config) => (config.get().settings.clone(), Some(config.clone().unbind())),
            None => (Settings::default(), None),
        }
    }
}

impl Settings {
    /// Returns the settings with the setting `key` changed to `value`.
    fn with(mut self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match key {
            "wait" => {
                self.wait = wait(value)?;
                self.inner = self.inner.wait(self.wait);
            }
            "spin_budget" => {
                self.spin_budget = seconds(key, value)?;
                if self.spin_budget > SPIN_BUDGET_MAX {
                    let takes = "at most 1 second: wait=\"spin\" never sleeps";
                    return Err(impossible(key, value, takes));
                }
                self.inner = self.inner.spin_budget(self.spin_budget);
            }
            "transport" | "begin" | "back_pressure" | "trust" => {
                self.inner = policy(self.inner, key, value)?;
            }
            "handshake_timeout" | "idle_memory_timeout" | "linger" => {
                self.inner = time(self.inner, key, seconds(key, value)?);
            }
            _ => self.inner = number(self.inner, key, value)?,
        }
        Ok(self)
    }
}

fn policy(
    config: partywall::Config,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<partywall::Config> {
    Ok(match key {
        "transport" => config.transport(choice(key, value, &TRANSPORTS)?),
        "begin" => config.begin(choice(key, value, &BEGINS)?),
        "back_pressure" => config.back_pressure(choice(key, value, &BACK_PRESSURES)?),
        _ => config.trust(choice(key, value, &TRUSTS)?),
    })
}

fn time(config: partywall::Config, key: &str, time: Duration) -> partywall::Config {
    match key {
        "handshake_timeout" => config.handshake_timeout(time),
        "linger" => config.linger(time),
        _ => config.idle_memory_timeout(time),
    }
}

fn number(
    config: partywall::Config,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<partywall::Config> {
    Ok(match key {
        "ring_bytes" => config.ring_bytes(whole(key, value)?),
        "memory_max" => config.memory_max(whole(key, value)?),
        "message_max" => config.message_max(whole(key, value)?),
        "map_max" => config.map_max(whole(key, value)?),
        "inline_max" => config.inline_max(whole(key, value)?),
        "stream_window" => config.stream_window(whole(key, value)?),
        "handshakes_max" => config.handshakes_max(whole(key, value)?),
        "backlog" => config.backlog(whole(key, value)?),
        "peer_blocks_max" => config.peer_blocks_max(whole(key, value)?),
        "segments_max" => config.segments_max(whole(key, value)?),
        "streams_max" => config.streams_max(whole(key, value)?),
        "socket_mode" => config.socket_mode(whole(key, value)?),
        "allow_remote" => config.allow_remote(value.extract()?),
        _ => return Err(error::unknown_setting("partywall.Config", key)),
    })
}

fn wait(value: &Bound<'_, PyAny>) -> PyResult<Wait> {
    let Ok(name) = value.extract::<String>() else {
        let seconds = value.extract().map_err(|raised| in_range("wait", value, WAITS, raised))?;
        let pause = duration(seconds).map_err(|_| impossible("wait", value, WAITS))?;
        return Ok(Wait::Poll(pause));
    };
    match name.as_str() {
        "adaptive" => Ok(Wait::Adaptive),
        "spin" => Ok(Wait::Spin),
        "park" => Ok(Wait::Park),
        _ => Err(impossible("wait", value, WAITS)),
    }
}

/// The settings `admit`, `admit_users` and `admit_groups`, which together make one rule of
/// admission.
#[derive(Default)]
pub struct AdmissionRule {
    judge: Option<WeakCallback>,
    users: Option<Vec<u32>>,
    groups: Option<Vec<u32>>,
}

impl AdmissionRule {
    /// Takes the value of one of the three settings of admission. A callable is added to
    /// `callbacks`.
    pub fn set(
        &mut self,
        key: &str,
        value: &Bound<'_, PyAny>,
        callbacks: &mut Vec<Arc<Callback>>,
    ) -> PyResult<()> {
        match key {
            "admit_users" => self.users = Some(ids(key, value)?),
            "admit_groups" => self.groups = Some(ids(key, value)?),
            _ => {
                let callback = Callback::new(key, value)?;
                self.judge = Some(callback.downgrade());
                callbacks.push(callback);
            }
        }
        Ok(())
    }

    /// Makes the rule of admission; `None` if no setting asks for one.
    ///
    /// # Errors
    /// Fails if there are both a callable and numbers of users or groups, because one of them would
    /// have no effect.
    pub fn finish(self) -> PyResult<Option<Admission>> {
        let has_numbers = self.users.is_some() || self.groups.is_some();
        match self.judge {
            Some(_) if has_numbers => Err(PyTypeError::new_err(
                "admit cannot be combined with admit_users or admit_groups: let the callable look \
                 at `uid` and `gid`",
            )),
            Some(judge) => Ok(Some(admission(judge))),
            None if has_numbers => {
                let rule = Admission::users(self.users.unwrap_or_default());
                Ok(Some(rule.or_groups(self.groups.unwrap_or_default())))
            }
            None => Ok(None),
        }
    }
}

/// Makes a rule of admission of a Python callable. If the callable raises, the rule refuses the
/// peer.
fn admission(judge: WeakCallback) -> Admission {
    Admission::callback(move |who| {
        let judged = judge.call(|_| Ok(Credentials::from(who)), |answer| Ok(verdict(&answer)));
        judged.unwrap_or_else(|| Err("the rule of admission raised an exception".to_owned()))
    })
}

/// Interprets what a rule of admission returns: True and `None` admit the peer; False and a text
/// refuse it.
fn verdict(answer: &Bound<'_, PyAny>) -> Result<(), String> {
    if let Ok(text) = answer.cast::<PyString>() {
        return Err(text.to_string_lossy().into_owned());
    }
    match answer.cast::<PyBool>() {
        Ok(admitted) if admitted.is_true() => Ok(()),
        Err(_) if answer.is_none() => Ok(()),
        Ok(_) => Err("the process is not admitted".to_owned()),
        Err(_) => Err("the rule of admission returned neither a bool nor a text".to_owned()),
    }
}

fn on_refused(config: partywall::Config, callback: WeakCallback) -> partywall::Config {
    config.on_refused(move |reason| {
        // If the callback `on_refused` raises, its exception is reported, and the listener goes on.
        let _ = callback.call(|_| Ok(error::in_python(&reason.to_string())), |_| Ok(()));
    })
}

/// Reads the argument `address`: a text such as `unix:/run/app.sock`, or a path.
pub fn address(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_str()?.to_owned(),
        Err(_) => format!("unix:{}", value.extract::<std::path::PathBuf>()?.display()),
    };
    partywall::Address::from_str(&text).map_err(|error| error::exception(value.py(), &error))?;
    Ok(text)
}

const WAITS: &str = "\"adaptive\", \"spin\", \"park\", or the seconds between two polls";

/// Maximum spin budget: the time that a thread may spin before it sleeps. A longer one is taken for
/// a mistake, because a program that wants it has `wait="spin"`, with which a thread never sleeps.
const SPIN_BUDGET_MAX: Duration = Duration::from_secs(1);

/// The names of the transport policies, for configs of channels, sessions and links.
pub const TRANSPORTS: [(&str, TransportPolicy); 3] = [
    ("auto", TransportPolicy::Auto),
    ("shm", TransportPolicy::SharedMemory),
    ("socket", TransportPolicy::Socket),
];
const BEGINS: [(&str, Begin); 3] =
    [("auto", Begin::Auto), ("shm", Begin::SharedMemory), ("socket", Begin::Socket)];
const BACK_PRESSURES: [(&str, BackPressure); 3] = [
    ("block", BackPressure::Block),
    ("error", BackPressure::Error),
    ("overflow", BackPressure::Overflow),
];
const TRUSTS: [(&str, TrustPolicy); 4] = [
    ("auto", TrustPolicy::Auto),
    ("own_user", TrustPolicy::OwnUser),
    ("trusted", TrustPolicy::Trusted),
    ("untrusted", TrustPolicy::Untrusted),
];
