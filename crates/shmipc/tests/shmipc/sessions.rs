// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions with `partywall-shmipc` as client and as server: every message size, every
//! kind of memory, the blocking and the async interface, and exhausted memory.

use partywall::tokio::{Listener, Session, connect_with_protocol};
use partywall::{BackPressure, Config, Trust, TrustPolicy};
use partywall_shmipc::{MemMapType, Shmipc, SizePercentPair};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Kind {
    name: &'static str,
    address: String,
    protocol: partywall_shmipc::Config,
    config: Config,
}

fn kinds(directory: &tempfile::TempDir) -> Vec<Kind> {
    let unix = format!("unix:{}/s.sock", directory.path().display());
    let memfd = partywall_shmipc::Config::default();
    let files = memfd.clone().mem_map_type(MemMapType::DevShmFile).files_without_credentials(true);
    let config = Config::default();
    let untrusted = config.clone().trust(TrustPolicy::Untrusted);
    let kind = |name, address: &str, protocol: &partywall_shmipc::Config, config: &Config| Kind {
        name,
        address: address.to_owned(),
        protocol: protocol.clone(),
        config: config.clone(),
    };
    vec![
        kind("shmipc v3, memfd", &unix, &memfd, &config),
        kind("shmipc v3, memfd", &unix, &memfd, &untrusted),
        kind("shmipc v2, files", &unix, &files, &config),
        kind("shmipc v2, files", "tcp:127.0.0.1:0", &files, &config),
    ]
}

async fn pair(kind: &Kind) -> (Session, Session) {
    let protocol = Arc::new(Shmipc::new(kind.protocol.clone()).unwrap());
    let listener = Listener::bind_with(&*kind.address, &kind.config).unwrap();
    let listener = listener.with_protocol(protocol.clone());
    let address = listener.local_address().to_string();
    let connecting = connect_with_protocol(address, &kind.config, protocol);
    let (client, server) = tokio::join!(connecting, listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.transport().to_string(), kind.name);
    assert_eq!(server.transport().to_string(), kind.name);
    (client, server)
}

fn payload(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + (at >> 8) + seed) as u8).collect()
}

