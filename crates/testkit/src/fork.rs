// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs code in a forked child. This file has the only unsafe code of the test scaffolding, because
//! no safe function forks.
#![allow(unsafe_code, reason = "there is no safe way to fork")]

unsafe extern "C" {
    /// The function fork(2) of the C library.
    pub safe fn fork() -> i32;
    /// The function _exit(2) of the C library.
    pub safe fn _exit(code: i32) -> !;
    safe fn waitpid(pid: i32, status: Option<&mut i32>, options: i32) -> i32;
}

/// Runs `child` in a forked process; returns whether `child` returned `true`.
pub fn in_a_fork(child: impl FnOnce() -> bool) -> bool {
    let pid = fork();
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        _exit(if matches!(is_right, Ok(true)) { 0 } else { 1 });
    }
    let mut status = -1;
    assert_eq!(waitpid(pid, Some(&mut status), 0), pid);
    status == 0
}
