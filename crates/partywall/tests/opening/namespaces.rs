// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of peers in other pid and user namespaces, as in containers. The kernel reports the
//! namespace, and the policy of this side decides whether it trusts the peer.

use partywall::{
    Begin, Config, Distrust, FallbackReason, Listener, RecvError, Transport, Trust, TrustPolicy,
};
use partywall_testkit::{Directory, Second, argument, role, second_process, soon};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options of `unshare`, and the expected reason why this side distrusts a peer that was started
/// with these options.
const PLACES: [(&[&str], Distrust); 3] = [
    (&["--user", "--map-root-user"], Distrust::OtherUserNamespace),
    (&["--pid"], Distrust::OtherPidNamespace),
    (&["--user", "--map-root-user", "--pid"], Distrust::OtherUserNamespace),
];

#[test]
fn peer_in_other_namespaces_is_recognised_and_trusted_if_policy_says_so() {
    for (place, distrust) in available_places() {
        for begin in [Begin::SharedMemory, Begin::Socket] {
            examine(place, begin, TrustPolicy::Auto, Some(distrust));
            examine(place, begin, TrustPolicy::OwnUser, None);
        }
    }
}

/// Prints the ratio of two echo times of 64 KiB: with a trusted peer in other namespaces, and in
/// those of this process. Each round measures both, one after the other.
#[test]
#[ignore = "measures; run it alone, with --ignored --nocapture"]
fn echo_with_a_trusted_peer_in_other_namespaces() {
    let places = available_places();
    let mut ratios = vec![Vec::new(); places.len()];
    for _ in 0..ROUNDS {
        let here = echo_time(&[]);
        for (ratios, (place, _)) in ratios.iter_mut().zip(&places) {
            ratios.push(echo_time(place).as_secs_f64() / here.as_secs_f64());
        }
    }
    for (mut ratios, (place, _)) in ratios.into_iter().zip(places) {
        ratios.sort_by(f64::total_cmp);
        let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
        println!("64 KiB, unshare {place:?}: {median:.2} [{least:.2}–{most:.2}]");
    }
}

/// The median time of an echo of 64 KiB with a trusted peer, which is started with the `unshare`
/// options `place`; without options it is in the namespaces of this process.
fn echo_time(place: &[&str]) -> Duration {
    let directory = Directory::new();
    let address = directory.address("here");
    let config = Config::default().trust(TrustPolicy::OwnUser);
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let mut second = start(place, &address, Begin::SharedMemory, "own user");
    let mut channel = listener.accept_deadline(soon()).unwrap();
    assert_eq!(channel.peer().trust, Trust::Trusted);
    let message = vec![7; 64 << 10];
    let mut times: Vec<_> = (0..ECHOES)
        .map(|_| {
            let begun = Instant::now();
            channel.send(&message).unwrap();
            assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap().len(), message.len());
            begun.elapsed()
        })
        .collect();
    second.kill();
    times.sort();
    times[ECHOES / 2]
}

/// Number of rounds of a measurement. The next constant is the number of echoes in a round.
const ROUNDS: usize = 7;
const ECHOES: usize = 2000;

/// The elements of [`PLACES`] in which this process may start a second process; none if the kernel
/// does not report the process id of a peer in other namespaces.
fn available_places() -> Vec<(&'static [&'static str], Distrust)> {
    if !partywall_sys::limits::kernel_version().is_at_least(6, 5) {
        println!("SKIPPED: it takes Linux 6.5");
        return Vec::new();
    }
    let is_allowed = |(place, _): &(&'static [&'static str], Distrust)| {
        let probe = unshare(place).arg("true").stderr(Stdio::null()).status();
        let is_allowed = probe.is_ok_and(|status| status.success());
        if !is_allowed {
            println!("SKIPPED: unshare {place:?} is not allowed here");
        }
        is_allowed
    };
    PLACES.into_iter().filter(is_allowed).collect()
}

fn start(place: &[&str], address: &str, begin: Begin, policy_name: &str) -> Second {
    let begin_name = if begin == Begin::Socket { "socket" } else { "memory" };
    let arguments = [("address", address), ("begin", begin_name), ("policy", policy_name)];
    let inner = second_process("namespaces::inhabitant", "inhabitant", &arguments);
    let mut outer = if place.is_empty() { Command::new("env") } else { unshare(place) };
    outer.arg(inner.get_program()).args(inner.get_args()).stdout(Stdio::null());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Second::spawn(&mut outer)
}

fn unshare(place: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(place).args(["--fork", "--kill-child"]);
    command
}

/// Input: a second process, started with the `unshare` options `place`, connects to this process.
/// Expected: each side trusts the other as `policy` says, and the peer's death is noticed. Messages
/// arrive over shared memory, wherever a trusted connection begins.
fn examine(place: &[&str], begin: Begin, policy: TrustPolicy, distrust: Option<Distrust>) {
    let directory = Directory::new();
    let address = directory.address("here");
    let config = Config::default().trust(policy);
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let policy_name = if policy == TrustPolicy::Auto { "auto" } else { "own user" };
    let mut second = start(place, &address, begin, policy_name);
    let mut channel = listener.accept_deadline(soon()).unwrap();
    let may_move = begin == Begin::Socket && distrust.is_none();
    let first = if may_move {
        Transport::Socket(FallbackReason::NotMoved)
    } else {
        Transport::SharedMemory
    };
    assert_eq!(channel.transport(), first, "{place:?}, {policy:?}");
    let peer = channel.peer();
    assert_eq!(peer.distrust, distrust, "{place:?}, {policy:?}: {peer:?}");
    assert_eq!(peer.trust == Trust::Trusted, distrust.is_none());
    for size in [48, 64 << 10, 48, 48] {
        channel.send(&vec![7; size]).unwrap();
        assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), vec![7; size]);
    }
    assert_eq!(channel.transport(), Transport::SharedMemory, "{place:?}, {policy:?}");
    second.kill();
    let end = channel.recv_deadline(soon());
    assert!(matches!(end, Err(RecvError::Disconnected)), "{end:?}");
}

/// Code of the second process, which a test kills: connects and echoes messages. For it, too, the
/// peer is in another namespace.
#[test]
fn inhabitant() {
    let Some("inhabitant") = role().as_deref() else { return };
    let is_auto = argument("policy") == "auto";
    let policy = if is_auto { TrustPolicy::Auto } else { TrustPolicy::OwnUser };
    let begin = if argument("begin") == "socket" { Begin::Socket } else { Begin::SharedMemory };
    let config = Config::default().trust(policy).begin(begin);
    let mut channel = partywall::connect_with(argument("address"), &config).unwrap();
    assert_eq!(channel.peer().trust == Trust::Trusted, !is_auto, "{:?}", channel.peer());
    while let Ok(Some(message)) = channel.recv() {
        channel.send(&message).unwrap();
    }
}
