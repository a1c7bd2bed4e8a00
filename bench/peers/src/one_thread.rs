// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench-peers one-thread`: what a message costs if one thread holds both ends, in C, in Rust, and
//! over publish-subscribe of the crate `iceoryx2`.
//!
//! ```text
//!   C          send, receive a view     bindings/c/bench/one_thread.c and the installed library
//!   Rust       send, receive a view     the crate partywall
//!   iceoryx2   loan, fill, send, receive
//! ```
//! To loan is to take memory for a message from the library. C, Rust and iceoryx2 are measured in
//! turn in each round. Each message is a copy of a buffer with another first word, so all its bytes
//! are written, and the sum of its words is compared, so all are read.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{Node, ipc};
use partywall_bench::figure::quantity::{exact_size_name, ns_name};
use partywall_bench::figure::spread::Spread;
use partywall_bench::figure::text_table::{TextTable, spread_name};
use partywall_bench::harness::cell::{Cell, Scenario};
use partywall_bench::harness::workspace::Workspace;
use zerocopy::IntoBytes;

use crate::arguments::WORD_BYTES;
use crate::table::ICEORYX2_PUBSUB;
use crate::transport::iceoryx::{node, word_count};
use crate::transport::iceoryx_pubsub::service;

/// Measures `rounds` rounds of each size with the library that is installed below `prefix`, and
/// prints a table.
pub fn bench(prefix: &Path, rounds: u32) -> Result<()> {
    let workspace = Workspace::make("bench-peers")?;
    let mut in_c = InC::start(prefix, &workspace.setup(0, cell(SIZES[0].0)).directory)?;
    let mut table = TextTable::new(&["size", "C", "Rust", "iceoryx2", "C ÷ Rust", "C ÷ iceoryx2"]);
    for (number, (size, count)) in (1..).zip(SIZES) {
        let mut rust = Channels::connect(&format!("{}-{number}", std::process::id()))?;
        let services = Pubsub::make(&workspace, number, size)?;
        let mut payload: Vec<u64> = (0..word_count(size) as u64).map(|it| it ^ SEED).collect();
        let mut times = Vec::new();
        for round in 0..=rounds {
            let taken = [
                in_c.time(size, count)?,
                time(&mut payload, count, |payload| rust.exchange(payload))?,
                time(&mut payload, count, |payload| services.exchange(payload))?,
            ];
            if round > 0 {
                times.push(taken); // the round before only warms up
            }
        }
        let median = |of: fn(&[f64; 3]) -> f64| Spread::of(times.iter().map(of));
        let name = |of| median(of).map_or_else(String::new, |it| ns_name(it.median));
        table.push(vec![
            exact_size_name(size),
            name(|it| it[0]),
            name(|it| it[1]),
            name(|it| it[2]),
            spread_name(median(|it| it[0] / it[1])),
            spread_name(median(|it| it[0] / it[2])),
        ]);
    }
    println!("{}", table.to_text());
    println!(
        "Medians of {rounds} rounds for one message; ratios within a round, with their spread."
    );
    Ok(())
}

