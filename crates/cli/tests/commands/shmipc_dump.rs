// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall shmipc dump` reports on shared memory that is in use, was left by a killed process,
//! is damaged, or belongs to other programs.

use crate::program;

use partywall::blocking::{Listener, Session, Stream, connect_with_protocol};
use partywall_shmipc::{Config, MemMapType, Shmipc};
use program::{Listening, Running, run, text, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SOUND: i32 = 0;
const UNSOUND: i32 = 1;
const UNREADABLE: i32 = 2;
/// The environment variable that makes this test program, started again by a test, a shmipc server.
/// Its value is the server's directory.
const SERVES_IN: &str = "PARTYWALL_TEST_SERVES_IN";

/// Takes a lock, so that one test runs at a time: `dump` inspects this process, and would find the
/// regions of other tests.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dump(arguments: &[&str]) -> (i32, String, String) {
    let output = run(&[&["shmipc", "dump"], arguments].concat());
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A shmipc session with both ends in this process. One of its messages is never received, so the
/// slice of that message stays in use.
struct Held {
    directory: tempfile::TempDir,
    server: Session,
    client: Session,
    stream: Stream,
}

impl Held {
    fn new(mapping: MemMapType) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("regions").display().to_string();
        let config = Config::default().mem_map_type(mapping).share_memory_path_prefix(prefix);
        let config = config.share_memory_buffer_cap(2 << 20).queue_cap(64);
        let protocol = Arc::new(Shmipc::new(config.directory(directory.path())).unwrap());
        let address = format!("unix:{}/s.sock", directory.path().display());
        let mut listener = Listener::bind(&*address).unwrap().with_protocol(protocol.clone());
        let accepting = std::thread::spawn(move || listener.accept().unwrap());
        let config = partywall::Config::default();
        let client = connect_with_protocol(&*address, &config, protocol).unwrap();
        let mut stream = client.open(&[]).unwrap();
        stream.send(b"nobody reads this").unwrap();
        Self { directory, server: accepting.join().unwrap(), client, stream }
    }

    /// Path of the file of shared memory of this session whose name ends with `end`.
    fn file(&self, end: &str) -> PathBuf {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.to_str().unwrap().ends_with(end)).expect(end)
    }

    fn end(self) {
        drop((self.stream, self.client, self.server));
    }
}

/// Paths of a buffer file and a queue file that no process has open, as a killed process leaves
/// them. They are copies of the files of a live session.
fn left_behind(directory: &Path) -> (String, String) {
    let held = Held::new(MemMapType::DevShmFile);
    let (buffers, queues) = (held.file("_buffer"), held.file("_queue_0"));
    let live = buffers.to_str().unwrap();
    wait_until("the message is taken from the queue", || {
        dump(&[live]).1.contains("kept by it for reuse: \"nobody reads this\"")
    });
    let copy = |from: &Path| {
        let to = directory.join(from.file_name().unwrap());
        fs::copy(from, &to).unwrap();
        to.to_str().unwrap().to_owned()
    };
    let copies = (copy(&buffers), copy(&queues));
    held.end();
    copies
}

#[test]
fn slice_of_a_live_process_is_held_and_not_leaked() {
    let _alone = alone();
    let held = Held::new(MemMapType::DevShmFile);
    let (buffers, queues) = (held.file("_buffer"), held.file("_queue_0"));
    for path in [&buffers, &queues] {
        let (code, printed, errors) = dump(&[path.to_str().unwrap()]);
        assert_eq!(code, SOUND, "{printed}{errors}");
        assert!(printed.contains(&format!("process {} has it", std::process::id())), "{printed}");
        assert!(printed.contains("64 elements per direction"), "{printed}");
        assert!(
            printed.contains("everything that was checked holds") && printed.contains("\nsound\n")
        );
        assert!(printed.contains("\"nobody reads this\""), "{printed}");
        assert!(!printed.contains("leaked"), "{printed}");
    }
    held.end();
}

#[test]
fn memfds_are_found_by_the_process_that_has_them() {
    let _alone = alone();
    let held = Held::new(MemMapType::MemFd);
    let pid = std::process::id().to_string();
    let (code, printed, errors) = dump(&[&pid, "--json"]);
    assert_eq!(code, SOUND, "{printed}{errors}");
    let whole: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(whole["sound"], true);
    assert_eq!(whole["processes"][0], std::process::id());
    let prefix = held.directory.path().join("regions").display().to_string();
    let regions = whole["regions"].as_array().unwrap();
    let region = regions
        .iter()
        .find(|region| region["buffers"]["name"].as_str().unwrap().starts_with(&prefix))
        .expect(&prefix);
    assert!(region["buffers"]["source"].as_str().unwrap().starts_with(&format!("/proc/{pid}/")));
    assert_eq!(region["lists"].as_array().unwrap().len(), 3);
    assert_eq!(region["queues"][0]["capacity"], 64);
    assert_eq!((&region["leaked"], &region["broken"]), (&0.into(), &serde_json::json!([])));
    held.end();
}

/// The shmipc server in the child process of a test; elsewhere it does nothing. The server maps the
/// client's memfds, but has no descriptors of them.
#[test]
fn child_process_serves() {
    let Ok(directory) = std::env::var(SERVES_IN) else { return };
    let config = Config::default().directory(&directory);
    let protocol = Arc::new(Shmipc::new(config).unwrap());
    let listener = Listener::bind(&*format!("unix:{directory}/s.sock")).unwrap();
    let mut listener = listener.with_protocol(protocol);
    let session = listener.accept().unwrap();
    let mut stream = session.accept().unwrap().unwrap();
    let message = stream.recv().unwrap().unwrap();
    stream.send(&message).unwrap();
    let _ = stream.recv();
}

