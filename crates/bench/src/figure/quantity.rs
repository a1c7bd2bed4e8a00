// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities: parsed from a command line, and written with three digits and a unit.
//!
//! ```text
//!   parsed     64k  8m  1g                       sizes: k, m and g are powers of 1024
//!              10k  1m                           counts: k and m are powers of 1000
//!              250ms  5s  2min                   times
//!   written    4.31 GiB   1.29 ms   2.10 GB/s    three digits, with the unit that fits
//! ```

use std::time::Duration;

/// Parses a size such as 64k, 8m or 1g, with binary multiples; the size is at least 1.
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

/// Parses a count such as 500, 10k or 1m, with decimal multiples; the count is at least 1.
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

/// Splits a text into a whole number and its unit in lower case.
fn split_unit(text: &str) -> Option<(u64, String)> {
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(split);
    Some((digits.parse().ok()?, unit.trim().to_owned()))
}

/// Parses a time such as 250ms, 5s or 2min.
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

/// Formats a time: `437 ns`, `7.15 µs`, `1.29 ms`, `2.10 s`.
pub fn time_name(time: Duration) -> String {
    ns_name(time.as_secs_f64() * 1e9)
}

/// Formats a number of nanoseconds as a time, such as `7.15 µs` or `2.10 s`.
pub fn ns_name(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// Formats a rate: `950 /s`, `12.3 k/s`, `4.60 M/s`.
pub fn rate_name(per_second: f64) -> String {
    scaled(per_second, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)])
}

/// Formats a bandwidth in decimal units, as memory bandwidth is quoted: `6.12 GB/s`.
pub fn decimal_bandwidth_name(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, &[("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)])
}

/// Formats a size in the largest unit that leaves a whole number: `48 B`, `4 KiB`, `1 MiB`.
pub fn exact_size_name(size: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{} {name}", size / unit);
        }
    }
    format!("{size} B")
}

/// Formats a size with three digits: `12.0 KiB`, `1.30 MiB`.
pub fn size_name(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
    bytes_name(bytes as f64)
}

/// Formats a mean number of bytes with three digits, such as `12.0 KiB`.
pub fn bytes_name(bytes: f64) -> String {
    scaled(bytes, &SIZE_UNITS)
}

/// Formats a bandwidth in binary units, in which a GiB has 2^30 bytes: `5.70 GiB/s`.
pub fn bandwidth_name(bytes: u64, time: Duration) -> String {
    let per_second = per_second(bytes, time);
    scaled(per_second, &SIZE_UNITS) + "/s"
}

/// Formats a count with its noun, whose plural must end in s: `1 message`, `2 messages`.
pub fn counted(count: u64, one: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {one}{s}")
}

/// The rate of `count` events within `time`, per second; 0 if `time` is zero.
pub fn per_second(count: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
    let count = count as f64;
    if time.is_zero() { 0.0 } else { count / time.as_secs_f64() }
}

/// Formats a number with three significant digits in the largest unit that leaves at least 1.
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

/// The binary units of sizes, in which a KiB has 1024 bytes, each with its number of bytes.
const SIZE_UNITS: [(&str, f64); 4] =
    [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];

/// Maximum size in bytes that a flag of the command line accepts: 1 TiB.
const SIZE_MAX: u64 = 1 << 40;

/// Maximum time that a flag of the command line accepts: one day.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_their_units() {
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        assert_eq!(parse_size("8 MiB"), Ok(8 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_count("1k"), Ok(1000));
        assert_eq!(parse_count("2 M"), Ok(2_000_000));
        assert_eq!(parse_time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_time("2min"), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        for bad in ["", "k", "0", "-1", "5q", "99999999999999999999", "9999999g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for bad in ["", "k", "0", "0k", "-1", "1.5k", "5kib", "99999999999g"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "0s", "-1s", "5 weeks", "25h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_have_three_digits_and_a_unit() {
        assert_eq!(time_name(Duration::from_nanos(437)), "437 ns");
        assert_eq!(time_name(Duration::from_micros(7150)), "7.15 ms");
        assert_eq!(size_name(5 << 30), "5.00 GiB");
        assert_eq!(size_name(0), "0 B");
        assert_eq!(bandwidth_name(6 << 30, Duration::from_secs(1)), "6.00 GiB/s");
        assert_eq!(bandwidth_name(6 << 30, Duration::from_secs(4)), "1.50 GiB/s");
        assert_eq!(bandwidth_name(1, Duration::ZERO), "0 B/s");
        assert_eq!(ns_name(285.4), "285 ns");
        assert_eq!(ns_name(999.9), "1.00 µs");
        assert_eq!(ns_name(7_150.0), "7.15 µs");
        assert_eq!(ns_name(1_290_000.0), "1.29 ms");
        assert_eq!(ns_name(0.0), "0 ns");
        assert_eq!(rate_name(48_000_000.0), "48.0 M/s");
        assert_eq!(decimal_bandwidth_name(6_123_000_000.0), "6.12 GB/s");
        assert_eq!(bytes_name(196_608.0), "192 KiB");
    }

    #[test]
    fn exact_size_name_keeps_a_whole_number() {
        assert_eq!(exact_size_name(48), "48 B");
        assert_eq!(exact_size_name(4096), "4 KiB");
        assert_eq!(exact_size_name(1 << 20), "1 MiB");
        assert_eq!(exact_size_name(1500), "1500 B");
    }

    #[test]
    fn noun_counted_has_its_plural() {
        let names: Vec<String> = (0..3).map(|count| counted(count, "client")).collect();
        assert_eq!(names, ["0 clients", "1 client", "2 clients"]);
    }
}
