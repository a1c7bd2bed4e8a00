// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which a process with a channel is killed at a random instant. Its peer receives every
//! message that was committed before, whole and in order, and learns of the death within a second.
//! The peer keeps no descriptor, mapping or memory of the channel.
//!
//! 1,000 processes are killed with SIGKILL under load over shared memory, half of them while
//! sending and half while receiving. 200 more are killed over the socket transport.

use partywall::{Channel, Closed, Config, Listener, RecvError, SendError};
use partywall_sys::process::{self, Process};
use partywall_testkit::{Kind, Random, Second, fill, is_pattern, variable};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time after a kill within which the survivor must learn of the victim's death.
const NOTICE: Duration = Duration::from_secs(1);

const ROLE: &str = "PARTYWALL_DEATH_ROLE";
const ADDRESS: &str = "PARTYWALL_DEATH_ADDRESS";
const KIND: &str = "PARTYWALL_DEATH_KIND";
const LOG: &str = "PARTYWALL_DEATH_LOG";

/// Code of the victim: sends or receives until it is killed, or until a time limit.
#[test]
fn victim() {
    let Some(role) = variable(ROLE) else { return };
    let kind = Kind::from_name(&variable(KIND).unwrap());
    let address = variable(ADDRESS).unwrap();
    if role == "bind" {
        let _listener = Listener::bind(&address).unwrap();
        File::create(variable(LOG).unwrap()).unwrap();
        std::thread::sleep(partywall_testkit::TIMEOUT);
        return;
    }
    let channel = partywall::connect_with(&address, &config(kind)).unwrap();
    let until = Instant::now() + partywall_testkit::TIMEOUT;
    if role == "send" {
        send_for_ever(
            channel,
            &File::options().write(true).open(variable(LOG).unwrap()).unwrap(),
            until,
        );
    } else {
        receive_for_ever(channel, until);
    }
}

/// Sends numbered messages, and stores the number of committed messages in `log`.
fn send_for_ever(channel: Channel, log: &File, until: Instant) {
    let (mut sender, _receiver) = channel.split();
    let mut chance = Random::new(u64::from(std::process::id()));
    for number in 0_u64.. {
        let len = size(&mut chance);
        if number % 3 == 0 {
            let mut reserved = sender.reserve(len + 8).unwrap();
            write(&mut reserved, number);
            reserved.commit().unwrap();
        } else {
            let mut bytes = vec![0; len + 8];
            write(&mut bytes, number);
            sender.send(&bytes).unwrap();
        }
        log.write_all_at(&(number + 1).to_le_bytes(), 0).unwrap();
        if Instant::now() >= until {
            return;
        }
    }
}

fn receive_for_ever(channel: Channel, until: Instant) {
    let (_sender, mut receiver) = channel.split();
    let mut held = Vec::new();
    for number in 0.. {
        let message = receiver.recv_deadline(until).unwrap().unwrap();
        assert!(is_message(&message, number));
        // The victim holds up to four messages in the peer's memory, and drops them out of order.
        // So it dies with some of them in use.
        if held.len() > 3 {
            held.swap_remove(1);
        }
        held.push(message);
    }
}

/// Returns a message length: mostly small, sometimes so large that the message needs a block of
/// shared memory, rarely so large that it needs a segment of its own.
fn size(chance: &mut Random) -> usize {
    match chance.below(10) {
        0 => chance.size(2 << 20),
        1 | 2 => chance.size(100_000),
        _ => chance.size(2000),
    }
}

fn write(bytes: &mut [u8], number: u64) {
    let (head, rest) = bytes.split_at_mut(8);
    head.copy_from_slice(&number.to_le_bytes());
    fill(rest, number);
}

fn is_message(bytes: &[u8], number: u64) -> bool {
    bytes.len() >= 8 && bytes[..8] == number.to_le_bytes() && is_pattern(&bytes[8..], number)
}

fn config(kind: Kind) -> Config {
    kind.config().memory_max(8 << 20)
}

/// The survivor of a series of kills: its listener, and the log file in which each victim stores
/// the number of messages that it has committed.
struct Series {
    kind: Kind,
    listener: Listener,
    log: tempfile::NamedTempFile,
    chance: Random,
}

impl Series {
    fn new(kind: Kind) -> Self {
        let listener = Listener::bind_with(kind.address(), &config(kind)).unwrap();
        Self {
            kind,
            listener,
            log: tempfile::NamedTempFile::new().unwrap(),
            chance: Random::new(7),
        }
    }

    fn start(&mut self, role: &str) -> (Second, Channel) {
        let address = self.listener.local_address().to_string();
        let log = self.log.path().to_str().unwrap();
        self.log.as_file().write_all_at(&[0; 8], 0).unwrap();
        let victim = Second::start(
            "channels::victim",
            &[(ROLE, role), (KIND, self.kind.name()), (ADDRESS, &address), (LOG, log)],
        );
        (victim, self.listener.accept_deadline(partywall_testkit::soon()).unwrap())
    }

