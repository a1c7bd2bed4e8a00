// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client and the server of a measurement, written in Rust. The programs of all languages have
//! the same command line, which `bench/languages/README.md` describes.

use std::error::Error;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Instant;

use partywall::{Channel, Listener, connect};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What carries the messages of a measurement: a channel or a Unix socket. Both sides know the
/// length of each message.
trait Carrier {
    fn send(&mut self, message: &[u8]) -> Outcome<()>;
    /// Fills `message` with the next received message. Returns false once the peer has closed the
    /// channel or socket.
    fn recv(&mut self, message: &mut [u8]) -> Outcome<bool>;
}

impl Carrier for Channel {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(Channel::send(self, message)?)
    }

    fn recv(&mut self, message: &mut [u8]) -> Outcome<bool> {
        let Some(found) = self.recv_ref()? else { return Ok(false) };
        message.copy_from_slice(&found);
        Ok(true)
    }
}

impl Carrier for UnixStream {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.write_all(message)?)
    }

    fn recv(&mut self, message: &mut [u8]) -> Outcome<bool> {
        match self.read_exact(message) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            outcome => Ok(outcome.map(|()| true)?),
        }
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [act, address, path] if act == "serve" => serve(address, path),
        [act, address, path] if act == "run" => run(address, path),
        _ => Err("rate serve|run ADDRESS SOCKET".into()),
    }
}

fn serve(address: &str, path: &str) -> Outcome<()> {
    let mut channels = Listener::bind(address)?;
    let sockets = UnixListener::bind(path)?;
    println!("ready");
    let mut first = channels.accept()?;
    let (mut second, _) = sockets.accept()?;
    thread::spawn(move || {
        if let Err(error) = answer(&mut second) {
            eprintln!("rate: {error}");
        }
    });
    answer(&mut first)
}

/// Performs the server's part of each task that the client announces, until the client has closed.
fn answer(carrier: &mut impl Carrier) -> Outcome<()> {
    let mut command = [0; 24];
    while carrier.recv(&mut command)? {
        let [task, size, count] = words(&command);
        let mut message = vec![0; usize::try_from(size)?];
        for _ in 0..count {
            if !carrier.recv(&mut message)? {
                return Err("the client has gone".into());
            }
            if task != WAY {
                carrier.send(&message)?;
            }
        }
        if task == WAY {
            carrier.send(&command[..8])?;
        }
    }
    Ok(())
}

fn words(command: &[u8; 24]) -> [u64; 3] {
    let mut all = [0; 3];
    for (word, bytes) in all.iter_mut().zip(command.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    all
}

fn run(address: &str, path: &str) -> Outcome<()> {
    let mut first = connect(address)?;
    let mut second = UnixStream::connect(path)?;
    println!("ready");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let [carrier, task, size, count] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err("CARRIER TASK SIZE COUNT".into());
        };
        let task = if task == "way" { WAY } else { 0 };
        let (size, count) = (size.parse()?, count.parse()?);
        let elapsed_ns = match carrier {
            "ours" => measure(&mut first, task, size, count)?,
            _ => measure(&mut second, task, size, count)?,
        };
        println!("{elapsed_ns}");
    }
    Ok(())
}

/// Performs the client's part of a task with `count` messages of `size` bytes, and returns its
/// duration in nanoseconds.
fn measure(carrier: &mut impl Carrier, task: u64, size: usize, count: u64) -> Outcome<u128> {
    let command = [task, size as u64, count].map(u64::to_le_bytes).concat();
    let mut message = vec![0; size];
    let mut is_alive = true;
    carrier.send(&command)?;
    let start = Instant::now();
    for _ in 0..count {
        carrier.send(&message)?;
        if task != WAY {
            is_alive &= carrier.recv(&mut message)?;
        }
    }
    if task == WAY {
        is_alive &= carrier.recv(&mut [0; 8])?;
    }
    let elapsed = start.elapsed();
    if is_alive { Ok(elapsed.as_nanos()) } else { Err("the server has gone".into()) }
}

/// Number of the task in which messages go only from client to server. In any other task the server
/// returns each message.
const WAY: u64 = 1;