fn a_server_is_looked_into(mapping: MemMapType, read_from: &str) {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shmipc_dump::child_process_serves"]).env(SERVES_IN, place);
    let server = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    // Input: the default queue_cap. With it the size of the queue region is no multiple of a page,
    // so the mapping is longer than the region.
    let config = Config::default().mem_map_type(mapping);
    let config = config.share_memory_path_prefix(format!("{place}/regions"));
    let protocol = Arc::new(Shmipc::new(config).unwrap());
    let config = partywall::Config::default();
    let address = format!("unix:{place}/s.sock");
    let mut session = None;
    wait_until("the server listens", || {
        session = connect_with_protocol(&*address, &config, protocol.clone()).ok();
        session.is_some()
    });
    let session = session.unwrap();
    let mut stream = session.open(&[]).unwrap();
    stream.send(b"there and back").unwrap();
    assert_eq!(stream.recv().unwrap().unwrap(), b"there and back");
    let (code, printed, errors) = dump(&[&server.0.id().to_string()]);
    assert_eq!(code, SOUND, "{printed}{errors}");
    assert!(printed.contains("_queue_0, 196656 bytes, read from /proc/"), "{printed}");
    assert!(
        printed.contains(read_from) && printed.contains("8192 elements per direction"),
        "{printed}"
    );
    assert!(printed.contains("\nsound\n"), "{printed}");
    drop((stream, session));
}

#[test]
fn queues_of_a_server_are_found_in_sent_memfds() {
    let _alone = alone();
    a_server_is_looked_into(MemMapType::MemFd, "/mem at 0x");
}

#[test]
fn queues_of_a_server_are_found_in_named_files() {
    let _alone = alone();
    // Expected result: `dump` finds the server's regions behind its descriptors (`/fd/`). The
    // server keeps the descriptors of named files open, so that it can remove the files when the
    // session ends.
    a_server_is_looked_into(MemMapType::DevShmFile, "/fd/");
}

#[test]
fn slice_of_a_dead_process_is_leaked() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (buffers, queues) = left_behind(directory.path());
    let (code, printed, _) = dump(&[&buffers]);
    assert_eq!(code, UNSOUND, "{printed}");
    assert!(printed.contains("its processes are gone"), "{printed}");
    assert!(printed.contains("not sound: 0 broken, 1 slices leaked"), "{printed}");
    assert!(printed.contains("in a pending message: leaked\n"), "{printed}");
    // Input: files whose names do not show that they belong to one connection, so the option
    // `--queue` of `dump` has to name the queue file.
    let (region, queue) = (directory.path().join("region"), directory.path().join("q"));
    fs::rename(&buffers, &region).unwrap();
    fs::copy(&queues, &queue).unwrap();
    let region = region.to_str().unwrap();
    assert!(dump(&[region]).1.contains("no queue was found"));
    let (code, printed, _) = dump(&[region, "--queue", queue.to_str().unwrap(), "--json"]);
    assert_eq!(code, UNSOUND);
    let whole: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&whole["regions"][0]["leaked"], &whole["sound"]), (&1.into(), &false.into()));
    // Input: `dump` gets the queue file alone. Without the buffer region, `dump` can find no leak.
    let (code, printed, _) = dump(&[&queues]);
    assert_eq!(code, SOUND, "{printed}");
    assert!(printed.contains("the buffers that the queues point into are not here"), "{printed}");
}

#[test]
fn broken_invariant_is_reported() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (buffers, _) = left_behind(directory.path());
    let mut bytes = fs::read(&buffers).unwrap();
    bytes[8] ^= 1; // the flipped bit changes the number of free slices of the first list
    fs::write(&buffers, &bytes).unwrap();
    let (code, printed, _) = dump(&[&buffers]);
    assert_eq!(code, UNSOUND, "{printed}");
    assert!(
        printed.contains("broken:") && printed.contains("can be reached from the head"),
        "{printed}"
    );
    bytes[..8].fill(0xff);
    fs::write(&buffers, &bytes).unwrap();
    let (code, printed, errors) = dump(&[&buffers]);
    assert_eq!((code, &*printed), (UNREADABLE, ""));
    assert!(errors.contains("cannot have so many lists"), "{errors}");
}

#[test]
fn other_file_is_reported_as_no_region() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other_buffer");
    fs::write(&other, "something else altogether").unwrap();
    let (other, path) = (other.to_str().unwrap(), directory.path().to_str().unwrap());
    let refused = |arguments: &[&str], says: &str| {
        let (code, printed, errors) = dump(arguments);
        assert_eq!((code, &*printed), (UNREADABLE, ""), "{arguments:?}");
        assert!(errors.contains(says), "{arguments:?}: {errors:?} does not say {says:?}");
    };
    refused(&[other], "is neither a region of buffers nor one of queues");
    refused(&[path], "is no file");
    refused(&["/no/such/file"], "No such file");
    refused(&["4294967295"], "there is no process 4294967295");
    refused(&["1", "--queue", other], "of a process all queues are found");
    refused(&[], "FILE|PID");
    let listen = Listening::start(&[&format!("unix:{path}/l.sock")], Stdio::null());
    let pid = listen.process.0.id().to_string();
    refused(&[&pid], &format!("process {pid} has no region of shmipc"));
    if fs::read_dir("/proc/1/fd").is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied) {
        refused(&["1"], "not allowed to inspect process 1: run this as its user, or as root");
    }
}
