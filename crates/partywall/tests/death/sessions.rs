// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which a process with a session of many streams is killed at a random instant. On each
//! stream, the peer receives every message that was committed before, whole and in order. Then
//! every waiting call ends with an error, and the peer keeps no descriptor, mapping or memory of
//! the session.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::tokio::{Listener, Stream, connect_with};
use partywall::{Closed, Config, SessionError, StreamRecvError};
use partywall_sys::process::{Process, mappings, resident_bytes};
use partywall_testkit::{Kind, run};
use partywall_testkit::{Random, Second, TIMEOUT, is_pattern, pattern, soon, variable};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEATHS: u64 = 300;
const STREAMS: u64 = 16;
/// Maximum number of bytes by which the survivor's resident memory may grow during all kills of one
/// test, so that a leak shows.
const GROWTH_MAX: u64 = 16 << 20;

const KIND: &str = "PARTYWALL_SESSION_DEATH_KIND";
const ADDRESS: &str = "PARTYWALL_SESSION_DEATH_ADDRESS";
const LOG: &str = "PARTYWALL_SESSION_DEATH_LOG";

fn config(kind: Kind) -> Config {
    kind.config().memory_max(8 << 20)
}

/// Code of the victim: sends on many streams until it is killed, and logs for each stream the
/// number of committed messages.
#[test]
fn victim() {
    let Some(kind) = variable(KIND) else { return };
    let kind = Kind::from_name(&kind);
    let log = Arc::new(File::options().write(true).open(variable(LOG).unwrap()).unwrap());
    run("victim", TIMEOUT, async move {
        let session = connect_with(variable(ADDRESS).unwrap(), &config(kind)).await.unwrap();
        let mut tasks = Vec::new();
        for id in 0..STREAMS {
            let (session, log) = (session.clone(), Arc::clone(&log));
            tasks.push(tokio::spawn(async move {
                let mut stream = session.open(&id.to_le_bytes()).await.unwrap();
                let mut chance = Random::new(id ^ u64::from(std::process::id()));
                for number in 0u64.. {
                    let len = chance.size(if number % 8 == 0 { 200_000 } else { 2000 }) + 8;
                    if stream.send(&pattern(len, id << 32 | number)).await.is_err() {
                        return;
                    }
                    log.write_all_at(&(number + 1).to_le_bytes(), id * 8).unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Receives until the stream ends. Returns the stream's id and its number of messages.
async fn receive(mut stream: Stream) -> (u64, u64) {
    let id = u64::from_le_bytes(stream.metadata().try_into().unwrap());
    for number in 0.. {
        match stream.recv().await {
            Ok(Some(message)) => {
                assert!(is_pattern(&message, id << 32 | number), "stream {id}, message {number}");
            }
            Err(StreamRecvError::Session(SessionError::Closed(Closed::Disconnected))) => {
                assert!(stream.send(b"nobody there").await.is_err());
                return (id, number);
            }
            Ok(None) => panic!("stream {id} was finished after {number} messages"),
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("there are not so many messages");
}

async fn one_death(
    kind: Kind,
    listener: &Listener,
    log: &tempfile::NamedTempFile,
    seed: u64,
) -> u64 {
    log.as_file().write_all_at(&[0; STREAMS as usize * 8], 0).unwrap();
    let (address, path) = (listener.local_address().to_string(), log.path().to_str().unwrap());
    let victim =
        Second::start("sessions::victim", &[(KIND, kind.name()), (ADDRESS, &address), (LOG, path)]);
    let session = listener.accept().await.unwrap();
    let accepting = session.clone();
    let receiving = tokio::spawn(async move {
        let mut tasks = Vec::new();
        while let Ok(Some(stream)) = accepting.accept().await {
            tasks.push(tokio::spawn(receive(stream)));
        }
        tasks
    });
    // The kill may happen at any instant, so the test waits for a random time.
    let instant = Duration::from_micros(Random::new(seed).size(16_000) as u64);
    tokio::time::sleep(instant).await;
    tokio::task::spawn_blocking(move || drop(victim)).await.unwrap();
    let mut received = [0; STREAMS as usize];
    for task in receiving.await.unwrap() {
        let (id, count) = task.await.unwrap();
        received[id as usize] = count;
    }
    assert!(matches!(session.closed().await, SessionError::Closed(Closed::Disconnected)));
    for (id, received) in received.into_iter().enumerate() {
        let mut committed = [0; 8];
        log.as_file().read_exact_at(&mut committed, id as u64 * 8).unwrap();
        let committed = u64::from_le_bytes(committed);
        // The last message may have been committed before its number was logged. On a socket, bytes
        // that the kernel had not accepted are lost with the process.
        let is_right = if kind.is_shared_memory() {
            (committed..=committed + 1).contains(&received)
        } else {
            received <= committed + 1
        };
        assert!(is_right, "stream {id}: {received} of {committed}");
    }
    received.iter().sum()
}

fn footprint() -> (usize, usize, u64) {
    (
        partywall_testkit::descriptors(Process::Own),
        mappings(Process::Own).unwrap().len(),
        resident_bytes(Process::Own).unwrap(),
    )
}

async fn deaths(kind: Kind, count: u64) {
    let listen = || Listener::bind_with(kind.address(), &config(kind)).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let first = listen();
    for seed in 0..10 {
        one_death(kind, &first, &log, seed).await;
    }
    // The descriptors are counted without a listener, because it may hold a region that it made in
    // advance, or may just have given it to a connection.
    drop(first);
    let before = footprint();
    let listener = listen();
    let mut received = 0;
    for seed in 10..count {
        received += one_death(kind, &listener, &log, seed).await;
    }
    // On a busy machine most victims die before they have sent much. So further ones are killed
    // until enough messages were received or the time limit of the test has passed.
    let mut seed = count;
    while received <= 10 * count {
        received += one_death(kind, &listener, &log, seed).await;
        seed += 1;
    }
    drop(listener);
    // The driver of the last session may still hold descriptors for a moment.
    let descriptors = || partywall_testkit::descriptors(Process::Own);
    let deadline = soon();
    while descriptors() > before.0 {
        assert!(Instant::now() < deadline, "descriptors: {} then {}", before.0, descriptors());
        tokio::task::yield_now().await;
    }
    let after = footprint();
    assert!(after.1 <= before.1 + 20, "mappings: {} then {}", before.1, after.1);
    assert!(after.2 <= before.2 + GROWTH_MAX, "resident: {} then {}", before.2, after.2);
}

#[test]
fn three_hundred_deaths_with_many_streams() {
    if variable(KIND).is_some() {
        return;
    }
    let _alone = partywall_testkit::alone();
    run("deaths", Duration::from_secs(300), async {
        deaths(Kind::SharedMemory, DEATHS - 100).await;
        deaths(Kind::Untrusted, 50).await;
        deaths(Kind::Moving, 50).await;
        deaths(Kind::Unix, 50).await;
    });
}
