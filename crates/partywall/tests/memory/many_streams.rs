// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that a million streams, sequential and up to 500 at a time, leave the process with no more
//! memory and descriptors, and no blocks in flight.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::Session;
use partywall_testkit::{Footprint, Kind, run, session_pair};
use std::time::Duration;

const STREAMS: u32 = 1_000_000;
const AT_ONCE: u32 = 500;

/// Number of phases in which the streams are opened. The memory that the allocator keeps grows with
/// the greatest number of messages in flight so far, which depends on chance: a process holds the
/// same after three million streams as after one million. A leak would grow in every phase, so the
/// least growth of a phase is checked.
const PHASES: u32 = 4;
/// Maximum of the least growth of a phase, in bytes. A leak of 16 bytes per stream would exceed it.
const LEAST_GROWTH_MAX: u64 = 3 << 20;
/// Maximum growth over all phases, in bytes, which the large messages of all concurrent streams in
/// both directions may cause.
const GROWTH_MAX: u64 = 32 << 20;

/// Opens streams one after the other. On each, the opener sends a question and gets an answer; some
/// of them are large.
async fn open_some(session: Session, count: u32) {
    let large = vec![7; 20_000];
    for index in 0..count {
        let mut stream = session.open(b"").await.unwrap();
        let question: &[u8] = if index % 100 == 0 { &large } else { b"question" };
        stream.send(question).await.unwrap();
        stream.finish();
        if index % 2 == 0 {
            assert!(stream.recv().await.unwrap().unwrap() == *question);
            assert!(matches!(stream.recv().await, Ok(None)));
        }
    }
}

async fn answer_all(session: Session) {
    while let Ok(Some(mut stream)) = session.accept().await {
        if let Ok(Some(question)) = stream.recv().await {
            // The error is ignored, because the opener drops half of the streams before the answer
            // arrives.
            let _ = stream.send(&question).await;
        }
    }
}

#[test]
fn a_million_streams_leave_nothing_behind() {
    let _alone = partywall_testkit::alone();
    run("a million streams", Duration::from_secs(300), async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| config).await;
        let answering: Vec<_> = (0..4).map(|_| tokio::spawn(answer_all(server.clone()))).collect();
        let count = STREAMS / PHASES;
        let mut held = Vec::new();
        for _ in 0..PHASES {
            open_some(client.clone(), count / 5).await;
            in_parallel(&client, count / 5 * 4).await;
            settle(&client, &server).await;
            held.push(Footprint::now());
        }
        let grown =
            |from: Footprint, to: Footprint| to.resident_bytes.saturating_sub(from.resident_bytes);
        let least = held.windows(2).map(|pair| grown(pair[0], pair[1])).min().unwrap();
        assert!(least <= LEAST_GROWTH_MAX, "{held:?}");
        let (first, last) = (held[0], held[held.len() - 1]);
        assert!(grown(first, last) <= GROWTH_MAX, "{held:?}");
        assert!(last.descriptors <= first.descriptors, "{held:?}");
        client.close(0, "");
        for task in answering {
            task.await.unwrap();
        }
    });
}

/// Waits until every stream has ended, and trims both sessions, which frees their unused shared
/// memory.
async fn settle(client: &Session, server: &Session) {
    for session in [client, server] {
        session.drained().await.unwrap();
        session.trim();
    }
    for session in [client, server] {
        // The ping is answered after the peer has handled the records of retired segments, and so
        // has unmapped them.
        session.ping().await.unwrap();
        assert_eq!(session.stats().blocks_in_flight, 0);
    }
}

async fn in_parallel(session: &Session, count: u32) {
    let opening = (0..AT_ONCE).map(|_| tokio::spawn(open_some(session.clone(), count / AT_ONCE)));
    for task in opening.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}
