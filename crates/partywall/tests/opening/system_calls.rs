// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of one side from `connect` or `accept` until memory is shared, counted by tracing.
//!
//! ```text
//!   second process: PTRACE_TRACEME ─▶ SIGSTOP ── opens ── SIGSTOP     once for each opening
//!   this thread:                      wait ── call, call, … ─▶ count
//! ```

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, gettid};
use partywall::{Channel, Listener, Transport};
use partywall_testkit::{Directory, Second, argument, role, second_process, soon, until};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Openings of one process: the first one fills what the process keeps of itself.
const OPENINGS: usize = 8;
/// System calls of one side in one opening.
const CALLS_MAX: usize = 40;
/// The same for the first opening of a process, which reads what it keeps.
const FIRST_CALLS_MAX: usize = 115;

#[test]
fn connector_needs_few_system_calls() {
    examine("connector");
}

#[test]
fn acceptor_needs_few_system_calls() {
    examine("acceptor");
}

fn examine(role: &str) {
    if cfg!(not(target_arch = "x86_64")) {
        println!("SKIPPED: system calls are told apart on x86-64 only");
        return;
    }
    let Some(openings) = calls_of(role) else {
        println!("SKIPPED: tracing another process is not allowed here");
        return;
    };
    for (index, calls) in openings.iter().enumerate() {
        println!("{role}, opening {index}: {} calls: {calls:?}", calls.len());
    }
    // Fewer than ten would be no handshake, but a counter that does not count.
    let counts: Vec<_> = openings.iter().map(Vec::len).collect();
    assert!(
        counts.iter().all(|count| (10..=FIRST_CALLS_MAX).contains(count)),
        "{role}: {counts:?}"
    );
    // A side that is faster than its peer polls once more. In the best opening it does not.
    let best = counts[1..].iter().min().unwrap();
    assert!(*best <= CALLS_MAX, "{role}: {counts:?}, {openings:?}");
}

/// The traced process. In the first process it does nothing.
#[test]
fn opener() {
    let Some(role) = role() else { return };
    let address = argument("address");
    let mut listener = (role == "acceptor").then(|| Listener::bind(&address).unwrap());
    fs::write(argument("thread"), gettid().to_string()).unwrap();
    if ptrace::traceme().is_err() {
        return;
    }
    // Between these two there is nothing: the calls of a mark itself.
    raise(Signal::SIGSTOP).unwrap();
    raise(Signal::SIGSTOP).unwrap();
    for _ in 0..OPENINGS {
        raise(Signal::SIGSTOP).unwrap();
        let channel = match &mut listener {
            Some(listener) => listener.accept().unwrap(),
            None => partywall::connect(&address).unwrap(),
        };
        raise(Signal::SIGSTOP).unwrap();
        use_once(channel, listener.is_none());
    }
}

/// One message there and back, then the end.
fn use_once(mut channel: Channel, is_connector: bool) {
    assert_eq!(channel.transport(), Transport::SharedMemory);
    if is_connector {
        channel.send(b"there").unwrap();
        assert_eq!(channel.recv().unwrap().unwrap(), b"back");
    } else {
        assert_eq!(channel.recv().unwrap().unwrap(), b"there");
        channel.send(b"back").unwrap();
        assert!(matches!(channel.recv(), Ok(None)));
    }
}

/// Runs the traced process in `role`, and this one in the other. Returns the numbers of its system
/// calls, for each opening; `None` if tracing is not allowed here.
fn calls_of(role: &str) -> Option<Vec<Vec<u64>>> {
    let place = Directory::new();
    let (address, thread_file) = (place.address("opening"), place.path("thread"));
    let listener = (role == "connector").then(|| Listener::bind(&address).unwrap());
    let arguments = [("address", &address[..]), ("thread", thread_file.to_str().unwrap())];
    let mut second = Second::spawn(&mut second_process("system_calls::opener", role, &arguments));
    let traced = traced_thread(&mut second, &thread_file)?;
    let other = thread::spawn(move || other_side(&address, listener));
    let mark = count(traced).len();
    let counted = (0..OPENINGS).map(|_| {
        ptrace::cont(traced, None).unwrap();
        assert_eq!(next_stop(traced), Signal::SIGSTOP);
        let mut calls = count(traced);
        calls.truncate(calls.len() - mark);
        calls
    });
    let counted = counted.collect();
    ptrace::detach(traced, None).unwrap();
    assert!(second.wait().success());
    other.join().unwrap();
    Some(counted)
}

/// The side that is not traced.
fn other_side(address: &str, mut listener: Option<Listener>) {
    for _ in 0..OPENINGS {
        match &mut listener {
            Some(listener) => use_once(listener.accept_deadline(soon()).unwrap(), false),
            None => use_once(partywall::connect(address).unwrap(), true),
        }
    }
}

/// The thread that is traced, once it stands at its first mark.
fn traced_thread(second: &mut Second, thread_file: &Path) -> Option<Pid> {
    let mut stopped = None;
    until("the second process stops", || {
        let number = fs::read_to_string(thread_file).ok().and_then(|text| text.parse().ok());
        let Some(thread) = number.map(Pid::from_raw) else { return false };
        match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            // It has not asked to be traced yet, or cannot be.
            Err(Errno::ECHILD) | Ok(WaitStatus::StillAlive) => second.ends_within(Duration::ZERO),
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => {
                stopped = Some(thread);
                true
            }
            other => panic!("{other:?}"),
        }
    });
    stopped
}

/// The system calls up to the next mark, those of the mark itself included.
fn count(thread: Pid) -> Vec<u64> {
    let mut calls = Vec::new();
    let mut is_entry = true;
    loop {
        ptrace::syscall(thread, None).unwrap();
        if next_stop(thread) == Signal::SIGSTOP {
            return calls;
        }
        if is_entry {
            calls.extend(number(thread));
        }
        is_entry = !is_entry;
    }
}

/// The next stop of the traced thread.
fn next_stop(thread: Pid) -> Signal {
    match waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap() {
        WaitStatus::Stopped(_, signal @ (Signal::SIGSTOP | Signal::SIGTRAP)) => signal,
        other => panic!("{other:?}"),
    }
}

/// The number of the system call at whose entry the thread stands.
#[cfg(target_arch = "x86_64")]
fn number(thread: Pid) -> Option<u64> {
    let registers = ptrace::getregs(thread).unwrap();
    // Before it closes a descriptor, the standard library of a debug build checks that it is open.
    let is_check = registers.orig_rax == nix::libc::SYS_fcntl.unsigned_abs()
        && registers.rsi == nix::libc::F_GETFD.unsigned_abs().into();
    (!is_check).then_some(registers.orig_rax)
}

/// Elsewhere the registers have other names.
#[cfg(not(target_arch = "x86_64"))]
fn number(_: Pid) -> Option<u64> {
    None
}
