// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorded handshake of published implementations, shmipc-go or shmipc-rs. It is read from
//! `spec/shmipc`, and written again while a test replays it.
//!
//! ```text
//!   spec/shmipc/v3-memfd-….txt ── Recording ── lines of the peer ──▶ sent to our side
//!                                     ▲             our lines     ◀── received, masked ── written
//!                                     └───────────── the same text? ──────────┘
//! ```
//!
//! Before the comparison, three parts of the messages of `partywall-shmipc` are replaced by the
//! recorded values (`spec/shmipc/README.md`). These are the start of names, up to the process id;
//! the lengths that depend on it; and the seals of memfds.

use partywall_sys::{SharedFileStat, Socket};
use std::fmt::Write as _;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Client,
    Server,
}

/// One message of the recording, or the single byte that carries the memfds' descriptors.
#[derive(Clone, Debug)]
pub struct Line {
    pub from: From,
    pub bytes: Vec<u8>,
    /// Size and name of the file behind each descriptor that came with the byte of this line of the
    /// recording.
    pub descriptors: Vec<(usize, String)>,
}

impl Line {
    /// Kind of the recorded message; `None` for the single byte that carries descriptors.
    pub fn kind(&self) -> Option<u8> {
        self.bytes.get(7).copied()
    }
}

/// The recording of one handshake: the content of one file of `spec/shmipc`.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The start of the recorded client's names, up to and including its process id.
    pub start: String,
    pub lines: Vec<Line>,
    /// The lines of the recording's file without comments.
    pub text: String,
}

impl Recording {
    pub fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/shmipc").join(name);
        let file = std::fs::read_to_string(path).unwrap();
        let about = |what: &str| file.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        let start = format!("{}_{}", about("# prefix "), about("# pid "));
        let said = file.lines().filter(|line| !line.starts_with('#'));
        let text: String = said.map(|line| format!("{line}\n")).collect();
        Self { start, lines: lines(&text), text }
    }

    pub fn is_memfd(&self) -> bool {
        self.lines.iter().any(|line| !line.descriptors.is_empty())
    }
}

fn lines(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines() {
        let (who, rest) = line.split_once(' ').unwrap();
        if who == "client-descriptor" {
            let (size, rest) = rest.split_once(' ').unwrap();
            let (seals, name) = rest.split_once(' ').unwrap();
            assert_eq!(seals, SEALS_OF_PEERS);
            let of = &mut lines.last_mut().unwrap().descriptors;
            of.push((size.parse().unwrap(), name.to_owned()));
            continue;
        }
        let from = if who == "client" { From::Client } else { From::Server };
        assert!(who == "client" || who == "server", "{who}");
        let bytes = rest.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        lines.push(Line { from, bytes, descriptors: Vec::new() });
    }
    lines
}

/// The handshake that a test replays, written in the format of the recordings in `spec/shmipc`.
#[derive(Debug, Default)]
pub struct Transcript(pub String);

impl Transcript {
    /// Writes a line in the format of the recordings for a message, or for the single byte that
    /// carries descriptors.
    pub fn write(&mut self, from: From, bytes: &[u8]) {
        let who = if from == From::Client { "client" } else { "server" };
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.0, "{who} {}", hex.join(" ")).unwrap();
    }

    /// Writes a line for a descriptor that the client under test sent. Unlike the recorded
    /// descriptors, its memfd is sealed.
    pub fn write_descriptor(&mut self, descriptor: &OwnedFd, mask: &Mask) {
        let stat = SharedFileStat::of(descriptor.as_fd()).unwrap();
        assert!(stat.is_sealed, "not sealed");
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let name = std::fs::read_link(link).unwrap();
        let name = mask.name(name.to_str().unwrap());
        writeln!(self.0, "client-descriptor {} {SEALS_OF_PEERS} {name}", stat.size).unwrap();
    }
}

/// Replaces names of shared memory of the client under test by those of the recording.
#[derive(Debug)]
pub struct Mask {
    /// Start of the names of shared memory of the client under test, up to the random token.
    pub prefix: String,
    /// Start of the recorded names, including the recorded client's process id.
    pub start: String,
}

