// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is one end of a channel or a session. The tests of another implementation start,
//! stop and kill it. The Go module has the same program, in `go/peer_test.go`.
//!
//! ```text
//! peer listen|dial TASK ADDRESS TRANSPORT [NUMBER|SIZES]
//!
//! TRANSPORT: shared, untrusted (shared memory, and no trust), unix or tcp
//!
//! task              prints                       does
//! echo N                                         sends back the messages of N channels
//! sizes 0,1,…                                    sends messages of these sizes, checks the echo
//! ping N            8 bytes for each echo        sends N numbered messages, checks each echo
//! flood             8 bytes for each message     sends numbered messages without end
//! send N                                         sends N numbered messages, then the end
//! receive N         `received COUNT CODE`        checks numbered messages until their end; each
//!                                                Nth is long
//! connect N                                      opens N channels, one long echo in each; before
//!                                                each it reads a byte of its standard input
//! streams N                                      opens N streams at once, checks their echoes
//! serve                                          sends back the messages of each stream
//! flood-streams N   8 bytes for each message     sends numbered messages on N streams without end
//! receive-streams N `received COUNT CODE` for    checks numbered messages of N streams until their
//!                   each stream                  end, the streams in the order of their opening
//! victim N          `violation CODE` for each    receives from N hostile peers, answers messages
//! hostile           `NAME CODE` for each         a hostile peer for each hostile image of a ring,
//!                                                one after the other; it only dials
//! hostile-sockets   `CODE NAME` for each         a hostile peer for each rule of the handshake, of
//!                                                a socket and of a control socket; after each it
//!                                                reads a byte of its standard input; it only dials
//! ```
//!
//! A listener prints `ready ADDRESS` first. The process ends with code 0, or with the number of the
//! error that ended its channel (SPEC 17), or with code 1 and a text.
#![deny(unsafe_code)]

use partywall::blocking::{self, Session};
use partywall::{
    Channel, Config, ErrorCode, Fault, Listener, RecvError, TransportPolicy, TrustPolicy,
    connect_with,
};
use partywall_layout::Geometry;
use partywall_layout::hello::Hello;
use partywall_layout::record_ring::Kind;
use partywall_sys::OwnMap;
use partywall_testkit::hostile::Attack;
use partywall_testkit::hostile::channel::{BOTH, Foe, hello};
use partywall_testkit::until;
use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use zerocopy::little_endian::U64;

type Outcome = Result<(), Box<dyn Error>>;
/// A function that returns a new connected channel with each call.
type Connect = Box<dyn FnMut() -> Result<Channel, Box<dyn Error>>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Peer::new(&arguments).and_then(|mut peer| peer.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer: {arguments:?}: {error}");
            ExitCode::from(error.downcast_ref::<Ended>().map_or(1, |ended| ended.0))
        }
    }
}

/// The number of the error with which a channel or a session ended; it becomes the exit code of the
/// process.
#[derive(Debug)]
struct Ended(u8);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ended by error {}", self.0)
    }
}

impl Error for Ended {}

/// Makes an `Ended` with the number of `error`, or with 1 if the number is too large for an exit
/// code.
fn ended(error: &impl ErrorCode) -> Ended {
    Ended(u8::try_from(error.code()).unwrap_or(1))
}

/// The parsed command line of the process.
struct Peer {
    listens: bool,
    task: String,
    address: String,
    config: Config,
    argument: String,
}

impl Peer {
    fn new(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let [role, task, address, transport, rest @ ..] = arguments else {
            return Err("peer listen|dial TASK ADDRESS TRANSPORT [ARGUMENT]".into());
        };
        let policy = match &**transport {
            "shared" | "untrusted" => TransportPolicy::SharedMemory,
            "unix" => TransportPolicy::Socket,
            "tcp" => TransportPolicy::Auto,
            other => return Err(format!("no transport {other}").into()),
        };
        let mut config = Config::default().transport(policy);
        if transport == "untrusted" {
            config = config.trust(TrustPolicy::Untrusted);
        }
        if task == "victim" {
            // SPEC 10 prescribes these limits for the reader of hostile images.
            config = config.message_max(64 << 10).map_max(256 << 10).segments_max(2);
        }
        Ok(Self {
            listens: role == "listen",
            task: task.clone(),
            address: address.clone(),
            config,
            argument: rest.first().cloned().unwrap_or_default(),
        })
    }

