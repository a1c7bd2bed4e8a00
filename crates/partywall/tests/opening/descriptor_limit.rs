// SPDX-License-Identifier: MIT OR Apache-2.0
//! Openings near the descriptor limit: with any number of free descriptors both sides agree on a
//! transport, or the opening fails. No descriptor stays open, and the listener serves the next
//! peer.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use partywall::{AcceptError, Config, FallbackReason, Listener, Transport};
use partywall_sys::process::{Process, open_descriptors};
use partywall_testkit::{Directory, Second, millis, role, second_process, until, within};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Numbers of free descriptors that are tried. Both sides are in one process; an opening with more
/// than these uses shared memory.
const FREE: std::ops::Range<usize> = 0..40;

#[test]
fn openings_near_the_descriptor_limit_agree_or_fail() {
    let mut second =
        Second::spawn(&mut second_process("descriptor_limit::limited", "limited", &[]));
    assert!(second.wait().success());
}

/// Role of the second process, whose limit of descriptors changes: both sides of each opening.
#[test]
fn limited() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let config = Config::default().handshake_timeout(millis(300));
    let mut listener = Listener::bind_with(place.address("limited"), &config).unwrap();
    // The first opening opens the descriptors that a process keeps. A listener that has nothing to
    // do makes a region in advance.
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
    assert!(listener.try_accept().is_err());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let before = open_descriptors(Process::Own).unwrap();
    let numbers: BTreeSet<i32> = before.iter().map(|(number, _)| *number).collect();
    let mut outcomes = BTreeSet::new();
    for free in FREE {
        // A process gets the lowest free number below the limit.
        let first_denied = (0..).filter(|number| !numbers.contains(number)).nth(free).unwrap();
        let limit = u64::try_from(first_denied).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let transport = open(&mut listener, &place, &config);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        // A connection that nobody accepted at the limit is refused now.
        until(&format!("{free} free, {transport:?}: all descriptors are closed"), || {
            while listener.try_accept().is_ok() {}
            open_descriptors(Process::Own).unwrap().len() == before.len()
        });
        outcomes.insert(transport.map(|transport| transport.to_string()));
    }
    assert!(outcomes.contains(&None), "{outcomes:?}");
    let lack = Transport::Socket(FallbackReason::Descriptors).to_string();
    assert!(outcomes.contains(&Some(lack)), "{outcomes:?}");
    assert!(outcomes.contains(&Some(Transport::SharedMemory.to_string())), "{outcomes:?}");
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
}

/// Opens a connection and sends a message over it. `None` if a side fails.
fn open(listener: &mut Listener, place: &Directory, config: &Config) -> Option<Transport> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let connected = partywall::connect_with(place.address("limited"), config);
            is_over.store(true, Ordering::Release);
            connected
        });
        let mut accepted = None;
        while accepted.is_none() {
            match listener.accept_deadline(within(millis(20))) {
                Ok(channel) => accepted = Some(channel),
                Err(AcceptError::TimedOut) if !is_over.load(Ordering::Acquire) => {}
                // At the limit the listener reports the reason, and stays usable.
                Err(AcceptError::System(_)) if !is_over.load(Ordering::Acquire) => {}
                Err(_) => break,
            }
        }
        let connected = connecting.join().unwrap().ok();
        // A side that lacks a descriptor after READY hangs up, although its peer is ready.
        let (mut connected, mut accepted) = connected.zip(accepted)?;
        assert_eq!(connected.transport(), accepted.transport());
        connected.send(b"through").unwrap();
        assert_eq!(accepted.recv().unwrap().unwrap(), b"through");
        Some(connected.transport())
    })
}
