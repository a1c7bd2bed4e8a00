// SPDX-License-Identifier: MIT OR Apache-2.0
//! An attacker replaces the descriptors of the peer's memory and doorbell, sent by client or
//! server. The link then uses its socket, messages flow, and no descriptor is leaked.
//!
//! ```text
//!   client ── ATTACH [memory, doorbell] ──▶ an attacker replaces them ──▶ server
//! ```

use crate::support_ends;
use crate::{alone, descriptors};

use partywall_link::{Group, Link, Status, Transport};
use partywall_sys::eventfd::blocking_counter;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Listener, Socket, connect_unix_path};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use support_ends::{Ground, Via, message, number, soon};

/// A function that makes the descriptors that the attacker passes on in place of the two that an
/// end of the link sent: those of its memory and of its doorbell.
type Lie = fn([OwnedFd; 2], &Path) -> Vec<OwnedFd>;

const LIES: [(&str, Lie); 13] = [
    ("nothing", |_, _| Vec::new()),
    ("the memory alone", |[memory, _], _| vec![memory]),
    ("both the other way round", |[memory, doorbell], _| vec![doorbell, memory]),
    ("three", |[memory, doorbell], path| vec![memory, doorbell, file(path, 4096)]),
    ("the memory twice", |[memory, _], _| vec![memory.try_clone().unwrap(), memory]),
    ("a device for memory", |[_, doorbell], _| {
        vec![File::open("/dev/zero").unwrap().into(), doorbell]
    }),
    ("a directory for memory", |[_, doorbell], path| {
        vec![File::open(path).unwrap().into(), doorbell]
    }),
    ("an empty file for memory", |[_, doorbell], path| vec![file(path, 0), doorbell]),
    ("zeros for memory", |[memory, doorbell], path| {
        vec![file(path, File::from(memory).metadata().unwrap().len()), doorbell]
    }),
    ("a sparse terabyte for memory", |[_, doorbell], path| vec![file(path, 1 << 40), doorbell]),
    ("other memory of a link", |[memory, doorbell], path| vec![altered(memory, path), doorbell]),
    ("a file for a doorbell", |[memory, _], path| vec![memory, file(path, 4096)]),
    ("a doorbell that blocks", |[memory, _], _| vec![memory, blocking_counter().unwrap()]),
];

fn file(directory: &Path, bytes: u64) -> OwnedFd {
    let file = tempfile::tempfile_in(directory).unwrap();
    file.set_len(bytes).unwrap();
    file.into()
}

/// The attacker's descriptor of a copy of the memory, with one bit changed in the part that
/// identifies the memory's owner.
fn altered(memory: OwnedFd, directory: &Path) -> OwnedFd {
    use std::os::unix::fs::FileExt;
    let (memory, copy) = (File::from(memory), tempfile::tempfile_in(directory).unwrap());
    let mut bytes = vec![0; usize::try_from(memory.metadata().unwrap().len()).unwrap()];
    memory.read_exact_at(&mut bytes, 0).unwrap();
    bytes[80] ^= 1;
    copy.write_all_at(&bytes, 0).unwrap();
    copy.into()
}

/// An attacker that relays between a client and a server until one of them closes the connection.
struct Foe<'a> {
    lie: Lie,
    /// The end of the link whose descriptors the attacker replaces: 0 for the client, 1 for the
    /// server.
    liar: usize,
    directory: &'a Path,
}

impl Foe<'_> {
    fn stand(&self, listener: &Listener, server: &Path) {
        poll::wait(&mut [PollFd::new(listener, PollFlags::IN)], Some(soon())).unwrap();
        let client = listener.accept().unwrap().expect("a client");
        let server = connect_unix_path(server, Some(soon())).unwrap();
        let sockets = [client, server];
        loop {
            let mut ready = sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
            poll::wait(&mut ready, Some(soon())).unwrap();
            let ready = ready.map(|one| !one.revents().is_empty());
            for from in [0, 1] {
                if ready[from] && !self.pass(&sockets, from).unwrap_or(false) {
                    return;
                }
            }
        }
    }

    /// Relays once what one socket has received to the other socket; `false` if the sending end has
    /// closed the connection.
    fn pass(&self, sockets: &[Socket; 2], from: usize) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let received = sockets[from].receive(&mut bytes, true)?;
        let mut descriptors = received.fds;
        if from == self.liar && !descriptors.is_empty() {
            let both = <[OwnedFd; 2]>::try_from(descriptors).expect("a memory and a doorbell");
            descriptors = (self.lie)(both, self.directory);
        }
        let mut rest = &bytes[..received.bytes];
        let mut pending: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        while !rest.is_empty() {
            let sent = sockets[1 - from].send(&[IoSlice::new(rest)], &pending, false, false)?;
            rest = &rest[sent..];
            pending.clear();
        }
        Ok(received.bytes > 0)
    }
}

fn is_over_the_socket(link: &Link) -> bool {
    matches!(link.status(), Status::Attached { transport: Transport::Unix, .. })
}

