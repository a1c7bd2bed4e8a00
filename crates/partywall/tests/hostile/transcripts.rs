// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the handshakes of the library with the transcripts of `spec/handshakes`: the test is the
//! peer, and sends what a transcript says. Each handshake must end with the transcript's outcome,
//! and leave no descriptor open.
//!
//! ```text
//!   transcript ─▶ Player, the peer ◀── socket ──▶ acceptor or connector of the library (a thread)
//! ```
//!
//! Each transcript is run three times: the peer sends its frames between two answers with one call,
//! each with its own call, or byte by byte. The outcome must be the same. A transcript with a line
//! `together` is run only with one call.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    Admission, Begin, Channel, Config, ConnectError, HandshakeError, Listener, Transport,
    TransportPolicy, TrustPolicy,
};
use partywall_layout::Geometry;
use partywall_layout::hello::{FRAME_BYTES_MAX, Frame, REJECT_TAG, ROLE_ACCEPTOR, ROLE_CONNECTOR};
use partywall_layout::hello::{PREAMBLE_BYTES, frame_length, parse};
use partywall_sys::process::Process;
use partywall_sys::{Doorbell, PidFd, Socket, connect_tcp, connect_unix_path};
use partywall_testkit::hostile::channel::region;
use partywall_testkit::hostile::home::pipe;
use partywall_testkit::{Directory, Second, Watchdog, millis, soon, until, within};
use std::collections::VecDeque;
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many of the peer's bytes between two answers are sent with one call: all, one frame, or one
/// byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Never,
    Frames,
    Bytes,
}

/// How the handshake ended at the side under test: with a channel and its transport, or with an
/// error number.
type Ended = Result<(Channel, Transport), u32>;

#[test]
fn every_transcript_ends_as_its_outcome_says() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("transcripts", Duration::from_secs(180));
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/handshakes");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "txt"));
    files.sort();
    assert!(files.len() >= 100, "only {} transcripts", files.len());
    let (mut roles, mut before) = ([0, 0], None);
    a_pipe();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(file).unwrap();
        let script: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect())
            .collect();
        roles[usize::from(script[0][1] == "acceptor")] += 1;
        let is_whole = script.iter().any(|line| line[0] == "together");
        let cuts = [Cut::Never, Cut::Frames, Cut::Bytes];
        for cut in &cuts[..if is_whole { 1 } else { 3 }] {
            let play_name = format!("{name}, {cut:?}");
            play(&play_name, &script, *cut);
            let open = partywall_testkit::descriptors(Process::Own);
            // The first run of a transcript opens descriptors that the process keeps, so the count
            // after it is the reference.
            assert_eq!(*before.get_or_insert(open), open, "{play_name}: descriptors leak");
        }
    }
    assert!(roles.iter().all(|count| *count > 30), "{roles:?}");
}

