// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that sends and receives messages of 48 bytes on a channel over shared memory.
//!
//! `cargo xtask path` runs this program under callgrind, which counts instructions only inside the
//! functions `measured_send` and `measured_receive`. Both ends are in this process and in one
//! thread, so each message has arrived before it is received: neither end sleeps or wakes the
//! other.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::thread;

use partywall::{Channel, Config, Listener, Receiver, Sender, TransportPolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("partywall-probe-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let address = format!("unix:{}/probe.sock", directory.display());
    let connected = connect(&address);
    std::fs::remove_dir_all(&directory)?;
    let (client, server) = connected?;
    let (mut sender, _reverse_receiver) = client.split();
    let (_reverse_sender, mut receiver) = server.split();
    for _ in 0..WARM_UP {
        sender.send(&PAYLOAD)?;
        black_box(receiver.recv()?);
    }
    for _ in 0..MESSAGES {
        measured_send(&mut sender)?;
        measured_receive(&mut receiver)?;
    }
    println!("{MESSAGES}");
    Ok(())
}

fn connect(address: &str) -> Result<(Channel, Channel), Box<dyn Error>> {
    let config = Config::default().transport(TransportPolicy::SharedMemory);
    let mut listener = Listener::bind_with(address, &config)?;
    let address = address.to_owned();
    let client = thread::spawn(move || partywall::connect_with(&address, &config));
    let server = listener.accept()?;
    let client = client.join().map_err(|_| "the connecting thread panicked")??;
    Ok((client, server))
}

#[inline(never)]
fn measured_send(sender: &mut Sender) -> Result<(), Box<dyn Error>> {
    sender.send(black_box(&PAYLOAD))?;
    Ok(())
}

#[inline(never)]
fn measured_receive(receiver: &mut Receiver) -> Result<(), Box<dyn Error>> {
    black_box(receiver.recv()?);
    Ok(())
}

const PAYLOAD: [u8; 48] = [0x5a; 48];
/// Number of messages that are sent before the measurement. Work that happens only at the
/// beginning, such as allocations, is then not measured.
const WARM_UP: u32 = 1_000;
/// Number of messages that are measured.
const MESSAGES: u32 = 64;
