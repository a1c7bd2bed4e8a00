// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of many links that one thread serves, of idle links, which use no processor time, and of
//! connections that never send ATTACH. Such connections disturb no link.

use crate::support_ends;

use partywall::Wait;
use partywall_link::protocol::codec;
use partywall_link::protocol::frame::{Frame, Refusal};
use partywall_link::{Client, Config, Group, Link, MemberId, Server, Storage};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use support_ends::{Ground, Via, message, number, soon};

const LINKS: usize = 100;

fn config() -> Config {
    Config::default().ring_bytes(16 << 10).slab_bytes(0)
}

fn path(server: &Server) -> String {
    server.local_address().to_string().trim_start_matches("unix:").to_owned()
}

#[test]
fn one_thread_polls_a_hundred_links() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let server = ground.server(config().links_max(LINKS).group(&group));
    let client = ground.client(config());
    let links: Vec<Link> = (0..LINKS)
        .map(|n| client.connect(server.local_address(), "bob", &n.to_string()).unwrap())
        .collect();
    thread::scope(|scope| {
        for link in &links {
            scope.spawn(move || {
                for n in 0..20 {
                    link.send_deadline(&message(n, 8), soon()).unwrap();
                    let back = link.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&back), n);
                    back.ack().unwrap();
                }
                link.wait_acked(soon()).unwrap();
            });
        }
        let (mut served, mut left) = (HashMap::<MemberId, Link>::new(), LINKS * 20);
        while left > 0 {
            while let Ok(link) = server.try_accept() {
                served.insert(link.id(), link);
            }
            assert!(group.poll(Some(soon())).unwrap() > 0, "{left} left");
            for id in group.ready() {
                let Some(link) = served.get(&id) else { continue };
                while let Ok(Some(message)) = link.try_recv() {
                    let copy = message.to_vec();
                    message.reply(&copy).unwrap();
                    left -= 1;
                }
            }
        }
        let deadline = soon();
        while served.values().any(|link| link.unacked_bytes().unwrap() > 0) {
            group.poll(Some(Instant::now() + Duration::from_millis(5))).unwrap();
            let _ = group.ready();
            assert!(Instant::now() < deadline);
        }
        assert_eq!(served.len(), LINKS);
        // The server has as many links as it admits: it refuses to open one more link.
        let error = server.open("alice", "one more").unwrap_err();
        assert!(matches!(error, partywall_link::OpenError::TooMany(LINKS)), "{error}");
    });
}

#[test]
fn idle_links_wake_no_thread() {
    for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
        let ground = Ground::new(via, false);
        let group = Group::with_wait(Wait::Park).unwrap();
        let config = config().wait(Wait::Park).group(&group);
        let server = ground.server(config.clone());
        let client = ground.client(config);
        let links: Vec<Link> = (0..LINKS)
            .map(|n| client.connect(server.local_address(), "bob", &n.to_string()).unwrap())
            .collect();
        links.iter().for_each(|link| link.wait_attached(soon()).unwrap());
        let served: Vec<Link> =
            (0..LINKS).map(|_| server.accept_deadline(soon()).unwrap()).collect();
        assert_eq!(group.next_timer(), None);
        // The test takes the events of attaching first, until the group reports no further event.
        // Otherwise these events would add turns to the count.
        while group.poll(Some(Instant::now() + Duration::from_millis(100))).unwrap() > 0 {
            let _ = group.ready();
        }
        let before = group.turns();
        assert_eq!(group.poll(Some(Instant::now() + Duration::from_secs(1))).unwrap(), 0);
        served[0].recv_deadline(Instant::now() + Duration::from_millis(10)).unwrap_err();
        // Each of the two threads that wait on the group polls once before it sleeps, and wakes at
        // its deadline. If each idle link woke them once, there would be a hundred turns.
        assert!(group.turns() - before < 20, "{}", group.turns() - before);
        assert!(links.iter().all(|link| link.stats().connections == 1));
    }
}

#[test]
fn external_event_loop_is_woken_by_the_descriptor() {
    use partywall_sys::poll::{self, PollFd, PollFlags};
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let address = server.local_address().clone();
    let client = thread::spawn(move || {
        let client = Client::new(Storage::Memory, "alice", config()).unwrap();
        let link = client.connect(&address, "bob", "orders").unwrap();
        link.send(b"hello").unwrap();
        link.wait_acked(soon()).unwrap();
    });
    let (deadline, mut served) = (soon(), None);
    loop {
        let mut descriptors = [PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)];
        let until = group.next_timer().map_or(deadline, |timer| timer.min(deadline));
        poll::wait(&mut descriptors, Some(until)).unwrap();
        group.try_poll().unwrap();
        served = served.or_else(|| server.try_accept().ok());
        if let Some(message) = served.as_ref().and_then(|link| link.try_recv().ok().flatten()) {
            assert_eq!(message, b"hello");
            message.ack().unwrap();
            // The acknowledgement of the message is not sent yet. The group sends it at its next
            // poll, so the group's descriptor is readable.
            let mut descriptors = [PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)];
            assert_eq!(poll::wait(&mut descriptors, Some(deadline)).unwrap(), 1);
            group.try_poll().unwrap();
            break;
        }
        assert!(Instant::now() < deadline);
    }
    client.join().unwrap();
}

