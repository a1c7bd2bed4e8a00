// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a forked child can neither use nor harm the channels that it inherited, and does not
//! hide the death of its parent from the peer.

use partywall::{
    AcceptError, Channel, Fault, Listener, RecvError, SendError, TryRecvError, TrySendError,
};
use partywall_sys::PidFd;
use partywall_sys::signal::{self, Signal};
use partywall_testkit::fork::{_exit, fork, in_a_fork};
use partywall_testkit::{Kind, Second, pattern, soon, variable};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

#[test]
fn a_child_gets_a_clear_error_and_harms_nobody() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config);
        client.send(&pattern(50_000, 1)).unwrap();
        let held = server.recv().unwrap().unwrap();
        client.send(b"unread").unwrap();
        let mut ends = Some((client, server, held));
        assert!(
            in_a_fork(|| {
                let (mut client, mut server, held) = ends.take().unwrap();
                let refused = matches!(client.send(b"x"), Err(SendError::Fault(Fault::Forked)))
                    && matches!(client.send(&[0; 9000]), Err(SendError::Fault(Fault::Forked)))
                    && matches!(server.recv(), Err(RecvError::Fault(Fault::Forked)))
                    && client.sender().arm().is_err()
                    && server.receiver().arm().is_err();
                let stats = (client.sender().stats(), server.receiver().stats());
                // In the child, a received message that lies in the peer's memory can still be
                // read, and every inherited value can be dropped.
                let readable = *held == pattern(50_000, 1)[..];
                drop((client, server, held, stats));
                refused && readable
            }),
            "{}",
            kind.name()
        );
        let (mut client, mut server, held) = ends.take().unwrap();
        assert_eq!(held, pattern(50_000, 1));
        drop(held);
        assert_eq!(server.recv().unwrap().unwrap(), b"unread");
        for seed in 0..20 {
            server.send(&pattern(70_000, seed)).unwrap();
            assert_eq!(client.recv().unwrap().unwrap(), pattern(70_000, seed));
        }
    }
}

#[test]
fn a_child_leaves_an_owned_reservation_to_its_parent() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config);
        let mut reserved = client.sender().reserve_owned(70_000, None).unwrap();
        reserved.copy_from_slice(&pattern(70_000, 4));
        let mut reserved = Some(reserved);
        assert!(
            in_a_fork(|| {
                let inherited = reserved.take().unwrap();
                let read = std::panic::catch_unwind(AssertUnwindSafe(|| inherited[0]));
                drop(inherited);
                read.is_err()
            }),
            "{}",
            kind.name()
        );
        client.sender().commit_owned(reserved.take().unwrap(), None).unwrap();
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), pattern(70_000, 4));
    }
}

/// Rule: a forked child can read plain structs of all lengths that its parent received. Short ones
/// are stored in the value, long ones on the heap or in the peer's memory.
#[cfg(feature = "zerocopy")]
#[test]
fn a_child_reads_plain_structs_that_its_parent_received() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config);
        let lens = [1_usize, 10, 100, 9000];
        for len in lens {
            client.send_plain(&vec![len as u64; len][..]).unwrap();
        }
        let mut held: Vec<_> = lens.map(|_| server.recv_plain::<[u64]>().unwrap().unwrap()).into();
        let is_right = |held: &[partywall::Plain<[u64]>]| {
            lens.iter().zip(held).all(|(len, plain)| **plain == vec![*len as u64; *len][..])
        };
        assert!(
            in_a_fork(|| {
                let before = is_right(&held);
                // The child moves the structs and drops the channel; the structs stay readable.
                let moved: Vec<_> = held.drain(..).rev().collect();
                drop(client);
                drop(server);
                let inherited: Vec<_> = moved.into_iter().rev().collect();
                before && is_right(&inherited)
            }),
            "{}",
            kind.name()
        );
    }
}

/// Makes each call of an inherited channel in a forked child. Returns the indices of the calls that
/// did not fail with `Forked`.
fn misuses(channel: &mut Channel) -> Vec<usize> {
    let at_once = Instant::now();
    let is_sent = |result| matches!(result, Err(SendError::Fault(Fault::Forked)));
    let is_received = |result: Result<_, _>| matches!(result, Err(RecvError::Fault(Fault::Forked)));
    let is_batched = is_sent(channel.sender().batch().send(b"x"));
    let uses = [
        is_sent(channel.send(b"x")),
        is_sent(channel.send_deadline(&[1; 5000], at_once)),
        matches!(channel.try_send(b"x"), Err(TrySendError::Fault(Fault::Forked))),
        is_sent(channel.sender().send_with(4, |_| ())),
        is_sent(channel.reserve(10).map(drop)),
        is_sent(channel.reserve(10_000).map(drop)),
        is_batched,
        matches!(channel.sender().arm(), Err(Fault::Forked)),
        matches!(channel.sender().trim(), Err(TrySendError::Fault(Fault::Forked))),
        is_received(channel.recv().map(drop)),
        is_received(channel.recv_deadline(at_once).map(drop)),
        is_received(channel.recv_ref().map(drop)),
        matches!(channel.try_recv(), Err(TryRecvError::Fault(Fault::Forked))),
        matches!(channel.receiver().arm(), Err(Fault::Forked)),
    ];
    (0..uses.len()).filter(|index| !uses[*index]).collect()
}