#[test]
fn messages_flow_whatever_descriptors_come() {
    let _alone = alone();
    let mut before = 0;
    // The test runs the first kind of false descriptors twice, because its first run creates the
    // descriptors that the process keeps until it ends. So only later runs compare counts of
    // descriptors.
    for (round, (what, lie)) in LIES[..1].iter().chain(&LIES).enumerate() {
        for (liar, is_kept) in [(0, false), (0, true), (1, false), (1, true)] {
            let ground = Ground::new(Via::SharedMemory, is_kept);
            let group = Group::new().unwrap();
            let config = partywall_link::Config::default()
                .ring_bytes(16 << 10)
                .slab_bytes(0)
                .peer_max(64 << 10, 64 << 10)
                .group(&group);
            let server = ground.server(config.clone());
            let partywall::Address::Path(path) = server.local_address() else { panic!("a path") };
            let between = ground.path("between.sock");
            let listener = Listener::listen_unix_path(&between, 0o600, 8).unwrap();
            let directory = ground.path("client");
            thread::scope(|scope| {
                let foe = Foe { lie: *lie, liar, directory: &directory };
                scope.spawn(move || foe.stand(&listener, path));
                let client = ground.client(config.clone());
                let address = format!("unix:{}", between.display());
                let link = client.connect(address, "bob", "orders").unwrap();
                let served = server.open("alice", "orders").unwrap();
                for n in 0..100 {
                    link.send_deadline(&message(n, 100), soon()).unwrap();
                    let request = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&request), n, "{what}");
                    let copy = request.to_vec();
                    request.reply_deadline(&copy, soon()).unwrap();
                    let reply = link.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&reply), n, "{what}");
                    reply.ack().unwrap();
                }
                assert!(is_over_the_socket(&link), "{what}, {liar}: {}", link.status());
                assert!(is_over_the_socket(&served), "{what}, {liar}: {}", served.status());
                assert_eq!(link.stats().connections, 1, "{what}");
            });
        }
        match round {
            0 => before = descriptors(),
            _ => assert_eq!(descriptors(), before, "{what}"),
        }
    }
}

/// Rule: needless notifications of a doorbell cost its owner no more than a check of its links. The
/// test notifies the server's doorbell repeatedly. The server's thread, blocked in a receive call,
/// still wakes at its deadline, and receives the next message.
#[test]
fn needless_notifications_change_nothing() {
    let _alone = alone();
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = partywall_link::Config::default().group(&group);
    let server = ground.server(config.clone());
    let partywall::Address::Path(path) = server.local_address() else { panic!("a path") };
    let between = ground.path("between.sock");
    let listener = Listener::listen_unix_path(&between, 0o600, 8).unwrap();
    let (tell, stolen) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            poll::wait(&mut [PollFd::new(&listener, PollFlags::IN)], Some(soon())).unwrap();
            let client = listener.accept().unwrap().expect("a client");
            let server = connect_unix_path(path, Some(soon())).unwrap();
            let sockets = [client, server];
            let is_over = std::cell::Cell::new(false);
            while !is_over.get() {
                let mut ready = sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
                poll::wait(&mut ready, Some(soon())).unwrap();
                let ready = ready.map(|one| !one.revents().is_empty());
                for from in [0, 1] {
                    let mut bytes = [0; 4096];
                    if !ready[from] || is_over.get() {
                        continue;
                    }
                    let Ok(received) = sockets[from].receive(&mut bytes, true) else { continue };
                    if let (1, [_, doorbell]) = (from, &received.fds[..]) {
                        // The server's doorbell, which any process with the descriptor may notify
                        // at any time.
                        let doorbell =
                            partywall_sys::Doorbell::from_peer(doorbell.try_clone().unwrap());
                        tell.send(doorbell.unwrap()).unwrap();
                    }
                    let pending: Vec<_> = received.fds.iter().map(AsFd::as_fd).collect();
                    let rest = &bytes[..received.bytes];
                    let sent = (!rest.is_empty()).then(|| {
                        sockets[1 - from].send(&[IoSlice::new(rest)], &pending, false, false)
                    });
                    is_over.set(!matches!(sent, Some(Ok(_))));
                }
            }
        });
        let client = ground.client(config.clone());
        let link = client.connect(format!("unix:{}", between.display()), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        link.wait_attached(soon()).unwrap();
        served.wait_attached(soon()).unwrap();
        let is_shared =
            matches!(served.status(), Status::Attached { transport: Transport::SharedMemory, .. });
        assert!(is_shared, "{}", served.status());
        let doorbell = stolen.recv().unwrap();
        for n in 0..200 {
            doorbell.notify().unwrap();
            let until = Instant::now() + Duration::from_millis(2);
            served.recv_deadline(until).unwrap_err();
            doorbell.notify().unwrap();
            link.send(&message(n, 50)).unwrap();
            let found = served.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!(number(&found), n);
            found.ack().unwrap();
        }
        drop((link, served));
    });
}
