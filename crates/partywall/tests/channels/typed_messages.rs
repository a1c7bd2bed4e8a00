// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that typed values and plain structs arrive unchanged over every transport, and that
//! messages of another type are refused.
#![cfg(all(feature = "serde", feature = "zerocopy", feature = "tokio"))]

use partywall::{RecvPlainError, RecvValueError, SendError, SendValueError};
use partywall_testkit::Kind;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    name: String,
    items: Vec<(u32, Option<f64>)>,
}

fn order(count: u32) -> Order {
    let items = (0..count).map(|number| (number, (number % 3 == 0).then_some(0.5))).collect();
    Order { name: "ordered".into(), items }
}

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
struct Sample {
    at: u64,
    value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u8)]
enum Level {
    Low = 1,
    High = 2,
}

fn samples(count: usize) -> Vec<Sample> {
    (0..count).map(|index| Sample { at: index as u64, value: index as f64 / 4.0 }).collect()
}

#[test]
fn values_of_every_size_arrive() {
    for kind in Kind::ALL {
        let (mut here, mut there) = kind.pair(|config| config);
        for count in [0, 1, 100, 500, 20_000] {
            here.send_value(&order(count)).unwrap();
            assert_eq!(
                there.recv_value::<Order>().unwrap().unwrap(),
                order(count),
                "{}",
                kind.name()
            );
        }
        let (sender, _receiver) = here.split();
        let shared = sender.shared();
        shared.send_value(&order(3)).unwrap();
        shared.try_send_value(&order(4000)).unwrap();
        assert_eq!(there.recv_value::<Order>().unwrap().unwrap(), order(3));
        assert_eq!(there.recv_value::<Order>().unwrap().unwrap(), order(4000));
    }
}

#[test]
fn what_is_no_such_value_is_named_and_given_back() {
    let (mut here, mut there) = Kind::SharedMemory.pair(|config| config);
    here.send_value(&1_u8).unwrap();
    here.send(&[0xff; 4]).unwrap();
    here.send_value("after").unwrap();
    assert_eq!(there.recv_value::<u8>().unwrap().unwrap(), 1);
    let Err(RecvValueError::Decode(error)) = there.recv_value::<String>() else { panic!() };
    assert_eq!(error.number(), 1);
    assert!(error.to_string().starts_with("message 1 (4 bytes) is no "), "{error}");
    assert_eq!(error.into_message(), [0xff; 4]);
    assert_eq!(there.recv_value::<String>().unwrap().unwrap(), "after");
}

/// A value whose encoding is longer each time it is serialised, so its measured length is wrong.
struct Growing(Cell<usize>);

impl Serialize for Growing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.set(self.0.get() + 5000);
        serializer.serialize_bytes(&vec![7; self.0.get()])
    }
}

#[test]
fn a_value_that_changes_while_it_is_encoded_is_not_sent() {
    let (mut here, mut there) = Kind::SharedMemory.pair(|config| config);
    let sent = here.send_value(&Growing(Cell::new(0)));
    assert!(matches!(sent, Err(SendValueError::Encode(_))), "{sent:?}");
    assert_eq!(here.sender().stats().blocks_in_flight, 0, "what was reserved went back");
    here.send_value(&2_u8).unwrap();
    assert_eq!(there.recv_value::<u8>().unwrap().unwrap(), 2);
}

#[test]
fn the_limits_on_values_are_those_on_messages() {
    let (mut here, _there) = Kind::SharedMemory.pair(|config| config.memory_max(1 << 20));
    let sent = here.send_value(&vec![7_u8; 2 << 20]);
    assert!(matches!(sent, Err(SendValueError::Send(SendError::TooLarge(_)))), "{sent:?}");
}

#[test]
fn structs_and_slices_arrive_aligned() {
    for kind in Kind::ALL {
        let (mut here, mut there) = kind.pair(|config| config);
        for count in [1, 2, 6, 7, 9, 100, 10_000] {
            let sent = samples(count);
            here.send_plain(&sent[..]).unwrap();
            let received = there.recv_plain::<[Sample]>().unwrap().unwrap();
            // Moving the received value does not change the address of its bytes.
            let moved = Box::new(received);
            assert_eq!(**moved, sent[..], "{}: {count}", kind.name());
            let has_block = count * 16 > 1024;
            match kind {
                Kind::SharedMemory => assert_eq!(moved.is_zero_copy(), has_block, "{count}"),
                // The channel moves to shared memory after some messages, or after a while: on a
                // slow machine already here.
                Kind::Moving => assert!(has_block || !moved.is_zero_copy(), "{count}"),
                _ => assert!(!moved.is_zero_copy(), "{}: {count}", kind.name()),
            }
        }
        here.send_plain(&samples(1)[0]).unwrap();
        assert_eq!(*there.recv_plain::<Sample>().unwrap().unwrap(), samples(1)[0]);
    }
}

#[test]
fn behind_a_header_that_does_not_suit_the_struct_is_copied() {
    use bytes::Buf;
    let (mut here, mut there) = Kind::SharedMemory.pair(|config| config);
    for header in [1, 16, 24] {
        let sent = samples(500);
        here.send(&[&vec![9; header], sent.as_bytes()].concat()).unwrap();
        let mut message = there.recv().unwrap().unwrap();
        message.advance(header);
        let received = message.into_plain::<[Sample]>().unwrap();
        assert_eq!(*received, sent[..]);
        assert_eq!(received.is_zero_copy(), header == 16);
    }
}

#[test]
fn another_length_and_forbidden_bytes_are_refused_and_given_back() {
    let (mut here, mut there) = Kind::SharedMemory.pair(|config| config);
    here.send(&[1; 15]).unwrap();
    let Err(RecvPlainError::NotPlain(error)) = there.recv_plain::<Sample>() else { panic!() };
    assert_eq!(error.number(), Some(0));
    assert_eq!(error.into_message(), [1; 15]);
    here.send(&[1; 17]).unwrap();
    assert!(matches!(there.recv_plain::<[Sample]>(), Err(RecvPlainError::NotPlain(_))));
    for level in [Level::Low, Level::High] {
        here.send_plain(&level).unwrap();
        assert_eq!(there.recv_checked::<Level>().unwrap().unwrap(), level);
    }
    here.send(&[3]).unwrap();
    let Err(RecvPlainError::NotPlain(error)) = there.recv_checked::<Level>() else { panic!() };
    assert_eq!(error.into_message(), [3]);
}

#[tokio::test]
async fn streams_carry_both() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/s.sock", directory.path().display());
    let listener = partywall::tokio::Listener::bind(&address).unwrap();
    let (client, server) = tokio::join!(partywall::tokio::connect(&address), listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap());
    let mut here = client.open(b"").await.unwrap();
    let mut there = server.accept().await.unwrap().unwrap();
    for count in [1, 20_000] {
        here.send_value(&order(count)).await.unwrap();
        assert_eq!(there.recv_value::<Order>().await.unwrap().unwrap(), order(count));
        here.send_plain(&samples(count as usize)[..]).await.unwrap();
        let received = there.recv_plain::<[Sample]>().await.unwrap().unwrap();
        assert_eq!(*received, samples(count as usize)[..]);
    }
    here.send(&[0xff; 3]).await.unwrap();
    let Err(RecvValueError::Decode(error)) = there.recv_value::<Order>().await else { panic!() };
    assert_eq!(error.number(), 4);
}
