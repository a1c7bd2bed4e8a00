// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile peers that each break one rule on the socket of their connection: a rule of the
//! handshake's frames, of a channel's records over a socket, or of a control socket's bytes. Each
//! has the number that SPEC gives to its fault.
//!
//! ```text
//! place             sent before, in order        number at the attacked listener
//! Start             nothing                      of the refusal (SPEC 17): 202 … 210
//! AfterHello        HELLO                        the same
//! AfterOffer        HELLO, OFFER of a socket     the same
//! Socket            a whole handshake            of the violation (SPEC 9.3)
//! ControlSocket     a whole handshake            the same
//! ```

use super::channel::{BOTH, Foe, Wire, hello};
use super::home::{DESCRIPTOR, HUNG_UP, NOT_PARTYWALL, VIOLATION, pipe};
use partywall_layout::Geometry;
use partywall_layout::control::CONTROL_DOORBELL;
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_SOCKET, Hello, Offer, PREAMBLE_BYTES, REGION_ALONE,
    Ready, TRANSPORT_SHM, TRANSPORT_SOCKET, frame_length,
};
use partywall_sys::{Doorbell, PidFd};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::path::Path;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The state of the connection in which a hostile peer breaks its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    AfterHello,
    AfterOffer,
    Socket,
    ControlSocket,
}

/// A descriptor that a hostile peer sends together with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Pipe,
    Eventfd,
    /// A pidfd of the hostile peer itself, as the frame HELLO may list it.
    Own,
    /// A pidfd of the process that started the hostile peer.
    Other,
}

impl Item {
    fn open(self) -> io::Result<OwnedFd> {
        match self {
            Self::Pipe => Ok(pipe()),
            Self::Eventfd => Doorbell::new()?.as_fd().try_clone_to_owned(),
            Self::Own => PidFd::of_self()?.as_fd().try_clone_to_owned(),
            Self::Other => {
                let parent = i32::try_from(parent_id()).map_err(io::Error::other)?;
                PidFd::of_pid(parent)?.as_fd().try_clone_to_owned()
            }
        }
    }
}

/// A hostile peer that breaks one rule towards a listener of channels.
#[derive(Debug)]
pub struct Attack {
    /// The name of the hostile peer. If it sends an image of `spec/hostile`, this is the name of
    /// the image.
    pub name: String,
    /// The number that the attacked listener must report: below 200 the code of a violation, and
    /// from 200 on the code of a refusal.
    pub code: u32,
    place: Place,
    /// The bytes that the hostile peer sends, each piece with the descriptors that arrive with its
    /// first byte.
    messages: Vec<(Vec<u8>, Vec<Item>)>,
}