/// Runs the handshake of the transcript `script` and checks its outcome. `cut` says how the peer
/// sends its frames.
fn play(name: &str, script: &[Vec<&str>], cut: Cut) {
    let place = Directory::new();
    let (side, socket) = begin(script, &place);
    let mut player = Player::new(name, socket, script[0][1] == "acceptor");
    let outcome = script.last().unwrap();
    for line in &script[1..script.len() - 1] {
        match line[..] {
            ["set", ..] | ["together"] => {}
            ["send", _, bytes, descriptors] => player.send(bytes, descriptors, cut),
            ["receive", frame, pattern] => player.receive(frame, pattern),
            ["close"] => {
                player.flush();
                player.socket.shutdown_both().unwrap();
            }
            ["silence"] => player.flush(),
            _ => panic!("{name}: {line:?}"),
        }
    }
    player.flush();
    // A peer that closes the connection, as the transcript says, cannot receive a REJECT.
    let is_closed = script.iter().any(|line| line[0] == "close");
    let reject = (outcome[1] == "fails" && !is_closed).then(|| player.refusal());
    let ended = side.join().unwrap();
    let found = match (&ended, reject) {
        (Ok((_, Transport::SharedMemory)), None) => "shm".to_owned(),
        (Ok((_, Transport::Socket(reason))), None) => format!("socket {}", reason.number()),
        (Err(error), reject) => format!("fails {error} {}", reject.unwrap_or(0)),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(found, outcome[1..].join(" "), "{name}");
}

/// Starts the side under test, a listener or a connecting side, in a thread. Returns the thread,
/// and the peer's socket.
fn begin(script: &[Vec<&str>], place: &Directory) -> (JoinHandle<Ended>, Socket) {
    // The connecting side begins on the socket only if the transcript says so.
    let mut config = Config::default().begin(Begin::SharedMemory);
    let mut is_tcp = false;
    for line in script.iter().filter(|line| line[0] == "set") {
        config = match line[1..] {
            ["transport", "socket"] => config.transport(TransportPolicy::Socket),
            ["transport", "shm"] => config.transport(TransportPolicy::SharedMemory),
            ["begin", "socket"] => config.begin(Begin::Socket),
            ["trust", "no"] => config.trust(TrustPolicy::Untrusted),
            ["map_max", bytes] => config.map_max(bytes.parse().unwrap()),
            ["admit", "no"] => config.admit(Admission::users([u32::MAX - 1])),
            ["address", "tcp"] => {
                is_tcp = true;
                config
            }
            _ => panic!("{line:?}"),
        };
    }
    if script.iter().any(|line| line[0] == "silence") {
        config = config.handshake_timeout(millis(30));
    }
    let address = if is_tcp { "tcp:127.0.0.1:0".to_owned() } else { place.address("side") };
    if script[0][1] == "acceptor" {
        return begin_acceptor(&address, config);
    }
    let listener = if is_tcp {
        partywall_sys::Listener::listen_tcp(([127, 0, 0, 1], 0).into(), 8).unwrap()
    } else {
        partywall_sys::Listener::listen_unix_path(place.path("side"), 0o600, 8).unwrap()
    };
    let local = listener.local_addr().unwrap();
    let side = begin_connector(local.map_or(address, |local| format!("tcp:{local}")), config);
    let mut accepted = None;
    until("the side connects", || {
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    (side, accepted.unwrap())
}

fn begin_acceptor(address: &str, config: Config) -> (JoinHandle<Ended>, Socket) {
    let (errors, refused) = mpsc::channel();
    let config = config.on_refused(move |error: &HandshakeError| {
        let _ = errors.send(error.code());
    });
    let mut listener = Listener::bind_with(address, &config).unwrap();
    let local = listener.local_address().to_string();
    let side = thread::spawn(move || {
        let deadline = soon();
        loop {
            assert!(Instant::now() < deadline, "neither established nor refused");
            if let Ok(channel) = listener.accept_deadline(within(millis(20))) {
                let transport = channel.transport();
                return Ok((channel, transport));
            }
            if let Ok(error) = refused.try_recv() {
                return Err(error);
            }
        }
    });
    let socket = match local.strip_prefix("unix:") {
        Some(path) => connect_unix_path(path, Some(soon())).unwrap(),
        None => connect_tcp(local["tcp:".len()..].parse().unwrap(), Some(soon())).unwrap(),
    };
    (side, socket)
}

fn begin_connector(address: String, config: Config) -> JoinHandle<Ended> {
    thread::spawn(move || match partywall::connect_with(&*address, &config) {
        Ok(channel) => {
            let transport = channel.transport();
            Ok((channel, transport))
        }
        Err(ConnectError::Handshake(error)) => Err(error.code()),
        Err(other) => panic!("{other}"),
    })
}

/// The peer of the side under test: sends what a transcript says, and compares the answers with it.
struct Player<'a> {
    name: &'a str,
    socket: Socket,
    is_connector: bool,
    /// The nonce of the connector's HELLO, once it was sent or received, which the regions of the
    /// connection must state as session id.
    session_id: [u8; 16],
    /// Number of entries in the release ring of this peer's region, as its HELLO states.
    entries: u64,
    /// The last HELLO that the side under test sent. A transcript can make the peer send it back.
    last_hello: Vec<u8>,
    /// Bytes and descriptors that the peer collects for its next send.
    unsent: (Vec<u8>, Vec<OwnedFd>),
    /// Received bytes and descriptors that no `receive` line of the transcript has taken yet.
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// A running process whose pidfd the peer sends in place of its own.
    other: Option<Second>,
}

impl<'a> Player<'a> {
    fn new(name: &'a str, socket: Socket, is_connector: bool) -> Self {
        Self {
            name,
            socket,
            is_connector,
            session_id: [0; 16],
            entries: 8,
            last_hello: Vec::new(),
            unsent: Default::default(),
            bytes: Vec::new(),
            descriptors: VecDeque::new(),
            other: None,
        }
    }

    /// Sends bytes and the named descriptors, or keeps them for `flush`, as `cut` says.
    fn send(&mut self, bytes: &str, descriptors: &str, cut: Cut) {
        let bytes = if bytes == "=" { self.last_hello.clone() } else { unhex(bytes) };
        if let Ok(Frame::Hello(hello)) = parse(&bytes) {
            self.entries = hello.peer_blocks_max.get();
            if self.is_connector {
                self.session_id = hello.nonce;
            }
        }
        let size = match parse(&bytes) {
            Ok(Frame::Offer(offer)) => offer.region_size.get(),
            _ => 0,
        };
        for name in descriptors.split(',').filter(|name| *name != "-") {
            let descriptor = self.descriptor(name, size);
            self.unsent.1.push(descriptor);
        }
        match cut {
            Cut::Never => self.unsent.0.extend(bytes),
            Cut::Frames => {
                self.unsent.0.extend(bytes);
                self.flush();
            }
            Cut::Bytes => {
                for byte in bytes {
                    self.unsent.0.push(byte);
                    self.flush();
                }
            }
        }
    }

    /// Sends the collected bytes and descriptors. An error is ignored: if the side under test has
    /// closed the connection, its REJECT or the outcome shows why.
    fn flush(&mut self) {
        let (bytes, descriptors) = std::mem::take(&mut self.unsent);
        if bytes.is_empty() {
            return;
        }
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let _ = self.socket.send(&[IoSlice::new(&bytes)], &borrowed, false, false);
    }

    fn descriptor(&mut self, name: &str, size: u64) -> OwnedFd {
        let role = if self.is_connector { ROLE_CONNECTOR } else { ROLE_ACCEPTOR };
        let mut other_session = self.session_id;
        other_session[15] ^= 1;
        let region_of = |size: u64, session_id, role, entries: u64| {
            let slab = size - 16_384;
            let geometry = Geometry::new(4096, entries.max(8), slab).unwrap();
            assert_eq!(geometry.region_bytes, size);
            region(&geometry, session_id, role).as_fd().try_clone_to_owned().unwrap()
        };
        match name {
            "region" => region_of(size, self.session_id, role, self.entries),
            "region-session" => region_of(size, other_session, role, self.entries),
            "region-role" => region_of(size, self.session_id, 1 - role, self.entries),
            "region-size" => region_of(2 * size, self.session_id, role, self.entries),
            "region-entries" => {
                assert!(self.entries > 8);
                region_of(size, self.session_id, role, self.entries / 2)
            }
            "eventfd" => Doorbell::new().unwrap().as_fd().try_clone_to_owned().unwrap(),
            "pipe" => a_pipe().try_clone().unwrap(),
            "pidfd" => PidFd::of_self().unwrap().as_fd().try_clone_to_owned().unwrap(),
            "pidfd-other" => {
                let other = Second::spawn(Command::new("sleep").arg("600"));
                let pidfd = PidFd::of_pid(other.pid()).unwrap();
                self.other = Some(other);
                pidfd.as_fd().try_clone_to_owned().unwrap()
            }
            other => panic!("{}: no descriptor is called {other}", self.name),
        }
    }

    /// Receives the next frame and compares it with `pattern`: hexadecimal digits, with a dot for
    /// any digit.
    fn receive(&mut self, kind: &str, pattern: &str) {
        self.flush();
        let frame = self.next().unwrap_or_else(|| panic!("{}: hang-up for {kind}", self.name));
        assert_eq!(frame.len() * 2, pattern.len(), "{}: length of {kind}", self.name);
        let found = frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let is_free = |at: &usize| pattern[*at..].starts_with('.');
        let differs =
            (0..found.len()).find(|at| !is_free(at) && found[*at..=*at] != pattern[*at..=*at]);
        assert!(differs.is_none(), "{}: {kind}\n{found}\n{pattern}", self.name);
        let listed = match parse(&frame).unwrap() {
            Frame::Hello(hello) => {
                if !self.is_connector {
                    self.session_id = hello.nonce;
                }
                self.last_hello.clone_from(&frame);
                hello.descriptors.kinds().len()
            }
            Frame::Offer(offer) => offer.descriptors.kinds().len(),
            Frame::Ready(ready) => ready.descriptors.kinds().len(),
            other => panic!("{}: {other:?}", self.name),
        };
        assert!(self.descriptors.len() >= listed, "{}: descriptors of {kind}", self.name);
        self.descriptors.drain(..listed);
    }

    /// Returns the code of the REJECT that the side under test sends before it closes the
    /// connection; 0 if it sends none.
    fn refusal(&mut self) -> u32 {
        let Some(frame) = self.next() else { return 0 };
        assert!(frame.starts_with(&REJECT_TAG), "{}: {frame:?}", self.name);
        let Ok(Frame::Reject(code, text)) = parse(&frame) else { panic!("{}", self.name) };
        assert!(!text.is_empty(), "{}: a refusal has a text", self.name);
        assert!(self.next().is_none(), "{}: a frame after REJECT", self.name);
        code
    }

    /// Receives the next whole frame; `None` if the side under test has closed the connection.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(preamble) = self.bytes.first_chunk::<PREAMBLE_BYTES>() {
                let length = frame_length(preamble).unwrap();
                if self.bytes.len() >= length {
                    let rest = self.bytes.split_off(length);
                    return Some(std::mem::replace(&mut self.bytes, rest));
                }
            }
            let mut buffer = [0; FRAME_BYTES_MAX];
            // An error counts as the end of the connection, too: the kernel resets a connection
            // that a side closes with unread bytes.
            let received = self.socket.receive(&mut buffer, false).ok()?;
            if received.bytes == 0 {
                assert!(self.bytes.is_empty(), "{}: hang-up within a frame", self.name);
                return None;
            }
            self.bytes.extend_from_slice(&buffer[..received.bytes]);
            self.descriptors.extend(received.fds);
        }
    }
}

/// One end of a pipe: a descriptor that no frame of a handshake may have.
fn a_pipe() -> &'static OwnedFd {
    static PIPE: OnceLock<OwnedFd> = OnceLock::new();
    PIPE.get_or_init(pipe)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}
