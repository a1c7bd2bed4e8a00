// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which one of two processes is killed or stopped at any instant. The peer receives every
//! whole message, learns of the end, and keeps no descriptor, mapping or file of the session. A
//! process that is only stopped loses no message.
//!
//! There are some 60 kills, half of clients and half of servers. `PARTYWALL_SHMIPC_DEATHS=1000`
//! sets their number: 500 of each side, 250 of them with memfds and 250 with files.

mod support_foe;

use partywall::blocking::{Listener, Session, connect_with_protocol};
use partywall::{BackPressure, Config, StreamSendError};
use partywall_shmipc::regions::{BufferRegion, MemoryRules, PeerMemory, open_buffer};
use partywall_shmipc::{MemMapType, Shmipc};
use partywall_sys::process::{MappedRange, Process, mappings};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{Random, Second, is_pattern, pattern, soon, variable};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support_foe::{address, alone, assert_footprint, echo, footprint, small};

const ROLE: &str = "PARTYWALL_SHMIPC_DEATH_ROLE";
const DIRECTORY: &str = "PARTYWALL_SHMIPC_DEATH_DIRECTORY";
const FILES: &str = "PARTYWALL_SHMIPC_DEATH_FILES";
const SOCKET: &str = "PARTYWALL_SHMIPC_DEATH_SOCKET";
const STREAMS: u64 = 4;

fn protocol(directory: &Path, files: bool) -> Arc<Shmipc> {
    let mem_map_type = if files { MemMapType::DevShmFile } else { MemMapType::MemFd };
    let prefix = directory.join("shm").to_str().unwrap().to_owned();
    let config = small()
        .share_memory_buffer_cap(4 << 20)
        // The limits on messages that use the socket are low, so that they take little heap: the
        // allocator keeps freed memory, and much of that would look like a leak to this test.
        .fallback_message_max(256 << 10)
        .fallback_unread_max(1 << 20)
        .mem_map_type(mem_map_type)
        .share_memory_path_prefix(prefix)
        .directory(directory);
    Arc::new(Shmipc::new(config).unwrap())
}

