// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in one thread over an event loop ([`Loop`]), which sends back every message of its
//! channels and streams. Its thread waits in the event loop itself, or in an epoll set that
//! contains the descriptor of the loop.

use crate::deadline::soon;
use partywall::event::{Channel, ChannelListener, Event, Listener, Loop, Session, Stream};
use partywall::{
    AcceptError, Config, Message, StreamRecvError, StreamSendError, TryRecvError, TrySendError,
    WaitError,
};
use partywall_sys::EpollSet;
use partywall_sys::epoll::EventFlags;
use std::collections::HashMap;
use std::time::Instant;

/// How the thread of an event loop waits for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The thread waits in the event loop itself.
    Wait,
    /// The thread waits in a level-triggered epoll set, and polls the event loop once after each
    /// event of the set.
    Level,
    /// The thread waits in an edge-triggered epoll set, and polls the event loop once each time
    /// that the set reports the loop's descriptor.
    Edge,
    /// The thread polls the event loop, spinning, until a poll finds no event. Only then does the
    /// thread wait in an edge-triggered epoll set.
    Spinning,
    /// The thread polls the event loop with `poll_awake`, for which peers need not notify the
    /// thread, until such a poll finds no event. Then it polls once in the ordinary way, and waits
    /// in an edge-triggered epoll set if that poll finds no event, either.
    Awake,
}

impl Drive {
    /// All ways in which a thread waits for the events of a loop.
    pub const ALL: [Self; 5] = [Self::Wait, Self::Level, Self::Edge, Self::Spinning, Self::Awake];
}

/// An event loop, and the epoll set that contains the descriptor of the loop.
#[derive(Debug)]
pub struct Driven {
    /// The event loop of the library, which is under test.
    pub events: Loop,
    drive: Drive,
    above: EpollSet,
    edges: Vec<partywall_sys::Ready>,
}

impl Driven {
    /// Makes an event loop whose thread waits in the way `drive`.
    pub fn new(drive: Drive) -> Self {
        let (events, above) = (Loop::new().unwrap(), EpollSet::new().unwrap());
        match drive {
            Drive::Wait => {}
            Drive::Level => above.add(&events, EventFlags::IN, 0).unwrap(),
            Drive::Edge | Drive::Spinning | Drive::Awake => {
                above.add(&events, EventFlags::IN | EventFlags::ET, 0).unwrap()
            }
        }
        Self { events, drive, above, edges: Vec::new() }
    }

    /// Waits once for events of the loop, at most until `deadline`, and replaces the content of
    /// `ready` by these events. Returns false if no event comes before the deadline.
    pub fn turn_until(&mut self, ready: &mut Vec<Event>, deadline: Instant) -> bool {
        if self.drive == Drive::Wait {
            return self.events.wait(ready, Some(deadline)).unwrap() > 0;
        }
        while matches!(self.drive, Drive::Spinning | Drive::Awake) {
            if self.poll_before_wait(ready) {
                return true;
            }
            if self.above.wait(&mut self.edges, Some(deadline)).unwrap() == 0 {
                return false;
            }
        }
        let has_come = self.above.wait(&mut self.edges, Some(deadline)).unwrap() > 0;
        if has_come {
            self.events.poll(ready).unwrap();
        }
        has_come
    }

    /// Polls the event loop as a thread does before it waits in the epoll set, and returns whether
    /// an event was found. Only if there was none may the thread wait.
    fn poll_before_wait(&self, ready: &mut Vec<Event>) -> bool {
        let count = if self.drive == Drive::Spinning {
            self.events.poll_spinning(ready)
        } else {
            let taken_max = 1; // what is left has to be found by the next poll
            match self.events.poll_awake(ready, taken_max) {
                Ok(0) => self.events.poll(ready),
                found => found,
            }
        };
        count.unwrap() > 0
    }

    /// Waits once for events of the loop, and replaces the content of `ready` by these events.
    ///
    /// # Panics
    /// If no event comes in time.
    pub fn turn(&mut self, ready: &mut Vec<Event>) {
        assert!(self.turn_until(ready, soon()), "{:?}: nothing comes", self.drive);
    }
}

/// A server that sends back every message of its channels and streams, in the thread of an event
/// loop.
#[derive(Debug)]
pub struct EchoLoop {
    /// The event loop of the server.
    pub driven: Driven,
    members: HashMap<u64, Member>,
    next_tag: u64,
    /// Maximum number of messages that the server receives from one channel or stream after one
    /// event.
    taken_max: usize,
    ready: Vec<Event>,
    /// Number of messages that the server has sent back.
    pub echoed: u64,
    /// Number of channels, sessions and streams that have ended.
    pub ended: u64,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most members are channels")]
enum Member {
    Channels(ChannelListener),
    Sessions(Listener),
    Channel(Channel, Echo),
    Session(Session),
    Stream(Stream, Echo),
}

/// A message of one channel or stream that is not sent back yet, and whether the peer has finished.
#[derive(Debug, Default)]
struct Echo {
    pending: Option<Message>,
    has_ended: bool,
}

impl EchoLoop {
    /// Makes a server that receives at most `taken_max` messages from one channel or stream after
    /// one event.
    pub fn new(drive: Drive, taken_max: usize) -> Self {
        Self {
            driven: Driven::new(drive),
            members: HashMap::new(),
            next_tag: 1 << 32,
            taken_max,
            ready: Vec::new(),
            echoed: 0,
            ended: 0,
        }
    }

