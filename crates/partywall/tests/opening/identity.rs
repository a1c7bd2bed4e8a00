// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the fields in which a region states its owner and its connection, and which tools such as
//! `partywall inspect` read (SPEC 3.4).
//!
//! Tests run in one process at the same time, so each finds its regions by their address.

use partywall::{Begin, Channel, Closed, Config, Listener, RecvError, SendError, TrustPolicy};
use partywall_layout::hello::{ROLE_ACCEPTOR, ROLE_CONNECTOR, SERVICE_CHANNEL, SERVICE_SESSION};
use partywall_layout::identity::{
    IDENTITY_BYTES, RegionIdentity, STATE_BROKEN, STATE_CLOSED, STATE_OPEN,
};
use partywall_layout::record_ring::Kind;
use partywall_sys::process::{Process, open_descriptors, own_program};
use partywall_testkit::hostile::channel::{BOTH, Foe, hello};
use partywall_testkit::{Directory, Second, argument, role, second_process, soon, until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;

/// Returns the first two pages of each region of this process that states `address` as the address
/// of its connection.
fn regions(address: &str) -> Vec<[u8; IDENTITY_BYTES]> {
    let mut copies = Vec::new();
    for (number, target) in open_descriptors(Process::Own).unwrap() {
        if !target.to_string_lossy().starts_with("/memfd:partywall-region") {
            continue;
        }
        // Another test of this process may have closed the descriptor, or reused its number for a
        // file that is no region.
        let Ok(file) = File::open(format!("/proc/self/fd/{number}")) else { continue };
        let mut pages = [0; IDENTITY_BYTES];
        let is_read = file.read_exact_at(&mut pages, 0).is_ok();
        if is_read && RegionIdentity::read(&pages).is_ok_and(|it| it.address() == address) {
            copies.push(pages);
        }
    }
    copies
}

/// Returns the state and the last error that a region states: the only one with `address` and the
/// role `owner`.
fn condition(address: &str, owner: u32) -> (u64, u64) {
    let copies = regions(address);
    let identities = copies.iter().map(|pages| RegionIdentity::read(pages).unwrap());
    let mut of_owner = identities.filter(|identity| identity.role() == owner);
    let found = of_owner.next().expect("a region of this role");
    assert!(of_owner.next().is_none(), "one connection has this address");
    (found.state(), found.last_error())
}

fn pair(place: &Directory, trust: TrustPolicy) -> (Channel, Channel, String) {
    let address = place.address("identity");
    let config = Config::default().begin(Begin::SharedMemory).trust(trust);
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let connecting = {
        let address = address.clone();
        thread::spawn(move || partywall::connect_with(&address, &config).unwrap())
    };
    let accepted = listener.accept_deadline(soon()).unwrap();
    (connecting.join().unwrap(), accepted, address)
}

#[test]
fn regions_of_a_trusted_pair_state_everything() {
    let place = Directory::new();
    let (connected, accepted, address) = pair(&place, TrustPolicy::Auto);
    let copies = regions(&address);
    let identities: Vec<_> =
        copies.iter().map(|pages| RegionIdentity::read(pages).unwrap()).collect();
    let mut roles: Vec<_> = identities.iter().map(RegionIdentity::role).collect();
    roles.sort_unstable();
    assert_eq!(roles, [ROLE_CONNECTOR, ROLE_ACCEPTOR]);
    for identity in identities {
        assert_eq!((identity.service(), identity.state()), (SERVICE_CHANNEL, STATE_OPEN));
        assert_eq!(identity.program(), own_program());
        assert_eq!((identity.owner_pid(), identity.last_error()), (std::process::id(), 0));
        let (created, changed) = (identity.created_ns(), identity.changed_ns());
        assert!(created > 0 && created <= changed, "{created} {changed}");
    }
    drop((connected, accepted));
    assert!(regions(&address).is_empty());
}

#[test]
fn regions_of_a_session_state_its_service() {
    let place = Directory::new();
    let address = place.address("session");
    let mut listener = partywall::blocking::Listener::bind(&address).unwrap();
    let connecting = {
        let address = address.clone();
        let config = Config::default().begin(Begin::SharedMemory);
        thread::spawn(move || partywall::blocking::connect_with(&address, &config).unwrap())
    };
    let accepted = listener.accept().unwrap();
    let connected = connecting.join().unwrap();
    for pages in regions(&address) {
        assert_eq!(RegionIdentity::read(&pages).unwrap().service(), SERVICE_SESSION);
    }
    assert_eq!(regions(&address).len(), 2);
    drop((accepted, connected));
}

#[test]
fn untrusted_peer_finds_no_program() {
    let place = Directory::new();
    let (connected, accepted, address) = pair(&place, TrustPolicy::Untrusted);
    let copies = regions(&address);
    assert_eq!(copies.len(), 2);
    for pages in &copies {
        let identity = RegionIdentity::read(pages).unwrap();
        assert_eq!((identity.program(), identity.state()), ("", STATE_OPEN));
        let program = own_program().as_bytes();
        assert!(!pages.windows(program.len()).any(|window| window == program));
    }
    drop((connected, accepted));
}

#[test]
fn closed_state_is_read_while_a_message_is_held() {
    let place = Directory::new();
    let (mut connected, mut accepted, address) = pair(&place, TrustPolicy::Auto);
    connected.send(&vec![7; 64 << 10]).unwrap();
    let message = accepted.recv_deadline(soon()).unwrap().unwrap();
    drop(accepted);
    // The held message keeps the memory of its connection mapped, and so the region of the
    // accepting side, which received it.
    assert_eq!(condition(&address, ROLE_ACCEPTOR), (STATE_CLOSED, 0));
    assert!(matches!(connected.recv_deadline(soon()), Ok(None)));
    assert_eq!(condition(&address, ROLE_CONNECTOR), (STATE_OPEN, 0));
    drop((connected, message));
    assert!(regions(&address).is_empty());
}

#[test]
fn violation_of_the_peer_is_the_last_error() {
    let place = Directory::new();
    let address = place.address("violated");
    let mut listener = Listener::bind(&address).unwrap();
    let (mut foe, mut victim) = Foe::meet(&mut listener, &place.path("violated"), &hello(BOTH));
    assert_eq!(condition(&address, ROLE_ACCEPTOR), (STATE_OPEN, 0));
    foe.publish(Kind::Credit, b"eight by");
    let error = victim.recv_deadline(soon()).unwrap_err();
    assert!(matches!(error, RecvError::Fault(_)), "{error}");
    assert_eq!(condition(&address, ROLE_ACCEPTOR), (STATE_BROKEN, 104));
}

/// Code of a second process, which a test kills: connects, and sends one message.
#[test]
fn killed_peer() {
    if role().is_none() {
        return;
    }
    let config = Config::default().begin(Begin::SharedMemory);
    let mut channel = partywall::connect_with(argument("address"), &config).unwrap();
    channel.send(b"here").unwrap();
    let _ = channel.recv();
}

#[test]
fn death_of_the_peer_is_the_last_error_of_either_direction() {
    for is_sender in [false, true] {
        let place = Directory::new();
        let address = place.address("death");
        let mut listener = Listener::bind(&address).unwrap();
        let arguments = [("address", &*address)];
        let mut second =
            Second::spawn(&mut second_process("identity::killed_peer", "peer", &arguments));
        let mut channel = listener.accept_deadline(soon()).unwrap();
        assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"here");
        second.kill();
        if is_sender {
            until("sending fails", || {
                matches!(channel.send(b"more"), Err(SendError::Closed(Closed::Disconnected)))
            });
        } else {
            let error = channel.recv_deadline(soon()).unwrap_err();
            assert!(matches!(error, RecvError::Disconnected), "{error}");
        }
        assert_eq!(condition(&address, ROLE_ACCEPTOR), (STATE_BROKEN, 10));
    }
}
