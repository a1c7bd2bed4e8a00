// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which a process is killed with SIGKILL at a random instant while both directions of its
//! channel are under load. The survivor receives every committed message whole and in order, and
//! learns of the death within a second. No descriptor, mapping or file of a channel is left.
//!
//! ```text
//!   survivor (this process)                    victim (a second process)
//!   its receiver checks every message   ◀────  sends, then stores the number in a file
//!   its sender loads the victim         ────▶  receives, and checks
//!   kills the victim at a random instant       (some victims only send, or only receive)
//!   reads the file: all messages up to the stored number must have arrived
//! ```
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    Begin, Channel, Config, Listener, Receiver, RecvError, SendError, Sender, Transport,
    TransportPolicy,
};
use partywall_testkit::{
    Directory, Footprint, Random, Second, Watchdog, number_of, payload, within,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The work of the victim: it sends, receives, or does both until it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
    Both,
}

const ROLES: [Role; 3] = [Role::Sender, Role::Receiver, Role::Both];

/// Longest time after the kill within which the survivor must learn of the death.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// Number of victims that are started in advance, because starting one takes longer than killing
/// it.
const POOL: usize = 4;

/// Returns the length of a message: mostly short, sometimes so long that it needs a block of shared
/// memory, rarely so long that it needs a segment of its own.
fn len_of(number: u64) -> usize {
    match number % 50 {
        0 => 300_000,
        1..=9 => 2000 + number as usize % 5000,
        _ => 8 + number as usize % 200,
    }
}

fn config(transport: &str) -> Config {
    let config = Config::default().memory_max(4 << 20);
    match transport {
        "shm" => config.transport(TransportPolicy::SharedMemory),
        "move" => config.begin(Begin::Socket),
        _ => config.transport(TransportPolicy::Socket),
    }
}

/// Code of the victim: connects, and sends and receives until it is killed.
#[test]
fn child() {
    let Some(role) = partywall_testkit::role() else { return };
    let log = File::options().write(true).open(partywall_testkit::argument("log")).unwrap();
    let config = config(&partywall_testkit::argument("transport"));
    // The survivor sends a byte when this process may begin.
    if std::io::Read::read(&mut std::io::stdin(), &mut [0]).unwrap() == 0 {
        return;
    }
    let channel = partywall::connect_with(partywall_testkit::argument("address"), &config).unwrap();
    let (mut sender, mut receiver) = channel.split();
    let reading = std::thread::spawn(move || {
        while let Ok(Some(message)) = receiver.recv() {
            number_of(&message);
        }
    });
    if role != "Receiver" {
        for number in 1_u64.. {
            if sender.send(&payload(number, len_of(number))).is_err() {
                break;
            }
            // The number is stored after `send` has returned, so its message was committed.
            log.write_all_at(&number.to_le_bytes(), 0).unwrap();
        }
    }
    let _ = reading.join();
}

/// Sends numbered messages until the peer is gone. Returns the error that reported it.
fn send_all(mut sender: Sender) -> SendError {
    for number in 1_u64.. {
        if let Err(error) = sender.send(&payload(number, len_of(number))) {
            return error;
        }
    }
    unreachable!("somebody received all numbers there are");
}

/// Receives until this direction of the channel ends. Returns the number of the last message, and
/// the error if there was one.
fn receive_all(receiver: &mut Receiver) -> (u64, Option<RecvError>) {
    let mut last = 0;
    loop {
        match receiver.recv_deadline(within(Duration::from_secs(20))) {
            Ok(Some(message)) => {
                let number = number_of(&message);
                assert_eq!(number, last + 1, "out of order");
                assert_eq!(message.len(), len_of(number));
                last = number;
            }
            Ok(None) => return (last, None),
            Err(error) => return (last, Some(error)),
        }
    }
}

/// The results of a series of kills: the number of messages that the survivor received, and the
/// longest time from a kill until the survivor noticed the death.
#[derive(Debug, Default)]
struct Series {
    messages: u64,
    latest_notice: Duration,
    before: Option<Footprint>,
}

struct Stage {
    place: Directory,
    listener: Option<Listener>,
    transport: &'static str,
    started: usize,
}

impl Stage {
    fn new(transport: &'static str) -> Self {
        let place = Directory::new();
        let mut stage = Self { place, listener: None, transport, started: 0 };
        stage.listen();
        stage
    }

    fn listen(&mut self) {
        let bound = Listener::bind_with(self.place.address("stage"), &config(self.transport));
        self.listener = Some(bound.unwrap());
    }

    /// Counts the descriptors and mappings of this process while it has no listener. A listener may
    /// hold a region that it made in advance, or may just have given it to a connection.
    fn footprint(&mut self) -> Footprint {
        self.listener = None;
        let footprint = Footprint::now();
        self.listen();
        footprint
    }

