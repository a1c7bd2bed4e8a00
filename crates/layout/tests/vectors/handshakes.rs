// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transcripts of handshakes: what a peer sends, what the side under test must answer, and how the
//! handshake ends (SPEC 2 and 10).
//!
//! ```text
//!  Script ─▶ text file: settings, send and receive lines, outcome      handshakes/acceptor.rs
//!                                                                      handshakes/connector.rs
//! ```
//!
//! The frames of the peer are bytes. In those of the side under test, bytes that the side may
//! choose are wildcards.

mod acceptor;
mod connector;

use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_SHM, FEATURE_SOCKET, Hello, Offer, Ready, RejectHead,
    TRANSPORT_SHM, TRANSPORT_SOCKET,
};
use std::fmt::Write;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::slice::from_ref;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

const PREFACE: &str = "\
# Transcripts of handshakes

The command `cargo run -p partywall-layout --example vectors -- --handshakes spec/handshakes` writes
these files. SPEC.md, section 10, says how to read them.
";

pub fn scripts() -> Vec<Script> {
    let mut scripts = acceptor::scripts();
    scripts.extend(connector::scripts());
    scripts
}

pub fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut index = format!("{PREFACE}\n| file | outcome | what it shows |\n|---|---|---|\n");
    for script in scripts() {
        let (name, about) = (&script.name, script.about);
        let outcome = script.outcome.replace('\t', " ");
        index += &format!("| `{name}.txt` | `{outcome}` | {about} |\n");
        fs::write(directory.join(format!("{name}.txt")), script.text())?;
    }
    fs::write(directory.join("INDEX.md"), index)
}

/// The transcript of one handshake: its lines, and how the handshake ends at the side under test.
pub struct Script {
    /// Name of the transcript's file, without the ending `.txt`.
    pub name: String,
    /// The rule of SPEC or the case that the transcript shows, as text for its row in the index.
    pub about: &'static str,
    settings: Vec<String>,
    lines: Vec<String>,
    outcome: String,
}

impl Script {
    /// Begins the transcript of an acceptor under test. The peer is a connector.
    fn acceptor(name: &str, about: &'static str) -> Self {
        Self::of("acceptor", name, about)
    }

    /// Begins the transcript of a connector under test. The peer is an acceptor.
    fn connector(name: &str, about: &'static str) -> Self {
        Self::of("connector", name, about)
    }

    fn of(side: &str, name: &str, about: &'static str) -> Self {
        let (name, settings) = (format!("{side}-{name}"), vec![format!("side\t{side}")]);
        Self { name, about, settings, lines: Vec::new(), outcome: String::new() }
    }

    fn set(mut self, setting: &str, value: impl ToString) -> Self {
        self.settings.push(format!("set\t{setting}\t{}", value.to_string()));
        self
    }

    /// Appends a line: the peer sends a frame, with the named descriptors at its first byte.
    fn send(self, frame: &str, bytes: &[u8], descriptors: &str) -> Self {
        let bytes = hex(bytes, &[]);
        self.line(&format!("send\t{frame}\t{bytes}\t{descriptors}"))
    }

    /// Appends a line: the peer sends this HELLO, with a pidfd of its process.
    fn send_hello(self, hello: &Hello) -> Self {
        let descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
        self.send("HELLO", Hello { descriptors, ..*hello }.as_bytes(), "pidfd")
    }

    /// Appends a line: the peer sends an OFFER of a region, alone or with two doorbells.
    fn send_region(self, has_doorbells: bool) -> Self {
        let (kinds, descriptors) = region_kinds(has_doorbells);
        self.send("OFFER", Offer::shm(REGION_BYTES, kinds).as_bytes(), descriptors)
    }

    fn send_socket_offer(self, reason: u32) -> Self {
        self.send("OFFER", Offer::socket(reason).as_bytes(), "-")
    }

    fn send_ready(self, ready: &Ready) -> Self {
        self.send("READY", ready.as_bytes(), "-")
    }

    fn send_reject(self, code: u32) -> Self {
        let text = b"no\x1b";
        let bytes = [RejectHead::new(code, text.len()).as_bytes(), text].concat();
        self.send("REJECT", &bytes, "-")
    }

