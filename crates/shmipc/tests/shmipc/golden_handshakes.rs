// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the handshakes of `partywall-shmipc` equal recordings of shmipc-go and shmipc-rs,
//! byte by byte. The crate plays the client or the server, in versions 2 and 3 of the protocol. The
//! comparison covers the messages, and the descriptors with the byte that carries them. The order
//! of the messages counts, and each recording ends after the first wake-ups.
//!
//! ```text
//!   our client  ◀── lines of the recorded server      our server  ◀── lines of the recorded client
//!               ──▶ must equal the client's                       ──▶ must equal the server's
//! ```
//!
//! The recordings are `spec/shmipc/*.txt`. The last two tests change single bytes of the
//! recordings, to prove that each byte matters.

use crate::support_foe;
use crate::support_golden;

use partywall::Config;
use partywall::blocking::{Session, connect_with_protocol};
use partywall_shmipc::regions::{BufferRegion, Side};
use partywall_shmipc::regions::{Class, Consumer, Element, Producer, Queue, QueueLayout};
use partywall_shmipc::{MemMapType, Shmipc};
use partywall_sys::shared_file::{CreatedFile, create_memfd};
use partywall_sys::{Listener, SharedMap, Socket};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use support_foe::{Home, Wire, address, soon, until};
use support_golden::{
    From, Line, Mask, Recording, Transcript, hear, is_silent, names, recordings, say, with_names,
};

/// The shared memory as the recorded side uses it: the buffer region, and its ends of both rings.
/// The test sends and receives one message through it.
struct Ends {
    region: Arc<BufferRegion>,
    producer: Producer,
    consumer: Consumer,
}

impl Ends {
    /// As the recorded server, maps the memory that the client under test created.
    fn opened(buffer: BorrowedFd<'_>, queue: BorrowedFd<'_>) -> Self {
        let region = BufferRegion::map(map(buffer)).unwrap();
        let queue = Queue::map(map(queue), QueueLayout::NATIVE).unwrap();
        let (producer, consumer) = queue.split(Side::Server).unwrap();
        Self { region, producer, consumer }
    }

    /// Creates the memory of a recorded client, zeroed and with the default sizes of shmipc-go and
    /// shmipc-rs.
    fn made(buffer: BorrowedFd<'_>, queue: BorrowedFd<'_>) -> Self {
        let classes = [(8172, 50), (32_748, 30), (131_052, 20)];
        let classes = classes.map(|(size, percent)| Class { size, percent });
        let region = BufferRegion::create(map(buffer), &classes).unwrap();
        let queue = Queue::create(map(queue), QUEUE_ENTRIES, QueueLayout::NATIVE).unwrap();
        let (producer, consumer) = queue.split(Side::Client).unwrap();
        Self { region, producer, consumer }
    }

    /// Adds a message to the ring on which the recorded side sends. The caller sends the wake-up
    /// that announces the message.
    fn put(&mut self, bytes: &[u8]) {
        let mut slice = self.region.reserve(bytes.len()).unwrap();
        slice.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        let offset = self.region.send(vec![slice]).unwrap();
        self.producer.put(Element { stream: STREAM, offset, status: 0 }).unwrap();
        until("it sleeps", || self.producer.mark_working());
    }

    /// Takes the message that a wake-up has announced from the ring on which the side under test
    /// sends.
    fn take(&mut self) -> Vec<u8> {
        let Element { stream, offset, .. } = self.consumer.pop().unwrap().expect("a message");
        assert_eq!(stream, STREAM);
        self.region.receive(offset).unwrap().to_vec()
    }
}

fn map(fd: BorrowedFd<'_>) -> SharedMap {
    let size = partywall_sys::SharedFileStat::of(fd).unwrap().size;
    SharedMap::map(fd, usize::try_from(size).unwrap()).unwrap()
}