    fn run(&mut self) -> Outcome {
        match &*self.task {
            "hostile" => return attack(Path::new(self.address.trim_start_matches("unix:"))),
            "hostile-sockets" => return attack_sockets(self.address.trim_start_matches("unix:")),
            "streams" => return open_streams(&self.session()?, self.number()?),
            "serve" => return serve_streams(&self.session()?),
            "flood-streams" => return flood_streams(&self.session()?, self.number()?),
            "receive-streams" => return receive_streams(&self.session()?, self.number()?),
            _ => {}
        }
        let count = match &*self.task {
            "echo" | "victim" | "connect" => self.number()?,
            _ => 1,
        };
        let mut channels = self.channels()?;
        for _ in 0..count {
            if self.task == "connect" {
                io::stdin().read_exact(&mut [0])?;
            }
            self.perform(channels()?)?;
        }
        Ok(())
    }

    fn channels(&self) -> Result<Connect, Box<dyn Error>> {
        let (address, config) = (self.address.clone(), self.config.clone());
        if !self.listens {
            return Ok(Box::new(move || Ok(connect_with(&*address, &config)?)));
        }
        let mut listener = Listener::bind_with(&*address, &config)?;
        println!("ready {}", listener.local_address());
        Ok(Box::new(move || Ok(listener.accept()?)))
    }

    fn session(&self) -> Result<Session, Box<dyn Error>> {
        if !self.listens {
            return Ok(blocking::connect_with(&*self.address, &self.config)?);
        }
        let mut listener = blocking::Listener::bind_with(&*self.address, &self.config)?;
        println!("ready {}", listener.local_address());
        Ok(listener.accept()?)
    }

    fn perform(&self, channel: Channel) -> Outcome {
        match &*self.task {
            "echo" => echo(channel),
            "sizes" => {
                let sizes =
                    self.argument.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
                let messages = sizes.into_iter().enumerate();
                exchange(channel, messages.map(|(seed, size)| pattern(seed as u64, size)), false)
            }
            "ping" => exchange(channel, (0..self.number()?).map(|i| numbered(i, OFTEN)), true),
            "connect" => exchange(channel, [pattern(1, 100_000)].into_iter(), false),
            "flood" => send(channel, u64::MAX, OFTEN, true),
            "send" => send(channel, self.number()?, SELDOM, false),
            "receive" => receive(channel, self.number()?),
            "victim" => suffer(channel),
            other => Err(format!("no task {other}").into()),
        }
    }

    fn number(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.argument.parse()?)
    }
}

fn echo(mut channel: Channel) -> Outcome {
    while let Some(message) = channel.recv().map_err(|error| ended(&error))? {
        channel.send(&message).map_err(|error| ended(&error))?;
    }
    Ok(())
}

/// Sends each message, checks that the peer sends it back, and ends both directions. If `reports`
/// is true, prints the number of echoes so far after each echo.
fn exchange(channel: Channel, messages: impl Iterator<Item = Vec<u8>>, reports: bool) -> Outcome {
    let (mut sender, mut receiver) = channel.split();
    for (number, message) in (1..).zip(messages) {
        sender.send(&message).map_err(|error| ended(&error))?;
        let answer = receiver.recv().map_err(|error| ended(&error))?;
        if answer.as_deref() != Some(&*message) {
            return Err(format!("message {number} came back changed").into());
        }
        if reports {
            report(number)?;
        }
    }
    drop(sender);
    match receiver.recv().map_err(|error| ended(&error))? {
        None => Ok(()),
        Some(message) => Err(format!("{} bytes instead of the end", message.len()).into()),
    }
}

fn send(mut channel: Channel, count: u64, every: u64, reports: bool) -> Outcome {
    for number in 0..count {
        channel.send(&numbered(number, every)).map_err(|error| ended(&error))?;
        if reports {
            report(number + 1)?;
        }
    }
    let (sender, mut receiver) = channel.split();
    drop(sender);
    // The peer ends its direction once it has received everything.
    receiver.recv().map_err(|error| ended(&error))?;
    Ok(())
}

