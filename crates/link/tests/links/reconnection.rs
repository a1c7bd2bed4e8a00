// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of links whose connections break or whose ends are opened again: no message is lost, and
//! no acknowledged message is received twice.

use crate::support_ends;

use partywall_link::{
    Client, Config, Event, Group, Link, OpenError, RecvError, SendError, Status, Stopped, Storage,
    StorageError, TryRecvError, WaitError,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::forwarder::Forwarder;
use support_ends::{Ground, Pair, Via, message, number, soon, until};

const CUTS: u64 = 200;
/// Number of messages that must be echoed before each cut of the connection, so that every
/// connection carries messages.
const EACH: u64 = 30;
const MESSAGES: u64 = CUTS * EACH + 100;

fn config() -> Config {
    Config::default().ring_bytes(64 << 10).slab_bytes(256 << 10)
}

fn socket_address(address: &partywall::Address) -> SocketAddr {
    address.to_string().trim_start_matches("tcp:").parse().unwrap()
}

/// The length of message `n`; some messages are so long that they go into the slab.
fn len(n: u64) -> usize {
    if n % 50 == 7 { 30_000 } else { 8 + (n % 200) as usize }
}

/// Rule: when the peer closes its end of the link, `recv` returns `None` once, after all messages.
/// Then the link waits for the next stream of messages, which the peer begins when it opens the
/// link again.
#[test]
fn recv_after_the_peer_closed_its_end_is_none_once() {
    for ground in Ground::all() {
        let Pair { server, served, link } = ground.pair(&config());
        let address = server.local_address().clone();
        let client = thread::spawn(move || {
            for n in 0..3 {
                link.send(&message(n, len(n))).unwrap();
            }
            link.close(soon()).unwrap();
        });
        for n in 0..3 {
            let received = served.recv_deadline(soon()).unwrap().expect("more was sent");
            assert_eq!(number(&received), n);
            received.ack().unwrap();
        }
        assert!(served.recv_deadline(soon()).unwrap().is_none(), "the peer has finished");
        client.join().unwrap();
        assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)), "it is received once");
        let until = Instant::now() + Duration::from_millis(20);
        let waited = served.recv_with_deadline(|_| panic!("nothing was sent"), until);
        assert!(matches!(waited, Err(RecvError::TimedOut)), "{waited:?}");
        if !ground.is_kept() {
            // The client's end was kept in memory, which no longer exists. A new client would begin
            // another stream of messages, so the rest of the test applies only to links kept in
            // files.
            continue;
        }
        let again = ground.client(config());
        let link = again.connect(address, "bob", "orders").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| link.wait_attached(soon()).unwrap());
            served.wait_attached(soon()).unwrap();
        });
        link.send(b"again").unwrap();
        let received = served.recv_deadline(soon()).unwrap().expect("the peer is back");
        assert_eq!(received, b"again");
        drop(link);
        assert!(served.recv_deadline(soon()).unwrap().is_none(), "it has finished once more");
    }
}

/// Rule: if the client drops its end of a link, or cannot close it before the deadline, it keeps
/// the messages that the system did not accept. The server then does not see the end of the stream,
/// which would arrive behind the last message.
#[test]
fn peer_that_left_with_unsent_messages_has_not_finished() {
    /// Number of sent messages: far more than the system buffers for a peer that does not read.
    const COUNT: u64 = 40_000;
    const RING: u64 = 64 << 20;
    let config = || Config::default().ring_bytes(RING).slab_bytes(0).peer_max(RING, 0);
    for (via, is_closed) in [(Via::Unix, false), (Via::Unix, true), (Via::Tcp, false)] {
        let ground = Ground::new(via, true);
        let small = Config::default().ring_bytes(64 << 10).slab_bytes(0).peer_max(RING, 0);
        let server = ground.server(small);
        let link = ground.client(config()).connect(server.local_address(), "bob", "orders");
        let (link, served) = (link.unwrap(), server.open("alice", "orders").unwrap());
        thread::scope(|scope| {
            scope.spawn(|| link.wait_attached(soon()).unwrap());
            served.wait_attached(soon()).unwrap();
        });
        (0..COUNT).for_each(|n| link.try_send(&message(n, 1000)).unwrap());
        let mut next = 0;
        let mut receive = |deadline| -> Result<bool, RecvError> {
            let Some(received) = served.recv_deadline(deadline)? else { return Ok(false) };
            assert_eq!(number(&received), next);
            received.ack().unwrap();
            next += 1;
            Ok(true)
        };
        let mut drain = || loop {
            match receive(Instant::now() + Duration::from_millis(300)) {
                Ok(true) => {}
                drained => break drained,
            }
        };
        // The server has now received everything that the system had buffered, so the system has
        // room again, and no thread uses the client. If closing or dropping the client's end
        // wrongly sends LEAVE, the server receives it.
        assert!(matches!(drain(), Err(RecvError::TimedOut)), "{via:?}: the client is there");
        if is_closed {
            let late = link.close(Instant::now());
            assert!(matches!(late, Err(WaitError::TimedOut { .. })), "{late:?}");
        } else {
            drop(link);
        }
        let waited = drain();
        assert!(matches!(waited, Err(RecvError::TimedOut)), "{via:?}: {waited:?}");
        let link = ground.client(config()).connect(server.local_address(), "bob", "orders");
        let link = link.unwrap();
        thread::scope(|scope| {
            scope.spawn(|| link.close(soon()).unwrap());
            while receive(soon()).unwrap() {}
        });
        assert_eq!(next, COUNT, "{via:?}: the end came early");
        assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)), "it is received once");
    }
}