#[test]
fn connections_without_attach_disturb_no_link() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let few = config().handshakes_max(4).group(&group);
    let server = ground.server(few.clone());
    let link = ground.client(few.clone()).connect(server.local_address(), "bob", "orders").unwrap();
    link.wait_attached(soon()).unwrap();
    let served = server.accept_deadline(soon()).unwrap();
    let mut strangers: Vec<UnixStream> = Vec::new();
    // The server admits at most 4 connections (`handshakes_max`) that have not sent ATTACH. The
    // test opens 20 connections that send nothing.
    for _ in 0..20 {
        strangers.push(UnixStream::connect(path(&server)).unwrap());
    }
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        &[0xff; 4096],
        &[0; 64],
        // An invalid input: a frame header whose length exceeds the maximum.
        &[0x50, 0x57, 0x4c, 0x46, 1, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0],
    ];
    for bytes in garbage {
        let mut stranger = UnixStream::connect(path(&server)).unwrap();
        stranger.write_all(bytes).unwrap();
        strangers.push(stranger);
    }
    for n in 0..1000 {
        link.send(&message(n, 100)).unwrap();
        let message = served.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!(number(&message), n);
        message.ack().unwrap();
    }
    // The server admits a new client in place of one of the silent connections.
    let other = ground.client(few).connect(server.local_address(), "bob", "other").unwrap();
    other.wait_attached(soon()).unwrap();
    assert!(server.refused() > 4, "{}", server.refused());
    assert_eq!(link.stats().connections, 1);
    let mut rest = [0; 1];
    let garbage = strangers.last_mut().unwrap();
    garbage.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let deadline = soon();
    garbage.set_nonblocking(true).unwrap();
    while !matches!(garbage.read(&mut rest), Ok(0)) {
        group.poll(Some(Instant::now() + Duration::from_millis(5))).unwrap();
        assert!(Instant::now() < deadline);
    }
}

/// Rule: a server refuses a client of a later version with a frame that names the versions of the
/// server. The client can read the frame, because its form is fixed (SPEC 15.1).
#[test]
fn client_of_later_versions_is_refused_with_ours() {
    for via in [Via::Unix, Via::Tcp] {
        for name in ["link-frame-attach-newer.bin", "link-frame-attach-newer-short.bin"] {
            let ground = Ground::new(via, false);
            let group = Group::new().unwrap();
            let server = ground.server(config().group(&group));
            let path = format!("{}/../../spec/link-frames/{name}", env!("CARGO_MANIFEST_DIR"));
            let attach = std::fs::read(path).unwrap();
            let asking = ask(&server, &attach);
            let deadline = soon();
            while server.refused() == 0 {
                group.poll(Some(Instant::now() + Duration::from_millis(5))).unwrap();
                assert!(Instant::now() < deadline);
            }
            let answer = codec::read(&asking.join().unwrap()).unwrap();
            let Frame::Refuse { echo, refusal } = answer else { panic!("{answer:?}") };
            // The bytes of the nonce in ATTACH: a frame header of 16 bytes comes first. The body
            // begins with 16 bytes that hold the magic and the versions, and the nonce follows.
            assert_eq!(echo.0.to_le_bytes(), attach[16 + 16..16 + 24], "{name}");
            assert_eq!(refusal, Refusal::Version(1, 1), "{name}");
            let why = server.last_refusal().unwrap();
            assert!(why.contains("versions 2 to"), "{why}");
        }
    }
}

/// Sends `bytes` to a server from a new thread, which returns everything that the server answers.
fn ask(server: &Server, bytes: &[u8]) -> thread::JoinHandle<Vec<u8>> {
    trait Stream: Read + Write + Send {}
    impl<T: Read + Write + Send> Stream for T {}
    let address = server.local_address().to_string();
    let mut stream: Box<dyn Stream> = match address.strip_prefix("tcp:") {
        Some(address) => Box::new(std::net::TcpStream::connect(address).unwrap()),
        None => Box::new(UnixStream::connect(path(server)).unwrap()),
    };
    stream.write_all(bytes).unwrap();
    thread::spawn(move || {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    })
}