    /// Returns the random instant of the kill, within the next 16 ms.
    fn instant(&mut self) -> Instant {
        Instant::now() + Duration::from_micros(self.chance.size(16_000) as u64)
    }

    fn kill_a_sender(&mut self) {
        let (victim, channel) = self.start("send");
        let (_sender, mut receiver) = channel.split();
        let kill_at = self.instant();
        let mut received = 0;
        while Instant::now() < kill_at {
            match receiver.recv_deadline(kill_at) {
                Ok(Some(message)) => assert!(is_message(&message, received), "message {received}"),
                Err(RecvError::TimedOut) => break,
                other => panic!("before the death: {other:?}"),
            }
            received += 1;
        }
        drop(victim);
        let mut committed = [0; 8];
        self.log.as_file().read_exact_at(&mut committed, 0).unwrap();
        let (committed, learned_by) = (u64::from_le_bytes(committed), Instant::now() + NOTICE);
        let end = loop {
            match receiver.recv_deadline(learned_by) {
                Ok(Some(message)) => assert!(is_message(&message, received), "message {received}"),
                end => break end,
            }
            received += 1;
        };
        assert!(matches!(end, Err(RecvError::Disconnected)), "{end:?}");
        // The last message may have been committed before its number was stored.
        assert!((committed..=committed + 1).contains(&received), "{received} of {committed}");
    }

    fn kill_a_receiver(&mut self) {
        let (victim, channel) = self.start("receive");
        let (mut sender, _receiver) = channel.split();
        let kill_at = self.instant();
        let mut number = 0;
        let mut bytes = Vec::new();
        let mut next = |chance: &mut Random| {
            bytes.resize(size(chance) + 8, 0);
            write(&mut bytes, number);
            number += 1;
            bytes.clone()
        };
        while Instant::now() < kill_at {
            match sender.send_deadline(&next(&mut self.chance), kill_at) {
                Ok(()) => {}
                Err(SendError::TimedOut) => break,
                Err(error) => panic!("before the death: {error}"),
            }
        }
        drop(victim);
        let learned_by = Instant::now() + NOTICE;
        let end = loop {
            if let Err(error) = sender.send_deadline(&next(&mut self.chance), learned_by) {
                break error;
            }
        };
        assert!(matches!(end, SendError::Closed(Closed::Disconnected)), "{end:?}");
    }
}

/// Returns the counts of this process that the kills must not raise: descriptors, mappings,
/// resident bytes.
fn footprint() -> (usize, usize, u64) {
    (
        partywall_testkit::descriptors(Process::Own),
        process::mappings(Process::Own).unwrap().len(),
        process::resident_bytes(Process::Own).unwrap(),
    )
}

fn a_thousand(kind: Kind, deaths_each: u32) {
    if variable(ROLE).is_some() {
        return;
    }
    let kills = |count| {
        let mut series = Series::new(kind);
        for _ in 0..count {
            series.kill_a_sender();
            series.kill_a_receiver();
        }
    };
    // The descriptors are counted without a listener, because it may hold a region that it made in
    // advance, or may just have given it to a connection.
    kills(10);
    let before = footprint();
    kills(deaths_each);
    let after = footprint();
    assert_eq!(after.0, before.0, "descriptors");
    // The allocator's mappings may vary by a few; a leak would show as hundreds of mappings.
    assert!(after.1 <= before.1 + 10, "mappings: {} then {}", before.1, after.1);
    assert!(after.2 <= before.2 + (16 << 20), "resident: {} then {}", before.2, after.2);
}

/// All series of kills run one after the other, because each counts the descriptors and mappings of
/// the whole process.
#[test]
fn a_thousand_deaths_over_the_shm_and_two_hundred_over_the_socket() {
    let _alone = partywall_testkit::alone();
    a_thousand(Kind::SharedMemory, 500);
    a_thousand(Kind::Moving, 50);
    a_thousand(Kind::Unix, 100);
    a_thousand(Kind::Untrusted, 50);
}

#[test]
fn nothing_but_the_socket_path_stays_and_it_stops_nobody() {
    if variable(ROLE).is_some() {
        return;
    }
    let _alone = partywall_testkit::alone();
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/app.sock", directory.path().display());
    let log = directory.path().join("bound");
    for _ in 0..3 {
        let log_text = log.to_str().unwrap();
        let variables = [(ROLE, "bind"), (KIND, "shm"), (ADDRESS, &address[..]), (LOG, log_text)];
        let victim = Second::start("channels::victim", &variables);
        wait_for(&log);
        drop(victim);
        std::fs::remove_file(&log).unwrap();
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
    let mut listener = Listener::bind(&address).unwrap();
    let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    listener.accept_deadline(partywall_testkit::soon()).unwrap();
    client.join().unwrap();
    drop(listener);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn wait_for(path: &Path) {
    let deadline = partywall_testkit::soon();
    while !path.exists() {
        assert!(Instant::now() < deadline, "the second process does not start");
        std::thread::yield_now();
    }
}
