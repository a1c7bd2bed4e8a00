// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of futures: they wait for a future or a condition, and panic with a given text
//! after a time-out.
//!
//! This file asserts nothing else.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

/// Longest time that a test waits for a future or a condition; after that the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for a future and returns its result; panics with the text `what` if the future takes
/// longer than the time-out.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(TIMEOUT, future).await;
    ended.unwrap_or_else(|_| panic!("{what}: hung"))
}

/// Waits until the condition `is_so` holds; panics with the text `what` after the time-out.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(what, wait).await;
}