/// Receives and checks numbered messages until their end; one in `every` messages is long.
fn receive(mut channel: Channel, every: u64) -> Outcome {
    let mut count = 0;
    let code = loop {
        match channel.recv() {
            Ok(Some(message)) if *message == *numbered(count, every) => count += 1,
            Ok(Some(_)) => return Err(format!("message {count} is another").into()),
            Ok(None) => break 0,
            Err(error) => break error.code(),
        }
    };
    println!("received {count} {code}");
    Ok(())
}

/// Receives from a hostile peer until the peer breaks a rule, and prints the code of the violation.
fn suffer(mut channel: Channel) -> Outcome {
    let how = loop {
        match channel.recv() {
            // The empty answer tells the hostile peer that the message was read.
            Ok(Some(_)) => drop(channel.try_send(b"")),
            Ok(None) => break "end".to_owned(),
            Err(RecvError::Fault(Fault::Violation { violation, .. })) => {
                break format!("violation {}", violation.code());
            }
            Err(error) => break error.to_string(),
        }
    };
    println!("{how}");
    Ok(())
}

/// For each image of a ring in `spec/hostile`, connects as a hostile peer, writes the image into
/// its ring, and waits until the attacked end has closed the connection.
fn attack(path: &Path) -> Outcome {
    let directory = Path::new(HOSTILE);
    let index = fs::read_to_string(directory.join("INDEX.md"))?;
    for row in index.lines().filter(|line| line.starts_with("| `ring-")) {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim_matches([' ', '`'])).collect();
        let [_, name, "ring", from, code, ..] = cells[..] else { continue };
        let image = fs::read(directory.join(name))?;
        // SPEC 10 prescribes this geometry for the hostile peer that writes images of rings.
        let geometry = Geometry::new(4096, 8, 64 << 10).ok_or("no geometry")?;
        let own = Hello { peer_blocks_max: U64::new(8), ..hello(BOTH) };
        let mut foe = Foe::visit(path, &own, geometry);
        println!("{name} {code}");
        for number in [1, 2] {
            let memory = OwnMap::create("foe-segment", 64 << 10)?;
            foe.send_segment(number, memory.as_fd());
        }
        let from: u64 = from.parse()?;
        while foe.position < from {
            foe.publish(Kind::Data, b"");
            foe.notify();
            let position = foe.position;
            until("the record is read", || foe.consumed() == position);
        }
        write_last(&mut foe, &image, from);
        foe.notify();
        foe.wait_for_hang_up();
    }
    Ok(())
}

/// Connects as one hostile peer after the other, each of which breaks a rule of the handshake, of a
/// socket or of a control socket.
fn attack_sockets(path: &str) -> Outcome {
    for attack in Attack::all(Path::new(HOSTILE))? {
        println!("{} {}", attack.code, attack.name);
        attack.run(Path::new(path))?;
        // Waits for a byte on standard input, which says that the attacked process has printed why
        // it refused the hostile peer. It may print this after it has closed the connection.
        io::stdin().read_exact(&mut [0])?;
    }
    Ok(())
}

/// Writes an image into the ring of a hostile peer. The word that the attacked end polls is written
/// last, so the attacked end finds the whole image.
fn write_last(foe: &mut Foe, image: &[u8], from: u64) {
    let ring = foe.geometry.ring_offset as usize;
    let looked_at = (from % 4096) as usize;
    let (before, rest) = image.split_at(looked_at);
    let (word, after) = rest.split_at(8);
    let memory = foe.region.as_mut_slice();
    memory[ring..ring + looked_at].copy_from_slice(before);
    memory[ring + looked_at + 8..ring + image.len()].copy_from_slice(after);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    foe.write_word((ring + looked_at) as u64, u64::from_le_bytes(bytes));
}

