// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that counts, by tracing, the system calls of a parked session of tokio from one sleep to
//! the next, for each message that wakes it.
//!
//! ```text
//!   second process: PTRACE_TRACEME ─▶ SIGSTOP ── receives ── sleeps ── receives ── sleeps …
//!   this thread:    sends, while the traced thread sleeps ── counts its calls until it sleeps
//! ```
//!
//! The traced thread goes on only when this thread lets it. So each message is complete before its
//! receiver can look for it, and every run makes the same calls.
#![cfg(feature = "tokio")]

use super::system_calls::{next_stop, traced_thread};
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, gettid};
use partywall::tokio::Listener;
use partywall::{Config, TransportPolicy, Wait, blocking};
use partywall_testkit::{Directory, Second, TIMEOUT, Watchdog, argument, role, second_process};
use std::fs;
use tokio::runtime::Builder;

/// Number of messages, each of which wakes the session once.
const MESSAGES: u8 = 20;

/// The number of the system call by which the library looks at its own epoll set.
const EPOLL_PWAIT: u64 = libc::SYS_epoll_pwait.unsigned_abs();
/// The number of the system call by which tokio looks at all descriptors.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: u64 = libc::SYS_epoll_wait.unsigned_abs();
/// Other processors do not have the system call; on them the test is skipped.
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: u64 = u64::MAX;

#[test]
fn woken_session_looks_once_for_further_notifications() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("SKIPPED: system calls are told apart on x86-64 only");
        return;
    }
    let _watchdog = Watchdog::new("a woken session", TIMEOUT);
    let Some(wake_ups) = calls_of_wake_ups() else {
        println!("SKIPPED: tracing another process is not allowed here");
        return;
    };
    for (index, calls) in wake_ups.iter().enumerate() {
        println!("message {index}: {calls:?}");
        // Before a sleep, the session takes back the notification that woke it.
        let looks = calls.iter().filter(|call| call.number == EPOLL_PWAIT).count();
        assert_eq!(looks, 1, "message {index}: {calls:?}");
    }
}

/// Code of the second process, which is traced: receives messages until the session ends. In the
/// process of the tests the function returns at once.
#[test]
fn sleeper() {
    if role().is_none() {
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind_with(argument("address"), &config()).unwrap();
        fs::write(argument("thread"), gettid().to_string()).unwrap();
        if ptrace::traceme().is_err() {
            return;
        }
        raise(Signal::SIGSTOP).unwrap();
        let session = listener.accept().await.unwrap();
        let mut stream = session.accept().await.unwrap().unwrap();
        assert_eq!(stream.recv().await.unwrap().unwrap(), b"begin");
        raise(Signal::SIGSTOP).unwrap();
        for index in 0..MESSAGES {
            assert_eq!(stream.recv().await.unwrap().unwrap(), [index]);
        }
        assert!(stream.recv().await.unwrap().is_none());
    });
}

fn config() -> Config {
    Config::default().wait(Wait::Park).transport(TransportPolicy::SharedMemory)
}

/// Sends messages to the second process, each while its session sleeps. Returns the system calls
/// after each message; `None` if tracing is not allowed.
fn calls_of_wake_ups() -> Option<Vec<Vec<Call>>> {
    let place = Directory::new();
    let (address, thread_file) = (place.address("woken"), place.path("thread"));
    let arguments = [("address", &address[..]), ("thread", thread_file.to_str().unwrap())];
    let mut command = second_process("woken_session::sleeper", "sleeper", &arguments);
    let mut second = Second::spawn(&mut command);
    let traced = traced_thread(&mut second, &thread_file)?;
    ptrace::cont(traced, None).unwrap();
    let session = connect(&address);
    let mut stream = session.open(&[]).unwrap();
    stream.send(b"begin").unwrap();
    assert_eq!(next_stop(traced), Signal::SIGSTOP);
    let _ = until_asleep(traced);
    let counted = (0..MESSAGES).map(|index| {
        stream.send(&[index]).unwrap();
        assert_eq!(next_stop(traced), Signal::SIGTRAP, "the thread leaves its `epoll_wait`");
        until_asleep(traced)
    });
    let counted = counted.collect();
    // The end of the stream wakes the session, so that its thread stops and can be detached.
    drop(stream);
    assert_eq!(next_stop(traced), Signal::SIGTRAP);
    ptrace::detach(traced, None).unwrap();
    assert!(second.wait().success());
    drop(session);
    Some(counted)
}

/// Connects to the second process. The thread of this side's session is not traced.
fn connect(address: &str) -> blocking::Session {
    blocking::connect_with(address, &config()).unwrap()
}

/// A system call that the traced thread is about to enter.
#[derive(Debug)]
struct Call {
    number: u64,
    /// The fourth argument; that of `epoll_wait` is its time limit in milliseconds.
    time_limit_ms: i32,
}

/// Lets the stopped thread run until it enters the `epoll_wait` of tokio that has no time limit, so
/// until it sleeps. Returns its system calls, that one included.
fn until_asleep(thread: Pid) -> Vec<Call> {
    let mut calls = Vec::new();
    loop {
        ptrace::syscall(thread, None).unwrap();
        assert_eq!(next_stop(thread), Signal::SIGTRAP);
        let call = entered(thread);
        let is_sleep = call.number == EPOLL_WAIT && call.time_limit_ms == -1;
        calls.push(call);
        ptrace::syscall(thread, None).unwrap();
        if is_sleep {
            return calls;
        }
        assert_eq!(next_stop(thread), Signal::SIGTRAP);
    }
}

/// Returns the system call that the stopped thread is about to enter.
#[cfg(target_arch = "x86_64")]
fn entered(thread: Pid) -> Call {
    let registers = ptrace::getregs(thread).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "the kernel reads 32 bits of it")]
    let time_limit_ms = registers.r10 as i32;
    Call { number: registers.orig_rax, time_limit_ms }
}

/// Is never called: on other processors the test is skipped.
#[cfg(not(target_arch = "x86_64"))]
fn entered(_: Pid) -> Call {
    unreachable!("system calls are told apart on x86-64 only")
}
