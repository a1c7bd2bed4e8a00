// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that messages of every size arrive whole and in order, in both directions, over every
//! transport.

use partywall::{
    BackPressure, Begin, Channel, Config, Listener, RecvError, SendError, Transport,
    TransportPolicy, TrustPolicy, Wait,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn pair(address: &str, config: &Config) -> (Channel, Channel) {
    let mut listener = Listener::bind_with(address, config).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| partywall::connect_with(&address, config).unwrap());
        let server = listener.accept().unwrap();
        (client.join().unwrap(), server)
    })
}

/// Runs `test` over every transport, with every trust policy, with the name of the combination and
/// both ends of a channel.
fn each(mut test: impl FnMut(&str, Channel, Channel)) {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("unix:{}/arrive.sock", directory.path().display());
    let config = Config::default().begin(Begin::SharedMemory);
    let kinds = [
        ("shm", &path[..], config.clone().transport(TransportPolicy::SharedMemory)),
        ("untrusted", &path, config.clone().trust(TrustPolicy::Untrusted)),
        ("unix", &path, config.clone().transport(TransportPolicy::Socket)),
        ("tcp", "tcp:127.0.0.1:0", config),
    ];
    for (name, address, config) in kinds {
        let (client, server) = pair(address, &config);
        let is_shared_memory = matches!(server.transport(), Transport::SharedMemory);
        assert_eq!(is_shared_memory, name == "shm" || name == "untrusted", "{name}");
        assert_eq!(client.transport(), server.transport());
        test(name, client, server);
    }
}

fn payload(len: usize, seed: u64) -> Vec<u8> {
    (0..len).map(|index| (index as u64 * 31 + seed * 7 + (index as u64 >> 8)) as u8).collect()
}

const SIZES: [usize; 15] =
    [0, 1, 47, 48, 49, 64, 104, 105, 1024, 1025, 16_368, 16_369, 65_536, 1 << 20, 9 << 20];

/// The receiver counts messages and their bytes, however they are received, and those that came in
/// blocks.
#[test]
fn receiver_counts_messages_bytes_and_blocks() {
    each(|name, mut client, mut server| {
        let is_shared_memory = matches!(server.transport(), Transport::SharedMemory);
        let (mut bytes, mut blocks) = (0, 0);
        for (number, len) in [0, 64, 200, 5000, 20_000, 64, 70_000].into_iter().enumerate() {
            let client = &mut client;
            std::thread::scope(|scope| {
                scope.spawn(|| client.send(&payload(len, 1)).unwrap());
                let receiver = server.receiver();
                let received = match number % 3 {
                    0 => receiver.recv().unwrap().unwrap().len(),
                    1 => receiver.recv_ref().unwrap().unwrap().len(),
                    _ => receiver.recv_view().unwrap().unwrap().len(),
                };
                assert_eq!(received, len, "{name}");
            });
            bytes += len as u64;
            blocks += u64::from(is_shared_memory && len >= 5000);
        }
        // The message of the last view is counted once it is consumed.
        client.send(b"last").unwrap();
        assert_eq!(server.receiver().recv().unwrap().unwrap(), b"last", "{name}");
        let stats = server.receiver().stats();
        assert_eq!(
            [stats.messages, stats.bytes, stats.zero_copy],
            [8, bytes + 4, blocks],
            "{name}"
        );
    });
}

/// A message whose bytes are being written when the writer panics is dropped, and the next messages
/// arrive, whether they lie in the ring or in memory of their own.
#[test]
fn panic_of_a_writer_drops_its_message_only() {
    each(|name, mut client, mut server| {
        for len in [0, 64, 100, 100_000] {
            for next in [&b"next"[..], &[8; 3000]] {
                let sender = client.sender();
                let written = catch_unwind(AssertUnwindSafe(|| {
                    sender.send_with(len, |_| panic!("on purpose"))
                }));
                assert!(written.is_err(), "{name}, {len} bytes");
                client.send(next).unwrap();
                assert_eq!(server.recv().unwrap().unwrap(), next, "{name}, after {len} bytes");
            }
        }
    });
}

#[test]
fn of_every_size_both_ways() {
    each(|name, mut client, mut server| {
        for round in 0..3 {
            for (index, len) in SIZES.into_iter().enumerate() {
                let bytes = payload(len, index as u64 + round);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let message = server.recv().unwrap().unwrap();
                        assert_eq!(message.len(), len);
                        server.send(&message).unwrap();
                    });
                    client.send(&bytes).unwrap();
                    assert!(client.recv().unwrap().unwrap() == bytes, "{name}: {len} bytes");
                });
            }
        }
    });
}