impl Attack {
    /// Returns every hostile peer. There is one for each image of a frame, a socket or a control
    /// socket in the directory `spec/hostile`, and one for each attack that needs more than bytes.
    ///
    /// # Errors
    /// If the images cannot be read.
    pub fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for row in fs::read_to_string(directory.join("INDEX.md"))?.lines() {
            let cells: Vec<_> = row.split('|').map(|cell| cell.trim_matches([' ', '`'])).collect();
            let [_, name, kind, _, number, ..] = cells[..] else { continue };
            if matches!(kind, "frame" | "socket" | "control") {
                let code = number.parse().map_err(io::Error::other)?;
                all.push(Self::of_image(name, kind, code, fs::read(directory.join(name))?));
            }
        }
        all.extend(at_start());
        all.extend(after_hello());
        all.extend(after_offer());
        all.extend(on_control_socket());
        Ok(all)
    }

    /// Makes a hostile peer that sends `image`, the bytes of one file of `spec/hostile`. `number`
    /// is the violation that the index of that folder states for the file.
    fn of_image(name: &str, kind: &str, number: u32, image: Vec<u8>) -> Self {
        let place = match kind {
            "socket" => Place::Socket,
            "control" => Place::ControlSocket,
            _ if name.starts_with("frame-hello") => Place::Start,
            _ if name.starts_with("frame-ready") => Place::AfterOffer,
            _ => Place::AfterHello,
        };
        let code = match kind {
            "frame" if name == "frame-hello-tag.bin" => NOT_PARTYWALL,
            "frame" if is_cut(&image) => HUNG_UP,
            "frame" => VIOLATION,
            _ => number,
        };
        let messages =
            if kind == "control" { control_messages(&image) } else { vec![(image, vec![])] };
        Self { name: name.to_owned(), code, place, messages }
    }

    /// Connects to the listener at `path`, breaks the rule, and waits until the listener has hung
    /// up.
    ///
    /// # Errors
    /// If a descriptor cannot be made.
    pub fn run(&self, path: &Path) -> io::Result<()> {
        let foe;
        let greeting;
        let wire = match self.place {
            Place::Start | Place::AfterHello | Place::AfterOffer => {
                greeting = Wire::connect(path);
                self.greet(&greeting);
                &greeting
            }
            Place::Socket | Place::ControlSocket => {
                foe = Foe::visit(path, &self.hello(), geometry());
                &foe.wire
            }
        };
        for (bytes, items) in &self.messages {
            let opened = items.iter().map(|item| item.open()).collect::<io::Result<Vec<_>>>()?;
            let descriptors: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
            // The write may fail, because the listener may have closed the connection after the
            // first bytes.
            wire.send(bytes, &descriptors);
        }
        if self.place != Place::ControlSocket {
            // The hostile peer shuts down its direction of the socket after its last byte, so that
            // an incomplete frame or record stays incomplete.
            let _ = wire.socket.shutdown_write();
        }
        let mut buffer = [0; 4096];
        while wire.socket.receive(&mut buffer, false).is_ok_and(|received| received.bytes > 0) {}
        Ok(())
    }

    fn hello(&self) -> Hello {
        let features = if self.place == Place::Socket { FEATURE_SOCKET } else { BOTH };
        Hello { peer_blocks_max: U64::new(8), ..hello(features) }
    }

    /// Sends the valid frames that precede the attack.
    fn greet(&self, wire: &Wire) {
        if self.place == Place::Start {
            return;
        }
        wire.send_hello(&self.hello());
        if self.place == Place::AfterOffer {
            wire.send(Offer::socket(1).as_bytes(), &[]);
            // The listener's HELLO, OFFER and READY.
            for _ in 0..3 {
                wire.receive();
            }
        }
    }
}

/// The geometry that SPEC 10 prescribes for the region of a hostile peer.
fn geometry() -> Geometry {
    Geometry::new(4096, 8, 64 << 10).unwrap_or_else(super::channel::small_geometry)
}

/// Whether the frame is shorter than the length in its header.
fn is_cut(frame: &[u8]) -> bool {
    let Some(preamble) = frame.first_chunk::<PREAMBLE_BYTES>() else { return true };
    frame_length(preamble).is_ok_and(|length| length > frame.len())
}

/// Splits the image of a control socket into its frames, each with as many descriptors as the frame
/// announces. Bytes that are no frame are sent as a whole, with one descriptor.
fn control_messages(image: &[u8]) -> Vec<(Vec<u8>, Vec<Item>)> {
    let mut messages = Vec::new();
    let mut rest = image;
    while let [kind, tail @ ..] = rest {
        let (size, count) = match tail {
            _ if *kind == CONTROL_DOORBELL => (1, 0),
            [count, low, high, ..] => {
                let length = usize::from(u16::from_le_bytes([*low, *high]));
                let is_whole = (4..=rest.len()).contains(&length);
                if is_whole { (length, usize::from(*count).min(8)) } else { (rest.len(), 1) }
            }
            _ => (rest.len(), 1),
        };
        messages.push((rest[..size].to_vec(), vec![Item::Eventfd; count]));
        rest = &rest[size..];
    }
    messages
}

fn attack(name: &str, code: u32, place: Place, bytes: Vec<u8>, items: &[Item]) -> Attack {
    Attack { name: name.to_owned(), code, place, messages: vec![(bytes, items.to_vec())] }
}

