// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that counts, by tracing, the system calls of one side from `connect` or `accept` until
//! memory is shared.
//!
//! ```text
//!   second process: PTRACE_TRACEME ─▶ SIGSTOP ── opens a connection ── SIGSTOP    for each opening
//!   this thread:    waits for a SIGSTOP ── counts system calls until the next SIGSTOP
//! ```
//!
//! The second process raises SIGSTOP as a mark where the count begins, and as a mark where it ends.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, gettid};
use partywall::{Begin, Channel, Config, Listener, Transport};
use partywall_testkit::{Directory, Second, argument, role, second_process, soon, until};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Number of connections that the traced process opens. During the first one, it also reads values
/// that it keeps for the later ones.
const OPENINGS: usize = 8;
/// Maximum number of system calls with which one side opens a connection. It applies to the
/// connection with the fewest calls, the first one left out.
const CALLS_MAX: usize = 38;
/// Maximum number of system calls with which one side opens any connection; the first one of a
/// process needs the most.
const FIRST_CALLS_MAX: usize = 60;

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
    // No handshake takes fewer than ten system calls: a smaller count means that calls are not
    // counted.
    let counts: Vec<_> = openings.iter().map(Vec::len).collect();
    assert!(
        counts.iter().all(|count| (10..=FIRST_CALLS_MAX).contains(count)),
        "{role}: {counts:?}"
    );
    // A side that waits for its slower peer makes one more system call. The smallest count is that
    // of a side that did not wait.
    let best = counts[1..].iter().min().unwrap();
    assert!(*best <= CALLS_MAX, "{role}: {counts:?}, {openings:?}");
}

/// Code of the second process, which is traced: opens connections, each between two marks. A mark
/// is a SIGSTOP that the process sends to itself. In the process of the tests the function returns
/// at once.
#[test]
fn opener() {
    let Some(role) = role() else { return };
    let address = argument("address");
    let mut listener = (role == "acceptor").then(|| Listener::bind(&address).unwrap());
    fs::write(argument("thread"), gettid().to_string()).unwrap();
    if ptrace::traceme().is_err() {
        return;
    }
    // Two marks with nothing between them show the tracing process how many system calls a mark
    // takes.
    raise(Signal::SIGSTOP).unwrap();
    raise(Signal::SIGSTOP).unwrap();
    for _ in 0..OPENINGS {
        raise(Signal::SIGSTOP).unwrap();
        let channel = match &mut listener {
            Some(listener) => listener.accept().unwrap(),
            None => connect(&address),
        };
        raise(Signal::SIGSTOP).unwrap();
        use_once(channel, listener.is_none());
    }
}

/// Connects to the listener, with a handshake that shares memory before the first message.
fn connect(address: &str) -> Channel {
    let config = Config::default().begin(Begin::SharedMemory);
    partywall::connect_with(address, &config).unwrap()
}

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

/// Runs the second process, which is traced, as the side `role` of each connection, and this
/// process as the other side. Returns the numbers of the traced system calls for each connection;
/// `None` if tracing is not allowed.
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

/// Opens, in this process, the side of each connection that is not traced.
fn other_side(address: &str, mut listener: Option<Listener>) {
    for _ in 0..OPENINGS {
        match &mut listener {
            Some(listener) => use_once(listener.accept_deadline(soon()).unwrap(), false),
            None => use_once(connect(address), true),
        }
    }
}

/// Returns the traced thread, once it has stopped at its first mark; `None` if the second process
/// cannot be traced.
pub(super) fn traced_thread(second: &mut Second, thread_file: &Path) -> Option<Pid> {
    let mut stopped = None;
    until("the second process stops", || {
        let number = fs::read_to_string(thread_file).ok().and_then(|text| text.parse().ok());
        let Some(thread) = number.map(Pid::from_raw) else { return false };
        match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            // The second process has not asked to be traced yet, or has ended because it cannot be.
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

/// Returns the numbers of the system calls up to the traced thread's next mark, a SIGSTOP that it
/// sends to itself, including those of the mark.
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

/// Waits for the next stop of the traced thread. Returns the signal that it reports: SIGSTOP at a
/// mark, and SIGTRAP before or after a system call.
pub(super) fn next_stop(thread: Pid) -> Signal {
    match waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap() {
        WaitStatus::Stopped(_, signal @ (Signal::SIGSTOP | Signal::SIGTRAP)) => signal,
        other => panic!("{other:?}"),
    }
}

/// Returns the number of the system call that the stopped thread is about to enter; `None` if it is
/// not counted.
#[cfg(target_arch = "x86_64")]
fn number(thread: Pid) -> Option<u64> {
    let registers = ptrace::getregs(thread).unwrap();
    // In a debug build the standard library checks by `fcntl` that a descriptor is open, before it
    // closes it. These calls are not counted.
    let is_check = registers.orig_rax == nix::libc::SYS_fcntl.unsigned_abs()
        && registers.rsi == nix::libc::F_GETFD.unsigned_abs().into();
    (!is_check).then_some(registers.orig_rax)
}

/// Counts no call: on other processors the register with the call's number has another name.
#[cfg(not(target_arch = "x86_64"))]
fn number(_: Pid) -> Option<u64> {
    None
}