/// Code of the second process, which a test kills. Until its death the process sends messages in
/// one session, or serves one session or many. It ends by itself if the test does not kill it.
#[test]
fn victim() {
    let Some(role) = variable(ROLE) else { return };
    let directory = variable(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let protocol = protocol(directory, variable(FILES).unwrap() == "true");
    let path = directory.join(variable(SOCKET).unwrap());
    if role != "client" {
        let mut listener = Listener::bind(&*address(&path)).unwrap().with_protocol(protocol);
        std::thread::scope(|scope| {
            while let Ok(session) = listener.accept_deadline(soon()) {
                scope.spawn(move || echo(&session));
                if role == "server" {
                    return;
                }
            }
        });
        return;
    }
    let log = File::options().write(true).open(directory.join("log")).unwrap();
    let session = connect_with_protocol(&*address(&path), &Config::default(), protocol).unwrap();
    std::thread::scope(|scope| {
        for id in 0..STREAMS {
            let (session, log) = (&session, &log);
            scope.spawn(move || send_for_ever(session, id, log));
        }
    });
}

/// Runs in the client that a test kills: sends numbered messages on one stream until the session
/// ends. It records in `log` how many messages it has sent, and whether any of them used the
/// socket.
fn send_for_ever(session: &Session, id: u64, log: &File) {
    let mut stream = session.open(&[]).unwrap();
    let mut chance = Random::new(id ^ u64::from(std::process::id()));
    for number in 0_u64.. {
        let len = chance.size(if number % 16 == 0 { 100_000 } else { 2000 });
        let bytes = [&id.to_le_bytes()[..], &pattern(len, id << 32 | number)].concat();
        if stream.send_deadline(&bytes, soon()).is_err() {
            return;
        }
        if session.stats().overflows > 0 {
            log.write_all_at(&1_u64.to_le_bytes(), STREAMS * 8).unwrap();
        }
        log.write_all_at(&(number + 1).to_le_bytes(), id * 8).unwrap();
    }
}

fn start(role: &str, directory: &Path, files: bool) -> Second {
    start_at("s.sock", role, directory, files)
}

fn start_at(socket: &str, role: &str, directory: &Path, files: bool) -> Second {
    let files = if files { "true" } else { "false" };
    let directory = directory.to_str().unwrap();
    let variables = [(ROLE, role), (DIRECTORY, directory), (FILES, files), (SOCKET, socket)];
    Second::start("victim", &variables)
}

/// Connects to a server that may not listen yet: tries again until a deadline. Returns the session.
fn connected(path: &Path, protocol: &Arc<Shmipc>) -> Session {
    let mut session = None;
    support_foe::until("it listens", || {
        let protocol = Arc::clone(protocol) as _;
        session = connect_with_protocol(&*address(path), &Config::default(), protocol).ok();
        session.is_some()
    });
    session.unwrap()
}

fn noted(log: &File, index: u64) -> u64 {
    let mut bytes = [0; 8];
    log.read_exact_at(&mut bytes, index * 8).unwrap();
    u64::from_le_bytes(bytes)
}

/// Sleeps for a random time: the kill may hit any instant, so there is no condition to wait for.
fn any_instant(seed: u64) {
    std::thread::sleep(Duration::from_micros(Random::new(seed).below(40_000)));
}

/// Starts a client process that sends, and kills it at a random time. Returns the number of
/// messages that this process received from the client.
fn a_client_dies(listener: &mut Listener, directory: &Path, files: bool, seed: u64) -> u64 {
    let log = File::options().read(true).write(true).open(directory.join("log")).unwrap();
    log.write_all_at(&[0; (STREAMS as usize + 1) * 8], 0).unwrap();
    let victim = start("client", directory, files);
    let session = listener.accept_deadline(soon()).unwrap();
    let received = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut tasks = Vec::new();
            while let Ok(Some(mut stream)) = session.accept() {
                tasks.push(scope.spawn(move || {
                    let (mut id, mut number) = (0, 0);
                    let mut held = Vec::new();
                    while let Ok(Some(message)) = stream.recv_deadline(soon()) {
                        id = u64::from_le_bytes(message[..8].try_into().unwrap());
                        assert!(is_pattern(&message[8..], id << 32 | number), "{id}: {number}");
                        number += 1;
                        // The last messages are held, so that the client dies while this process
                        // still uses slices of the client's memory.
                        held.push(message);
                        if held.len() > 3 {
                            held.swap_remove(1);
                        }
                    }
                    (id, number)
                }));
            }
            tasks.into_iter().map(|task| task.join().unwrap()).collect::<Vec<_>>()
        });
        any_instant(seed);
        drop(victim);
        receiving.join().unwrap()
    });
    let falls_back = noted(&log, STREAMS) > 0;
    for (id, number) in &received {
        let sent = noted(&log, *id);
        // The client may have been killed after it sent its last message, but before it logged the
        // message. Messages that it had buffered for the socket are lost.
        assert!(*number <= sent + 1, "stream {id}: {number} of {sent}");
        assert!(falls_back || *number >= sent, "stream {id}: only {number} of {sent} came");
    }
    received.iter().map(|(_, number)| number).sum()
}

/// Starts a server process that echoes, and kills it at a random time. Returns the number of
/// answers that this process received from the server.
fn a_server_dies(protocol: &Arc<Shmipc>, directory: &Path, files: bool, seed: u64) -> u64 {
    let victim = start("server", directory, files);
    let session = connected(&directory.join("s.sock"), protocol);
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..STREAMS)
            .map(|id| {
                let session = &session;
                scope.spawn(move || {
                    let mut chance = Random::new(id + seed * 7);
                    // With files as shared memory the server sends nothing in the handshake. So
                    // connecting succeeds even if the server is dead, and only `open` fails.
                    let Ok(mut stream) = session.open(&[]) else { return 0 };
                    for number in 0.. {
                        let sent = pattern(1 + chance.size(9000), number);
                        if stream.send_deadline(&sent, soon()).is_err() {
                            return number;
                        }
                        match stream.recv_deadline(soon()) {
                            Ok(Some(echoed)) => assert!(*echoed == sent[..], "{id}: {number}"),
                            Ok(None) | Err(_) => return number,
                        }
                    }
                    0
                })
            })
            .collect();
        any_instant(seed);
        drop(victim);
        tasks.into_iter().map(|task| task.join().unwrap()).sum()
    })
}

#[test]
fn a_client_is_killed_again_and_again() {
    deaths("client", false);
    deaths("client", true);
}

#[test]
fn a_server_is_killed_again_and_again() {
    deaths("server", false);
    deaths("server", true);
}

