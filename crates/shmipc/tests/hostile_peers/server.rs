// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with servers that follow the rules until the handshake is over. By then the servers have
//! mapped the client's region. They corrupt the region's lists of free slices while the client
//! allocates from these lists. The client's session continues or ends with a report of the damage;
//! the next session has undamaged memory.

use crate::support_foe;

use partywall::blocking::{Session, connect_with_protocol};
use partywall::{BackPressure, Config, StreamSendError};
use partywall_shmipc::wire::encode;
use partywall_shmipc::{MemMapType, Shmipc};
use partywall_sys::Listener;
use partywall_testkit::Random;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support_foe::{Foe, alone, any_word, assert_footprint, footprint, small, soon};

/// The listening socket of the hostile servers, and the settings with which the client under test
/// connects to them.
struct Den {
    _directory: tempfile::TempDir,
    path: PathBuf,
    listener: Listener,
    config: Config,
    protocol: Arc<Shmipc>,
}

impl Den {
    fn new(adapt: impl FnOnce(Config) -> Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let listener = Listener::listen_unix_path(&path, 0o600, 16).unwrap();
        let protocol = Arc::new(Shmipc::new(small().queue_cap(64)).unwrap());
        let config = adapt(Config::default());
        Self { _directory: directory, path, listener, config, protocol }
    }

    fn pair(&self) -> (Session, Foe) {
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let protocol = Arc::clone(&self.protocol) as _;
                connect_with_protocol(&*support_foe::address(&self.path), &self.config, protocol)
            });
            let mut socket = None;
            support_foe::until("we connect", || {
                socket = self.listener.accept().ok().flatten();
                socket.is_some()
            });
            let foe = Foe::server(socket.unwrap());
            (connecting.join().unwrap().unwrap(), foe)
        })
    }
}

/// As the application of the client under test, sends messages on its session; each may succeed or
/// fail.
fn talk(session: &Session, rounds: usize) {
    for round in 0..rounds {
        let deadline = Instant::now() + Duration::from_millis(50);
        let Ok(mut stream) = session.open_deadline(&[], deadline) else { return };
        let bytes = vec![round as u8; 1 + round * 577 % 9000];
        let _ = stream.send_deadline(&bytes, deadline);
        if let Ok(mut memory) = stream.reserve_deadline(1 + round * 99 % 4000, deadline) {
            memory.fill(1);
            let _ = memory.commit_deadline(deadline);
        }
        let _ = stream.recv_deadline(Instant::now() + Duration::from_millis(1));
    }
}

fn scribble(foe: &mut Foe, random: &mut Random, is_over: &AtomicBool) {
    let words = foe.memory.queue_map.len() as u64 / 4;
    while !is_over.load(Ordering::Relaxed) {
        let word = any_word(random);
        match random.below(6) {
            0 => foe.memory.buffer_map.store(random.below(20) as usize * 4, word),
            1 => {
                let at = 44 + random.below(127) as usize * 4116 + random.below(5) as usize * 4;
                foe.memory.buffer_map.store(at, word);
            }
            2 if random.below(50) == 0 => {
                foe.memory.queue_map.store(random.below(words) as usize * 4, word);
            }
            3 => drop(foe.memory.consumer.pop()),
            4 => drop(foe.wire.send(&encode::polling(3))),
            _ => {
                let _ = foe.memory.region.receive(word);
            }
        }
    }
}

fn one(den: &Den, seed: u64) {
    let (session, mut foe) = den.pair();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scribbling = scope.spawn(|| {
            scribble(&mut foe, &mut Random::new(seed), &is_over);
            foe
        });
        talk(&session, 40);
        session.close(0, "");
        is_over.store(true, Ordering::Relaxed);
        drop(scribbling.join().unwrap());
    });
    session.finished(Some(soon())).unwrap();
}

#[test]
fn lists_that_the_server_spoils_while_we_take_from_them() {
    let _alone = alone();
    let den = Den::new(|config| config.linger(Duration::from_millis(20)));
    for seed in 0..10 {
        one(&den, seed);
    }
    let before = footprint();
    for seed in 100..300 {
        one(&den, seed);
    }
    assert_footprint(before);
    // Expected after a session with damaged memory: the client's next session gets new memory.
    let (session, mut foe) = den.pair();
    assert!(foe.memory.region.is_all_free());
    let mut stream = session.open(&[]).unwrap();
    stream.send(&[7; 100_000]).unwrap();
    assert_eq!(foe.hear(), (foe_stream(), Some(vec![7; 100_000])));
}

/// Id of the first stream of a session; only the client of shmipc opens streams.
const fn foe_stream() -> u32 {
    2
}

#[test]
fn a_server_opens_no_streams_and_its_data_for_none_is_given_back() {
    let _alone = alone();
    let den = Den::new(|config| config);
    let (session, mut foe) = den.pair();
    let before = foe.memory.region.free_counts();
    foe.say(7, &[1; 5000]);
    foe.wire.send(&[&encode::fallback_header(3, 8, 1)[..], b"x"].concat());
    let mut stream = session.open(&[]).unwrap();
    stream.send(b"hello").unwrap();
    assert_eq!(foe.hear(), (2, Some(b"hello".to_vec())));
    foe.say(2, b"answer");
    assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"answer");
    support_foe::until("all is free", || foe.memory.region.free_counts() == before);
    let accepted = session.accept_deadline(Instant::now() + Duration::from_millis(50));
    assert!(!matches!(accepted, Ok(Some(_))), "{accepted:?}");
}

