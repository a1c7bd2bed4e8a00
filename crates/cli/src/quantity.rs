// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes, times, permissions and waiting as people write them, and numbers as people read them.
//!
//! ```text
//!   64k 8m 1g      sizes: binary multiples   250ms 5s 2min       0600
//!   10k 1m         counts: decimal ones
//!   spin adaptive park timed:1ms             4.31 GiB  1.29 ms  2.10 GB/s
//! ```

use std::time::Duration;

use partywall::Wait;

/// A size such as 64k, 8m or 1g: binary multiples, at least 1.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) =
        split_unit(text).ok_or_else(|| format!("{text:?} is no size; write 64k, 8m or 1g"))?;
    let shift = match &*unit {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => return Err(format!("unknown unit {other:?}; use k, m or g, as in 64k")),
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Err("a size is at least 1".to_owned()),
        Some(size) if size <= SIZE_MAX => Ok(size),
        _ => Err(format!("{text} is too large")),
    }
}

/// How many: 500, 10k or 1m, at least 1. Decimal multiples, as rates are printed: 10k are 10,000.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) =
        split_unit(text).ok_or_else(|| format!("{text:?} is no count; write 500, 10k or 1m"))?;
    let factor: u64 = match &*unit {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        other => return Err(format!("unknown unit {other:?}; use k, m or g, as in 10k")),
    };
    match number.checked_mul(factor) {
        Some(0) => Err("a count is at least 1".to_owned()),
        Some(count) => Ok(count),
        None => Err(format!("{text} is too large")),
    }
}

/// A whole number, and the unit behind it in small letters.
fn split_unit(text: &str) -> Option<(u64, String)> {
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(split);
    Some((digits.parse().ok()?, unit.trim().to_owned()))
}

/// A time such as 250ms, 5s or 2min.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: f64 =
        digits.parse().map_err(|_| format!("{text:?} is no time; write 250ms, 5s or 2min"))?;
    let seconds = match unit.trim() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        other => return Err(format!("unknown unit {other:?}; use us, ms, s, min or h")),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && time <= TIME_MAX => Ok(time),
        _ => Err("times go from 1us to 24h".to_owned()),
    }
}

/// `spin`, `adaptive`, `park` or `timed:PERIOD`.
pub fn parse_wait(text: &str) -> Result<Wait, String> {
    Ok(match text {
        "spin" => Wait::Spin,
        "adaptive" => Wait::Adaptive,
        "park" => Wait::Park,
        _ => match text.strip_prefix("timed:") {
            Some(period) => Wait::Poll(parse_time(period)?),
            None => return Err("write spin, adaptive, park or timed:1ms".to_owned()),
        },
    })
}

/// Permission bits in octal, such as 0600.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode; write three octal digits, such as 0660")),
    }
}

/// `437 ns`, `7.15 µs`, `1.29 ms`, `2.10 s`.
pub fn time_name(time: Duration) -> String {
    let ns = time.as_secs_f64() * 1e9;
    scaled(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// `950 /s`, `12.3 k/s`.
pub fn rate_name(per_second: f64) -> String {
    scaled(per_second, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)])
}

/// `12.0 KiB`, `1.30 MiB`.
pub fn size_name(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let bytes = bytes as f64;
    scaled(bytes, &SIZE_UNITS)
}

/// `5.70 GiB/s`: in the units of [`size_name`], beside which it stands. (`bench` quotes GB/s, as memory bandwidth
/// is quoted.)
pub fn bandwidth_name(bytes: u64, time: Duration) -> String {
    let per_second = per_second(bytes, time);
    scaled(per_second, &SIZE_UNITS) + "/s"
}

/// `1 message`, `2 messages`: for nouns whose plural ends in s.
pub fn counted(count: u64, one: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {one}{s}")
}

/// How many of `count` fall on a second; 0 if no time passed.
pub fn per_second(count: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let count = count as f64;
    if time.is_zero() { 0.0 } else { count / time.as_secs_f64() }
}

/// Three significant digits in the largest unit that leaves at least 1.
fn scaled(number: f64, units: &[(&str, f64)]) -> String {
    let fitting = units.iter().rev().find(|(_, factor)| number >= *factor * 0.9995);
    let Some(&(name, factor)) = fitting.or(units.first()) else { return String::new() };
    let value = number / factor;
    let decimals = match value {
        v if v >= 99.95 || factor <= 1.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {name}")
}

/// As sizes are given to the command: 1k are 1024.
const SIZE_UNITS: [(&str, f64); 4] =
    [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];

/// Larger sizes are mistakes.
const SIZE_MAX: u64 = 1 << 40;

/// Longer times are mistakes.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        assert_eq!(parse_size("8 MiB"), Ok(8 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_count("1k"), Ok(1000));
        assert_eq!(parse_count("2 M"), Ok(2_000_000));
        assert_eq!(parse_time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_time("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert_eq!(parse_wait("park"), Ok(Wait::Park));
        assert_eq!(parse_wait("timed:1ms"), Ok(Wait::Poll(Duration::from_millis(1))));
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for bad in ["", "k", "0", "-1", "5q", "99999999999999999999", "9999999g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for bad in ["", "k", "0", "0k", "-1", "1.5k", "5kib", "99999999999g"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "0s", "-1s", "5 weeks", "25h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert!(parse_mode("999").is_err() && parse_mode("7777").is_err());
        assert!(parse_wait("timed").is_err() && parse_wait("sleep").is_err());
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(time_name(Duration::from_nanos(437)), "437 ns");
        assert_eq!(time_name(Duration::from_micros(7150)), "7.15 ms");
        assert_eq!(size_name(5 << 30), "5.00 GiB");
        assert_eq!(size_name(0), "0 B");
        assert_eq!(bandwidth_name(6 << 30, Duration::from_secs(1)), "6.00 GiB/s");
        assert_eq!(bandwidth_name(6 << 30, Duration::from_secs(4)), "1.50 GiB/s");
        assert_eq!(bandwidth_name(1, Duration::ZERO), "0 B/s");
    }

    #[test]
    fn one_is_not_many() {
        let names: Vec<String> = (0..3).map(|count| counted(count, "client")).collect();
        assert_eq!(names, ["0 clients", "1 client", "2 clients"]);
    }
}
