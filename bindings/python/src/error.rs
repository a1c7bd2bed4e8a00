// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors as Python exceptions. The classes are in `partywall/_errors.py`, because each derives
//! from an exception of the standard library as well. The texts are those of the Rust crates, with
//! the names that settings have in Python.

use partywall::ErrorCode;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::error::Error;
use std::io;

/// Makes the exception of `error`: its number (SPEC 17), its text with the advice, and the errno of
/// the system call that failed, if one did.
pub fn exception(py: Python<'_>, error: &(impl ErrorCode + Error + 'static)) -> PyErr {
    let made = make(py, error.code(), &error.to_string(), os_error(error));
    let application_code = error.application_code();
    if application_code != 0 {
        if let Err(failed) = made.value(py).setattr("application_code", application_code) {
            return failed;
        }
    }
    made
}

/// Makes the exception of a number of SPEC 17 for which this crate has no error value.
pub fn numbered(py: Python<'_>, code: u32, text: &str) -> PyErr {
    make(py, code, text, None)
}

/// Makes the exception BusyError, for a call on an object on which another thread is executing a
/// call.
pub fn busy(py: Python<'_>) -> PyErr {
    numbered(py, 8, "another thread is in this call: give each thread a channel of its own")
}

/// Makes the exception of a call on an object, named `what`, that this process has closed.
pub fn closed_here(what: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("this {what} is closed"))
}

/// Makes the exception of a sending call on an object, named `what`, whose sending direction this
/// process has ended.
pub fn finished_here(py: Python<'_>, what: &str) -> PyErr {
    let text = format!("this side has ended its sending with finish(): the {what} still receives");
    numbered(py, 408, &text)
}

/// Returns the number (SPEC 17) of an exception of this package; `None` for other exceptions.
pub fn code_of(py: Python<'_>, error: &PyErr) -> Option<u32> {
    error.value(py).getattr("code").ok()?.extract().ok()
}

/// Checks that `code` is a code that an application may send to a peer, not one of the protocol.
pub fn check_application_code(code: u32) -> PyResult<()> {
    if code < RESERVED_CODES {
        return Ok(());
    }
    let text = format!("code {code:#x} is the protocol's: choose one below {RESERVED_CODES:#x}");
    Err(pyo3::exceptions::PyValueError::new_err(text))
}

/// Lowest of the codes that are reserved for the protocol. An application ends a stream with a
/// lower one (SPEC 11.3).
const RESERVED_CODES: u32 = 0xffff_ff00;

/// Makes the exception for a keyword argument of `class` that is no setting.
pub fn unknown_setting(class: &str, key: &str) -> PyErr {
    let name = class.rsplit('.').next().unwrap_or(class);
    pyo3::exceptions::PyTypeError::new_err(format!(
        "{name}() got an unexpected keyword argument '{key}': help({class}) lists the settings"
    ))
}

/// Returns a text of the Rust crates with the names that Python uses. For example,
/// `Config::allow_remote(true)` becomes `allow_remote=True`, and `BackPressure::Overflow` becomes
/// `back_pressure="overflow"`.
pub fn in_python(text: &str) -> String {
    let text = text.replace("use connect_with_protocol", "connect with shmipc=Shmipc()");
    let mut made = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find("::") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let owner = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let member = after.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let member = member.unwrap_or_default();
        let behind = &after[member.len()..];
        let prefix = &before[..before.len() - owner.len()];
        let setting = POLICIES.iter().find(|(policy, _)| *policy == owner);
        rest = match (owner, setting) {
            ("Config" | "CallsConfig", _) => {
                let is_true = behind.strip_prefix("(true)");
                made.extend([prefix, member, if is_true.is_some() { "=True" } else { "" }]);
                is_true.unwrap_or(behind)
            }
            (_, Some((_, setting))) => {
                made.extend([prefix, setting, "=\"", &snake(member), "\""]);
                behind
            }
            _ => {
                made.extend([before, "::"]);
                after
            }
        };
    }
    made + rest
}

/// Converts a name such as `OwnUser` to `own_user`.
fn snake(name: &str) -> String {
    let mut made = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            made.push('_');
        }
        made.push(letter.to_ascii_lowercase());
    }
    made
}

/// The enums of the Rust crates whose values are settings, and the names of these settings.
const POLICIES: [(&str, &str); 3] =
    [("AfterReboot", "after_reboot"), ("BackPressure", "back_pressure"), ("TrustPolicy", "trust")];

fn make(py: Python<'_>, code: u32, text: &str, errno: Option<i32>) -> PyErr {
    static FACTORY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let text = in_python(text);
    let made = FACTORY
        .import(py, "partywall._errors", "_exception")
        .and_then(|factory| factory.call1((code, text, errno)));
    match made {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Returns the errno of the first system error among `error` and the errors that caused it.
fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(system) = error.downcast_ref::<io::Error>() {
            return system.raw_os_error();
        }
        next = error.source();
    }
    None
}
