// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a conformance program: results are counted during its run, and printed as one line
//! of JSON at its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The results of one run of a conformance program, as its line of JSON states them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// Role of the reporting program: `client` or `server`.
    pub role: String,
    /// Name and version of the library under test.
    pub peer: String,
    /// Number of streams that the program opened or accepted.
    pub streams: u64,
    /// Number of streams that are still open, because the server has not received their end.
    pub streams_open: u64,
    /// Number of requests of which every byte was correct.
    pub requests: u64,
    /// Number of bytes of the correct requests; the bytes of the answers are not counted.
    pub bytes: u64,
    /// Number of uploads that arrived whole before the end of their stream.
    pub uploads_whole: u64,
    /// Number of uploads whose stream ended before all requests had arrived.
    pub uploads_cut: u64,
    /// Number of streams on which the program found a fault.
    pub failed: u64,
    /// Texts of the first faults that the program found.
    pub errors: Vec<String>,
    /// The counters of the library under test, each under the library's own name for it.
    pub metrics: BTreeMap<String, u64>,
}

/// A report that many tasks change, protected by a mutex.
#[derive(Clone, Debug, Default)]
pub struct SharedReport {
    report: Arc<Mutex<Report>>,
}

impl SharedReport {
    /// A report of the program with role `role` and library `peer`, with all counts at 0.
    pub fn new(role: &str, peer: &str) -> Self {
        let report = Report { role: role.to_owned(), peer: peer.to_owned(), ..Report::default() };
        Self { report: Arc::new(Mutex::new(report)) }
    }

    /// Calls `change` with the locked report, which `change` may read or change.
    pub fn with<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        // A task that panicked while it counted leaves no inconsistent report, so the mutex's
        // poisoning is ignored.
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts one correct request, of `size` bytes, in the report.
    pub fn request(&self, size: usize) {
        self.with(|report| {
            report.requests += 1;
            report.bytes += size as u64;
        });
    }

    /// Counts one stream with a fault, which `error` describes, in the report.
    pub fn fail(&self, error: &anyhow::Error) {
        self.with(|report| {
            report.failed += 1;
            if report.errors.len() < ERRORS_MAX {
                report.errors.push(format!("{error:#}"));
            }
        });
    }

    /// Prints the report with the counters of the library under test; returns the exit code.
    pub fn print(&self, metrics: Vec<(&'static str, u64)>) -> u8 {
        self.with(|report| {
            report.metrics = metrics.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
            match serde_json::to_string(report) {
                Ok(line) => println!("{line}"),
                Err(error) => eprintln!("the report cannot be printed: {error}"),
            }
            u8::from(report.failed > 0)
        })
    }
}

const ERRORS_MAX: usize = 10;
