// SPDX-License-Identifier: MIT OR Apache-2.0
//! A million streams, one after the other and up to 500 at once, leave nothing behind: no memory, no
//! descriptors, no blocks.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support_session;

use partywall::StreamRecvError;
use partywall::tokio::Session;
use partywall_sys::process::{Process, open_descriptors, resident_bytes};
use std::time::Duration;
use support_session::{Kind, pair, run};

const STREAMS: u32 = 1_000_000;
const AT_ONCE: u32 = 500;
/// What the process may grow by, in bytes: large messages of all streams at once, both ways. A stream that
/// left 64 bytes behind would come to more.
const GROWTH_MAX: u64 = 32 << 20;

/// So many descriptors of segments may come.
const SEGMENTS_MAX: usize = 8;

/// Opens streams one after the other; each asks and is answered, now and then with a large message.
async fn open_some(session: Session, count: u32) {
    let large = vec![7; 20_000];
    for index in 0..count {
        let mut stream = session.open(b"").await.unwrap();
        let question: &[u8] = if index % 100 == 0 { &large } else { b"question" };
        stream.send(question).await.unwrap();
        stream.close();
        if index % 2 == 0 {
            assert!(stream.recv().await.unwrap() == *question);
            assert!(matches!(stream.recv().await, Err(StreamRecvError::Finished)));
        }
    }
}

async fn answer_all(session: Session) {
    while let Ok(mut stream) = session.accept().await {
        if let Ok(question) = stream.recv().await {
            // Half of them are gone by then.
            let _ = stream.send(&question).await;
        }
    }
}

#[test]
fn a_million_streams_leave_nothing_behind() {
    run("a million streams", Duration::from_secs(300), async {
        let (client, server) = pair(Kind::Wall, |config| config).await;
        let answering: Vec<_> = (0..4).map(|_| tokio::spawn(answer_all(server.clone()))).collect();
        open_some(client.clone(), STREAMS / 10).await;
        in_parallel(&client, STREAMS / 10).await;
        let before = (open_descriptors(Process::Own).unwrap().len(), resident_bytes(Process::Own));
        open_some(client.clone(), STREAMS / 10).await;
        in_parallel(&client, STREAMS / 10 * 7).await;
        client.drained().await.unwrap();
        server.drained().await.unwrap();
        // What came home is found when memory is needed again, or given back.
        client.trim();
        server.trim();
        let after = (open_descriptors(Process::Own).unwrap().len(), resident_bytes(Process::Own));
        // Segments come with the most that was ever under way, and go when they were idle for long.
        assert!(after.0 <= before.0 + SEGMENTS_MAX, "descriptors: {} then {}", before.0, after.0);
        let (before, after) = (before.1.unwrap(), after.1.unwrap());
        assert!(after <= before + GROWTH_MAX, "resident: {before} then {after}");
        assert_eq!((client.stats().blocks_out, server.stats().blocks_out), (0, 0));
        client.close();
        for task in answering {
            task.await.unwrap();
        }
    });
}

async fn in_parallel(session: &Session, count: u32) {
    let opening = (0..AT_ONCE).map(|_| tokio::spawn(open_some(session.clone(), count / AT_ONCE)));
    for task in opening.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}
