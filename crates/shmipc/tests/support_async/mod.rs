// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting in tests of futures: for a future or a condition, with a deadline, and a name for what did not come.
//!
//! It judges nothing: the tests do.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

/// What takes longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long it is until a condition is looked at again.
const PAUSE: Duration = Duration::from_millis(2);

/// What a future comes to, in time.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(TIMEOUT, future).await;
    ended.unwrap_or_else(|_| panic!("{what}: hung"))
}

/// Waits for what comes about by itself.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(what, wait).await;
}
