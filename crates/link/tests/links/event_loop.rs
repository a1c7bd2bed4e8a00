// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of one event loop that serves a listener, 100 channels, 10 sessions of 100 streams each,
//! and 10 links. Every message is echoed once, in each way in which an application can drive the
//! loop.

use crate::support_ends::{Ground, Via, message, number, soon};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use partywall::event::{Channel, Event, Session, Stream};
use partywall::{StreamRecvError, StreamSendError, TryRecvError, TrySendError};
use partywall_link::{Client, Config, Group, Link, MemberId, Server};
use partywall_testkit::Kind;
use partywall_testkit::echo_loop::{Drive, Driven, EchoLoop};
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

const CHANNELS: u64 = 100;
const SESSIONS: u64 = 10;
const STREAMS: u64 = 100;
const LINKS: u64 = 10;
/// Number of messages that are sent over each channel, stream and link.
const MESSAGES: u64 = 20;
/// Tag under which the server's event loop reports the group of links.
const GROUP: u64 = 1;

/// The server's ends of the links, which send back every message.
struct EchoLinks {
    group: Group,
    server: Server,
    links: HashMap<MemberId, Link>,
    echoed: u64,
}

impl EchoLinks {
    fn serve(&mut self) {
        while let Ok(link) = self.server.try_accept() {
            self.links.insert(link.id(), link);
        }
        for id in self.group.ready() {
            let Some(link) = self.links.get(&id) else { continue };
            while let Ok(Some(message)) = link.try_recv() {
                let copy = message.to_vec();
                message.reply(&copy).unwrap();
                self.echoed += 1;
            }
        }
    }
}

/// A conversation of the client's loop: it sends its messages, and expects each of them back.
struct Conversation<T> {
    peer: T,
    sent: u64,
    received: u64,
}

impl<T> Conversation<T> {
    const fn new(peer: T) -> Self {
        Self { peer, sent: 0, received: 0 }
    }

    const fn is_done(&self) -> bool {
        self.received == MESSAGES
    }
}

