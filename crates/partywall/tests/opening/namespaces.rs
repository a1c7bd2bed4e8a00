// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of peers in other pid and user namespaces, as in containers. The kernel reports the
//! namespace, and the trust policy decides.

use partywall::{Config, Distrust, Listener, RecvError, Trust, TrustPolicy};
use partywall_testkit::{Directory, Second, argument, role, second_process, soon};
use std::process::{Command, Stdio};

/// Options of `unshare`, and the expected reason why this side distrusts a peer that was started
/// with these options.
const PLACES: [(&[&str], Distrust); 2] = [
    (&["--pid"], Distrust::OtherPidNamespace),
    (&["--user", "--map-root-user", "--pid"], Distrust::OtherUserNamespace),
];

#[test]
fn peer_in_other_namespaces_is_recognised_and_trusted_if_policy_says_so() {
    if !partywall_sys::limits::kernel_version().is_at_least(6, 5) {
        println!("SKIPPED: it takes Linux 6.5");
        return;
    }
    for (place, distrust) in PLACES {
        let mut probe = unshare(place);
        let probe = probe.arg("true").stderr(Stdio::null()).status();
        if !probe.is_ok_and(|status| status.success()) {
            println!("SKIPPED: unshare {place:?} is not allowed here");
            continue;
        }
        examine(place, TrustPolicy::Auto, Some(distrust));
        examine(place, TrustPolicy::OwnUser, None);
    }
}

fn unshare(place: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(place).args(["--fork", "--kill-child"]);
    command
}

/// A second process with the `unshare` options `place` connects. Expected: each side trusts the
/// other as the policy says, messages arrive, and the peer's death is noticed.
fn examine(place: &[&str], policy: TrustPolicy, distrust: Option<Distrust>) {
    let directory = Directory::new();
    let address = directory.address("here");
    let config = Config::default().trust(policy);
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let policy_name = if policy == TrustPolicy::Auto { "auto" } else { "own user" };
    let arguments = [("address", &address[..]), ("policy", policy_name)];
    let inner = second_process("namespaces::inhabitant", "inhabitant", &arguments);
    let mut outer = unshare(place);
    outer.arg(inner.get_program()).args(inner.get_args()).stdout(Stdio::null());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut second = Second::spawn(&mut outer);
    let mut channel = listener.accept_deadline(soon()).unwrap();
    let peer = channel.peer();
    assert_eq!(peer.distrust, distrust, "{place:?}, {policy:?}: {peer:?}");
    assert_eq!(peer.trust == Trust::Trusted, distrust.is_none());
    for size in [48, 64 << 10] {
        channel.send(&vec![7; size]).unwrap();
        assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), vec![7; size]);
    }
    second.kill();
    let end = channel.recv_deadline(soon());
    assert!(matches!(end, Err(RecvError::Disconnected)), "{end:?}");
}

/// Role of the second process: echoes messages until it is killed. This process, too, sees its peer
/// in another namespace.
#[test]
fn inhabitant() {
    let Some("inhabitant") = role().as_deref() else { return };
    let is_auto = argument("policy") == "auto";
    let policy = if is_auto { TrustPolicy::Auto } else { TrustPolicy::OwnUser };
    let config = Config::default().trust(policy);
    let mut channel = partywall::connect_with(argument("address"), &config).unwrap();
    assert_eq!(channel.peer().trust == Trust::Trusted, !is_auto, "{:?}", channel.peer());
    while let Ok(Some(message)) = channel.recv() {
        channel.send(&message).unwrap();
    }
}