    /// Appends a line: the side under test must send a HELLO with these feature bits and this
    /// reason for the fallback to the socket.
    fn receive_hello(self, features: u64, reason: u32) -> Self {
        let hello =
            Hello { features: U64::new(features), fallback_reason: reason.into(), ..Hello::new() };
        // The fields for limits, pid and nonce may have any value, and so may the field that says
        // whether a pidfd is sent. In the transcript these bytes are wildcards.
        let bytes = hex(hello.as_bytes(), &[32..80, 96..104]);
        self.line(&format!("receive\tHELLO\t{bytes}"))
    }

    /// Appends a line: the side under test must send an OFFER of a region of any size, alone or
    /// with two doorbells.
    fn receive_region(self, has_doorbells: bool) -> Self {
        let bytes = hex(Offer::shm(0, region_kinds(has_doorbells).0).as_bytes(), from_ref(&SIZE));
        self.line(&format!("receive\tOFFER\t{bytes}"))
    }

    fn receive_socket_offer(self, reason: u32) -> Self {
        let bytes = hex(Offer::socket(reason).as_bytes(), &[]);
        self.line(&format!("receive\tOFFER\t{bytes}"))
    }

    fn receive_ready(self, ready: &Ready) -> Self {
        let bytes = hex(ready.as_bytes(), &[]);
        self.line(&format!("receive\tREADY\t{bytes}"))
    }

    fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets the expected outcome of the handshake: both sides use shared memory.
    fn shm(self) -> Self {
        self.ends("shm")
    }

    /// Sets the expected outcome of the handshake: both sides use the socket, for the reason that
    /// the side under test reports.
    fn socket(self, reason: u32) -> Self {
        self.ends(&format!("socket\t{reason}"))
    }

    /// Sets the expected outcome: the handshake fails with the number `error` of SPEC 17. The side
    /// under test sends REJECT with the code `reject`, or no REJECT if that is 0, and closes the
    /// connection.
    fn fails(self, error: u32, reject: u32) -> Self {
        self.ends(&format!("fails\t{error}\t{reject}"))
    }

    fn ends(mut self, outcome: &str) -> Self {
        self.outcome = outcome.to_owned();
        self
    }

    pub fn text(&self) -> String {
        let mut text = format!("# {}\n", self.about);
        for line in self.settings.iter().chain(&self.lines) {
            text += line;
            text.push('\n');
        }
        text + "outcome\t" + &self.outcome + "\n"
    }
}

/// The HELLO that the peer sends, unless a transcript sends another. The peer can use both
/// transports.
fn hello() -> Hello {
    Hello {
        features: U64::new(BOTH),
        map_max: U64::new(1 << 30),
        message_max: U64::new(1 << 20),
        peer_blocks_max: U64::new(8),
        segments_max: 16.into(),
        pid: 4242.into(),
        nonce: *b"0123456789abcdef",
        ..Hello::new()
    }
}

/// Returns a HELLO with these feature bits and this reason for the fallback to the socket. Its
/// other fields are those of [`hello`].
fn hello_with(features: u64, reason: u32) -> Hello {
    Hello { features: U64::new(features), fallback_reason: reason.into(), ..hello() }
}

fn region_kinds(has_doorbells: bool) -> (&'static [u8], &'static str) {
    if has_doorbells { (&[2, 3, 4], "region,eventfd,eventfd") } else { (&[2], "region") }
}

fn ready_shm() -> Ready {
    Ready::new(TRANSPORT_SHM, 0)
}

fn ready_socket(reason: u32) -> Ready {
    Ready::new(TRANSPORT_SOCKET, reason)
}

/// Lengthens a frame, as a later version of the protocol may: bytes follow the fields of this
/// version.
fn longer(frame: &[u8]) -> Vec<u8> {
    let mut bytes = [frame, &[0xee; 24]].concat();
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Bytes as hexadecimal digits, those in a `free` range as two dots each, because the side under
/// test may choose them.
fn hex(bytes: &[u8], free: &[Range<usize>]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if free.iter().any(|range| range.contains(&index)) {
            text.push_str("..");
        } else {
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

/// Offsets of the bytes of an OFFER that hold the region's size.
const SIZE: Range<usize> = 32..40;
const BOTH: u64 = FEATURE_SHM | FEATURE_SOCKET;
/// Size in bytes of the region that the peer offers in a transcript.
const REGION_BYTES: u64 = 64 << 10;
