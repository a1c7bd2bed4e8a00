// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of the tests with many links: it has the servers' ends of all links, and sends
//! commands to the second process, which has the clients' ends.

use super::client;
use super::cost::{self, Holdings};
use super::figures::{Active, Figures, Idle};
use partywall::{TransportPolicy, Wait};
use partywall_link::{Config, Group, Link, MemberId, Server, Storage};
use partywall_testkit::{Second, soon};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The directory with the sockets of the server and of the control connection, which both processes
/// use, and the kind of the links (storage and transport).
pub struct Ground {
    pub path: PathBuf,
    pub kind: Kind,
}

/// The kind of all links of one run: how they are stored, and which transport they use.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub is_kept: bool,
    /// Whether all links use shared memory; otherwise all use their sockets.
    pub is_shared: bool,
}

impl Ground {
    pub fn place(&self, end: &str) -> Storage {
        if self.kind.is_kept { Storage::directory(self.path.join(end)) } else { Storage::Memory }
    }

    pub fn address(&self) -> String {
        format!("unix:{}/links.sock", self.path.display())
    }

    pub fn control(&self) -> PathBuf {
        self.path.join("control.sock")
    }
}

/// A configuration of the links: the smallest possible sizes, so that many links fit into memory,
/// and one group for all links.
pub fn config(group: &Group, kind: Kind) -> Config {
    let policy =
        if kind.is_shared { TransportPolicy::SharedMemory } else { TransportPolicy::Socket };
    Config::default()
        .transport(policy)
        .ring_bytes(4096)
        .slab_bytes(0)
        .wait(Wait::Park)
        .backlog(1024)
        .handshakes_max(1024)
        .group(group)
}

/// Number of active links, over which a run of the test sends messages; all other links stay idle.
pub const ACTIVE: usize = 10;

/// Polls the group for `time`. Returns how many turns the group made, how often the thread slept,
/// and how many links with events the group reported.
pub fn idle(group: &Group, time: Duration) -> Idle {
    let (turns, sleeps, until) = (group.turns(), cost::sleeps(), Instant::now() + time);
    let mut events = 0;
    loop {
        events += group.poll(Some(until)).unwrap() as u64;
        let _ = group.ready();
        if Instant::now() >= until {
            let (turns, sleeps) = (group.turns() - turns, cost::sleeps() - sleeps);
            return Idle { turns, sleeps, events };
        }
    }
}

/// Makes `count` links, leaves them idle for `rest`, and then makes each active link receive
/// `rounds` messages.
pub fn run(count: usize, kind: Kind, rest: Duration, rounds: u64) -> Figures {
    let directory = super::directory::with(&["client", "server"]);
    let ground = Ground { path: directory.path().to_owned(), kind };
    let listener = UnixListener::bind(ground.control()).unwrap();
    let (path, links) = (directory.path().to_str().unwrap(), count.to_string());
    let mut variables = vec![(client::GROUND, path), (client::LINKS, &links)];
    let words = [(kind.is_kept, client::KEPT), (kind.is_shared, client::SHARED)];
    variables.extend(words.iter().filter(|(is_so, _)| *is_so).map(|(_, name)| (*name, "1")));
    let _second = Second::start("many_links_client", &variables);
    let mut many = ManyLinks::gather(&ground, count, &listener);
    let here = many.holdings();
    let there = many.ask::<2>("cost");
    let there = Holdings { descriptors: there[0], resident_bytes: there[1] };
    let idle = many.rest(rest);
    let active = many.exchange(rounds);
    Figures { links: count as u64, kind, holdings: [here, there], idle, active }
}

struct ManyLinks {
    group: Group,
    _server: Server,
    links: HashMap<MemberId, Link>,
    before: Holdings,
    control: BufReader<UnixStream>,
}

impl ManyLinks {
    fn gather(ground: &Ground, count: usize, listener: &UnixListener) -> Self {
        let group = Group::with_wait(Wait::Park).unwrap();
        let control = BufReader::new(listener.accept().unwrap().0);
        let before = Holdings::now();
        let place = ground.place("server");
        let config = config(&group, ground.kind);
        let server = Server::bind(ground.address().as_str(), place, "bob", config).unwrap();
        let mut links = HashMap::new();
        let deadline = soon();
        while links.len() < count {
            while let Ok(link) = server.try_accept() {
                links.insert(link.id(), link);
            }
            group.poll(Some(Instant::now() + POLL_TIME)).unwrap();
            let _ = group.ready();
            assert!(Instant::now() < deadline, "{} of {count} attach", links.len());
        }
        let mut many = Self { group, _server: server, links, before, control };
        assert_eq!(many.line(), "attached");
        many
    }

    fn holdings(&self) -> Holdings {
        Holdings::now().since(self.before)
    }

    /// Leaves all links idle for `time`. Returns for both processes how many turns the group made,
    /// how often the thread slept, and how many links with events the group reported.
    fn rest(&mut self, time: Duration) -> [Idle; 2] {
        // Both processes take the events of attaching in a first period (`SETTLING`), whose counts
        // are discarded.
        for settled in [SETTLING, time] {
            self.say(&format!("rest {}", settled.as_millis()));
            let here = idle(&self.group, settled);
            let [turns, sleeps, events] = self.numbers();
            if settled == time {
                return [here, Idle { turns, sleeps, events }];
            }
        }
        unreachable!("the last of them is `time`")
    }

    /// Makes each active link receive `rounds` messages: one on every link, then the next on every
    /// link. The second process sends one on every link before this process polls.
    fn exchange(&mut self, rounds: u64) -> Active {
        let mut active = Active { rounds, ..Active::default() };
        for round in 0..rounds {
            self.say(&format!("send {round}"));
            assert_eq!(self.line(), "sent");
            let (turns, time) = (self.group.turns(), partywall_sys::cpu::thread_cpu_time());
            let mut left = ACTIVE.min(self.links.len());
            while left > 0 {
                self.group.poll(Some(soon())).unwrap();
                for id in self.group.ready() {
                    active.reported += 1;
                    while let Ok(Some(message)) = self.links[&id].try_recv() {
                        assert!(message == round.to_le_bytes());
                        message.ack().unwrap();
                        active.messages += 1;
                        left -= 1;
                    }
                }
            }
            // This poll of the server's group sends the acknowledgements to the second process.
            self.group.try_poll().unwrap();
            active.turns += self.group.turns() - turns;
            active.time += partywall_sys::cpu::thread_cpu_time() - time;
            self.say("hear");
            assert_eq!(self.line(), "received");
        }
        active
    }

    fn say(&mut self, line: &str) {
        writeln!(self.control.get_mut(), "{line}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask<const N: usize>(&mut self, line: &str) -> [u64; N] {
        self.say(line);
        self.numbers()
    }

    fn numbers<const N: usize>(&mut self) -> [u64; N] {
        let line = self.line();
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }
}

const POLL_TIME: Duration = Duration::from_millis(5);
const SETTLING: Duration = Duration::from_millis(200);