/// Connects the client under test to a server that sends the recorded messages. Returns the
/// transcript of the handshake in the format of the recordings, or the client's error.
fn replay_to_our_client(recording: &Recording) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = Listener::listen_unix_path(&path, 0o600, 1).unwrap();
    // The names of the client's shared memory begin with `prefix`. The name of a memfd is only a
    // text, so it can be the recorded one, but a file needs a directory.
    let (prefix, mapping) = match recording.is_memfd() {
        true => (recording.start.rsplit_once('_').unwrap().0.to_owned(), MemMapType::MemFd),
        false => (directory.path().join("shm").to_str().unwrap().into(), MemMapType::DevShmFile),
    };
    let config = partywall_shmipc::Config::default().mem_map_type(mapping);
    let protocol = Arc::new(Shmipc::new(config.share_memory_path_prefix(prefix.as_str())).unwrap());
    let mask = Mask { prefix, start: recording.start.clone() };
    std::thread::scope(|scope| {
        let talking = scope.spawn(move || -> Result<Session, String> {
            let connected = connect_with_protocol(&*address(&path), &Config::default(), protocol);
            let session = connected.map_err(|error| error.to_string())?;
            let mut stream = session.open(&[]).map_err(|error| error.to_string())?;
            stream.send(QUESTION).map_err(|error| error.to_string())?;
            let answer = stream.recv_deadline(soon()).map_err(|error| error.to_string())?;
            assert_eq!(answer.ok_or("no answer")?, ANSWER);
            Ok(session)
        });
        let mut socket = None;
        until("ours connects", || {
            socket = listener.accept().unwrap();
            socket.is_some()
        });
        let socket = socket.unwrap();
        let passed = serve_as_recorded(&socket, recording, &mask);
        let is_over = passed.is_some() && is_silent(&socket);
        if passed.is_none() {
            let _ = socket.shutdown_both();
        }
        let session = talking.join().unwrap();
        drop(socket);
        let session = session?;
        assert!(is_over, "ours said more than was recorded, or hung up");
        drop(session);
        passed.ok_or_else(|| "ours hung up".to_owned())
    })
}