fn deaths(role: &str, files: bool) {
    if variable(ROLE).is_some() {
        return;
    }
    let _alone = alone();
    let all: u64 = variable("PARTYWALL_SHMIPC_DEATHS").map_or(60, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    File::create(directory.join("log")).unwrap();
    let protocol = protocol(directory, files);
    let mut listener = (role == "client").then(|| {
        let listener = Listener::bind(&*address(&directory.join("s.sock"))).unwrap();
        listener.with_protocol(Arc::clone(&protocol) as _)
    });
    let mut one = |seed| match &mut listener {
        Some(listener) => a_client_dies(listener, directory, files, seed),
        None => a_server_dies(&protocol, directory, files, seed),
    };
    for seed in 0..3 {
        one(seed);
    }
    let before = footprint();
    // This test makes a quarter of all kills. Four tests together kill clients and servers, with
    // memfds and with files.
    let mut came: u64 = (3..all / 4).map(&mut one).sum();
    // On a busy machine most processes are killed before they have sent much. In that case the test
    // kills more processes, until enough messages have arrived.
    let deadline = soon();
    for seed in all.. {
        if came > all / 20 {
            break;
        }
        assert!(Instant::now() < deadline, "{came} messages before {seed} deaths");
        came += one(seed);
    }
    assert_footprint(before);
    let left = || {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("shm_")).count()
    };
    if role == "server" {
        // The client in this process removes its own files when the killed server's session ends.
        // The files of its last session are removed when the protocol is dropped.
        assert!(left() <= 2, "{} files stay behind", left());
    } else if files {
        // The server or the next client removes the files of killed clients. The client that was
        // killed last may have died too recently for that.
        assert!(left() <= 2, "{} files stay behind", left());
    }
}

/// Opens a stream to an echoing server, sends `calls` messages and checks each echo; then closes
/// the stream.
fn call(session: &Session, calls: u64, chance: &mut Random) {
    let mut stream = session.open_deadline(&[], soon()).unwrap();
    for number in 0..calls {
        let sent = pattern(1 + chance.size(9000), number);
        stream.send_deadline(&sent, soon()).unwrap();
        assert!(*stream.recv_deadline(soon()).unwrap().unwrap() == sent[..], "answer {number}");
    }
}

/// Sets a flag when it is dropped, even during a panic. The flag tells the other thread of a test
/// to stop.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens the only buffer region that this process created in `directory`.
fn own_region(directory: &Path) -> Arc<BufferRegion> {
    let own = format!("_{}_buffer", std::process::id());
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let paths: Vec<_> = entries.filter(|path| path.to_str().unwrap().ends_with(&own)).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    let allowed = MemoryRules { directory: directory.into(), ..MemoryRules::new(8 << 20, None) };
    let given = PeerMemory::path(&paths[0], &allowed).unwrap();
    open_buffer(&given).unwrap()
}

/// Input: a server has two clients, and one of them is killed while it sends. Expected: calls of
/// the other client continue, all slices of its region return, and the server keeps nothing of the
/// dead client.
#[test]
fn a_client_that_is_killed_takes_nothing_from_another() {
    if variable(ROLE).is_some() {
        return;
    }
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let log = directory.join("log");
    let log = File::options().read(true).write(true).create_new(true).open(log).unwrap();
    let protocol = protocol(directory, true);
    let server = start("everybody", directory, true);
    let session = connected(&directory.join("s.sock"), &protocol);
    let region = own_region(directory);
    let held = || {
        let process = Process::Pid(server.pid());
        let is_of_a_client = |range: &MappedRange| range.name.contains("/shm_");
        let mapped = mappings(process).unwrap().into_iter().filter(is_of_a_client).count();
        (partywall_testkit::descriptors(process), mapped)
    };
    let mut chance = Random::new(1);
    call(&session, 100, &mut chance);
    let before = held();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                call(&session, 20, &mut chance);
            }
        });
        // Dropping `end` tells the calling thread to stop, even if an assertion of this test fails.
        // Without that, the scope would wait for that thread for ever.
        let end = End(&is_over);
        for seed in 0..10 {
            log.write_all_at(&[0; (STREAMS as usize + 1) * 8], 0).unwrap();
            let victim = start("client", directory, true);
            // The client counts as sending once it has sent a message on any of its streams. It
            // does not read the echoes, so the messages of its first three streams may exhaust the
            // memory.
            let sends = || (0..STREAMS).any(|id| noted(&log, id) > 0);
            support_foe::until("the victim sends", sends);
            any_instant(seed);
            drop(victim);
        }
        drop(end);
        calling.join().unwrap();
    });
    call(&session, 100, &mut chance);
    support_foe::until("every slice comes back", || region.is_all_free());
    assert!(region.counts().iter().all(|list| list.violations == 0), "{:?}", region.counts());
    support_foe::until("the server has let go", || held() == before);
}