/// Rule: `try_recv` returns the end of the peer's stream, which has already arrived, before it
/// polls the group for new events. The end is returned only once, so an error of the poll must not
/// replace it.
#[test]
fn try_recv_returns_the_end_without_a_turn_of_the_group() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let link = ground.client(config()).connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            link.wait_attached(soon()).unwrap();
            link.close(soon()).unwrap();
        });
        let has_left = |event: &Event| event.is_farewell();
        until("the client leaves", || {
            group.try_poll().unwrap();
            served.events().iter().any(has_left)
        });
    });
    let turns = group.turns();
    assert!(served.try_recv().unwrap().is_none(), "the client has finished");
    assert_eq!(group.turns(), turns);
    assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)), "it is received once");
    assert!(group.turns() > turns, "an end without a connection drives its group");
}

#[test]
fn messages_over_200_cuts_are_neither_lost_nor_repeated() {
    for is_kept in [false, true] {
        let ground = Ground::new(Via::Tcp, is_kept);
        let server = ground.server(config());
        let forwarder = Forwarder::to(socket_address(server.local_address()));
        let client = ground.client(config());
        let link = client.connect(format!("tcp:{}", forwarder.address), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        let (echoed, is_flushed) = (AtomicU64::new(0), AtomicBool::new(false));
        let is_cut = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for expected in 0..MESSAGES {
                    let request = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!((number(&request), request.len()), (expected, len(expected)));
                    let copy = request.to_vec();
                    request.reply_deadline(&copy, soon()).unwrap();
                }
                served.wait_acked(soon()).unwrap();
                is_flushed.store(true, Ordering::Relaxed);
                until("the last cut", || {
                    served.try_recv().unwrap_err();
                    is_cut.load(Ordering::Relaxed)
                });
            });
            scope.spawn(|| {
                for n in 0..MESSAGES {
                    link.send_deadline(&message(n, len(n)), soon()).unwrap();
                }
                link.wait_acked(soon()).unwrap();
            });
            scope.spawn(|| {
                for cut in 0..CUTS {
                    // This thread cuts the connection. Before each cut it waits until messages were
                    // echoed over the present connection.
                    until("traffic", || echoed.load(Ordering::Relaxed) >= cut * EACH);
                    until("a connection", || link.stats().connections > cut);
                    forwarder.cut();
                }
                is_cut.store(true, Ordering::Relaxed);
            });
            for expected in 0..MESSAGES {
                let back = link.recv_deadline(soon()).unwrap().unwrap();
                assert_eq!((number(&back), back.len()), (expected, len(expected)));
                back.ack().unwrap();
                echoed.fetch_add(1, Ordering::Relaxed);
            }
            // This loop polls the client's end until the other threads are done, because each end
            // must be polled while its peer waits for a connection.
            until("flushed", || {
                link.try_recv().unwrap_err();
                is_flushed.load(Ordering::Relaxed) && is_cut.load(Ordering::Relaxed)
            });
        });
        assert!(link.stats().connections >= CUTS, "{:?}", link.stats());
        assert!(link.reports().unwrap().is_empty() && served.reports().unwrap().is_empty());
    }
}