/// Acts as the server: sends the server's recorded lines, and records the messages of the client
/// under test. Returns `None` if the client closes the connection before the end of the recording.
fn serve_as_recorded(socket: &Socket, recording: &Recording, mask: &Mask) -> Option<String> {
    let mut transcript = Transcript::default();
    let mut ends = None;
    for line in &recording.lines {
        if line.from == From::Server {
            // The client under test must not send while the recording has a message of the server.
            if ends.is_none() && !is_silent(socket) {
                return None;
            }
            if line.kind() == Some(WAKE_UP) {
                ends.as_mut().map(|ends: &mut Ends| ends.put(ANSWER)).unwrap();
            }
            say(socket, &line.bytes, &[]);
            transcript.write(From::Server, &line.bytes);
            continue;
        }
        let (bytes, descriptors) = hear(socket)?;
        transcript.write(From::Client, &mask.message(&bytes));
        for descriptor in &descriptors {
            transcript.write_descriptor(descriptor, mask);
        }
        if let [buffer, queue] = &descriptors[..] {
            ends = Some(Ends::opened(buffer.as_fd(), queue.as_fd()));
        }
        if line.kind() == Some(BY_PATH) {
            let [queue, buffer] = names(&bytes).unwrap().map(|name| open(Path::new(&name)));
            ends = Some(Ends::opened(buffer.as_fd(), queue.as_fd()));
        }
        if line.kind() == Some(WAKE_UP) {
            assert_eq!(ends.as_mut().unwrap().take(), QUESTION);
        }
    }
    Some(transcript.0)
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Connects a client that sends the recorded messages to the server under test. Returns the
/// transcript of the handshake in the format of the recordings, or `None` if the server closed the
/// connection.
fn replay_to_our_server(recording: &Recording) -> Option<String> {
    let home = Home::new();
    let wire = Wire::connect(&home.path());
    let mut transcript = Transcript::default();
    let (mut ends, mut files) = (None, Vec::new());
    for line in &recording.lines {
        if line.from == From::Server {
            let (bytes, descriptors) = hear(&wire.socket)?;
            assert!(descriptors.is_empty(), "a server passes no descriptors");
            transcript.write(From::Server, &bytes);
            if line.kind() == Some(WAKE_UP) {
                assert_eq!(ends.as_mut().map(Ends::take).unwrap(), QUESTION);
            }
            continue;
        }
        if !is_silent(&wire.socket) {
            return None;
        }
        write_as_recorded(&mut transcript, line);
        match line.kind() {
            None => {
                let [buffer, queue] = &memfds(line)[..] else { panic!("not two descriptors") };
                let descriptors = [buffer.as_fd(), queue.as_fd()];
                ends = Some(Ends::made(descriptors[0], descriptors[1]));
                say(&wire.socket, &line.bytes, &descriptors);
            }
            Some(BY_PATH) => {
                // The test creates the recorded files in a directory of its own, so their paths
                // differ from the recorded ones.
                let both = names(&line.bytes).unwrap();
                let both = both.map(|name| moved(&name, home.directory.path()));
                let sizes = [Queue::size_bytes(QUEUE_ENTRIES).unwrap(), BUFFER_BYTES];
                let created = |at: usize| CreatedFile::create(Path::new(&both[at]), sizes[at]);
                files.extend([created(0).unwrap(), created(1).unwrap()]);
                ends = Some(Ends::made(files[1].fd(), files[0].fd()));
                say(&wire.socket, &with_names(&line.bytes, &both), &[]);
            }
            Some(kind) => {
                if let (WAKE_UP, Some(ends)) = (kind, &mut ends) {
                    ends.put(QUESTION);
                }
                say(&wire.socket, &line.bytes, &[]);
            }
        }
    }
    assert!(is_silent(&wire.socket), "ours said more than was recorded, or hung up");
    Some(transcript.0)
}

fn write_as_recorded(transcript: &mut Transcript, line: &Line) {
    transcript.write(From::Client, &line.bytes);
    for (size, name) in &line.descriptors {
        transcript.0.push_str(&format!("client-descriptor {size} 0x1 {name}\n"));
    }
}

/// Creates memfds of the recorded sizes and names, in the recorded order.
fn memfds(line: &Line) -> Vec<OwnedFd> {
    let named = |name: &str| {
        name.strip_prefix("/memfd:")
            .and_then(|name| name.strip_suffix(" (deleted)"))
            .map(str::to_owned)
    };
    let made = line.descriptors.iter();
    made.map(|(size, name)| create_memfd(&named(name).unwrap(), *size).unwrap()).collect()
}

fn moved(name: &str, directory: &Path) -> String {
    let file = Path::new(name).file_name().unwrap();
    directory.join(file).to_str().unwrap().to_owned()
}

#[test]
fn our_client_says_what_theirs_say() {
    for (name, recording) in recordings() {
        assert_eq!(replay_to_our_client(&recording).as_ref(), Ok(&recording.text), "{name}");
    }
}

#[test]
fn our_server_says_what_theirs_say() {
    for (name, recording) in recordings() {
        assert_eq!(replay_to_our_server(&recording).as_ref(), Some(&recording.text), "{name}");
    }
}

/// Input: recordings in which one bit of a byte that the client receives is changed, for each such
/// byte in turn. Expected: the client refuses the handshake.
#[test]
fn our_client_agrees_to_nothing_else() {
    for (name, recording) in recordings() {
        let is_received = |line: &Line| line.from == From::Server && line.kind() != Some(WAKE_UP);
        for (index, at) in bytes_of(&recording, is_received) {
            let mut other = recording.clone();
            other.lines[index].bytes[at] ^= 1;
            let passed = replay_to_our_client(&other);
            assert!(passed.is_err(), "{name}: line {index}, byte {at}: {passed:?}");
        }
    }
}

/// Input: recordings in which one bit of a message header that the server receives is changed, for
/// each byte of the headers in turn. Expected: the server closes the connection. The names in the
/// messages are left as they are, because the server takes them as any text.
#[test]
fn our_server_agrees_to_nothing_else() {
    for (name, recording) in recordings() {
        let is_received = |line: &Line| {
            line.from == From::Client && ![None, Some(WAKE_UP)].contains(&line.kind())
        };
        for (index, at) in bytes_of(&recording, is_received).filter(|(_, at)| *at < 8) {
            let mut other = recording.clone();
            // The test flips the highest bit of a byte, but the lowest bit of the length's last
            // byte and of the version. With their highest bits flipped, the server would wait for
            // the rest of a longer message, or accept a newer version.
            other.lines[index].bytes[at] ^= if at == 3 || at == 6 { 1 } else { 0x80 };
            let passed = replay_to_our_server(&other);
            assert_eq!(passed, None, "{name}: line {index}, byte {at}");
        }
    }
}

/// The places of all bytes in those lines of the recording for which `is_meant` is true: each place
/// is the index of a line, and that of a byte within the line.
fn bytes_of(
    recording: &Recording,
    is_meant: impl Fn(&Line) -> bool,
) -> impl Iterator<Item = (usize, usize)> {
    let lines = recording.lines.iter().enumerate().filter(move |(_, line)| is_meant(line));
    lines.flat_map(|(index, line)| (0..line.bytes.len()).map(move |at| (index, at)))
}

/// Id of the only stream in the recordings.
const STREAM: u32 = 2;
const QUESTION: &[u8] = b"?";
const ANSWER: &[u8] = b"!";
const BY_PATH: u8 = 0;
const WAKE_UP: u8 = 1;
/// Default capacity of a queue in shmipc-go and shmipc-rs, in elements.
const QUEUE_ENTRIES: u32 = 8192;
const BUFFER_BYTES: usize = 32 << 20;