    /// Starts a victim. It connects, and sends only after a byte from this process has arrived on
    /// its stdin.
    fn start(&mut self, role: Role) -> (Second, File) {
        self.started += 1;
        let path = self.place.path(&format!("log{}", self.started));
        let log = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        log.write_all_at(&0_u64.to_le_bytes(), 0).unwrap();
        let arguments = [
            ("log", path.to_str().unwrap()),
            ("address", &self.place.address("stage")),
            ("transport", self.transport),
        ];
        let mut command = partywall_testkit::second_process(
            "both_directions::child",
            &format!("{role:?}"),
            &arguments,
        );
        let victim = Second::spawn(command.stdin(Stdio::piped()).stderr(Stdio::null()));
        (victim, log)
    }

    /// Lets the victim run for the time `work`, kills it, and checks what the survivor received.
    fn kill_one(&mut self, role: Role, victim: (Second, File), work: Duration) -> (u64, Duration) {
        let (mut victim, log) = victim;
        std::io::Write::write_all(victim.0.stdin.as_mut().unwrap(), b"!").unwrap();
        let deadline = within(Duration::from_secs(20));
        let channel: Channel = self.listener.as_mut().unwrap().accept_deadline(deadline).unwrap();
        let is_shared_memory = channel.transport() == Transport::SharedMemory;
        assert_eq!(is_shared_memory, self.transport == "shm");
        let (sender, mut receiver) = channel.split();
        std::thread::scope(|scope| {
            let sending = (role != Role::Sender).then(|| {
                scope.spawn(move || {
                    let error = send_all(sender);
                    (error, Instant::now())
                })
            });
            let receiving = scope.spawn(move || {
                let (last, error) = receive_all(&mut receiver);
                (last, error, Instant::now())
            });
            std::thread::sleep(work);
            let killed = Instant::now();
            victim.kill();
            let (last, error, noticed) = receiving.join().unwrap();
            assert!(matches!(error, Some(RecvError::Disconnected)), "{error:?}");
            let mut latest = noticed.saturating_duration_since(killed);
            if let Some(sending) = sending {
                let (error, noticed) = sending.join().unwrap();
                assert!(matches!(error, SendError::Closed(_)), "{error:?}");
                latest = latest.max(noticed.saturating_duration_since(killed));
            }
            let mut committed = [0; 8];
            log.read_exact_at(&mut committed, 0).unwrap();
            let committed = u64::from_le_bytes(committed);
            assert!(last >= committed, "{committed} were committed, {last} arrived");
            // The victim may have died after it committed one more message and before it stored the
            // number.
            assert!(last <= committed + 1, "{committed} were committed, {last} arrived");
            (last, latest)
        })
    }

    fn series(&mut self, kills: usize, seed: u64) -> Series {
        let mut random = Random::new(seed);
        let mut series = Series::default();
        let role_of = |index: usize| ROLES[index % ROLES.len()];
        let mut pool: std::collections::VecDeque<_> =
            (0..POOL).map(|index| self.start(role_of(index))).collect();
        for index in 0..kills {
            let victim = pool.pop_front().unwrap();
            pool.push_back(self.start(role_of(index + POOL)));
            let work = Duration::from_micros(random.below(12_000));
            let (messages, notice) = self.kill_one(role_of(index), victim, work);
            series.messages += messages;
            series.latest_notice = series.latest_notice.max(notice);
            if index == kills / 5 {
                series.before = Some(self.footprint());
            }
        }
        let (before, after) = (series.before.unwrap(), self.footprint());
        println!("{}: {kills} kills, {series:?}, after {after:?}", self.transport);
        assert_eq!(after.descriptors, before.descriptors);
        assert_eq!(after.shared_mappings, before.shared_mappings);
        assert!(after.resident_bytes < before.resident_bytes + (16 << 20));
        assert!(series.latest_notice < NOTICE_MAX);
        series
    }
}

fn nothing_is_left(place: &Directory) {
    let mut files = place.files();
    files.retain(|name| !name.starts_with("log"));
    assert_eq!(files, ["stage"]);
}

#[test]
fn four_hundred_kills_lose_nothing_and_leave_nothing() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("kills", Duration::from_secs(600));
    let started = Instant::now();
    for (transport, kills, seed) in [("shm", 250, 1), ("socket", 75, 2), ("move", 75, 3)] {
        let mut stage = Stage::new(transport);
        let series = stage.series(kills, seed);
        assert!(series.messages > kills as u64, "there was load");
        nothing_is_left(&stage.place);
    }
    println!("in {:?}", started.elapsed());
}