/// Input: a client shares one region with two servers, and one of them is killed. Expected: only
/// slices that the killed server held are lost.
#[test]
fn a_server_that_is_killed_takes_no_more_of_a_shared_region_than_it_held() {
    if variable(ROLE).is_some() {
        return;
    }
    let _alone = alone();
    for seed in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let protocol = protocol(directory, true);
        let _steady = start_at("steady.sock", "server", directory, true);
        let victim = start("server", directory, true);
        let session = connected(&directory.join("steady.sock"), &protocol);
        let doomed = connected(&directory.join("s.sock"), &protocol);
        let region = own_region(directory);
        let mut chance = Random::new(seed);
        std::thread::scope(|scope| {
            for id in 0..STREAMS {
                let mut stream = doomed.open_deadline(&[], soon()).unwrap();
                scope.spawn(move || {
                    for number in 0.. {
                        let sent = stream.send_deadline(&pattern(3000, id + number), soon());
                        if sent.is_err() || !matches!(stream.recv_deadline(soon()), Ok(Some(_))) {
                            return;
                        }
                    }
                });
            }
            call(&session, 50, &mut chance);
            any_instant(seed);
            drop(victim);
            call(&session, 50, &mut chance);
        });
        doomed.close(0, "");
        doomed.finished(Some(soon())).unwrap();
        call(&session, 50, &mut chance);
        let baseline = region.free_counts();
        let lost: i32 =
            region.geometry().lists().iter().map(|list| list.slices as i32).sum::<i32>()
                - baseline.iter().sum::<i32>();
        // The bound exceeds the number of slices that the killed server can have held, in the
        // messages in flight of four streams, plus the free slices that both processes keep in
        // their caches.
        assert!(lost <= 200, "{lost} slices");
        for _ in 0..10 {
            call(&session, 50, &mut chance);
        }
        support_foe::until("what the calls lay in comes back", || {
            region.free_counts().iter().zip(&baseline).all(|(now, then)| now >= then)
        });
    }
}

#[test]
fn whatever_a_stopped_process_was_sent_arrives_when_it_goes_on() {
    if variable(ROLE).is_some() {
        return;
    }
    let _alone = alone();
    for policy in [BackPressure::Block, BackPressure::Error] {
        let directory = tempfile::tempdir().unwrap();
        let victim = start("server", directory.path(), false);
        let path = address(&directory.path().join("s.sock"));
        let protocol = Arc::new(Shmipc::new(small().queue_cap(64)).unwrap());
        let config = Config::default().back_pressure(policy);
        let mut session = None;
        support_foe::until("it listens", || {
            session = connect_with_protocol(&*path, &config, Arc::clone(&protocol) as _).ok();
            session.is_some()
        });
        let session = session.unwrap();
        let mut stream = session.open(&[]).unwrap();
        stream.send(b"hello").unwrap();
        assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"hello");
        stop(victim.pid(), soon()).unwrap();
        let mut sent = 0_u64;
        // The server is stopped and reads nothing. Messages go through the ring, then some over the
        // socket, until neither ring nor socket has room.
        let end = loop {
            let len = if sent < 30 { 100 } else { 60_000 };
            let deadline = Instant::now() + Duration::from_millis(200);
            match stream.send_deadline(&pattern(len, sent), deadline) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 10_000, "never full");
        };
        match policy {
            BackPressure::Error => assert!(matches!(end, StreamSendError::Full), "{end}"),
            _ => assert!(matches!(end, StreamSendError::TimedOut), "{end}"),
        }
        kill(victim.pid(), Signal::CONT).unwrap();
        let mut bytes = Vec::new();
        let expected: Vec<u8> =
            (0..sent).flat_map(|at| pattern(if at < 30 { 100 } else { 60_000 }, at)).collect();
        while bytes.len() < expected.len() {
            bytes.extend_from_slice(&stream.recv_deadline(soon()).unwrap().unwrap());
        }
        assert!(bytes == expected, "something was lost or reordered");
    }
}