/// Rule: a thread that waits for events learns of each connection, of its end, and of attempts that
/// failed, although it waits for nothing else.
#[test]
fn waiting_thread_gets_each_event_of_its_connections() {
    for ground in Ground::all() {
        let server = ground.server(config());
        let address = server.local_address().clone();
        let link = ground.client(config()).connect(&address, "bob", "orders").unwrap();
        let nobody = ground.client(config()).connect(&address, "nobody", "orders").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let served = server.accept_deadline(soon()).unwrap();
                until("the server may end", || {
                    let _ = served.recv_deadline(Instant::now() + Duration::from_millis(5));
                    is_over.load(Ordering::Acquire)
                });
                served.close(soon()).unwrap();
            });
            let refused = nobody.next_event(soon()).unwrap();
            assert!(matches!(refused, Event::Refused { .. }), "{refused}");
            assert_eq!(link.next_event(soon()).unwrap(), Event::Attached { resumed: false });
            let nothing = link.next_event(Instant::now());
            assert!(matches!(nothing, Err(WaitError::TimedOut { .. })), "{nothing:?}");
            is_over.store(true, Ordering::Release);
            let farewell = link.next_event(soon()).unwrap();
            assert!(farewell.is_farewell(), "{farewell}");
            serving.join().unwrap();
        });
    }
}

fn received(link: &Link, expected: u64, attempt: u32) {
    let message = link.recv_deadline(soon()).unwrap().unwrap();
    assert_eq!((number(&message), message.attempt()), (expected, attempt));
    message.ack().unwrap();
}

#[test]
fn both_ends_resume_after_a_restart() {
    for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
        let ground = Ground::new(via, true);
        let group = Group::new().unwrap();
        let config = config().group(&group);
        let Pair { server, served, link } = ground.pair(&config);
        for n in 0..10 {
            link.send(&message(n, 8)).unwrap();
        }
        (0..4).for_each(|n| received(&served, n, 1));
        // Message 4 is delivered to the application, but not acknowledged.
        assert_eq!(number(&served.recv_deadline(soon()).unwrap().unwrap()), 4);
        let position = served.recv_deadline(soon()).unwrap().unwrap().position();
        drop((served, server));

        let server = ground.server(config.clone());
        let served = server.open("alice", "orders").unwrap();
        drop(link);
        let client = ground.client(config);
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        received(&served, 4, 2);
        let message_5 = served.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!((message_5.attempt(), message_5.position()), (2, position));
        message_5.ack().unwrap();
        (6..10).for_each(|n| received(&served, n, 1));
        link.send(&message(10, 8)).unwrap();
        received(&served, 10, 1);
        assert!(link.reports().unwrap().is_empty() && served.reports().unwrap().is_empty());
    }
}

#[test]
fn reply_and_its_request_are_committed_together() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = config().group(&group);
    let Pair { server, served, link } = ground.pair(&config);
    link.send(b"question").unwrap();
    let question = served.recv_deadline(soon()).unwrap().unwrap();
    // The client's end is dropped, so no process receives the server's reply before the link is
    // opened again.
    drop(link);
    question.reply(b"answer").unwrap();
    let bytes = served.unacked_bytes().unwrap();
    assert!(bytes > 0);
    drop((served, server));
    let Pair { server: _server, served, link } = ground.pair(&config);
    let answer = link.recv_deadline(soon()).unwrap().unwrap();
    assert_eq!((&answer[..], answer.attempt()), (&b"answer"[..], 1));
    link.send(b"next").unwrap();
    assert_eq!(served.recv_deadline(soon()).unwrap().unwrap(), b"next");
}

#[test]
fn ack_is_sent_although_its_thread_does_not_come_back() {
    let ground = Ground::new(Via::SharedMemory, false);
    let server = ground.server(config());
    let client = ground.client(config());
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    thread::scope(|scope| {
        let served = scope.spawn(|| server.accept_deadline(soon()).unwrap());
        link.wait_attached(soon()).unwrap();
        let served = served.join().unwrap();
        // This thread waits in `accept_deadline` for another link, and meanwhile is the leader of
        // the server's group.
        scope.spawn(|| server.accept_deadline(soon()).unwrap());
        for n in 0..100 {
            link.send_deadline(&message(n, 8), soon()).unwrap();
            let message = until_some(|| served.try_recv().ok().flatten());
            assert_eq!(number(&message), n);
            message.ack().unwrap();
            // This thread makes no further call on the server's end until the client has received
            // the acknowledgement. So only the accepting thread can send it.
            link.wait_acked(soon()).unwrap();
        }
        let other = client.connect(server.local_address(), "bob", "end").unwrap();
        other.wait_attached(soon()).unwrap();
    });
}

#[test]
fn client_that_sends_and_leaves_is_accepted() {
    for n in 0..30 {
        let ground = Ground::new([Via::SharedMemory, Via::Unix, Via::Tcp][n % 3], false);
        let server = ground.server(config());
        let client = ground.client(config());
        let address = server.local_address().clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                let link = client.connect(&address, "bob", "word").unwrap();
                link.send(b"word").unwrap();
                link.close(soon()).unwrap();
            });
            let served = server.accept_deadline(soon()).unwrap();
            assert_eq!(served.recv_deadline(soon()).unwrap().unwrap(), b"word");
        });
    }
}

