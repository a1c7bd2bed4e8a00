// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child of a live endpoint: every use is a clear error, its end disturbs nobody, and a child
//! that outlives its killed parent does not hide that death.
//!
//! Between fork and exit a child here only calls what takes no lock that another thread may hold; each
//! test program thread that forks holds `alone`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use partywall::{
    AcceptError, Channel, Closed, Config, Fault, Listener, RecvError, SendError, TransportPolicy,
    TryRecvError, TrySendError,
};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Place, Victim, Watchdog, pair, payload, within};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Runs `work` in a forked child; 0 if it returned `None`, else the number of what was wrong. A child
/// that crashes gives its signal and 1000.
fn in_child(work: impl FnOnce() -> Option<u8>) -> i32 {
    // SAFETY: the child runs `work` alone, which takes no lock that another thread holds, and exits.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let found = work().unwrap_or(0);
        // SAFETY: ends the child without running the exit handlers of its copy of the test program.
        unsafe { _exit(found.into()) };
    }
    let mut status = 0;
    // SAFETY: `status` lives during the call, and the child is ours and was not waited for.
    let ended = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!(ended, pid);
    if status & 0x7f != 0 { 1000 + (status & 0x7f) } else { status >> 8 & 0xff }
}

fn each_pair(test: impl Fn(&str, Channel, Channel)) {
    for policy in [TransportPolicy::Wall, TransportPolicy::Socket] {
        let place = Place::new();
        let config = Config::default().transport(policy).memory_max(2 << 20);
        let (client, server) = pair(&place.address("stage"), &config);
        test(&format!("{policy:?}"), client, server);
    }
}

/// The first use that does not fail as it must, by its number.
fn misuse(channel: &mut Channel) -> Option<u8> {
    let soon = within(Duration::from_millis(10));
    let is_sent = |result| matches!(result, Err(SendError::Fault(Fault::Forked)));
    let is_received = |result: Result<_, _>| matches!(result, Err(RecvError::Fault(Fault::Forked)));
    let is_batched = is_sent(channel.sender().batch().send(b"x"));
    let uses = [
        is_sent(channel.send(b"x")),
        is_sent(channel.send(&[1; 5000])),
        is_sent(channel.send_deadline(b"x", soon)),
        matches!(channel.try_send(b"x"), Err(TrySendError::Fault(Fault::Forked))),
        is_sent(channel.sender().send_with(4, |_| ())),
        is_sent(channel.reserve(10).map(drop)),
        is_sent(channel.reserve(10_000).map(drop)),
        is_batched,
        matches!(channel.sender().arm(), Err(Fault::Forked)),
        matches!(channel.sender().trim(), Err(TrySendError::Fault(Fault::Forked))),
        is_received(channel.recv().map(drop)),
        is_received(channel.recv_deadline(soon).map(drop)),
        is_received(channel.recv_ref().map(drop)),
        matches!(channel.try_recv(), Err(TryRecvError::Fault(Fault::Forked))),
        matches!(channel.receiver().arm(), Err(Fault::Forked)),
    ];
    uses.iter().position(|is_right| !is_right).map(|index| index as u8 + 1)
}

#[test]
fn every_use_in_a_child_is_an_error_and_the_parent_goes_on() {
    let _alone = support::alone();
    let _watchdog = Watchdog::new("use in a child", Duration::from_secs(60));
    each_pair(|name, mut client, mut server| {
        client.send(b"before").unwrap();
        client.send(&payload(1, 50_000)).unwrap();
        assert_eq!(in_child(|| misuse(&mut client)), 0, "{name}, connecting side");
        assert_eq!(in_child(|| misuse(&mut server)), 0, "{name}, accepting side");
        assert_eq!(server.recv().unwrap(), b"before");
        assert_eq!(server.recv().unwrap(), payload(1, 50_000));
        server.send(b"after").unwrap();
        assert_eq!(client.recv().unwrap(), b"after");
    });
}

#[test]
fn counters_can_be_asked_for_in_a_child() {
    let _alone = support::alone();
    each_pair(|name, mut client, _server| {
        client.send(b"before").unwrap();
        let answer = in_child(|| {
            let sent = client.sender().stats().messages;
            let received = client.receiver().stats().messages;
            u8::try_from(received + sent).ok().filter(|count| *count > 1)
        });
        assert_eq!(answer, 0, "{name}");
    });
}

