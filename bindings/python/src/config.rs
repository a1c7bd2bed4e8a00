// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a listener or a connecting side, as keywords.

use crate::error;
use crate::peer::Credentials;
use crate::setting_value::{choice, ids, impossible, in_range, seconds, whole};
use crate::wait::duration;
use partywall::{Admission, BackPressure, Begin, TransportPolicy, TrustPolicy, Wait};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::str::FromStr;
use std::time::Duration;

/// Settings, each a keyword with a default: `Config(wait="park", memory_max=1 << 30)`.
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
#[derive(Clone)]
pub struct Config {
    pub inner: partywall::Config,
    pub wait: Wait,
    pub spin_budget: Duration,
}

impl Default for Config {
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
        let mut config = Self::default();
        let (mut users, mut groups) = (None::<Vec<u32>>, None::<Vec<u32>>);
        for (key, value) in settings.into_iter().flatten() {
            let key: String = key.extract()?;
            match key.as_str() {
                "admit_users" => users = Some(ids(&key, &value)?),
                "admit_groups" => groups = Some(ids(&key, &value)?),
                _ => config = config.with(&key, &value)?,
            }
        }
        if users.is_some() || groups.is_some() {
            let rule = Admission::users(users.unwrap_or_default());
            config.inner = config.inner.admit(rule.or_groups(groups.unwrap_or_default()));
        }
        Ok(config)
    }
}

impl Config {
    /// Returns the settings with one of them changed.
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
            "admit" => self.inner = self.inner.admit(admission(value)?),
            "on_refused" => self.inner = on_refused(self.inner, value)?,
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
        _ => {
            let text = format!("Config() got an unexpected keyword argument {key:?}");
            return Err(PyTypeError::new_err(text));
        }
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

/// Makes a rule of a Python callable. If the callable raises, the peer is refused.
pub fn admission(judge: &Bound<'_, PyAny>) -> PyResult<Admission> {
    if !judge.is_callable() {
        return Err(PyTypeError::new_err("admit must be callable"));
    }
    let judge = judge.clone().unbind();
    Ok(Admission::callback(move |who| {
        Python::attach(|py| match judge.bind(py).call1((Credentials::from(who),)) {
            Ok(answer) => verdict(&answer),
            Err(error) => {
                error.write_unraisable(py, Some(judge.bind(py)));
                Err("the rule of admission raised an exception".to_owned())
            }
        })
    }))
}

/// Interprets the answer of a rule: True and `None` admit; False and a text refuse.
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

fn on_refused(
    config: partywall::Config,
    callback: &Bound<'_, PyAny>,
) -> PyResult<partywall::Config> {
    if !callback.is_callable() {
        return Err(PyTypeError::new_err("on_refused must be callable"));
    }
    let callback = callback.clone().unbind();
    Ok(config.on_refused(move |reason| {
        Python::attach(|py| {
            if let Err(error) = callback.bind(py).call1((reason.to_string(),)) {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        });
    }))
}

/// Reads an address: text such as `unix:/run/app.sock`, or a path.
pub fn address(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_str()?.to_owned(),
        Err(_) => format!("unix:{}", value.extract::<std::path::PathBuf>()?.display()),
    };
    partywall::Address::from_str(&text).map_err(|error| error::exception(value.py(), &error))?;
    Ok(text)
}

/// The values that the setting `wait` takes, for errors.
const WAITS: &str = "\"adaptive\", \"spin\", \"park\", or the seconds between two polls";

/// Longest time that a thread may spin before it sleeps. A longer one is a mistake: `wait="spin"`
/// never sleeps.
const SPIN_BUDGET_MAX: Duration = Duration::from_secs(1);

/// The names of the policies for transports, for links as well.
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