fn until_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until("a message", || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn message_sent_before_the_peer_exists_arrives() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let client = ground.client(config().group(&group));
    let link = client.connect(ground.address().as_str(), "bob", "orders").unwrap();
    (0..20).for_each(|n| link.send(&message(n, 100)).unwrap());
    assert!(matches!(link.status(), Status::Detached | Status::Attaching), "{}", link.status());
    let error = link.wait_attached(Instant::now()).unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
    let server = ground.server(config().group(&group));
    let served = server.accept_deadline(soon()).unwrap();
    assert_eq!((served.key().remote(), served.key().link()), ("alice", "orders"));
    (0..20).for_each(|n| received(&served, n, 1));
    assert!(matches!(link.status(), Status::Attached { .. }), "{}", link.status());
}

#[test]
fn file_has_one_owner_and_a_served_link_one_handle() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = config().group(&group);
    let Pair { server, served, link } = ground.pair(&config);
    let again = ground.client(config).connect(server.local_address(), "bob", "orders");
    let error = again.unwrap_err();
    assert!(matches!(error, OpenError::File(StorageError::Busy { .. })), "{error}");
    let error = server.open("alice", "orders").unwrap_err();
    assert!(matches!(error, OpenError::AlreadyOpen), "{error}");
    link.send(b"kept").unwrap();
    link.wait_attached(soon()).unwrap();
    drop(served);
    // After the link's handle is dropped, the server keeps the link with the messages that arrived.
    let served = server.open("alice", "orders").unwrap();
    assert_eq!(served.recv_deadline(soon()).unwrap().unwrap(), b"kept");
}

#[test]
fn older_owner_of_the_client_is_fenced_by_a_newer_one() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = config().group(&group);
    let Pair { server, served, link } = ground.pair(&config);
    link.send(b"first").unwrap();
    let first = served.recv_deadline(soon()).unwrap().unwrap();
    first.ack().unwrap();
    link.wait_acked(soon()).unwrap();
    let name = link.key().file_name();
    link.close(soon()).unwrap();
    assert!(served.recv_deadline(soon()).unwrap().is_none(), "the client has finished");
    // The test copies the client's file into a second directory, where the lock that the file's
    // owner holds has no effect. So a client can open the link in both directories.
    let moved = ground.path("server").join("../moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::set_permissions(&moved, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let copy = moved.join(&name);
    std::fs::copy(ground.path("client").join(&name), &copy).unwrap();
    let old = ground.client(config.clone());
    let old = old.connect(server.local_address(), "bob", "orders").unwrap();
    old.wait_attached(soon()).unwrap();
    let newer = Client::new(Storage::directory(&moved), "alice", config).unwrap();
    // The test opens the copy one more time than the original file, so the copy has the higher
    // incarnation.
    drop(newer.connect("unix:/nowhere", "bob", "orders").unwrap());
    let newer = newer.connect(server.local_address(), "bob", "orders").unwrap();
    newer.send(b"second").unwrap();
    assert_eq!(served.recv_deadline(soon()).unwrap().unwrap(), b"second");
    let deadline = soon();
    while !matches!(old.status(), Status::Fenced) {
        group.poll(Some(Instant::now() + std::time::Duration::from_millis(20))).unwrap();
        assert!(Instant::now() < deadline, "{}", old.status());
    }
    assert!(matches!(old.send(b"late"), Err(SendError::Stopped(Stopped::Fenced))));
    // Rule: the fenced client still gets the events from before it was fenced, and only then the
    // error that the link has stopped.
    let mut events = Vec::new();
    let ended = loop {
        match old.next_event(soon()) {
            Ok(event) => events.push(event),
            Err(ended) => break ended,
        }
    };
    assert!(matches!(ended, WaitError::Stopped(Stopped::Fenced)), "{ended:?}");
    assert!(matches!(events.first(), Some(Event::Attached { .. })), "{events:?}");
    assert!(events.contains(&Event::Fenced), "{events:?}");
    assert!(matches!(newer.status(), Status::Attached { .. }), "{}", newer.status());
}

#[test]
fn close_with_messages_under_way_delivers_all() {
    for ground in Ground::all() {
        let Pair { server, served, link } = ground.pair(&config());
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..50).for_each(|n| link.send_deadline(&message(n, 5000), soon()).unwrap());
                link.close(soon()).unwrap();
            });
            (0..50).for_each(|n| received(&served, n, 1));
        });
        drop(served);
        drop(server);
    }
}