impl Mask {
    /// Replaces `prefix`, a token of 16 digits and the process id by the start of the recorded
    /// names.
    pub fn name(&self, name: &str) -> String {
        let Some((before, rest)) = name.split_once(&format!("{}_", self.prefix)) else {
            panic!("{name} has not the prefix {}", self.prefix);
        };
        let (token, rest) = rest.split_at(16);
        assert!(token.bytes().all(|byte| byte.is_ascii_hexdigit()), "no token in {name}");
        let pid = format!("_{}", std::process::id());
        let rest = rest.strip_prefix(&pid).unwrap_or_else(|| panic!("no process in {name}"));
        format!("{before}{}{rest}", self.start)
    }

    /// Returns `message` with the recorded names, and with lengths that fit them. A message without
    /// names stays unchanged.
    pub fn message(&self, message: &[u8]) -> Vec<u8> {
        match names(message) {
            Some(both) => with_names(message, &both.map(|name| self.name(&name))),
            None => message.to_vec(),
        }
    }
}

/// The two names in a message: of the queue and of the buffers. `None` if the message has no names.
pub fn names(message: &[u8]) -> Option<[String; 2]> {
    if ![BY_PATH, BY_MEMFD].contains(message.get(7)?) {
        return None;
    }
    let (queue, rest) = name(&message[8..]);
    let (buffer, rest) = name(rest);
    assert!(rest.is_empty(), "{} bytes after the names", rest.len());
    Some([queue, buffer])
}

fn name(bytes: &[u8]) -> (String, &[u8]) {
    let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let (name, rest) = bytes[2..].split_at(length);
    (String::from_utf8(name.to_vec()).unwrap(), rest)
}

/// Returns a message of the kind and version of `message`, with the names `names`.
pub fn with_names(message: &[u8], names: &[String; 2]) -> Vec<u8> {
    let mut bytes = message[..8].to_vec();
    for name in names {
        bytes.extend_from_slice(&u16::try_from(name.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    // The lengths in the message's header must be those of the new names, not those of the names
    // that they replace.
    let lengths = names.iter().map(String::len).sum::<usize>();
    let before: usize = self::names(message).unwrap().iter().map(String::len).sum();
    let said = u32::from_be_bytes([message[0], message[1], message[2], message[3]]) as usize;
    let length = u32::try_from(said + lengths - before).unwrap();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Receives the next message of the side under test, or the single byte to which it attaches
/// descriptors. Returns `None` if that side has closed the connection.
pub fn hear(socket: &Socket) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = Vec::new();
    let descriptors = hear_up_to(socket, &mut bytes, 1)?;
    if !descriptors.is_empty() {
        return Some((bytes, descriptors));
    }
    let surplus = hear_up_to(socket, &mut bytes, 8)?;
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    assert!(length < 4096, "a message of {length} bytes in a handshake");
    let more = hear_up_to(socket, &mut bytes, length)?;
    assert!(surplus.is_empty() && more.is_empty(), "descriptors within a message");
    Some((bytes, Vec::new()))
}

fn hear_up_to(socket: &Socket, bytes: &mut Vec<u8>, count: usize) -> Option<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    while bytes.len() < count {
        let mut buffer = vec![0; count - bytes.len()];
        let mut received = None;
        crate::support_foe::until("it says something", || {
            received = match socket.receive(&mut buffer, true) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                other => Some(other),
            };
            received.is_some()
        });
        let received = received?.ok().filter(|received| received.bytes > 0)?;
        bytes.extend_from_slice(&buffer[..received.bytes]);
        descriptors.extend(received.fds);
    }
    Some(descriptors)
}

/// Whether the side under test is still connected, and has sent no more bytes.
pub fn is_silent(socket: &Socket) -> bool {
    let received = socket.receive(&mut [0], true);
    received.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Sends bytes and descriptors to the side under test. An error is ignored, because that side may
/// have closed the connection.
pub fn say(socket: &Socket, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    if let Ok(count) = socket.send(&[IoSlice::new(bytes)], descriptors, false, false) {
        assert_eq!(count, bytes.len(), "all of a message fits");
    }
}

/// The recordings in `spec/shmipc`, each with the name of its file.
pub fn recordings() -> Vec<(String, Recording)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/shmipc");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.filter(|path: &PathBuf| path.extension().is_some_and(|is| is == "txt"));
    let mut names: Vec<String> =
        texts.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert!(names.len() >= 4, "there are {names:?}");
    names.into_iter().map(|name| (name.clone(), Recording::read(&name))).collect()
}

const SEALS_OF_PEERS: &str = "0x1";
const BY_PATH: u8 = 0;
const BY_MEMFD: u8 = 5;