#[test]
fn dropping_everything_in_a_child_disturbs_nobody() {
    let _alone = support::alone();
    let _watchdog = Watchdog::new("drop in a child", Duration::from_secs(60));
    each_pair(|name, client, mut server| {
        server.send(&payload(1, 50_000)).unwrap();
        server.send(b"short").unwrap();
        let (mut sender, mut receiver) = client.split();
        let view = receiver.recv().unwrap();
        let shown = receiver.recv_ref().unwrap();
        let mut reserved = sender.reserve(50_000).unwrap();
        reserved.copy_from_slice(&payload(2, 50_000));
        let mut all = Some((view, shown, reserved));
        let answer = in_child(|| {
            let (view, shown, reserved) = all.take()?;
            let is_whole = view.len() == 50_000 && &*shown == b"short";
            drop((view, shown, reserved));
            (!is_whole).then_some(1)
        });
        assert_eq!(answer, 0, "{name}");
        let (view, shown, reserved) = all.take().unwrap();
        reserved.commit().unwrap();
        drop(shown);
        assert_eq!(view, payload(1, 50_000));
        drop((view, all));
        assert_eq!(server.recv().unwrap(), payload(2, 50_000));

        let mut both = Some((sender, receiver));
        let answer = in_child(|| {
            drop(both.take());
            None
        });
        assert_eq!(answer, 0, "{name}");
        let (mut sender, mut receiver) = both.take().unwrap();
        sender.send(b"alive").unwrap();
        assert_eq!(server.recv().unwrap(), b"alive");
        server.send(b"and well").unwrap();
        assert_eq!(receiver.recv().unwrap(), b"and well");
        let shared = sender.shared();
        let mut shared = Some(shared);
        let answer = in_child(|| {
            let result = shared.as_ref().map(|sender| sender.send(b"x"));
            drop(shared.take());
            (!matches!(result, Some(Err(SendError::Fault(Fault::Forked))))).then_some(1)
        });
        assert_eq!(answer, 0, "{name}");
        drop((shared, receiver));
        assert!(matches!(server.recv(), Err(RecvError::Closed(Closed::Finished))), "{name}");
    });
}

#[test]
fn a_listener_in_a_child_says_so_and_keeps_its_file() {
    let _alone = support::alone();
    let place = Place::new();
    let mut listener = Some(Listener::bind(place.address("stage")).unwrap());
    let answer = in_child(|| {
        let mut inherited = listener.take()?;
        let result = inherited.try_accept();
        (!matches!(result, Err(AcceptError::Forked))).then_some(1)
    });
    assert_eq!(answer, 0);
    assert_eq!(place.files(), ["stage"]);
}

/// The second process: connects, forks a child that lives on with all it inherited, and waits.
#[test]
fn child() {
    let Some(transport) = support::role() else { return };
    let is_wall = transport == "Wall";
    let policy = if is_wall { TransportPolicy::Wall } else { TransportPolicy::Socket };
    let config = Config::default().transport(policy);
    let mut channel = partywall::connect_with(support::argument("address"), &config).unwrap();
    // SAFETY: the child only waits for the end of its standard input, which is a plain system call.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid > 0 {
        channel.send(b"forked").unwrap();
    }
    // Parent and child: until the test closes the other end, or kills the parent.
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    // SAFETY: ends this process without running exit handlers that both would run.
    unsafe { _exit(0) };
}

#[test]
fn a_child_that_lives_on_does_not_hide_the_death_of_its_parent() {
    let _alone = support::alone();
    let _watchdog = Watchdog::new("a surviving child", Duration::from_secs(60));
    for transport in ["Wall", "Socket"] {
        for sends in [false, true] {
            let place = Place::new();
            let mut listener = Listener::bind(place.address("stage")).unwrap();
            let arguments = [("address", &*place.address("stage"))];
            let mut command = support::second_process(transport, &arguments);
            let mut parent = Victim::spawn(command.stdin(Stdio::piped()));
            let stdin = parent.0.stdin.take();
            let mut channel = listener.accept_deadline(within(Duration::from_secs(20))).unwrap();
            assert_eq!(channel.recv().unwrap(), b"forked");
            let killed = Instant::now();
            parent.kill();
            if sends {
                let error =
                    std::iter::repeat_with(|| channel.send(&[7; 700])).find_map(Result::err);
                assert!(matches!(error, Some(SendError::Closed(_))), "{transport}: {error:?}");
            } else {
                let result = channel.recv_deadline(within(Duration::from_secs(20)));
                assert!(
                    matches!(result, Err(RecvError::Closed(Closed::Disconnected))),
                    "{transport}: {result:?}"
                );
            }
            assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
            // The child ends with this.
            drop(stdin);
        }
    }
}
