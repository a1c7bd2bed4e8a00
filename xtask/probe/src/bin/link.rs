// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that sends, receives and acknowledges messages of 48 bytes on a link over shared
//! memory.
//!
//! `cargo xtask path --link` runs this program under callgrind, which counts instructions only
//! inside the functions `measured_send` and `measured_receive`. Both ends are in this process and
//! in one thread, so each message has arrived before it is received.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use partywall::TransportPolicy;
use partywall_link::{Client, Config, Link, Receiver, Sender, Server, Storage};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("partywall-probe-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let outcome = exchange(&directory);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn exchange(directory: &Path) -> Result<(), Box<dyn Error>> {
    let config = || Config::default().transport(TransportPolicy::SharedMemory);
    let storage = |name: &str| {
        let path = directory.join(name);
        std::fs::create_dir(&path).map(|()| Storage::directory(path))
    };
    let address = format!("unix:{}/probe.sock", directory.display());
    let server = Server::bind(&address, storage("server")?, "server", config())?;
    let client = Client::new(storage("client")?, "client", config())?;
    let near: Link = client.connect(&address, "server", "probe")?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let far = thread::scope(|scope| {
        let attached = scope.spawn(|| near.wait_attached(deadline));
        let far = server.accept_deadline(deadline)?;
        attached.join().map_err(|_| "the connecting thread panicked")??;
        Ok::<Link, Box<dyn Error>>(far)
    })?;
    let (mut sender, _reverse_receiver) = near.split();
    let (_reverse_sender, mut receiver) = far.split();
    for _ in 0..WARM_UP {
        sender.send(&PAYLOAD)?;
        receiver.recv_with(|message| black_box(message.len()))?;
    }
    for message in 0..MESSAGES {
        for _ in 0..BETWEEN + message % PHASES {
            sender.send(&PAYLOAD)?;
            receiver.recv_with(|message| black_box(message.len()))?;
        }
        measured_send(&mut sender)?;
        measured_receive(&mut receiver)?;
    }
    println!("{MESSAGES}");
    Ok(())
}

#[inline(never)]
fn measured_send(sender: &mut Sender) -> Result<(), Box<dyn Error>> {
    sender.send(black_box(&PAYLOAD))?;
    Ok(())
}

/// Receives a message on the link. The receiver acknowledges the message after the closure that is
/// passed to it has read the message.
#[inline(never)]
fn measured_receive(receiver: &mut Receiver) -> Result<(), Box<dyn Error>> {
    receiver.recv_with(|message| black_box(message.len()))?;
    Ok(())
}

const PAYLOAD: [u8; 48] = [0x5a; 48];
/// Number of messages that are sent before the measurement. Work that happens only at the
/// beginning, such as allocations, is then not measured.
const WARM_UP: u32 = 1_000;
/// Least number of unmeasured messages before each measured one. Callgrind takes milliseconds to
/// write a dump, and a link polls its socket more often after a pause than within a stream of
/// messages.
const BETWEEN: u32 = 64;
/// The number of unmeasured messages before a measured one varies from `BETWEEN` to just below
/// `BETWEEN + PHASES`. So work that the link does once in eight messages falls into one measured
/// message of eight.
const PHASES: u32 = 16;
/// Number of messages that are measured.
const MESSAGES: u32 = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