fn echo(server: Session) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok(Some(stream)) = server.accept().await {
            tokio::spawn(async move {
                let (mut send, mut recv) = stream.into_split();
                while let Ok(Some(message)) = recv.recv().await {
                    if send.send(&message).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(60), future).await;
    ended.unwrap_or_else(|_| panic!("{what}: hung"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_is_echoed_over_every_line() {
    let directory = tempfile::tempdir().unwrap();
    for kind in kinds(&directory) {
        let (client, server) = pair(&kind).await;
        let serving = echo(server);
        let mut tasks = Vec::new();
        for index in 0..10usize {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..3 {
                    let mut io = client.open(&[]).await.unwrap().into_io();
                    for len in [1, 64, 8171, 8172, 8173, 32_748, 32_749, 131_052, 131_053, 1 << 20]
                    {
                        let sent = payload(len, index + round);
                        io.write_all(&sent).await.unwrap();
                        io.flush().await.unwrap();
                        let mut received = vec![0; len];
                        io.read_exact(&mut received).await.unwrap();
                        assert!(received == sent, "{len} bytes differ");
                    }
                }
            }));
        }
        for task in tasks {
            within(kind.name, task).await.unwrap();
        }
        within(kind.name, client.drained()).await.unwrap();
        client.close(0, "");
        within(kind.name, client.finished()).await;
        within(kind.name, serving).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_ours_stay_whole_and_are_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let kind = &kinds(&directory)[0];
    let (client, server) = pair(kind).await;
    let mut stream = client.open(&[]).await.unwrap();
    for len in [1, 100, 100_000, 131_053, 3 << 20] {
        let mut memory = stream.reserve(len).await.unwrap();
        memory.copy_from_slice(&payload(len, 3));
        memory.commit().await.unwrap();
    }
    let mut there = within("accepting", server.accept()).await.unwrap().unwrap();
    for len in [1, 100, 100_000, 131_053, 3 << 20] {
        let message = within("receiving", there.recv()).await.unwrap().unwrap();
        assert!(message.is_zero_copy());
        assert!(message == payload(len, 3), "{len} bytes differ");
    }
    drop(stream);
    let end = within("receiving", there.recv()).await;
    assert!(matches!(end, Ok(None)), "{end:?}");
}

fn small() -> partywall_shmipc::Config {
    let classes = [
        SizePercentPair { size: 4096, percent: 50 },
        SizePercentPair { size: 65_536, percent: 50 },
    ];
    partywall_shmipc::Config::default().share_memory_buffer_cap(1 << 20).buffer_slice_sizes(classes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_memory_use_the_socket_in_order() {
    let directory = tempfile::tempdir().unwrap();
    for mut kind in kinds(&directory) {
        kind.protocol =
            small().files_without_credentials(true).mem_map_type(if kind.name.contains("memfd") {
                MemMapType::MemFd
            } else {
                MemMapType::DevShmFile
            });
        let (client, server) = pair(&kind).await;
        let is_copied = server.peer().trust == Trust::Untrusted;
        let sending = tokio::spawn(async move {
            let mut stream = client.open(&[]).await.unwrap();
            for index in 0..200usize {
                stream.send(&payload(20_000 + index, index)).await.unwrap();
            }
            // If the receiver copies messages on arrival, their shared memory is free almost at
            // once. If it does not, the memory runs out, and some messages must use the socket.
            assert!(is_copied || client.stats().overflows > 0, "{:?}", client.stats());
            drop(stream);
            within("draining", client.drained()).await.unwrap();
            client
        });
        let mut there = within("accepting", server.accept()).await.unwrap().unwrap();
        // The server has not read a message yet. So unread messages exhaust the shared memory, and
        // later messages use the socket.
        let client = within("sending", sending).await.unwrap();
        for index in 0..200usize {
            let message = within("receiving", there.recv()).await.unwrap().unwrap();
            assert!(message == payload(20_000 + index, index), "message {index} differs");
        }
        let end = within("receiving", there.recv()).await;
        assert!(matches!(end, Ok(None)), "{end:?}");
        drop(there);
        // A new stream uses shared memory again, because the unread messages were freed.
        let before = client.stats().overflows;
        let mut stream = client.open(&[]).await.unwrap();
        stream.send(&payload(20_000, 1)).await.unwrap();
        assert_eq!(client.stats().overflows, before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_overflow_memory_that_ran_out_is_an_error_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let mut kind = kinds(&directory).remove(0);
    kind.protocol = small();
    kind.config = kind.config.back_pressure(BackPressure::Error);
    let (client, server) = pair(&kind).await;
    let mut stream = client.open(&[]).await.unwrap();
    let mut sent = 0usize;
    while stream.send(&payload(20_000, sent)).await.is_ok() {
        sent += 1;
        assert!(sent < 1000, "never full");
    }
    assert_eq!(client.stats().overflows, 0);
    let mut there = within("accepting", server.accept()).await.unwrap().unwrap();
    for index in 0..sent {
        assert!(
            within("receiving", there.recv()).await.unwrap().unwrap() == payload(20_000, index)
        );
    }
    stream.send(b"again").await.unwrap();
    assert_eq!(within("receiving", there.recv()).await.unwrap().unwrap(), b"again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_makes_senders_wait_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut kind = kinds(&directory).remove(0);
    kind.protocol = kind.protocol.queue_cap(16);
    let (client, server) = pair(&kind).await;
    let sending = tokio::spawn(async move {
        let mut tasks = Vec::new();
        for index in 0..8usize {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let mut stream = client.open(&[]).await.unwrap();
                for round in 0..500usize {
                    stream.send(&payload(16, index + round)).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        client.drained().await.unwrap();
    });
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut there = within("accepting", server.accept()).await.unwrap().unwrap();
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            while let Ok(Some(message)) = there.recv().await {
                assert_eq!(message.len(), 16);
                count += 1;
            }
            count
        }));
    }
    for task in tasks {
        assert_eq!(within("receiving", task).await.unwrap(), 500);
    }
    within("sending", sending).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_before_session_close_are_received() {
    let directory = tempfile::tempdir().unwrap();
    for kind in kinds(&directory) {
        let (client, server) = pair(&kind).await;
        let mut stream = client.open(&[]).await.unwrap();
        for index in 0..1000usize {
            stream.send(&payload(100, index)).await.unwrap();
        }
        drop(stream);
        drop(client);
        let mut there = within("accepting", server.accept()).await.unwrap().unwrap();
        for index in 0..1000usize {
            assert!(
                within("receiving", there.recv()).await.unwrap().unwrap() == payload(100, index)
            );
        }
        let end = within("receiving", there.recv()).await;
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
}

#[tokio::test]
async fn files_of_clients_that_nobody_vouches_for_are_not_opened() {
    let files = partywall_shmipc::Config::default().mem_map_type(MemMapType::DevShmFile);
    let (sender, mut refused) = tokio::sync::mpsc::unbounded_channel();
    let config = Config::default().on_refused(move |error| drop(sender.send(error.to_string())));
    let listener = Listener::bind_with("tcp:127.0.0.1:0", &config).unwrap();
    let listener = listener.with_protocol(Arc::new(Shmipc::new(files.clone()).unwrap()));
    let address = listener.local_address().to_string();
    let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    // In version 2 of shmipc the server does not answer in the handshake. So connecting succeeds,
    // although this server refuses the client.
    let protocol = Arc::new(Shmipc::new(files).unwrap());
    let _session = connect_with_protocol(address, &Config::default(), protocol).await;
    let why = within("refusing", refused.recv()).await.unwrap();
    assert!(why.contains("files_without_credentials"), "{why}");
    accepting.abort();
}