    /// Makes the server listen for channels; returns the address at which it listens.
    pub fn listen(&mut self, address: &str, config: &Config) -> String {
        let listener = partywall::Listener::bind_with(address, config).unwrap();
        let tag = self.tag();
        let listener = self.driven.events.add_listener(listener, tag).unwrap();
        let bound = listener.local_address().to_string();
        self.members.insert(tag, Member::Channels(listener));
        bound
    }

    /// Makes the server listen for sessions; returns the address at which it listens.
    pub fn listen_for_sessions(&mut self, address: &str, config: &Config) -> String {
        let tag = self.tag();
        let listener = self.driven.events.bind(address, config, tag).unwrap();
        let bound = listener.local_address().to_string();
        self.members.insert(tag, Member::Sessions(listener));
        bound
    }

    /// Number of listeners, channels, sessions and streams that the server holds.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Waits once for events, and serves the channels, sessions and streams that have events.
    /// Returns the tags of all other events, which the test has added to the event loop itself.
    pub fn turn(&mut self) -> Vec<u64> {
        let mut ready = std::mem::take(&mut self.ready);
        self.driven.turn(&mut ready);
        let mut others = Vec::new();
        for event in &ready {
            let Some(mut member) = self.members.remove(&event.tag) else {
                others.push(event.tag);
                continue;
            };
            if self.serve(&mut member) {
                self.members.insert(event.tag, member);
            } else {
                self.ended += 1;
            }
        }
        self.ready = ready;
        // The tags of the test are below 2^32, those of the server's own channels and streams
        // above. An event with a tag of the server's own is left out here, because the server has
        // dropped the channel or stream that it names.
        others.retain(|tag| *tag < 1 << 32);
        others
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Serves one listener, channel, session or stream that has events. Returns false if it has
    /// ended.
    fn serve(&mut self, member: &mut Member) -> bool {
        match member {
            Member::Channels(listener) => match listener.try_accept() {
                Ok(channel) => {
                    let tag = self.tag();
                    let channel = self.driven.events.add_channel(channel, tag).unwrap();
                    self.members.insert(tag, Member::Channel(channel, Echo::default()));
                    true
                }
                Err(AcceptError::TimedOut) => true,
                Err(error) => panic!("{error}"),
            },
            Member::Sessions(listener) => {
                let tag = self.tag();
                match listener.try_accept(tag) {
                    Ok(session) => drop(self.members.insert(tag, Member::Session(session))),
                    Err(AcceptError::TimedOut) => {}
                    Err(error) => panic!("{error}"),
                }
                true
            }
            Member::Session(session) => {
                let tag = self.tag();
                match session.try_accept(tag) {
                    Ok(Some(stream)) => {
                        self.members.insert(tag, Member::Stream(stream, Echo::default()));
                        true
                    }
                    Ok(None) => !session.is_finished(),
                    Err(WaitError::WouldBlock) => !session.is_finished(),
                    Err(_) => false,
                }
            }
            Member::Channel(channel, echo) => self.echo_channel(channel, echo),
            Member::Stream(stream, echo) => self.echo_stream(stream, echo),
        }
    }

    fn echo_channel(&mut self, channel: &mut Channel, echo: &mut Echo) -> bool {
        if channel.sender().try_flush().is_err() {
            return false;
        }
        let mut taken = 0;
        loop {
            if let Some(message) = echo.pending.take() {
                match channel.try_send(&message) {
                    Ok(()) => self.echoed += 1,
                    Err(TrySendError::Full) => {
                        echo.pending = Some(message);
                        return true;
                    }
                    Err(TrySendError::Closed(_)) => return false,
                    Err(other) => panic!("{other}"),
                }
            }
            if echo.has_ended {
                return channel.sender().try_flush().unwrap_or(false);
            }
            if taken == self.taken_max {
                return true;
            }
            taken += 1;
            match channel.try_recv() {
                Ok(Some(message)) => echo.pending = Some(message),
                Ok(None) => echo.has_ended = true,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn echo_stream(&mut self, stream: &mut Stream, echo: &mut Echo) -> bool {
        let mut taken = 0;
        loop {
            if let Some(message) = echo.pending.take() {
                match stream.try_send(&message) {
                    Ok(()) => self.echoed += 1,
                    Err(StreamSendError::Full) => {
                        echo.pending = Some(message);
                        return true;
                    }
                    Err(_) => return false,
                }
            }
            if echo.has_ended {
                return false;
            }
            if taken == self.taken_max {
                return true;
            }
            taken += 1;
            match stream.try_recv() {
                Ok(Some(message)) => echo.pending = Some(message),
                Ok(None) => echo.has_ended = true,
                Err(StreamRecvError::Empty) => return true,
                Err(_) => return false,
            }
        }
    }
}