/// Calls `exchange` for `count` messages, and returns the nanoseconds of each. `exchange` sends the
/// payload, receives it, and returns the sum of the received words.
fn time(
    payload: &mut [u64],
    count: u64,
    mut exchange: impl FnMut(&[u64]) -> Result<u64>,
) -> Result<f64> {
    let others = payload.iter().skip(1).fold(0, |sum: u64, word| sum.wrapping_add(*word));
    let start = Instant::now();
    for number in 0..count {
        payload[0] = number;
        let sum = exchange(payload)?;
        ensure!(sum == others.wrapping_add(number), "message {number} is not what was sent");
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The child process that measures in C. It reads a message size and a number of messages from its
/// stdin, and prints the measured time.
struct InC {
    program: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl InC {
    fn start(prefix: &Path, directory: &Path) -> Result<Self> {
        let (path, library) = (directory.join("one_thread"), prefix.join("lib"));
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c/bench/one_thread.c");
        let compiled = Command::new("cc")
            .args(["-O3", "-o"])
            .args([&path, &source])
            .arg(format!("-I{}", prefix.join("include").display()))
            .arg(format!("-L{}", library.display()))
            .arg(format!("-Wl,-rpath,{}", library.display()))
            .args(["-lpartywall", "-lpthread"])
            .status()
            .context("starting the compiler `cc`")?;
        ensure!(
            compiled.success(),
            "the program in C does not compile; first run: cargo xtask install --prefix {}",
            prefix.display()
        );
        let mut program =
            Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = program.stdin.take().context("the input is piped")?;
        let answers = program.stdout.take().context("the output is piped")?;
        Ok(Self { program, questions, answers: BufReader::new(answers) })
    }

    /// Lets the C program send and receive `count` messages of `size` bytes. Returns the time of
    /// one message in nanoseconds.
    fn time(&mut self, size: usize, count: u64) -> Result<f64> {
        writeln!(self.questions, "{size} {count}")?;
        self.questions.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        answer.trim().parse().context("the program in C has failed")
    }
}

impl Drop for InC {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The two directions of a channel that the measurement uses, one at each end. Both ends of the
/// channel are in this thread.
struct Channels {
    sender: partywall::Sender,
    receiver: partywall::Receiver,
    // The directions that the measurement does not use. They are kept, because dropping them would
    // end the channel.
    _others: (partywall::Receiver, partywall::Sender),
}

impl Channels {
    fn connect(name: &str) -> Result<Self> {
        let address = format!("unix:@bench-peers-{name}");
        let mut listener = partywall::Listener::bind(&address)?;
        let (client, server) = thread::scope(|scope| {
            let client = scope.spawn(|| partywall::connect(&address));
            let server = listener.accept();
            (client.join(), server)
        });
        let client = client.ok().context("the connecting thread panicked")??;
        let ((sender, incoming), (outgoing, receiver)) = (client.split(), server?.split());
        Ok(Self { sender, receiver, _others: (incoming, outgoing) })
    }

    fn exchange(&mut self, payload: &[u64]) -> Result<u64> {
        self.sender.try_send(payload.as_bytes())?;
        let view = self.receiver.try_recv_view()?.context("the channel has ended")?;
        let words = view.as_chunks::<WORD_BYTES>().0.iter();
        Ok(words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word))))
    }
}

/// A publisher and a subscriber of one service of the crate `iceoryx2`, both in this thread.
struct Pubsub {
    // Fields are dropped in the order of declaration: first the two ports, publisher and
    // subscriber, and then the node to which they belong.
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    _node: Node<ipc::Service>,
}

impl Pubsub {
    fn make(workspace: &Workspace, number: u32, size: usize) -> Result<Self> {
        let setup = workspace.setup(number, cell(size));
        let node = node(&setup)?;
        let service = service(&node, &setup, "one-thread")?;
        let publisher = service.publisher_builder().initial_max_slice_len(word_count(size));
        let publisher = publisher.create().context("making a publisher")?;
        let subscriber = service.subscriber_builder().create().context("making a subscriber")?;
        Ok(Self { publisher, subscriber, _node: node })
    }

    fn exchange(&self, payload: &[u64]) -> Result<u64> {
        let sample = self.publisher.loan_slice_uninit(payload.len()).context("loaning a sample")?;
        sample.write_from_slice(payload).send().context("publishing a sample")?;
        let sample = self.subscriber.receive().context("receiving a sample")?;
        let sample = sample.context("no sample has come")?;
        Ok(sample.payload().iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)))
    }
}

/// A cell for `Workspace::setup`, which takes the message size from it. The cell itself is not
/// measured.
fn cell(size: usize) -> Cell {
    Cell::new(Scenario::Ping, ICEORYX2_PUBSUB, size)
}

/// The measured message sizes in bytes, each with its number of messages in a round.
const SIZES: [(usize, u64); 3] = [(48, 200_000), (1 << 10, 100_000), (64 << 10, 5_000)];

/// A constant that is combined with the index of each word of a payload, so that the words are not
/// simply 0, 1, 2 ….
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