impl Conversation<Channel> {
    fn advance(&mut self) {
        while self.sent < MESSAGES {
            match self.peer.try_send(&message(self.sent, 40)) {
                Ok(()) => self.sent += 1,
                Err(TrySendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            match self.peer.try_recv() {
                Ok(back) => {
                    assert_eq!(number(&back.unwrap()), self.received);
                    self.received += 1;
                }
                Err(TryRecvError::Empty) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Conversation<Stream> {
    fn advance(&mut self) {
        while self.sent < MESSAGES {
            match self.peer.try_send(&message(self.sent, 40)) {
                Ok(()) => self.sent += 1,
                Err(StreamSendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            match self.peer.try_recv() {
                Ok(back) => {
                    assert_eq!(number(&back.unwrap()), self.received);
                    self.received += 1;
                }
                Err(StreamRecvError::Empty) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Runs the clients of all channels and sessions in one event loop, until all their messages have
/// come back. If the channel `until` is given, the loop then calls `idle`, and runs until that
/// channel ends.
fn clients(
    drive: Drive,
    channel_address: &str,
    session_address: &str,
    until: Option<partywall::Channel>,
    idle: impl FnOnce(),
) {
    let config = Kind::SharedMemory.config();
    let mut driven = Driven::new(drive);
    let (mut channels, mut streams) = (HashMap::new(), HashMap::new());
    let mut sessions: Vec<Session> = Vec::new();
    for tag in 0..CHANNELS {
        let channel = partywall::connect_with(channel_address, &config).unwrap();
        let channel = driven.events.add_channel(channel, tag).unwrap();
        channels.insert(tag, Conversation::new(channel));
    }
    for session in 0..SESSIONS {
        let tag = 1000 + session;
        sessions.push(driven.events.connect(session_address, &config, tag).unwrap());
    }
    // Each stream gets a tag of its own in the event loop. Opening a stream does not wait, because
    // the session has room for the records that open all its streams.
    for (session, tags) in sessions.iter().zip((10_000..).step_by(1000)) {
        for tag in tags..tags + STREAMS {
            streams.insert(tag, Conversation::new(session.try_open(b"", tag).unwrap()));
        }
    }
    channels.values_mut().for_each(Conversation::<Channel>::advance);
    streams.values_mut().for_each(Conversation::<Stream>::advance);
    let mut ready: Vec<Event> = Vec::new();
    while !channels.values().all(Conversation::is_done)
        || !streams.values().all(Conversation::is_done)
    {
        driven.turn(&mut ready);
        for event in &ready {
            channels.get_mut(&event.tag).into_iter().for_each(Conversation::<Channel>::advance);
            streams.get_mut(&event.tag).into_iter().for_each(Conversation::<Stream>::advance);
        }
    }
    let Some(until) = until else { return };
    idle();
    let mut until = driven.events.add_channel(until, u64::MAX).unwrap();
    while matches!(until.try_recv(), Err(TryRecvError::Empty)) {
        driven.turn(&mut ready);
    }
}

/// Runs the client's end of each link in a thread of its own. Each thread blocks: it sends its
/// messages, and then receives them back.
fn converse(client: &Client, address: &partywall::Address) {
    let connect = |link: u64| client.connect(address, "bob", &link.to_string()).unwrap();
    let links: Vec<Link> = (0..LINKS).map(connect).collect();
    thread::scope(|scope| {
        for link in &links {
            scope.spawn(|| {
                for sent in 0..MESSAGES {
                    link.send_deadline(&message(sent, 40), soon()).unwrap();
                }
                for received in 0..MESSAGES {
                    let back = link.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&back), received);
                    back.ack().unwrap();
                }
            });
        }
    });
}

/// Raises the limit of descriptors that this process may open, at most to 12,000. Returns the
/// limit.
fn raise_descriptors() -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let raised = soft.max(12_000.min(hard));
    setrlimit(Resource::RLIMIT_NOFILE, raised, hard).unwrap();
    raised
}

#[test]
fn one_loop_serves_a_listener_channels_sessions_and_links() {
    raise_descriptors();
    for drive in Drive::ALL {
        let ground = Ground::new(Via::SharedMemory, false);
        let group = Group::new().unwrap();
        let config = Config::default().ring_bytes(16 << 10).slab_bytes(0);
        let server = ground.server(config.clone().group(&group));
        let client = ground.client(config);
        let link_address = server.local_address().clone();
        let mut echo = EchoLoop::new(drive, 3);
        let shared_memory = Kind::SharedMemory;
        let channel_address = echo.listen(&shared_memory.address(), &shared_memory.config());
        let session_address =
            echo.listen_for_sessions(&shared_memory.address(), &shared_memory.config());
        let attached = echo.driven.events.add_source(group.clone(), GROUP).unwrap();
        let mut links = EchoLinks { group, server, links: HashMap::new(), echoed: 0 };
        let expected = (CHANNELS + SESSIONS * STREAMS) * MESSAGES;
        thread::scope(|scope| {
            scope.spawn(|| clients(drive, &channel_address, &session_address, None, || ()));
            scope.spawn(|| converse(&client, &link_address));
            while echo.echoed < expected || links.echoed < LINKS * MESSAGES {
                for tag in echo.turn() {
                    assert_eq!(tag, GROUP);
                    links.serve();
                }
            }
            // The server's loop runs on until it has received the end of every channel and session.
            // Meanwhile the links get their last acknowledgements.
            while echo.ended < CHANNELS + SESSIONS * (STREAMS + 1) {
                echo.turn().iter().for_each(|_| links.serve());
            }
        });
        assert_eq!((echo.echoed, links.echoed), (expected, LINKS * MESSAGES), "{drive:?}");
        assert_eq!(links.links.len() as u64, LINKS, "{drive:?}");
        drop(attached);
    }
}

/// Returns how often a thread of this process, `self` or the one with the given number, has run:
/// the number of times that the scheduler chose it.
fn slices(thread: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// Runs a server and its clients, each in one event loop. Once every message is back, both loops
/// have sent the numbers of their threads to `threads`. Then they are idle until the test drops the
/// other ends of the channels `ends`.
fn idle_server(
    drive: Drive,
    ends: [partywall::Channel; 2],
    threads: &std::sync::mpsc::Sender<(Drive, String)>,
) {
    let number = || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let config = Config::default().ring_bytes(16 << 10).slab_bytes(0);
    let server = ground.server(config.clone().group(&group));
    let client = ground.client(config);
    let link_address = server.local_address().clone();
    let mut echo = EchoLoop::new(drive, 3);
    let (kind, [end, their_end]) = (Kind::SharedMemory, ends);
    let channel_address = echo.listen(&kind.address(), &kind.config());
    let session_address = echo.listen_for_sessions(&kind.address(), &kind.config());
    let _attached = echo.driven.events.add_source(group.clone(), GROUP).unwrap();
    let mut end = echo.driven.events.add_channel(end, GROUP + 1).unwrap();
    let mut links = EchoLinks { group, server, links: HashMap::new(), echoed: 0 };
    thread::scope(|scope| {
        scope.spawn(|| {
            let idle = || threads.send((drive, number())).unwrap();
            clients(drive, &channel_address, &session_address, Some(their_end), idle);
        });
        // The client's thread keeps its ends of the links open until the server's loop has ended:
        // it waits for the end of the channel `close`, which this thread drops after that loop.
        let (close, closed) = std::sync::mpsc::channel::<()>();
        let (client, link_address) = (&client, &link_address);
        scope.spawn(move || {
            let connect = |link: u64| client.connect(link_address, "bob", &link.to_string());
            let open: Vec<Link> = (0..LINKS).map(|link| connect(link).unwrap()).collect();
            for link in &open {
                link.send_deadline(&message(0, 40), soon()).unwrap();
                link.recv_deadline(soon()).unwrap().unwrap().ack().unwrap();
            }
            let _ = closed.recv();
        });
        let expected = (CHANNELS + SESSIONS * STREAMS) * MESSAGES;
        let mut is_idle = false;
        while matches!(end.try_recv(), Err(TryRecvError::Empty)) {
            if !is_idle && echo.echoed == expected && links.echoed == LINKS {
                is_idle = true;
                threads.send((drive, number())).unwrap();
            }
            for tag in echo.turn() {
                if tag == GROUP {
                    links.serve();
                }
            }
        }
        assert_eq!((echo.echoed, links.echoed), (expected, LINKS));
        drop(close);
    });
}

#[test]
fn idle_loop_wakes_no_thread() {
    // A server with its clients takes about 2,200 descriptors, for both ends of all channels,
    // sessions and links. So the limit of descriptors decides how many servers run, at most three.
    let servers = (raise_descriptors() / 4000).clamp(1, 3) as usize;
    let (sender, threads) = std::sync::mpsc::channel();
    let mut ends = Vec::new();
    thread::scope(|scope| {
        for drive in Drive::ALL.into_iter().take(servers) {
            let pairs = [0, 1].map(|_| Kind::SharedMemory.pair(|config| config));
            let [(first, here), (second, there)] = pairs;
            ends.push((first, second));
            let sender = sender.clone();
            scope.spawn(move || idle_server(drive, [here, there], &sender));
        }
        drop(sender);
        let threads: Vec<_> = threads.iter().take(2 * servers).collect();
        assert_eq!(threads.len(), 2 * servers, "a server or its clients failed");
        let counts = || threads.iter().map(|(_, thread)| slices(thread)).collect::<Vec<_>>();
        // The loops are idle once none of their threads has run for the time `SETTLING`.
        let deadline = soon();
        let mut before = counts();
        loop {
            thread::park_timeout(SETTLING);
            let now = counts();
            if now == before {
                break;
            }
            before = now;
            assert!(Instant::now() < deadline, "the loops never become idle");
        }
        // Pauses for a fixed time, because the test checks that nothing happens.
        thread::park_timeout(SILENCE);
        for ((drive, thread), before) in threads.iter().zip(before) {
            assert_eq!(slices(thread), before, "{drive:?}: woke though nothing came");
        }
        drop(ends);
    });
}

/// Time after which the loops count as idle if no thread of them has run meanwhile. It exceeds the
/// handshake timeout of 5 s, at which the timer of a listener fires once more.
const SETTLING: Duration = Duration::from_secs(6);
/// Time for which the idle loops are observed.
const SILENCE: Duration = Duration::from_secs(10);
