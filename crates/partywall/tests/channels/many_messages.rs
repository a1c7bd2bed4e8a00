// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which two processes exchange many messages of random sizes by every method to send and
//! to receive. The receiving process checks every byte.
//!
//! Sizes are log-uniform from 0 bytes to 8 MiB: each order of magnitude is equally frequent.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::{
    Channel, Limit, Listener, Message, Receiver, RecvError, SendError, Sender, SharedSender,
    TryRecvError, TrySendError,
};
use partywall_testkit::{Kind, Random, Second, TIMEOUT, fill, is_pattern, soon, variable};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LEN_MAX: u64 = 8 << 20;
const THREADS: u64 = 4;
/// Number of bytes at the beginning of a message through the shared sender that hold the number of
/// the sending thread and of the message.
const HEAD: usize = 16;
/// Maximum number of bytes of received messages that the receiver holds. The sender can then still
/// allocate most of its 64 MiB.
const HELD_BYTES_MAX: usize = 24 << 20;
/// After this time without a message, the receiver drops one of the messages that it holds.
const HOLD_TIME: Duration = Duration::from_millis(20);

/// Returns the length of message `number`, which both processes compute from the same seed.
fn length(seed: u64, number: u64) -> usize {
    Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95)).size(LEN_MAX)
}

/// Returns the length of message `number` of a thread that shares the sender; it is at least `HEAD`
/// bytes.
fn shared_length(thread: u64, number: u64) -> usize {
    HEAD + length(thread + 1, number).min(LEN_MAX as usize - HEAD)
}

/// Returns how many of `count` messages one thread sends before `THREADS` threads share the sender.
const fn alone(count: u64) -> u64 {
    count / 5 * 4
}

const fn each(count: u64) -> u64 {
    (count - alone(count)) / THREADS
}

#[test]
fn child() {
    let Some(address) = variable("MANY_ADDRESS") else { return };
    let number = |name| variable(name).unwrap().parse::<u64>().unwrap();
    let (count, seed) = (number("MANY_COUNT"), number("MANY_SEED"));
    let kind = Kind::from_name(&variable("MANY_KIND").unwrap());
    let channel = partywall::connect_with(&address, &kind.config()).unwrap();
    let (sender, mut receiver) = channel.split();
    let sender = send_alone(sender, seed, alone(count)).shared();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sender = sender.clone();
            scope.spawn(move || send_together(&sender, thread, each(count)));
        }
    });
    drop(sender);
    assert_eq!(receiver.recv_deadline(soon()).unwrap().unwrap(), b"all is well");
}

/// The second process: sends the messages 0 to `count` - 1, whose lengths and bytes follow from
/// `seed`, each by a randomly chosen method.
fn send_alone(mut sender: Sender, seed: u64, count: u64) -> Sender {
    let mut chance = Random::new(seed ^ 1);
    let mut buffer = vec![0; LEN_MAX as usize];
    let mut number = 0;
    while number < count {
        if number % 512 < 8 {
            sender.set_wait(chance.wait());
        }
        let len = length(seed, number);
        let way = chance.below(16);
        match way {
            0..=2 => {
                fill(&mut buffer[..len], seed ^ number);
                sender.send_deadline(&buffer[..len], soon()).unwrap();
            }
            3 => {
                fill(&mut buffer[..len], seed ^ number);
                try_until_sent(&mut sender, &buffer[..len]);
            }
            4 => {
                fill(&mut buffer[..len], seed ^ number);
                while late(sender.send_deadline(&buffer[..len], brief(&mut chance))) {}
            }
            5 | 6 => {
                number += send_batch(&mut sender, &mut chance, &mut buffer, seed, number, count);
                continue;
            }
            7 => {
                // An aborted reservation must leave no trace before the next message.
                let unsent = chance.size(1 << 20);
                sender.reserve_deadline(unsent, soon()).unwrap().abort();
                if chance.below(8) == 0 {
                    while matches!(sender.trim(), Err(TrySendError::Full)) {}
                }
                continue;
            }
            _ => {
                // Some reservations are 100 bytes longer than their messages.
                let more = if way == 8 { 100 } else { 0 };
                let mut reserved = sender.reserve_deadline(len + more, soon()).unwrap();
                reserved.truncate(len);
                fill(&mut reserved, seed ^ number);
                reserved.commit().unwrap();
            }
        }
        number += 1;
    }
    sender
}

