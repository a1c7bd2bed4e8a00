// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the files of a client's shared memory. A server removes the files that a client named,
//! if the client does not, when the last session that uses them ends. Files of other users, and
//! files that are still in use, stay.
//!
//! ```text
//!   client of the test ── paths of queue and buffers ──▶ listener under test (Home)
//!                      ── hangs up, and leaves both files
//! ```

use crate::support_foe;

use partywall::Config;
use partywall::blocking::{Session, connect_with_protocol};
use partywall_shmipc::regions::Queue;
use partywall_shmipc::wire::encode;
use partywall_shmipc::{MemMapType, Shmipc};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support_foe::{Foe, Home, Memory, Wire, address, small, until};

const BUFFER_BYTES: u64 = 1 << 20;
const QUEUE_ENTRIES: u32 = 64;

/// Creates a client's file as shmipc-go and shmipc-rs do: without a lock, and only if the path does
/// not exist.
fn made(path: &Path, bytes: u64) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// Creates the files `queue` and `buffer` of a client, and maps them as its memory.
fn memory(queue: &Path, buffer: &Path) -> Memory {
    let queue_bytes = Queue::size_bytes(QUEUE_ENTRIES).unwrap() as u64;
    let (buffer, queue) = (made(buffer, BUFFER_BYTES), made(queue, queue_bytes));
    Memory::client_of(buffer.into(), queue.into(), QUEUE_ENTRIES)
}

/// Connects a client that names the files `queue` and `buffer` in the handshake, and waits until
/// the server has mapped them and answered.
fn named(home: &Home, queue: &Path, buffer: &Path) -> Wire {
    let wire = Wire::connect(&home.path());
    assert!(wire.send(&encode::exchange(3)));
    assert_eq!(wire.receive(8).unwrap().0, encode::exchange(3));
    let paths = encode::by_path(3, queue.to_str().unwrap(), buffer.to_str().unwrap());
    assert!(wire.send(&paths));
    assert_eq!(wire.receive(8).unwrap().0, encode::ack_shm(3));
    wire
}

fn paths(home: &Home) -> (PathBuf, PathBuf) {
    (home.file("peer_1_queue_0"), home.file("peer_1_buffer"))
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}

#[test]
fn files_of_client_are_removed_after_session_and_can_be_recreated() {
    let home = Home::new();
    let (queue, buffer) = paths(&home);
    for _ in 0..3 {
        let mut foe = Foe { memory: memory(&queue, &buffer), wire: named(&home, &queue, &buffer) };
        foe.say(2, b"by files");
        assert_eq!(foe.hear(), (2, Some(b"by files".to_vec())));
        assert!(
            !is_gone(&queue) && !is_gone(&buffer),
            "names are needed as long as a session lives"
        );
        drop(foe);
        until("both files are gone", || is_gone(&queue) && is_gone(&buffer));
    }
}

#[test]
fn a_client_of_the_second_version_that_vanishes_leaves_nothing() {
    let home = Home::new();
    let (queue, buffer) = paths(&home);
    drop(memory(&queue, &buffer));
    let wire = Wire::connect(&home.path());
    let bytes = encode::by_path(2, queue.to_str().unwrap(), buffer.to_str().unwrap());
    assert!(wire.send(&bytes));
    drop(wire);
    until("both files are gone", || is_gone(&queue) && is_gone(&buffer));
}

#[test]
fn files_removed_by_client_are_ignored() {
    let home = Home::new();
    let (queue, buffer) = paths(&home);
    drop(memory(&queue, &buffer));
    let wire = named(&home, &queue, &buffer);
    fs::remove_file(&buffer).unwrap();
    drop(wire);
    assert!(!home.end().is_empty());
    until("the queue is gone", || is_gone(&queue));
}

#[test]
fn a_name_that_means_another_file_now_is_left_alone() {
    type Replace = fn(&Path, &Path);
    let replacements: [Replace; 3] = [
        |name, _| drop(made(name, BUFFER_BYTES)),
        |name, _| fs::create_dir(name).unwrap(),
        |name, kept| symlink(kept, name).unwrap(),
    ];
    for replace in replacements {
        let home = Home::new();
        let (queue, buffer) = paths(&home);
        drop(memory(&queue, &buffer));
        let wire = named(&home, &queue, &buffer);
        let kept = home.file("kept");
        fs::rename(&buffer, &kept).unwrap();
        replace(&buffer, &kept);
        drop(wire);
        // The server removes the queue's file last. So when that file is gone, the server has
        // already decided not to remove the file at the buffer's path.
        until("the queue is gone", || is_gone(&queue));
        assert!(!is_gone(&buffer) && !is_gone(&kept));
    }
}