fn at_start() -> Vec<Attack> {
    let listed =
        Hello { descriptors: Descriptors::of(&[DESCRIPTOR_PIDFD]), ..hello(FEATURE_SOCKET) };
    let whole = |hello: &Hello| [hello.as_bytes(), Offer::socket(1).as_bytes()].concat();
    let (plain, listed) = (whole(&hello(FEATURE_SOCKET)), whole(&listed));
    let at = |name, code, bytes: &[u8], items: &[Item]| {
        attack(name, code, Place::Start, bytes.to_vec(), items)
    };
    vec![
        at("nothing", HUNG_UP, &[], &[]),
        at("half of a preamble", HUNG_UP, &plain[..7], &[]),
        at("half of HELLO", HUNG_UP, &plain[..70], &[]),
        at("OFFER first", NOT_PARTYWALL, Offer::socket(1).as_bytes(), &[]),
        at("another protocol", NOT_PARTYWALL, b"GET / HTTP/1.1\r\n\r\n", &[]),
        at("no pidfd", VIOLATION, &listed, &[]),
        at("two pidfds", VIOLATION, &listed, &[Item::Own, Item::Own]),
        at("eight pidfds", VIOLATION, &listed, &[Item::Own; 8]),
        at("a pidfd in no list", VIOLATION, &plain, &[Item::Own]),
        at("a pipe for a pidfd", DESCRIPTOR, &listed, &[Item::Pipe]),
        at("a pidfd of another process", DESCRIPTOR, &listed, &[Item::Other]),
    ]
}

fn after_hello() -> Vec<Attack> {
    let offer = Offer::socket(1).as_bytes().to_vec();
    let ready = Ready::new(TRANSPORT_SOCKET, 1).as_bytes().to_vec();
    let hello = hello(BOTH).as_bytes().to_vec();
    let shared = Offer::shm(geometry().region_bytes, REGION_ALONE).as_bytes().to_vec();
    let at = |name, code, frames: &[&[u8]], items: &[Item]| {
        attack(name, code, Place::AfterHello, frames.concat(), items)
    };
    vec![
        at("half of OFFER", HUNG_UP, &[&offer[..30]], &[]),
        at("HELLO twice", VIOLATION, &[&hello], &[]),
        at("READY for OFFER", VIOLATION, &[&ready], &[]),
        at("READY with OFFER", VIOLATION, &[&offer, &ready], &[]),
        at("OFFER twice", VIOLATION, &[&offer, &offer], &[]),
        at("zeros for OFFER", VIOLATION, &[&[0; 64]], &[]),
        at("a descriptor in no list", VIOLATION, &[&offer], &[Item::Pipe]),
        at("no region", VIOLATION, &[&shared], &[]),
        at("two regions", VIOLATION, &[&shared], &[Item::Pipe, Item::Pipe]),
        at("a pipe for a region", DESCRIPTOR, &[&shared], &[Item::Pipe]),
        at("an eventfd for a region", DESCRIPTOR, &[&shared], &[Item::Eventfd]),
    ]
}

fn after_offer() -> Vec<Attack> {
    let ready = Ready::new(TRANSPORT_SOCKET, 1).as_bytes().to_vec();
    let shared = Ready::new(TRANSPORT_SHM, 0).as_bytes().to_vec();
    let hello = hello(BOTH).as_bytes().to_vec();
    let at = |name, code, bytes: &[u8], items: &[Item]| {
        attack(name, code, Place::AfterOffer, bytes.to_vec(), items)
    };
    vec![
        at("half of READY", HUNG_UP, &ready[..20], &[]),
        at("HELLO for READY", VIOLATION, &hello, &[]),
        at("READY for shared memory alone", VIOLATION, &shared, &[]),
        at("READY with a descriptor", VIOLATION, &ready, &[Item::Pipe]),
    ]
}

fn on_control_socket() -> Vec<Attack> {
    let at = |name, bytes: &[u8], items: &[Item]| {
        attack(name, CONTROL_VIOLATION, Place::ControlSocket, bytes.to_vec(), items)
    };
    vec![
        at("HELLO after the handshake", hello(BOTH).as_bytes(), &[]),
        at("a descriptor that no frame has", &[200, 0, 4, 0], &[Item::Pipe]),
        at("a segment with two descriptors", &[2, 1, 8, 0, 1, 0, 0, 0], &[Item::Pipe; 2]),
    ]
}

/// The code of the violation for a control frame with an invalid field or length (SPEC 9.3).
const CONTROL_VIOLATION: u32 = 15;