/// Returns a deadline less than 0.5 ms ahead, so that the call that gets it sometimes times out.
fn brief(chance: &mut Random) -> Instant {
    Instant::now() + Duration::from_micros(chance.below(500))
}

/// Whether a send with a deadline timed out, so that its message must be sent again.
fn late(sent: Result<(), SendError>) -> bool {
    match sent {
        Ok(()) => false,
        Err(SendError::TimedOut) => true,
        Err(other) => panic!("{other}"),
    }
}

fn try_until_sent(sender: &mut Sender, bytes: &[u8]) {
    let until = soon();
    loop {
        match sender.try_send(bytes) {
            Ok(()) => return,
            Err(TrySendError::Full) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
        assert!(Instant::now() < until, "no room for {} bytes", bytes.len());
    }
}

/// Sends the next few messages as a batch, and returns their number. Before that, sometimes aborts
/// another batch.
fn send_batch(
    sender: &mut Sender,
    chance: &mut Random,
    buffer: &mut [u8],
    seed: u64,
    first: u64,
    count: u64,
) -> u64 {
    if chance.below(4) == 0 {
        let mut given_up = sender.batch_deadline(soon());
        for _ in 0..chance.below(4) {
            let len = chance.size(64 << 10);
            given_up.send(&buffer[..len]).unwrap();
        }
        given_up.abort();
    }
    let wanted = (1 + chance.below(12)).min(count - first);
    let mut batch = sender.batch_deadline(soon());
    let mut added = 0;
    while added < wanted {
        let len = length(seed, first + added);
        fill(&mut buffer[..len], seed ^ (first + added));
        match batch.send(&buffer[..len]) {
            Ok(()) => added += 1,
            Err(SendError::TooLarge(full)) if full.limit == Limit::Batch && added > 0 => break,
            Err(other) => panic!("{other}"),
        }
    }
    batch.commit().unwrap();
    added
}

/// Sends `count` messages as thread number `thread`, while other threads send through the same
/// sender.
fn send_together(sender: &SharedSender, thread: u64, count: u64) {
    let mut chance = Random::new(thread);
    let mut buffer = vec![0; LEN_MAX as usize];
    for number in 0..count {
        let len = shared_length(thread, number);
        let compose = |bytes: &mut [u8]| {
            bytes[..8].copy_from_slice(&thread.to_le_bytes());
            bytes[8..HEAD].copy_from_slice(&number.to_le_bytes());
            fill(&mut bytes[HEAD..], thread << 32 | number);
        };
        match chance.below(4) {
            0 => {
                compose(&mut buffer[..len]);
                while late(sender.send_deadline(&buffer[..len], brief(&mut chance))) {}
            }
            1 => {
                compose(&mut buffer[..len]);
                sender.send_batch(&[&buffer[..len]]).unwrap();
            }
            2 => {
                compose(&mut buffer[..len]);
                sender.send_deadline(&buffer[..len], soon()).unwrap();
            }
            _ => {
                let mut reserved = sender.reserve_deadline(len, soon()).unwrap();
                compose(&mut reserved);
                reserved.commit().unwrap();
            }
        }
        if number % 256 == 0 {
            sender.set_wait(chance.wait());
        }
    }
}

/// The receiver in the first process: the number of the next expected message, and the received
/// messages that it holds.
struct Reader {
    seed: u64,
    alone: u64,
    next: u64,
    next_of: [u64; THREADS as usize],
    held: Vec<(u64, Message)>,
    held_bytes: usize,
    bytes: u64,
}

impl Reader {
    /// Checks that a received message is the next expected one, with all its bytes.
    fn check(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.next < self.alone {
            let number = self.next;
            assert_eq!(bytes.len(), length(self.seed, number), "length of message {number}");
            assert!(is_pattern(bytes, self.seed ^ number), "bytes of message {number}");
            self.next += 1;
            return;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (thread, number) = (word(0), word(8));
        let next = &mut self.next_of[thread as usize];
        assert_eq!(number, *next, "order of thread {thread}");
        assert_eq!(bytes.len(), shared_length(thread, number));
        assert!(is_pattern(&bytes[HEAD..], thread << 32 | number), "{thread}: {number}");
        *next += 1;
    }

    /// Holds some of the messages, and drops others in any order after checking that their bytes
    /// are unchanged.
    fn hold(&mut self, chance: &mut Random, message: Message) {
        let is_small = message.len() < 1 << 20;
        if chance.below(3) == 0 && is_small {
            self.held_bytes += message.len();
            self.held.push((sum(&message), message));
        }
        while self.held.len() > 64 || self.held_bytes > HELD_BYTES_MAX {
            self.drop_one(chance);
        }
    }

    fn drop_one(&mut self, chance: &mut Random) {
        let index = chance.below(self.held.len() as u64) as usize;
        let (before, message) = self.held.swap_remove(index);
        assert_eq!(sum(&message), before, "a held message changed");
        self.held_bytes -= message.len();
    }
}

/// Returns a checksum of some bytes of a held message, which shows later whether they have changed.
fn sum(bytes: &[u8]) -> u64 {
    let sample = bytes.iter().step_by(1 + bytes.len() / 64);
    sample.fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn receive_all(receiver: &mut Receiver, reader: &mut Reader) {
    let mut chance = Random::new(reader.seed ^ 2);
    let mut last = Instant::now();
    loop {
        if chance.below(512) == 0 {
            receiver.set_wait(chance.wait());
        }
        let is_holding = !reader.held.is_empty();
        let timeout = Instant::now() + if is_holding { HOLD_TIME } else { Duration::from_secs(1) };
        let outcome = match chance.below(4) {
            0 => match receiver.recv_ref_deadline(timeout) {
                Ok(Some(message)) => {
                    reader.check(&message);
                    if chance.below(4) == 0 {
                        let message = message.into_message();
                        reader.hold(&mut chance, message);
                    }
                    last = Instant::now();
                    continue;
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            1 => match receiver.try_recv() {
                Ok(message) => Ok(message),
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => Err(RecvError::Disconnected),
                Err(TryRecvError::Fault(fault)) => Err(RecvError::Fault(fault)),
                Err(other) => panic!("{other}"),
            },
            _ => receiver.recv_deadline(timeout),
        };
        match outcome {
            Ok(Some(message)) => {
                reader.check(&message);
                reader.hold(&mut chance, message);
                last = Instant::now();
            }
            // The sender may be waiting for memory that held messages occupy: even sixty small
            // messages, spread over the memory, can leave no free piece of 8 MiB.
            Err(RecvError::TimedOut) if is_holding => reader.drop_one(&mut chance),
            Err(RecvError::TimedOut) => assert!(last.elapsed() < TIMEOUT, "nothing comes"),
            Ok(None) => return,
            Err(other) => panic!("after {} messages: {other}", reader.next),
        }
    }
}

fn pass(kind: Kind, count: u64) -> Duration {
    // A lock for which each test of this file waits, because each uses both processor cores.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seed = 0x5eed_0000 + count;
    let mut listener = Listener::bind_with(kind.address(), &kind.config()).unwrap();
    let address = listener.local_address().to_string();
    let start = Instant::now();
    let mut child = Second::start(
        "many_messages::child",
        &[
            ("MANY_ADDRESS", &address),
            ("MANY_COUNT", &count.to_string()),
            ("MANY_SEED", &seed.to_string()),
            ("MANY_KIND", kind.name()),
        ],
    );
    let channel: Channel = listener.accept_deadline(soon()).unwrap();
    let (mut reply, mut receiver) = channel.split();
    let mut reader = Reader {
        seed,
        alone: alone(count),
        next: 0,
        next_of: [0; THREADS as usize],
        held: Vec::new(),
        held_bytes: 0,
        bytes: 0,
    };
    receive_all(&mut receiver, &mut reader);
    assert_eq!(reader.next, alone(count));
    assert_eq!(reader.next_of, [each(count); THREADS as usize]);
    reply.send_deadline(b"all is well", soon()).unwrap();
    assert!(child.wait().success());
    let time = start.elapsed();
    let gibibytes = reader.bytes as f64 / f64::from(1 << 30);
    println!("{}: {count} messages, {gibibytes:.1} GiB in {time:.1?}", kind.name());
    time
}

#[test]
fn a_hundred_thousand_over_the_shm() {
    assert!(pass(Kind::SharedMemory, 100_000) < Duration::from_secs(180), "far too slow");
}

#[test]
fn thousands_without_trust() {
    pass(Kind::Untrusted, 5000);
}

#[test]
fn thousands_over_a_unix_socket() {
    pass(Kind::Unix, 5000);
}

#[test]
fn thousands_from_a_unix_socket_to_the_shm() {
    pass(Kind::Moving, 5000);
}

#[test]
fn thousands_over_tcp() {
    pass(Kind::Tcp, 5000);
}
