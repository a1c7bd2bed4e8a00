// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of one end of the link in the torture test, which kills and restarts it. The process
//! makes random operations on the link, and writes a note to the test's journal file before and
//! after each operation.
//!
//! ```text
//!   until killed:   send │ a batch │ receive and keep, ack, answer or rewind │ begin an epoch
//!   asked to settle: receive and acknowledge until no message is left, then note `Idle`
//! ```

use super::content::{CLIENT, NAMED_BYTES, SERVER, content, digest, name};
use super::journal::{Journal, What};
use super::settings::{Mode, Plan, Via};
use partywall::{TransportPolicy, Wait};
use partywall_link::{
    Client, Config, Event, Link, Message, MessageView, RecvError, ReplyError, SendError, Server,
    Status, Storage, Transport, TrySendError,
};
use partywall_testkit::{Random, variable};
use std::fs;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variables of a process that owns one end of the link: whether it is client or
/// server, its directory, the plan (the round's random settings), the owner's number, and the
/// number of its first message.
pub const ROLE: &str = "PARTYWALL_TORTURE_ROLE";
pub const DIRECTORY: &str = "PARTYWALL_TORTURE_DIRECTORY";
pub const PLAN: &str = "PARTYWALL_TORTURE_PLAN";
pub const OWNER: &str = "PARTYWALL_TORTURE_OWNER";
/// The environment variable with an address: the relay's, for a client, or the one at which a
/// server listens.
pub const ADDRESS: &str = "PARTYWALL_TORTURE_ADDRESS";

/// Name of the file that the test's main process creates at the end of a round. From then on client
/// and server send no new message, and acknowledge all messages that arrive.
pub const SETTLE: &str = "settle";

