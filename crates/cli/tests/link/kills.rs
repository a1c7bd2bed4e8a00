// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that kill `partywall link send` and `recv` with SIGKILL at random moments and restart
//! them. With `--exactly-once` the output equals the input. With `--at-least-once` no message is
//! missing, and repeated messages are in order.

use crate::linked;
use crate::program;

use linked::Ground;
use partywall_testkit::Random;
use program::{Running, TIMEOUT};
use std::fs;
use std::time::Instant;

/// The `link send` and the `link recv` of one link; the test kills and restarts each of them.
struct Both<'a> {
    ground: &'a Ground,
    sending: Vec<&'a str>,
    receiving: Vec<&'a str>,
    sender: Running,
    receiver: Running,
    kills: usize,
}

impl<'a> Both<'a> {
    fn start(ground: &'a Ground, sending: &[&'a str], receiving: &[&'a str]) -> Self {
        let (sending, receiving) = (ground.alice(sending), ground.bob(receiving));
        let (sender, receiver) = (ground.start(&sending), ground.start(&receiving));
        Self { ground, sending, receiving, sender, receiver, kills: 0 }
    }

    fn kill(&mut self, is_sender: bool) {
        let (process, arguments) = match is_sender {
            true => (&mut self.sender, &self.sending),
            false => (&mut self.receiver, &self.receiving),
        };
        self.kills += usize::from(process.0.try_wait().unwrap().is_none());
        process.0.kill().unwrap();
        process.0.wait().unwrap();
        *process = self.ground.start(arguments);
    }

    /// Whether the sender or the receiver has exited, so that the other will exit soon.
    fn is_done(&mut self) -> bool {
        [&mut self.sender, &mut self.receiver]
            .iter_mut()
            .any(|one| one.0.try_wait().unwrap().is_some())
    }

    fn until_grown(&mut self, bytes: u64) {
        let length =
            |ground: &Ground| fs::metadata(ground.path("out")).map_or(0, |metadata| metadata.len());
        let (wanted, deadline) = (length(self.ground) + bytes, Instant::now() + TIMEOUT);
        while length(self.ground) < wanted && !self.is_done() {
            assert!(Instant::now() < deadline, "nothing moves");
            std::thread::yield_now();
        }
    }

    fn torment(&mut self, kills: usize, chance: &mut Random, grown_max: u64) {
        let mut is_complete = false;
        for _ in 0..kills * 10 {
            if self.kills >= kills {
                return;
            }
            let (is_brief, bytes) = (chance.below(3) == 0, chance.below(grown_max));
            // The kill comes after a short random pause, between the start of the process and its
            // first message. A complete transfer needs such a pause, too: its output grows no more,
            // so a wait for growth would last until both processes had exited, and the kill would
            // not count. The pause is a number of yields of the processor, smaller for a complete
            // transfer: its processes exit soon, and a yield takes milliseconds on a busy machine.
            if is_brief || is_complete {
                let yields = if is_complete { 8 } else { 300 };
                (0..chance.below(yields)).for_each(|_| std::thread::yield_now());
            } else {
                self.until_grown(bytes);
            }
            let choice = chance.below(5);
            // The transfer may be complete before the last kill. If it is, sender and receiver
            // start once more.
            let is_done = self.is_done();
            is_complete |= is_done;
            if choice < 3 || is_done {
                self.kill(true);
            }
            if choice > 1 || is_done {
                self.kill(false);
            }
        }
        panic!("it was too fast: only {} kills", self.kills);
    }

    /// Restarts sender and receiver, and lets them run until all messages are transferred, without
    /// a kill during the transfer.
    fn end(mut self) {
        // `kill` kills one of the two processes and starts it again. The test restarts both: if
        // only one were restarted, it might wait for ever for the other, which may have exited
        // already.
        self.kill(true);
        self.kill(false);
        assert_eq!(self.sender.code(), 0);
        assert_eq!(self.receiver.code(), 0);
    }
}

fn exactly_once(is_tcp: bool, framing: &str) {
    let ground = Ground::new(is_tcp);
    let mut chance = Random::new(0x9e37_79b9 + u64::from(is_tcp));
    let mut input = Vec::new();
    for number in 0..1_000_000_u64 {
        let filler = usize::try_from(chance.below(40)).unwrap();
        let message =
            format!("{number} {}", &"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst"[..filler]);
        if framing == "length" {
            input.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
        }
        input.extend_from_slice(message.as_bytes());
        if framing == "lines" {
            input.push(b'\n');
        }
    }
    let (from, to) = (ground.write("in", &input), ground.path("out"));
    let options = ["--exactly-once", "--framing", framing];
    let sending = [&options[..], &["--in", &from]].concat();
    let receiving = [&options[..], &["--out", &to, "--once"]].concat();
    let mut both = Both::start(&ground, &sending, &receiving);
    both.torment(12, &mut chance, 10_000);
    both.end();
    let output = fs::read(ground.path("out")).unwrap();
    let same = output.iter().zip(&input).take_while(|(a, b)| a == b).count();
    assert!(output == input, "{} of {} bytes, the first {same} alike", output.len(), input.len());
}

#[test]
fn lines_over_a_unix_socket_arrive_exactly_once() {
    exactly_once(false, "lines");
}

#[test]
fn lines_over_tcp_arrive_exactly_once() {
    exactly_once(true, "lines");
}

#[test]
fn messages_with_lengths_over_a_unix_socket_arrive_exactly_once() {
    exactly_once(false, "length");
}

#[test]
fn messages_with_lengths_over_tcp_arrive_exactly_once() {
    exactly_once(true, "length");
}

#[test]
fn at_least_once_repeats_in_order_and_misses_nothing() {
    const LINES: u64 = 300_000;
    let ground = Ground::new(false);
    let mut chance = Random::new(77);
    let input: String = (0..LINES).map(|number| format!("{number:07}\n")).collect();
    let (from, to) = (ground.write("in", input), ground.path("out"));
    let mut both = Both::start(&ground, &["--in", &from], &["--out", &to, "--once"]);
    both.torment(8, &mut chance, 10_000);
    both.end();
    let output = ground.read("out");
    let (mut next, mut reached) = (0, 0);
    // A killed process may have written a part of a line. It stands on a line of its own, and is
    // shorter than the 7 characters of a whole line.
    for line in output.lines().filter(|line| line.len() == 7) {
        let number: u64 = line.parse().unwrap();
        assert!(number <= next, "{number} follows {next}: something is missing");
        next = number + 1;
        reached = reached.max(next);
    }
    assert_eq!((next, reached), (LINES, LINES));
}