#[test]
fn a_buffer_stays_until_the_second_of_two_sessions_ends() {
    let home = Home::new();
    let (queue, buffer) = paths(&home);
    let (second_queue, second_buffer) = (home.file("peer_1_queue_1"), home.file("unused"));
    drop(memory(&queue, &buffer));
    drop(memory(&second_queue, &second_buffer));
    let first = named(&home, &queue, &buffer);
    let second = named(&home, &second_queue, &buffer);
    drop(first);
    until("the first queue is gone", || is_gone(&queue));
    assert!(!is_gone(&buffer) && !is_gone(&second_queue));
    // The server has not removed the file of the buffers, so a third session can name it.
    drop(memory(&queue, &home.file("unused_too")));
    let third = named(&home, &queue, &buffer);
    drop(second);
    until("the second queue is gone", || is_gone(&second_queue));
    assert!(!is_gone(&buffer));
    drop(third);
    until("all of them are gone", || is_gone(&queue) && is_gone(&buffer));
    assert!(!is_gone(&second_buffer), "no session had it");
}

#[test]
fn files_without_credentials_are_left_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let protocol = partywall_shmipc::Config::default()
        .directory(directory.path())
        .files_without_credentials(true);
    let protocol = Arc::new(Shmipc::new(protocol).unwrap());
    let mut listener =
        partywall::blocking::Listener::bind("tcp:127.0.0.1:0").unwrap().with_protocol(protocol);
    let (queue, buffer) = (directory.path().join("q"), directory.path().join("b"));
    drop(memory(&queue, &buffer));
    let address = listener.local_address().to_string();
    let address = address.strip_prefix("tcp:").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let bytes = encode::by_path(2, queue.to_str().unwrap(), buffer.to_str().unwrap());
    std::io::Write::write_all(&mut stream, &bytes).unwrap();
    let session = listener.accept_deadline(support_foe::soon()).unwrap();
    drop(stream);
    assert!(!matches!(session.accept(), Ok(Some(_))));
    drop((session, listener));
    assert!(!is_gone(&queue) && !is_gone(&buffer));
}

/// The settings of a client of `partywall-shmipc`, which shares memory as files in the directory of
/// the tested listener `home`.
fn own(home: &Home) -> Arc<Shmipc> {
    let config = small()
        .mem_map_type(MemMapType::DevShmFile)
        .share_memory_path_prefix(home.file("own").to_str().unwrap())
        .directory(home.directory.path());
    Arc::new(Shmipc::new(config).unwrap())
}

fn connected(home: &Home, protocol: &Arc<Shmipc>) -> Session {
    let session = connect_with_protocol(
        &*address(&home.path()),
        &Config::default(),
        Arc::clone(protocol) as _,
    )
    .unwrap();
    let mut stream = session.open(&[]).unwrap();
    stream.send(b"there?").unwrap();
    assert_eq!(stream.recv().unwrap().unwrap(), b"there?");
    drop(stream);
    session
}

/// Paths of those files of the client's shared memory whose names contain `part`. The client has
/// the settings that `own` returns.
fn files(home: &Home, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.directory.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("own") && name.contains(part)
    };
    paths.filter(is_it).collect()
}

#[test]
fn a_client_of_ours_that_lives_keeps_its_buffer_for_its_next_session() {
    let home = Home::new();
    let config = own(&home);
    let mut buffer = None;
    for _ in 0..5 {
        drop(connected(&home, &config));
        let found = files(&home, "_buffer");
        assert_eq!(found.len(), 1);
        assert_eq!(*buffer.get_or_insert_with(|| found.clone()), found);
        assert!(!home.end().is_empty());
    }
    until("its queues are gone", || files(&home, "_queue").is_empty());
    drop(config);
    until("its buffer is gone", || files(&home, "").is_empty());
}

#[test]
fn a_client_of_ours_makes_a_new_buffer_where_a_server_removed_the_last() {
    let home = Home::new();
    let config = own(&home);
    let first = connected(&home, &config);
    let removed = files(&home, "_buffer");
    fs::remove_file(&removed[0]).unwrap();
    let second = connected(&home, &config);
    let found = files(&home, "_buffer");
    assert!(found.len() == 1 && found != removed);
    // The first session uses a file that was removed from its path, and must still work.
    let mut stream = first.open(&[]).unwrap();
    stream.send(b"still").unwrap();
    assert_eq!(stream.recv().unwrap().unwrap(), b"still");
    drop((stream, first, second));
}