pub fn run(role: &str) {
    let side = if role == "client" { CLIENT } else { SERVER };
    let text = |name| variable(name).expect(name);
    let directory = PathBuf::from(text(DIRECTORY));
    let plan = Plan::from_words(&text(PLAN));
    let owner_and_next = text(OWNER);
    let (owner, next) = owner_and_next.split_once(' ').unwrap();
    let (owner, next): (u64, u64) = (owner.parse().unwrap(), next.parse().unwrap());
    let mut chance =
        Random::new(plan.seed ^ (owner << 8 | side as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let wait = [Wait::Park, Wait::Adaptive][chance.below(2) as usize];
    let config = Config::default()
        .ring_bytes(plan.ring_bytes)
        .slab_bytes(plan.slab_bytes)
        .allow_anonymous_tcp(true)
        .transport(match plan.via {
            Via::Unix => TransportPolicy::Socket,
            Via::SharedMemory | Via::Tcp => TransportPolicy::Auto,
        })
        .wait(wait);
    let mut journal = Journal::open(&directory, side, owner);
    let place = Storage::directory(directory.join(role));
    let address = text(ADDRESS);
    let mut server = None;
    let link = if side == CLIENT {
        let client = Client::new(place, "alice", config);
        client.and_then(|client| client.connect(address.as_str(), "bob", "orders"))
    } else {
        match Server::bind(address.as_str(), place, "bob", config) {
            Ok(bound) => server.insert(bound).open("alice", "orders"),
            Err(error) => fail(&directory, &mut journal, &format!("bind: {error}")),
        }
    };
    let link = match link {
        Ok(link) => link,
        Err(error) => fail(&directory, &mut journal, &format!("open: {error}")),
    };
    if let Some(server) = &server {
        let path = directory.join("address.new");
        fs::write(&path, server.local_address().to_string()).unwrap();
        fs::rename(path, directory.join("address")).unwrap();
    }
    journal.note(What::Opened, &[]);
    let held = Vec::new();
    let anchor = None;
    End { plan, side, directory, journal, chance, link, next, held, anchor, is_tired: false }
        .live();
}

/// Fails this process: writes the reason to the file `failed`, a note to the test's journal, and
/// panics.
fn fail(directory: &Path, journal: &mut Journal, words: &str) -> ! {
    fs::write(directory.join("failed"), words).unwrap();
    journal.note(What::Failed, &[]);
    panic!("{words}");
}

struct End {
    plan: Plan,
    side: usize,
    directory: PathBuf,
    journal: Journal,
    chance: Random,
    link: Link,
    /// The number of the next message that this process sends over the link.
    next: u64,
    /// Messages that this process has received but not yet acknowledged, with their epochs.
    held: Vec<(Message, u64)>,
    /// The epoch in which this process, one of several successive owners of the link's end,
    /// certainly sent a message that contains its number. From then on the test can attribute
    /// messages without a number to this process.
    anchor: Option<u64>,
    /// Whether a reply once failed because the ring had no room. Then this process makes no further
    /// random replies, because the peer may be waiting for room as well.
    is_tired: bool,
}

impl End {
    fn live(mut self) {
        let parent = parent_id();
        let mut is_settling = false;
        for step in 0_u64.. {
            if step % 64 == 0 && (parent_id() != parent || !self.directory.exists()) {
                return;
            }
            self.tell();
            is_settling |= step % 8 == 0 && self.directory.join(SETTLE).exists();
            if is_settling {
                self.settle();
                continue;
            }
            let sends = match self.plan.mode {
                Mode::BothWays => true,
                _ => self.side == CLIENT,
            };
            match self.chance.below(1000) {
                0..350 if sends => self.send(),
                350..400 if sends => self.send_batch(),
                400..402 if self.plan.epochs => self.begin_epoch(),
                _ => self.receive(),
            }
        }
    }

    /// Takes the events and reports of this process's link, and writes a note of each to the test's
    /// journal.
    fn tell(&mut self) {
        while let Some(event) = self.link.try_event() {
            match event {
                Event::Attached { resumed } => {
                    let is_shared = matches!(
                        self.link.status(),
                        Status::Attached { transport: Transport::SharedMemory, .. }
                    );
                    let words = [u64::from(resumed), u64::from(is_shared)];
                    self.journal.note(What::Attached, &words);
                }
                Event::Fenced | Event::Quarantined => self.fail(&format!("{event:?}")),
                Event::Refused { reason } if reason.contains("broke the rules") => {
                    self.fail(&reason)
                }
                Event::Detached { reason } if reason.contains("broke the rules") => {
                    self.fail(&reason)
                }
                _ => {}
            }
        }
        let reports = self.link.reports().unwrap_or_default();
        for report in &reports {
            if report.kind != "undelivered" {
                self.fail(&format!("{report:?}"));
            }
            let flags = u64::from(report.is_receiving)
                | u64::from(report.is_exact) << 1
                | u64::from(report.is_open) << 2;
            self.journal.note(What::Reported, &[flags, report.epoch, report.from, report.to]);
        }
        if !reports.is_empty() {
            let seen = self.link.acknowledge_reports(&reports);
            self.check(seen);
        }
    }

    fn send(&mut self) {
        let epoch = self.epoch();
        let (number, len) = (self.number(), self.length());
        let len = self.anchored(len, epoch);
        let bytes = content(self.plan.seed, self.side, number, false, len);
        self.journal.note(What::AboutToSend, &[number, len as u64, epoch, number, 1]);
        let moment = self.moment();
        let sent = match self.chance.below(8) {
            0 => match self.link.send_deadline(&bytes, moment) {
                Ok(()) => true,
                Err(SendError::TimedOut) => false,
                Err(error) => self.fail(&format!("send: {error}")),
            },
            _ => match self.link.try_send(&bytes) {
                Ok(()) => true,
                Err(TrySendError::Full) => false,
                Err(error) => self.fail(&format!("send: {error}")),
            },
        };
        let epoch = self.epoch();
        let what = if sent { What::Sent } else { What::NotSent };
        self.journal.note(what, &[number, epoch, number, 1]);
        if sent && len >= NAMED_BYTES {
            self.anchor = Some(epoch);
        }
        if !sent {
            self.receive();
        }
    }

    fn send_batch(&mut self) {
        let (first, count) = (self.next, 2 + self.chance.below(4));
        let epoch = self.epoch();
        let mut messages = Vec::new();
        for _ in 0..count {
            let (number, len) = (self.number(), self.chance.size(200));
            let len = self.anchored(len, epoch);
            self.journal.note(What::AboutToSend, &[number, len as u64, epoch, first, count]);
            messages.push(content(self.plan.seed, self.side, number, false, len));
        }
        let mut batch = self.link.batch();
        for message in &messages {
            batch.send(message);
        }
        let published = batch.try_commit();
        drop(batch);
        let what = match published {
            Ok(()) => What::Sent,
            Err(TrySendError::Full | TrySendError::Never(SendError::BatchTooLarge { .. })) => {
                What::NotSent
            }
            Err(error) => self.fail(&format!("batch: {error}")),
        };
        let epoch = self.epoch();
        for number in first..first + count {
            self.journal.note(what, &[number, epoch, first, count]);
        }
    }

    fn receive(&mut self) {
        let may_read = match self.plan.mode {
            Mode::Replies => self.side == CLIENT,
            _ => true,
        };
        // This process reads a message in place only in rounds without epochs. The reading closure
        // must not use the link, so it could not find out whether an epoch has begun since.
        if may_read && !self.plan.epochs && self.chance.below(4) == 0 {
            return self.read();
        }
        let moment = self.moment();
        let message = match self.link.recv_deadline(moment) {
            Ok(Some(message)) => message,
            Ok(None) | Err(RecvError::TimedOut) => return self.commit(),
            Err(error) => self.fail(&format!("recv: {error}")),
        };
        let epoch = self.epoch();
        let (number, is_answer) = name(&message);
        let (position, len) = (message.position(), message.len() as u64);
        let words = [position, epoch, number, len, digest(&message), u64::from(message.attempt())];
        self.journal.note(What::Got, &words);
        if self.held.last().is_some_and(|(last, _)| last.position() >= position) {
            // The received message's position is not beyond that of the last unacknowledged
            // message. So the connection was made anew, and the unacknowledged messages are
            // received again.
            self.held.clear();
        }
        let is_request = !is_answer && message.len() >= NAMED_BYTES;
        self.held.push((message, epoch));
        let answers = is_request
            && match self.plan.mode {
                Mode::OneWay => false,
                Mode::BothWays => !self.is_tired && self.chance.below(4) == 0,
                Mode::Replies => self.side == SERVER,
            };
        if answers {
            return self.answer();
        }
        match self.chance.below(10) {
            0 => self.rewind(),
            1..4 if self.held.len() < HELD_MAX => {}
            _ => self.commit(),
        }
    }

    /// Receives a message by reading it in place. That acknowledges the message, and all messages
    /// that this process had received and not acknowledged.
    fn read(&mut self) {
        let (moment, epoch) = (self.moment(), self.epoch());
        let journal = &mut self.journal;
        let read = |message: MessageView<'_>| {
            let ((number, _), position) = (name(&message), message.position());
            let (len, attempt) = (message.len() as u64, u64::from(message.attempt()));
            journal.note(What::Got, &[position, epoch, number, len, digest(&message), attempt]);
            journal.note(What::AboutToCommit, &[position, epoch]);
            position
        };
        match self.link.recv_with_deadline(read, moment) {
            Ok(Some(position)) => {
                self.journal.note(What::Committed, &[position, epoch]);
                self.held.clear();
            }
            Ok(None) | Err(RecvError::TimedOut) => self.commit(),
            Err(error) => self.fail(&format!("recv: {error}")),
        }
    }

    /// Acknowledges together all messages that this process has received and not acknowledged.
    fn commit(&mut self) {
        let Some((last, epoch)) = self.held.pop() else { return };
        let words = [last.position(), epoch];
        self.journal.note(What::AboutToCommit, &words);
        let committed = last.ack();
        let what = if committed.is_ok() { What::Committed } else { What::NotCommitted };
        self.journal.note(what, &words);
        self.held.clear();
    }

    fn answer(&mut self) {
        let Some((request, epoch)) = self.held.pop() else { return };
        let len = self.length().max(NAMED_BYTES);
        let (number, position) = (self.number(), request.position());
        let bytes = content(self.plan.seed, self.side, number, true, len);
        self.journal.note(What::AboutToReply, &[position, epoch, number, len as u64]);
        let moment = self.moment();
        let replied = request.reply_deadline(&bytes, moment);
        let what = if replied.is_ok() { What::Replied } else { What::NotReplied };
        self.journal.note(what, &[position, epoch, number]);
        match replied {
            Ok(()) => self.held.clear(),
            Err(ReplyError::Send(SendError::TimedOut)) => {
                self.is_tired = true;
                self.rewind();
            }
            Err(ReplyError::Ack(_)) => self.rewind(),
            Err(error) => self.fail(&format!("reply: {error}")),
        }
    }

    fn rewind(&mut self) {
        self.held.clear();
        let rewound = self.link.rewind();
        self.check(rewound);
    }

    fn begin_epoch(&mut self) {
        let next = self.epoch() + 1;
        self.journal.note(What::AboutToBegin, &[next]);
        self.held.clear();
        // The peer may have begun the same epoch meanwhile, which makes this call fail. So the test
        // ignores its error.
        let _ = self.link.begin_epoch(next);
    }

    fn settle(&mut self) {
        self.is_tired = true;
        let is_asked = self.plan.mode == Mode::Replies && self.side == SERVER;
        if !self.held.is_empty() && !is_asked {
            self.commit();
        }
        let unconsumed = self.link.unacked_bytes().unwrap_or(u64::MAX);
        if unconsumed == 0 && matches!(self.link.status(), Status::Attached { .. }) {
            let epoch = self.epoch();
            let until = Instant::now() + Duration::from_millis(10);
            match self.link.recv_deadline(until) {
                Ok(Some(_)) => self.rewind(),
                // The peer closed its end of the link, and the process that replaces it will open
                // that end again.
                Ok(None) => {}
                Err(RecvError::TimedOut) => {
                    let words = [epoch, self.link.unacked_bytes().unwrap_or(u64::MAX)];
                    self.journal.note(What::Idle, &words);
                }
                Err(error) => self.fail(&format!("recv: {error}")),
            }
        }
        self.receive();
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The length of the next message, at least `len`. Until this process has certainly sent a
    /// message with a number in `epoch`, the message is long enough to contain its number.
    fn anchored(&self, len: usize, epoch: u64) -> usize {
        if self.anchor == Some(epoch) { len } else { len.max(NAMED_BYTES) }
    }

    /// A random message length: mostly short, sometimes the longest possible.
    fn length(&mut self) -> usize {
        match self.chance.below(20) {
            0 => self.chance.size(self.plan.slab_bytes),
            1..4 => self.chance.size(2000),
            _ => self.chance.size(150),
        }
    }

    /// A random deadline within the next 3 ms, sometimes the present.
    fn moment(&mut self) -> Instant {
        Instant::now() + Duration::from_micros(self.chance.size(3000) as u64)
    }

    fn epoch(&mut self) -> u64 {
        match self.link.epoch() {
            Ok(epoch) => epoch,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn check<E: std::fmt::Display>(&mut self, result: Result<(), E>) {
        if let Err(error) = result {
            self.fail(&error.to_string());
        }
    }

    fn fail(&mut self, words: &str) -> ! {
        fail(&self.directory, &mut self.journal, words)
    }
}

/// Maximum number of received messages that the process keeps unacknowledged before it acknowledges
/// one.
const HELD_MAX: usize = 4;