#[test]
fn by_reservation_and_by_reference() {
    each(|_, client, server| {
        let (mut sender, _keep) = client.split();
        let (_keep2, mut receiver) = server.split();
        let writer = std::thread::spawn(move || {
            for (index, len) in SIZES.into_iter().enumerate() {
                let mut reserved = sender.reserve(len).unwrap();
                reserved.copy_from_slice(&payload(len, index as u64));
                reserved.commit().unwrap();
                drop(sender.reserve(len).unwrap());
            }
        });
        for (index, len) in SIZES.into_iter().enumerate() {
            let message = receiver.recv_ref().unwrap().unwrap();
            assert!(message == payload(len, index as u64), "{len} bytes");
        }
        writer.join().unwrap();
        assert!(matches!(receiver.recv(), Ok(None)));
    });
}

#[test]
fn a_batch_comes_whole_or_not_at_all() {
    each(|name, mut client, mut server| {
        let big = payload(100_000, 3);
        let mut batch = client.sender().batch();
        batch.send(b"never").unwrap();
        batch.send(&big).unwrap();
        batch.abort();
        let mut batch = client.sender().batch();
        batch.send(b"one").unwrap();
        batch.send(&big).unwrap();
        batch.send(b"three").unwrap();
        assert!(server.try_recv().is_err(), "{name}: nothing before the commit");
        batch.commit().unwrap();
        assert_eq!(server.recv().unwrap().unwrap(), b"one");
        assert_eq!(server.recv().unwrap().unwrap(), big);
        assert_eq!(server.recv().unwrap().unwrap(), b"three");
    });
}

#[test]
fn closing_one_direction_leaves_the_other() {
    each(|_, client, server| {
        let (sender, mut receiver) = client.split();
        let (mut back, mut incoming) = server.split();
        drop(sender);
        assert!(matches!(incoming.recv(), Ok(None)));
        back.send(b"still here").unwrap();
        drop(back);
        assert_eq!(receiver.recv().unwrap().unwrap(), b"still here");
        assert!(matches!(receiver.recv(), Ok(None)));
    });
}

#[test]
fn a_deadline_ends_every_wait() {
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Park, Wait::Poll(Duration::from_millis(1))] {
        each(|name, mut client, mut server| {
            server.set_wait(wait);
            client.set_wait(wait);
            let soon = Instant::now() + Duration::from_millis(20);
            assert!(matches!(server.recv_deadline(soon), Err(RecvError::TimedOut)), "{name}");
            // The receiver reads no message, so at some point the sender finds no room and waits
            // until the deadline.
            let soon = Instant::now() + Duration::from_millis(50);
            let result = std::iter::repeat_with(|| client.send_deadline(&[7; 1000], soon))
                .find(Result::is_err);
            assert!(matches!(result, Some(Err(SendError::TimedOut))), "{name}: {result:?}");
            server.recv().unwrap().unwrap();
        });
    }
}

#[test]
fn views_outlive_the_channel_and_drop_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/views.sock", directory.path().display());
    let (mut client, mut server) = pair(&address, &Config::default().begin(Begin::SharedMemory));
    let messages: Vec<_> = (0..20)
        .map(|seed| {
            client.send(&payload(200_000, seed)).unwrap();
            server.recv().unwrap().unwrap()
        })
        .collect();
    assert!(messages.iter().all(partywall::Message::is_zero_copy));
    drop((client, server));
    std::thread::spawn(move || {
        for (seed, message) in messages.into_iter().enumerate().rev() {
            assert_eq!(message, payload(200_000, seed as u64));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn when_memory_is_exhausted_overflow_keeps_order_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/overflow.sock", directory.path().display());
    let config = Config::default()
        .begin(Begin::SharedMemory)
        .memory_max(1 << 20)
        .message_max(8 << 20)
        .back_pressure(BackPressure::Overflow);
    let (client, server) = pair(&address, &config);
    let (mut sender, _keep) = client.split();
    let (_keep2, mut receiver) = server.split();
    let writer = std::thread::spawn(move || {
        for seed in 0..30 {
            sender.send(&payload(300_000, seed)).unwrap();
        }
        sender.send(&payload(5 << 20, 99)).unwrap();
        sender
    });
    let mut held: Vec<_> = (0..30).map(|_| receiver.recv().unwrap().unwrap()).collect();
    assert!(held.iter().any(partywall::Message::is_zero_copy));
    assert!(!held.iter().all(partywall::Message::is_zero_copy));
    assert_eq!(receiver.recv().unwrap().unwrap(), payload(5 << 20, 99));
    for (seed, message) in held.iter().enumerate() {
        assert_eq!(*message, payload(300_000, seed as u64));
    }
    let mut sender = writer.join().unwrap();
    held.clear();
    sender.send(&payload(300_000, 5)).unwrap();
    assert!(
        receiver.recv().unwrap().unwrap().is_zero_copy(),
        "zero-copy again with the very next message"
    );
}
