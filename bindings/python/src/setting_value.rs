// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the values of settings. An impossible value raises ConfigError, which names the setting
//! and the values that it takes. A value of another type raises TypeError, as usual in Python.

use crate::error;
use crate::wait::duration;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use std::time::Duration;

/// Makes the ConfigError of a setting that cannot have this value. `takes` is a text that says
/// which values it can have.
pub fn impossible(key: &str, value: &Bound<'_, PyAny>, takes: &str) -> PyErr {
    let found = value.repr().map_or_else(|_| "this value".to_owned(), |text| text.to_string());
    let text = format!("{key} cannot be {found}: it takes {takes}");
    error::numbered(value.py(), IMPOSSIBLE, &text)
}

/// Turns the OverflowError of a number that is out of range into the ConfigError of [`impossible`].
/// Returns every other exception unchanged.
pub fn in_range(key: &str, value: &Bound<'_, PyAny>, takes: &str, raised: PyErr) -> PyErr {
    if raised.is_instance_of::<PyOverflowError>(value.py()) {
        return impossible(key, value, takes);
    }
    raised
}

/// Adds the name of the setting `key` to the text of a TypeError. Returns every other exception
/// unchanged.
pub fn named(py: Python<'_>, key: &str, raised: PyErr) -> PyErr {
    let text = raised.value(py).to_string();
    if raised.is_instance_of::<PyTypeError>(py) && !text.contains(key) {
        return PyTypeError::new_err(format!("{key}: {text}"));
    }
    raised
}

/// Returns the text of a config of the Rust crates for a log: the settings with their values.
pub fn listing(class: &str, config: &impl std::fmt::Debug) -> String {
    let text = format!("{config:?}");
    let settings = text.trim_start_matches("Config { ").trim_end_matches(", .. }");
    format!("<{class} {settings}>")
}

/// Returns the element of `choices` whose name is `value`, or raises the ConfigError of
/// [`impossible`].
pub fn choice<T: Copy>(key: &str, value: &Bound<'_, PyAny>, choices: &[(&str, T)]) -> PyResult<T> {
    let name: String = value.extract()?;
    let found = choices.iter().find(|(candidate, _)| *candidate == name);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(candidate, _)| format!("{candidate:?}")).collect();
        let takes = match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => names.concat(),
        };
        impossible(key, value, &takes)
    })
}

/// Reads the value of a setting that is a number of bytes or of objects, and never negative.
pub fn whole<T: TryFrom<u64>>(key: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let max = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>());
    let takes = format!("a whole number from 0 to {max}");
    let number: u64 = value.extract().map_err(|raised| in_range(key, value, &takes, raised))?;
    T::try_from(number).map_err(|_| impossible(key, value, &takes))
}

/// Reads the value of a setting that is a list of numbers of users or groups.
pub fn ids(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let takes = format!("whole numbers from 0 to {}", u32::MAX);
    value.extract().map_err(|raised| in_range(key, value, &takes, raised))
}

/// Reads the value of a setting that is a time in seconds.
pub fn seconds(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let number = value.extract().map_err(|raised| in_range(key, value, SECONDS, raised))?;
    duration(number).map_err(|_| impossible(key, value, SECONDS))
}

const SECONDS: &str = "seconds, at least 0 and fewer than 2^64";

/// The number of the error for an impossible setting (SPEC 17.1).
const IMPOSSIBLE: u32 = 13;