/// Opens all streams of a session, and then exchanges messages on all of them at once.
fn open_streams(session: &Session, count: u64) -> Outcome {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(session.open(b"peer").map_err(|error| error.to_string())?);
    }
    let threads = (0..).zip(streams).map(|(index, mut stream)| {
        thread::spawn(move || -> Result<(), String> {
            for number in 0..STREAM_MESSAGES {
                let message = numbered(index * STREAM_MESSAGES + number, OFTEN);
                stream.send(&message).map_err(|error| error.to_string())?;
                let answer = stream.recv().map_err(|error| error.to_string())?;
                if answer.as_deref() != Some(&*message) {
                    return Err(format!("stream {index}: message {number} came back changed"));
                }
            }
            stream.finish();
            match stream.recv().map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(_) => Err(format!("stream {index}: a message instead of the end")),
            }
        })
    });
    join(threads.collect())?;
    session.close(0, "");
    Ok(())
}

/// Sends back the messages of each stream, until the peer has closed the session.
fn serve_streams(session: &Session) -> Outcome {
    let mut threads = Vec::new();
    while let Ok(Some(mut stream)) = session.accept() {
        threads.push(thread::spawn(move || -> Result<(), String> {
            while let Some(message) = stream.recv().map_err(|error| error.to_string())? {
                stream.send(&message).map_err(|error| error.to_string())?;
            }
            stream.finish();
            Ok(())
        }));
    }
    join(threads)
}

/// Sends numbered messages on all streams at once. After each message this process prints a word:
/// the index of the stream in the upper 16 bits, and below them the number of messages that the
/// stream has sent.
fn flood_streams(session: &Session, count: u64) -> Outcome {
    let mut threads = Vec::new();
    for index in 0..count {
        let mut stream = session.open(b"peer").map_err(|error| ended(&error))?;
        threads.push(thread::spawn(move || {
            for number in 0.. {
                if let Err(error) = stream.send(&numbered(number, OFTEN)) {
                    return ended(&error);
                }
                if report(index << 48 | (number + 1)).is_err() {
                    break;
                }
            }
            Ended(1)
        }));
    }
    let mut last = Ended(1);
    for thread in threads {
        last = thread.join().map_err(|_| "a thread panicked")?;
    }
    Err(last.into())
}

/// Receives on all streams at once. At the end this process prints, for each stream, the number of
/// received messages and the error with which the stream ended.
fn receive_streams(session: &Session, count: u64) -> Outcome {
    let mut threads = Vec::new();
    for _ in 0..count {
        let accepted = session.accept().map_err(|error| error.to_string())?;
        let mut stream = accepted.ok_or("the session ends early")?;
        threads.push(thread::spawn(move || {
            for received in 0.. {
                match stream.recv() {
                    Ok(Some(message)) if *message == *numbered(received, OFTEN) => {}
                    Ok(Some(_)) => return Err(format!("message {received} is another")),
                    Ok(None) => return Ok((received, 0)),
                    Err(error) => return Ok((received, error.code())),
                }
            }
            Err("a stream without end".to_owned())
        }));
    }
    for thread in threads {
        let (received, code) = thread.join().map_err(|_| "a thread panicked")??;
        println!("received {received} {code}");
    }
    Ok(())
}

fn join(threads: Vec<thread::JoinHandle<Result<(), String>>>) -> Outcome {
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// Writes a count to standard output as eight bytes.
fn report(count: u64) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(&count.to_le_bytes())?;
    output.flush()
}

/// Makes message `number`, which begins with its number; one in `every` messages is long.
fn numbered(number: u64, every: u64) -> Vec<u8> {
    let size = if number % every == 0 { 3000 + number % 50_000 } else { 16 + number % 100 };
    let mut bytes = pattern(number, usize::try_from(size).unwrap_or(0));
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Makes `size` bytes that are determined by the seed.
fn pattern(seed: u64, size: usize) -> Vec<u8> {
    let mut word = (seed as u32).wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}

/// The directory with the images that hostile peers send or write.
const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/hostile");
/// Number of messages that are exchanged on each stream.
const STREAM_MESSAGES: u64 = 20;
/// In tests that send few messages, every fifth one is long.
const OFTEN: u64 = 5;
/// In tests that send a million messages, every thousandth one is long.
const SELDOM: u64 = 1000;