#[test]
fn full_ring_blocks_or_fails_as_configured() {
    let _alone = alone();
    for policy in [BackPressure::Block, BackPressure::Error] {
        let den = Den::new(|config| config.back_pressure(policy));
        let (session, mut foe) = den.pair();
        let mut stream = session.open(&[]).unwrap();
        let mut sent = 0_u32;
        loop {
            let deadline = Instant::now() + Duration::from_millis(100);
            match stream.send_deadline(&sent.to_le_bytes(), deadline) {
                Ok(()) => sent += 1,
                Err(error) => {
                    let is_right = match policy {
                        BackPressure::Error => matches!(error, StreamSendError::Full),
                        _ => matches!(error, StreamSendError::TimedOut),
                    };
                    assert!(is_right, "{error:?}");
                    break;
                }
            }
            assert!(sent <= 64, "more than the ring holds was said to be sent");
        }
        assert_eq!(sent, 64);
        for number in 0..sent {
            assert_eq!(foe.hear(), (2, Some(number.to_le_bytes().to_vec())));
        }
        stream.send_deadline(b"again", soon()).unwrap();
        assert_eq!(foe.hear(), (2, Some(b"again".to_vec())));
    }
}

#[test]
fn a_region_of_which_a_server_kept_something_gets_no_new_sessions() {
    let _alone = alone();
    let den = Den::new(|config| config.linger(Duration::from_millis(20)));
    let (first, mut foe) = den.pair();
    let (second, other) = den.pair();
    let name = |foe: &Foe| foe.memory.identity();
    assert_eq!(name(&foe), name(&other), "sessions share their buffers");
    let mut stream = first.open(&[]).unwrap();
    stream.send(&[7; 10_000]).unwrap();
    // The hostile server takes a message's element from the ring without freeing its slices, and
    // closes the connection. So slices are missing, and the client must use the region for no new
    // session.
    assert!(foe.memory.consumer.pop().unwrap().is_some());
    let spoilt = name(&foe);
    foe.wire.socket.shutdown_both().unwrap();
    first.closed(Some(soon())).unwrap();
    first.finished(Some(soon())).unwrap();
    drop((stream, first, foe));
    let (third, another) = den.pair();
    assert_ne!(name(&another), spoilt);
    assert!(another.memory.region.is_all_free());
    // The hostile server of the first session has taken slices of the shared region and never freed
    // them. The second session used the region before that, and must still be able to use it.
    let mut stream = second.open(&[]).unwrap();
    stream.send(b"hello").unwrap();
    drop((second, other, third, another));
}

#[test]
fn a_region_of_which_nothing_is_missing_is_used_again() {
    let _alone = alone();
    let den = Den::new(|config| config);
    let (session, foe) = den.pair();
    let first = foe.memory.identity();
    session.close(0, "");
    session.finished(Some(soon())).unwrap();
    drop((session, foe));
    // The session's driver frees its memory a moment after the session has finished. So the test
    // connects again until the region is reused.
    support_foe::until("it is used again", || {
        let (session, foe) = den.pair();
        let now = foe.memory.identity();
        session.close(0, "");
        session.finished(Some(soon())).unwrap();
        now == first
    });
}

#[test]
fn files_of_killed_processes_are_swept_and_no_others() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    // A file whose name says that a process which no longer lives created it: 4194303 is the
    // largest possible process id, which no process has.
    let stale = file("shm_0123456789abcdef_4194303_buffer");
    let kept = [
        "shm_0123456789abcdef_1_buffer",
        "shm_4194303_buffer",
        "wallet_0123456789abcdef_4194303_buffer",
        "shm_0123456789abcdef_4194303_other",
    ];
    for name in kept {
        std::fs::write(file(name), [0; 8]).unwrap();
    }
    std::fs::write(&stale, [0; 8]).unwrap();
    let config = small()
        .mem_map_type(MemMapType::DevShmFile)
        .share_memory_path_prefix(file("shm").to_str().unwrap());
    let path = file("s.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let protocol = Arc::new(Shmipc::new(config).unwrap());
    let session = connect_with_protocol(
        &*support_foe::address(&path),
        &Config::default(),
        Arc::clone(&protocol) as _,
    )
    .unwrap();
    assert!(!stale.exists());
    let made = |directory: &std::path::Path| {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let own = format!("_{}_", std::process::id());
        names.filter(|name| name.to_str().unwrap().contains(&own)).count()
    };
    assert_eq!(made(directory.path()), 2);
    drop((session, protocol));
    support_foe::until("our own files are gone", || made(directory.path()) == 0);
    for name in kept {
        assert!(file(name).exists(), "{name}");
    }
}