#[test]
fn no_verb_works_in_a_child() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config);
        client.send(b"unread").unwrap();
        for channel in [&mut client, &mut server] {
            assert!(in_a_fork(|| misuses(channel).is_empty()), "{}", kind.name());
        }
        let (sender, mut receiver) = client.split();
        let mut shared = Some(sender.shared());
        assert!(
            in_a_fork(|| {
                let shared = shared.take().unwrap();
                matches!(shared.send(b"x"), Err(SendError::Fault(Fault::Forked)))
                    && matches!(shared.try_send(b"x"), Err(TrySendError::Fault(Fault::Forked)))
            }),
            "{}",
            kind.name()
        );
        shared.as_ref().unwrap().send(b"still open").unwrap();
        server.send(b"and back").unwrap();
        assert_eq!(server.recv().unwrap().unwrap(), b"unread");
        assert_eq!(server.recv().unwrap().unwrap(), b"still open");
        assert_eq!(receiver.recv().unwrap().unwrap(), b"and back");
    }
}

#[test]
fn a_listener_in_a_child_says_so_and_leaves_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let mut listener = Some(Listener::bind(format!("unix:{}", path.display())).unwrap());
    assert!(in_a_fork(|| {
        let mut inherited = listener.take().unwrap();
        matches!(inherited.try_accept(), Err(AcceptError::Forked))
    }));
    assert!(path.exists());
}

#[test]
fn open_reservations_batches_and_looks_do_no_harm_either() {
    let (mut client, server) = Kind::SharedMemory.pair(|config| config);
    client.send(b"looked at").unwrap();
    let (mut sender, _receiver) = client.split();
    let (_sender, mut receiver) = server.split();
    {
        let look = receiver.recv_ref().unwrap().unwrap();
        let mut both = Some((sender.reserve(9000).unwrap(), look));
        assert!(in_a_fork(|| {
            let (mut reserved, look) = both.take().unwrap();
            drop(look);
            std::panic::set_hook(Box::new(|_| {}));
            let write = std::panic::AssertUnwindSafe(|| reserved.fill(1));
            let panicked = std::panic::catch_unwind(write).is_err();
            drop(reserved);
            panicked
        }));
        let (mut reserved, look) = both.take().unwrap();
        assert_eq!(*look, *b"looked at");
        drop(look);
        reserved.fill(2);
        reserved.commit().unwrap();
    }
    assert_eq!(receiver.recv().unwrap().unwrap(), [2; 9000]);
    {
        let mut open = Some(sender.batch());
        open.as_mut().unwrap().send(b"in a batch").unwrap();
        assert!(in_a_fork(|| {
            drop(open.take());
            true
        }));
        open.take().unwrap().commit().unwrap();
    }
    assert_eq!(receiver.recv().unwrap().unwrap(), b"in a batch");
}

const ADDRESS: &str = "PARTYWALL_FORK_ADDRESS";
const KIND: &str = "PARTYWALL_FORK_KIND";

/// Time for which a forked child lives that outlives its parent: longer than the peer needs to
/// detect the parent's death.
const SURVIVAL: Duration = partywall_testkit::TIMEOUT.saturating_mul(2);

/// Code of a second process, which a test kills: connects, forks a child that keeps every
/// descriptor open, and sends the child's process id.
#[test]
fn parent_of_a_survivor() {
    let Some(address) = variable(ADDRESS) else { return };
    let config = Kind::from_name(&variable(KIND).unwrap()).config();
    let mut channel = partywall::connect_with(&address, &config).unwrap();
    let child = fork();
    if child == 0 {
        std::thread::sleep(SURVIVAL);
        _exit(0);
    }
    channel.send(&child.to_le_bytes()).unwrap();
    std::thread::sleep(partywall_testkit::TIMEOUT);
}

/// A forked child that outlives its parent and keeps its descriptors open. Dropping this value
/// kills the child.
struct Survivor(PidFd, i32);

impl Survivor {
    fn new(child: i32) -> Self {
        Self(PidFd::of_pid(child).unwrap(), child)
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        if !self.0.is_dead() {
            let _ = signal::kill(self.1, Signal::KILL);
        }
    }
}

#[test]
fn a_surviving_child_does_not_hide_the_death_of_its_parent() {
    if variable(ADDRESS).is_some() {
        return;
    }
    let kinds = [Kind::SharedMemory, Kind::Untrusted, Kind::Unix];
    for (kind, is_sending) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut listener = Listener::bind_with(kind.address(), &kind.config()).unwrap();
        let address = listener.local_address().to_string();
        let variables = [(ADDRESS, &address[..]), (KIND, kind.name())];
        let second = Second::start("channels::parent_of_a_survivor", &variables);
        let mut channel = listener.accept_deadline(soon()).unwrap();
        let child = channel.recv_deadline(soon()).unwrap().unwrap();
        let survivor = Survivor::new(i32::from_le_bytes(child[..].try_into().unwrap()));
        drop(second);
        let in_time = Instant::now() + Duration::from_secs(1);
        if is_sending {
            let sent = || channel.send_deadline(&[7; 700], in_time).err();
            let end = std::iter::repeat_with(sent).flatten().next();
            assert!(matches!(end, Some(SendError::Closed(_))), "{}: {end:?}", kind.name());
        } else {
            let end = channel.recv_deadline(in_time);
            let is_end = matches!(end, Err(RecvError::Disconnected));
            assert!(is_end, "{}: {end:?}", kind.name());
        }
        assert!(!survivor.0.is_dead(), "{}: nothing was hidden", kind.name());
    }
}
