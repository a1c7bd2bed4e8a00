// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a pair of programs in the matrix of languages, written in Rust. The programs of all
//! languages have the same command line and output, which `conformance/matrix/README.md` describes.
#![deny(unsafe_code)]

use partywall::blocking::{self, Session, Stream};
use partywall::{Admission, Channel, Config, ErrorCode, Listener, TransportPolicy, connect_with};
use partywall_link as link;
use partywall_link::{Client, Link, Server, Storage};
use partywall_testkit::{is_pattern, pattern, payload};
use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match perform(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(words: &[&str]) -> Outcome {
    match *words {
        ["features"] => {
            println!("channel session link");
            Ok(())
        }
        ["serve", kind, transport, address, argument] => {
            thread::spawn(end_with_input);
            match kind {
                "channel" => serve_channels(transport, address),
                "session" => serve_sessions(transport, address),
                "link" => serve_links(transport, address, argument),
                "chain" => serve_chain(transport, address, argument),
                "errors" => serve_errors(transport, address, argument.parse()?),
                other => Err(format!("cannot serve {other}").into()),
            }
        }
        ["run", "channel", transport, address, sizes] => {
            run_channel(transport, address, &numbers(sizes)?)
        }
        ["run", "session", transport, address, sizes] => {
            run_session(transport, address, &numbers(sizes)?)
        }
        ["run", "link", transport, address, sizes, directory, name] => {
            let link = connect_link(transport, address, directory, name)?;
            run_link(link, &numbers(sizes)?)
        }
        ["run", "chain", transport, address, count, directory, name, begin] => {
            let link = connect_link(transport, address, directory, name)?;
            run_chain(link, count.parse()?, begin == "new")
        }
        ["run", "errors", transport, address, nobody, user] => {
            run_errors(transport, address, nobody, user.parse()?)
        }
        _ => Err("the arguments are not those of the matrix".into()),
    }
}

/// Ends this server process when its standard input ends, which the harness closes.
fn end_with_input() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn numbers(list: &str) -> Result<Vec<usize>, std::num::ParseIntError> {
    list.split(',').map(str::parse).collect()
}

fn policy(transport: &str) -> TransportPolicy {
    match transport {
        "shared" => TransportPolicy::SharedMemory,
        "unix" => TransportPolicy::Socket,
        _ => TransportPolicy::Auto,
    }
}

fn config(transport: &str) -> Config {
    Config::default().transport(policy(transport))
}

/// The number of messages that this end has received, and the sum of their bytes.
#[derive(Default)]
struct Counters {
    messages: u64,
    bytes: usize,
}

impl Counters {
    /// Checks that a received message has the bytes that `seed` determines, and counts the message.
    fn check(&mut self, message: &[u8], seed: u64) -> Outcome {
        if !is_pattern(message, seed) {
            return Err(format!("message {seed:x} of {} bytes is wrong", message.len()).into());
        }
        self.messages += 1;
        self.bytes += message.len();
        Ok(())
    }

    /// Checks that `answer` has `size` bytes and answers the message with this seed, and counts the
    /// answer.
    fn check_answer(&mut self, answer: Option<&[u8]>, seed: u64, size: usize) -> Outcome {
        match answer {
            Some(answer) if answer.len() == size => self.check(answer, seed | ANSWER),
            Some(answer) => Err(format!("{} bytes answer {size}", answer.len()).into()),
            None => Err("the end instead of an answer".into()),
        }
    }

    fn report(&self, what: &str) {
        println!("{what} {} {}", self.messages, self.bytes);
    }
}

fn serve_channels(transport: &str, address: &str) -> Outcome {
    let mut listener = Listener::bind_with(address, &config(transport))?;
    println!("ready");
    loop {
        let mut channel = listener.accept()?;
        let mut counters = Counters::default();
        while let Some(message) = channel.recv()? {
            let seed = counters.messages;
            counters.check(&message, seed)?;
            channel.send(&pattern(message.len(), seed | ANSWER))?;
            channel.sender().flush(None)?;
        }
        counters.report("served");
    }
}

fn run_channel(transport: &str, address: &str, sizes: &[usize]) -> Outcome {
    let mut channel = connect_with(address, &config(transport))?;
    let mut counters = Counters::default();
    for (seed, &size) in (0..).zip(sizes) {
        channel.send(&pattern(size, seed))?;
        channel.sender().flush(None)?;
        counters.check_answer(channel.recv()?.as_deref(), seed, size)?;
    }
    drop(channel);
    counters.report("done");
    Ok(())
}

fn serve_sessions(transport: &str, address: &str) -> Outcome {
    let mut listener = blocking::Listener::bind_with(address, &config(transport))?;
    println!("ready");
    loop {
        let session = listener.accept()?;
        let mut threads = Vec::new();
        while let Some(stream) = session.accept()? {
            threads.push(thread::spawn(|| serve_stream(stream).map_err(|error| error.to_string())));
        }
        let mut total = Counters::default();
        for thread in threads {
            let counters = thread.join().map_err(|_| "a thread has panicked")??;
            total.messages += counters.messages;
            total.bytes += counters.bytes;
        }
        total.report("served");
    }
}

fn serve_stream(mut stream: Stream) -> Result<Counters, Box<dyn Error>> {
    let mut counters = Counters::default();
    let first = u64::from(*stream.metadata().first().ok_or("a stream without metadata")?);
    while let Some(message) = stream.recv()? {
        let seed = first << 32 | counters.messages;
        counters.check(&message, seed)?;
        stream.send(&pattern(message.len(), seed | ANSWER))?;
    }
    stream.finish();
    Ok(counters)
}

/// Sends messages of the given sizes on two streams, alternating, and checks the answers. Each
/// stream was opened with its own number, 0 or 1, as its one byte of metadata.
fn run_session(transport: &str, address: &str, sizes: &[usize]) -> Outcome {
    let session: Session = blocking::connect_with(address, &config(transport))?;
    let mut counters = Counters::default();
    let mut streams = [session.open(&[0])?, session.open(&[1])?];
    for (number, &size) in (0..).zip(sizes) {
        for (stream, first) in streams.iter_mut().zip(0_u64..) {
            stream.send(&pattern(size, first << 32 | number))?;
        }
        for (stream, first) in streams.iter_mut().zip(0_u64..) {
            counters.check_answer(stream.recv()?.as_deref(), first << 32 | number, size)?;
        }
    }
    for stream in &mut streams {
        stream.finish();
        if stream.recv()?.is_some() {
            return Err("a message instead of the end".into());
        }
    }
    drop(streams);
    session.close(0, "");
    session.finished(None)?;
    counters.report("done");
    Ok(())
}

fn link_config(transport: &str) -> link::Config {
    let config = link::Config::default().transport(policy(transport)).slab_bytes(SLAB_BYTES);
    config.allow_anonymous_tcp(transport == "tcp")
}

fn bind_links(transport: &str, address: &str, directory: &str) -> Result<Server, Box<dyn Error>> {
    let storage = Storage::directory(directory);
    let server = Server::bind(address, storage, "bob", link_config(transport))?;
    println!("ready");
    Ok(server)
}

fn connect_link(
    transport: &str,
    address: &str,
    directory: &str,
    name: &str,
) -> Result<Link, Box<dyn Error>> {
    let client = Client::new(Storage::directory(directory), "alice", link_config(transport))?;
    Ok(client.connect(address, "bob", name)?)
}

fn serve_links(transport: &str, address: &str, directory: &str) -> Outcome {
    let server = bind_links(transport, address, directory)?;
    loop {
        let link = server.accept()?;
        let mut counters = Counters::default();
        while let Some(message) = link.recv()? {
            let seed = counters.messages;
            counters.check(&message, seed)?;
            let answer = pattern(message.len(), seed | ANSWER);
            message.reply(&answer)?;
        }
        link.close(Instant::now() + LIMIT)?;
        counters.report("served");
    }
}

fn run_link(link: Link, sizes: &[usize]) -> Outcome {
    let mut counters = Counters::default();
    for (seed, &size) in (0..).zip(sizes) {
        link.send(&pattern(size, seed))?;
        let answer = link.recv()?;
        counters.check_answer(answer.as_deref(), seed, size)?;
        if let Some(answer) = answer {
            answer.ack()?;
        }
    }
    link.close(Instant::now() + LIMIT)?;
    counters.report("done");
    Ok(())
}

/// Receives and checks the next message in the test that kills an end of the link. Prints the line
/// "got" before the caller acknowledges or answers the message, so that the harness learns of every
/// receipt.
fn next_of_chain(link: &Link, mark: u64) -> Result<Option<(link::Message, u64)>, Box<dyn Error>> {
    let Some(message) = link.recv()? else { return Ok(None) };
    let word = message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let number = word & !ANSWER;
    if word & ANSWER != mark || *message != *payload(word, chain_len(number)) {
        return Err(format!("a message of {} bytes is wrong", message.len()).into());
    }
    println!("got {number} {} {}", message.attempt(), "-".repeat(PADDING));
    Ok(Some((message, number)))
}

fn serve_chain(transport: &str, address: &str, directory: &str) -> Outcome {
    let server = bind_links(transport, address, directory)?;
    let link = server.accept()?;
    while let Some((message, number)) = next_of_chain(&link, 0)? {
        message.reply(&payload(number | ANSWER, chain_len(number)))?;
    }
    link.close(Instant::now() + LIMIT)?;
    println!("finished");
    Ok(())
}

fn run_chain(link: Link, count: u64, is_new: bool) -> Outcome {
    for number in 0..if is_new { IN_FLIGHT } else { 0 } {
        link.send(&payload(number, chain_len(number)))?;
    }
    loop {
        let Some((message, number)) = next_of_chain(&link, ANSWER)? else {
            return Err("the end instead of an answer".into());
        };
        let next = number + IN_FLIGHT;
        if next < count {
            message.reply(&payload(next, chain_len(next)))?;
        } else {
            message.ack()?;
        }
        if number + 1 == count {
            break;
        }
    }
    link.close(Instant::now() + LIMIT)?;
    println!("finished");
    Ok(())
}

/// The length in bytes of message `number` in the test that kills an end of the link.
fn chain_len(number: u64) -> usize {
    if number % 64 == 63 { 70_000 } else { 8 + (number % 50) as usize }
}

/// The server of the error tests: accepts channels and keeps them open without sending. A second
/// listener admits only the user `user`.
fn serve_errors(transport: &str, address: &str, user: u32) -> Outcome {
    let config = config(transport).message_max(MESSAGE_MAX as u64);
    let mut listener = Listener::bind_with(address, &config)?;
    if transport != "tcp" {
        let strict = config.admit(Admission::users([user]));
        let mut strict = Listener::bind_with(&*format!("{address}.strict"), &strict)?;
        thread::spawn(move || drop(strict.accept()));
    }
    println!("ready");
    let mut channels = Vec::new();
    loop {
        channels.push(listener.accept()?);
    }
}

fn run_errors(transport: &str, address: &str, nobody: &str, user: u32) -> Outcome {
    let plain = config(transport);
    cause("address-syntax", &connect_with("nowhere", &plain));
    cause("no-listener", &connect_with(nobody, &plain));
    cause("setting", &connect_with(address, &config(transport).ring_bytes(5000)));
    if transport != "tcp" {
        cause("no-socket", &connect_with(&*format!("{nobody}.none"), &plain));
        let strict = config(transport).admit(Admission::users([user]));
        cause("not-admitted", &connect_with(address, &strict));
        cause("refused", &connect_with(&*format!("{address}.strict"), &plain));
    }
    let mut channel: Channel = connect_with(address, &plain)?;
    let soon = Instant::now() + Duration::from_millis(20);
    cause("deadline", &channel.recv_deadline(soon));
    cause("too-long", &channel.send(&[0; MESSAGE_MAX + 1]));
    println!("connected");
    cause("gone", &channel.recv());
    Ok(())
}

/// Prints the name of a cause of failure and the number of the error, or 0 if the call has
/// succeeded.
fn cause<T, E: ErrorCode>(name: &str, result: &Result<T, E>) {
    println!("cause {name} {}", result.as_ref().err().map_or(0, ErrorCode::code));
}

/// The bit of a seed that distinguishes an answer from the message that it answers.
const ANSWER: u64 = 1 << 63;
const SLAB_BYTES: u64 = 32 << 20;
/// Maximum number of messages that the client has sent and whose answers it has not received, in
/// the test that kills an end of the link.
const IN_FLIGHT: u64 = 8;
/// Number of characters that lengthen each printed line, so that about a thousand lines fill the
/// pipe to the harness.
const PADDING: usize = 48;
/// Maximum length in bytes of a message that the server of the error tests receives.
const MESSAGE_MAX: usize = 65_536;
/// Maximum time that closing a link may take.
const LIMIT: Duration = Duration::from_secs(60);
