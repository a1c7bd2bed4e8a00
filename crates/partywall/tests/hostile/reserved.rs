// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with numbers that are reserved for topics, a later feature (SPEC 1.4). A peer sends each
//! number, with and without the feature bit TOPICS in its HELLO. This side must refuse it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Channel, Config, Fault, Listener, RecvError, TrustPolicy};
use partywall_layout::hello::{
    FEATURE_SOCKET, Hello, Offer, REGION_ALONE, REJECT_TAG, ROLE_CONNECTOR,
};
use partywall_layout::record_ring::Kind;
use partywall_sys::Doorbell;
use partywall_testkit::hostile::channel::{BOTH, Foe, hello, region_with, small_geometry};
use partywall_testkit::hostile::{Home, Role, SessionHome};
use partywall_testkit::{Directory, Watchdog, within};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Bit 2 of the features in HELLO: TOPICS. This version of the library does not set it.
const TOPICS: u64 = 1 << 2;
/// Numbers of the record kinds SUBSCRIBE, TOPIC and LOST.
const RECORD_KINDS: [u64; 3] = [17, 18, 19];
/// Types of three frames on the control socket that are reserved: for a shared region, a shared
/// segment and an introduction.
const FRAME_TYPES: [u8; 3] = [3, 4, 5];
/// Kinds in a region's header that no region of a connection has: that of a link (2), that of a
/// topic (3), and one that SPEC does not define (4).
const REGION_KINDS: [u32; 3] = [2, 3, 4];
/// The number in a region's header of the service that has topics and no streams.
const SERVICE: u32 = 4;

fn code(channel: &mut Channel) -> u32 {
    loop {
        match channel.recv_deadline(within(Duration::from_secs(30))) {
            Ok(Some(_)) => {}
            Err(RecvError::Fault(Fault::Violation { violation, .. })) => return violation.code(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn record_kind_of_a_topic_is_violation_3_on_each_transport() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("reserved kinds", Duration::from_secs(60));
    let place = Directory::new();
    let mut listener = Listener::bind(place.address("kinds")).unwrap();
    let path = place.path("kinds");
    for features in [BOTH, BOTH | TOPICS] {
        for kind in RECORD_KINDS {
            let (mut foe, mut victim) = Foe::meet(&mut listener, &path, &hello(features));
            foe.write_word(foe.place(0), kind << 1 | 1);
            foe.doorbells[0].notify().unwrap();
            assert_eq!(code(&mut victim), 3, "kind {kind} in memory, features {features}");
            let over_socket = features & !BOTH | FEATURE_SOCKET;
            let (foe, mut victim) = Foe::meet(&mut listener, &path, &hello(over_socket));
            let header = [(kind << 1 | 1).to_le_bytes(), [0; 8]].concat();
            assert!(foe.wire.send(&header, &[]));
            assert_eq!(code(&mut victim), 3, "kind {kind} on a socket, features {features}");
        }
    }
}

#[test]
fn record_kind_of_a_topic_is_violation_3_in_a_session() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("reserved kinds in sessions", Duration::from_secs(60));
    for is_acceptor in [false, true] {
        let home = SessionHome::new(Role { is_acceptor, is_shared_memory: false });
        for kind in RECORD_KINDS {
            let (foe, session) = home.meet();
            let header = [(kind << 1 | 1).to_le_bytes(), [0; 8]].concat();
            assert!(foe.send_bytes(&header));
            assert_eq!(home.code(&session), 3, "kind {kind}");
        }
    }
}

#[test]
fn frame_type_of_a_topic_is_violation_15() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("reserved frames", Duration::from_secs(60));
    let place = Directory::new();
    // Doorbells are bytes on the control socket, so the receiver reads it while it waits.
    let config = Config::default().trust(TrustPolicy::Untrusted);
    let mut listener = Listener::bind_with(place.address("frames"), &config).unwrap();
    let descriptor = Doorbell::new().unwrap();
    for features in [BOTH, BOTH | TOPICS] {
        for kind in FRAME_TYPES {
            let path = place.path("frames");
            let (foe, mut victim) = Foe::meet(&mut listener, &path, &hello(features));
            let frame = [kind, 1, 8, 0, 1, 0, 0, 0];
            let sent =
                foe.wire.socket.send(&[IoSlice::new(&frame)], &[descriptor.as_fd()], false, false);
            assert_eq!(sent.unwrap(), frame.len());
            assert_eq!(code(&mut victim), 15, "type {kind}, features {features}");
        }
    }
}

#[test]
fn region_of_another_kind_is_violation_1() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    for kind in REGION_KINDS {
        let (wire, session_id) = home.greeted(&hello(BOTH | TOPICS));
        let mut header = geometry.header(session_id, 1, ROLE_CONNECTOR);
        header.kind = kind.into();
        let region = region_with(geometry.region_bytes, &header);
        let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
        wire.send(offer.as_bytes(), &[region.as_fd()]);
        let (number, text) = home.reason();
        assert!(number == 209 && text.contains("kind"), "kind {kind}: {number} {text}");
    }
    home.serves();
}

#[test]
fn service_of_topics_is_refused_with_reject_5() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let wire = home.wire();
    let asked = Hello { service: SERVICE.into(), ..hello(BOTH | TOPICS) };
    wire.send(asked.as_bytes(), &[]);
    assert_eq!(home.reason().0, 207);
    let (frame, _) = wire.receive();
    assert!(frame.starts_with(&REJECT_TAG) && frame[16] == 5, "{frame:?}");
    home.serves();
}

#[test]
fn feature_bit_of_topics_is_ignored_and_never_set() {
    let _together = partywall_testkit::together();
    let place = Directory::new();
    let mut listener = Listener::bind(place.address("bit")).unwrap();
    let (mut foe, mut victim) = Foe::meet(&mut listener, &place.path("bit"), &hello(BOTH | TOPICS));
    foe.publish(Kind::Data, b"as ever");
    foe.doorbells[0].notify().unwrap();
    let message = victim.recv_deadline(within(Duration::from_secs(30))).unwrap().unwrap();
    assert_eq!(message, b"as ever");
}
