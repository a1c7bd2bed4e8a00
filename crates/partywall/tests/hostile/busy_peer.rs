// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a peer which sends records or changes words of its region without pause delays no
//! call beyond the call's deadline. A segment that the peer retires still counts against the limits
//! of this side while this side holds messages in it. Each test reproduces a bug that once existed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Channel, Config, Listener, RecvError, SendError, TryRecvError, Wait};
use partywall_layout::record_ring::{self, Kind};
use partywall_layout::segment::{CONSUMED, CONTROL_OFFSET};
use partywall_layout::{Geometry, Position};
use partywall_testkit::hostile::channel::{BOTH, Foe, hello};
use partywall_testkit::{Directory, Watchdog, millis, within};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time by which a call may exceed its deadline, because a busy machine may delay it.
const LATE: Duration = Duration::from_secs(3);

fn meet(config: &Config) -> (Foe, Channel) {
    let place = Directory::new();
    let mut listener = Listener::bind_with(place.address("home"), config).unwrap();
    Foe::meet(&mut listener, &place.path("home"), &hello(BOTH))
}

/// Repeats the hostile peer's action `act` in another thread while `test` runs.
fn besieged(mut foe: Foe, mut act: impl FnMut(&mut Foe) + Send, test: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                act(&mut foe);
            }
        });
        test();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn records_without_a_message_in_them_never_keep_try_recv() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("records without a message", Duration::from_secs(30));
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Park] {
        let (foe, mut channel) = meet(&Config::default().wait(wait));
        let act = |foe: &mut Foe| {
            let consumed = foe.theirs.as_ref().unwrap().load((CONTROL_OFFSET + CONSUMED) as usize);
            if foe.position - consumed < foe.geometry.ring.bytes() - 256 {
                foe.publish(Kind::FragmentFirst, &8u64.to_le_bytes());
                foe.publish(Kind::FragmentAbort, b"");
            }
        };
        besieged(foe, act, || {
            for _ in 0..20 {
                let started = Instant::now();
                assert!(matches!(channel.try_recv(), Err(TryRecvError::Empty)));
                let result = channel.recv_deadline(within(millis(10)));
                assert!(matches!(result, Err(RecvError::TimedOut)), "{result:?}");
                assert!(started.elapsed() < LATE, "{wait:?}: {:?}", started.elapsed());
            }
        });
    }
}

#[test]
fn one_look_follows_a_bounded_number_of_records() {
    let _together = partywall_testkit::together();
    let place = Directory::new();
    let mut listener = Listener::bind(place.address("home")).unwrap();
    let geometry = Geometry::new(1 << 20, 1024, 0).unwrap();
    let path = place.path("home");
    let (mut foe, mut channel) = Foe::meet_with(&mut listener, &path, &hello(BOTH), geometry);
    while foe.position < geometry.ring.bytes() - 256 {
        foe.publish(Kind::FragmentFirst, &8u64.to_le_bytes());
        foe.publish(Kind::FragmentAbort, b"");
    }
    assert!(matches!(channel.try_recv(), Err(TryRecvError::Empty)));
    let consumed = foe.theirs.as_ref().unwrap().load((CONTROL_OFFSET + CONSUMED) as usize);
    assert!(consumed < geometry.ring.bytes() / 2, "followed {consumed} bytes of records at once");
    foe.publish(Kind::Data, b"after all that");
    assert_eq!(channel.recv().unwrap().unwrap(), b"after all that");
}

#[test]
fn words_that_never_rest_do_not_outlast_the_deadline_of_a_send() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("restless words", Duration::from_secs(30));
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Park] {
        let (foe, mut channel) = meet(&Config::default().wait(wait).memory_max(1 << 20));
        // The channel's memory for large messages is exhausted; the ring has room for short ones.
        while channel.try_send(&[0; 300_000]).is_ok() {}
        let mut round = 0;
        let act = |foe: &mut Foe| {
            round += 1;
            foe.write_control(CONSUMED, round % 2 * 64);
        };
        besieged(foe, act, || {
            let started = Instant::now();
            let result = channel.send_deadline(&[0; 300_000], within(millis(50)));
            assert!(matches!(result, Err(SendError::TimedOut)), "{result:?}");
            assert!(started.elapsed() < LATE, "{wait:?}: {:?}", started.elapsed());
            let shared = channel.split().0.shared();
            let result = shared.send_deadline(&[0; 300_000], within(millis(50)));
            assert!(matches!(result, Err(SendError::TimedOut)), "{result:?}");
            assert!(started.elapsed() < LATE, "{wait:?}: {:?}", started.elapsed());
        });
    }
}

#[test]
fn a_record_that_turns_into_another_under_a_forgotten_look_is_no_panic() {
    let _together = partywall_testkit::together();
    let (mut foe, mut channel) = meet(&Config::default());
    foe.publish(Kind::Data, &[1; 40]);
    std::mem::forget(channel.recv_ref().unwrap().unwrap());
    let word = record_ring::word0(Position(0), Kind::Blob);
    foe.write_word(foe.place(0) + 8, record_ring::word1(32, 0));
    foe.write_word(foe.place(0) + 40, 8);
    foe.write_word(foe.place(0) + 32, 0);
    foe.write_word(foe.place(0) + 24, 0);
    foe.write_word(foe.place(0), word);
    assert_eq!(channel.recv_ref().unwrap().unwrap().len(), 8);
    foe.publish(Kind::Data, b"goes on");
    assert_eq!(channel.recv().unwrap().unwrap(), b"goes on");
}

#[test]
fn a_retired_segment_counts_as_long_as_we_look_at_it() {
    let _together = partywall_testkit::together();
    let limits = Config::default().map_max(2 << 20).segments_max(2);
    let (mut foe, mut channel) = meet(&limits);
    let mut held = None;
    let result = (0..4).find_map(|_| {
        let number = foe.add_segment(1 << 20);
        foe.publish_blob(number.into(), number, 0, 8);
        foe.publish_segment(Kind::SegmentRetire, number, 1 << 20);
        foe.publish(Kind::Data, b"retired");
        let view = channel.recv().and_then(|view| channel.recv().map(|_| view));
        view.map(|view| held.get_or_insert(view.unwrap()).len()).err()
    });
    let text = result.map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("exceed the agreed maximum"), "kept {held:?}, then {text:?}");
    assert_eq!(held.unwrap(), [0; 8]);

    // If this side drops each message before the peer retires its segment, the peer may add and
    // retire any number of segments.
    let (mut foe, mut channel) = meet(&limits);
    for _ in 0..10 {
        let number = foe.add_segment(1 << 20);
        foe.publish_blob(number.into(), number, 0, 8);
        drop(channel.recv().unwrap().unwrap());
        foe.publish_segment(Kind::SegmentRetire, number, 1 << 20);
    }
}
