// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sleeper is rung once per sleep, an awake one never, a quiet one only by who insists.
#![cfg(not(loom))]

use partywall_layout::segment;
use partywall_ring::{Sleeper, Wake, Waker, mem};

fn sides() -> (Sleeper, Waker) {
    let (word, seen) = mem::pair(64);
    (Sleeper::new(word), Waker::new(seen, 0))
}

#[test]
fn an_awake_peer_is_not_notified() {
    let (mut sleeper, waker) = sides();
    assert_eq!(waker.check(), Wake::No);
    assert_eq!(waker.check_before_wait(), Wake::No);
    sleeper.arm(false);
    sleeper.disarm();
    assert_eq!(waker.check(), Wake::No);
}

#[test]
fn each_sleep_is_notified_once() {
    let (mut sleeper, waker) = sides();
    for _ in 0..100 {
        sleeper.arm(false);
        assert_eq!(waker.check(), Wake::Notify);
        assert_eq!(waker.check(), Wake::Notified);
        assert_eq!(waker.check_before_wait(), Wake::Notified);
        assert_ne!(waker.check_early(), Wake::Notify);
        sleeper.disarm();
        assert_eq!(waker.check(), Wake::No);
    }
}

/// A ring before publishing counts: the look that must follow does not ring again, unless the
/// sleeper woke and lay down again in between.
#[test]
fn an_early_ring_is_the_ring_of_its_epoch() {
    let (mut sleeper, waker) = sides();
    assert_ne!(waker.check_early(), Wake::Notify);
    sleeper.arm(false);
    assert_eq!(waker.check_early(), Wake::Notify);
    assert_eq!(waker.check(), Wake::Notified);
    sleeper.arm(false);
    assert_eq!(waker.check(), Wake::Notify);
    sleeper.leave();
    assert_ne!(waker.check_early(), Wake::Notify);
}

/// Two sleeps with no look in between are two sleeps, even without waking up.
#[test]
fn arming_again_is_another_sleep() {
    let (mut sleeper, waker) = sides();
    sleeper.arm(false);
    assert_eq!(waker.check(), Wake::Notify);
    sleeper.arm(false);
    assert_eq!(waker.check(), Wake::Notify);
}

#[test]
fn a_quiet_sleeper_is_notified_by_who_insists() {
    let (mut sleeper, waker) = sides();
    for _ in 0..3 {
        sleeper.arm(true);
        assert_eq!(waker.check(), Wake::Quiet);
        assert_eq!(waker.check(), Wake::Quiet);
        assert_ne!(waker.check_early(), Wake::Notify);
        assert_eq!(waker.check_before_wait(), Wake::Notify);
        assert_eq!(waker.check_before_wait(), Wake::Notified);
        assert_eq!(waker.check(), Wake::Quiet);
        // What it would be told if it now slept in earnest.
        sleeper.arm(false);
        assert_eq!(waker.check(), Wake::Notify);
        sleeper.disarm();
    }
}

#[test]
fn one_that_left_is_gone_for_good() {
    let (mut sleeper, waker) = sides();
    sleeper.arm(false);
    assert!(!waker.is_gone());
    sleeper.leave();
    assert!(waker.is_gone());
    for _ in 0..2 {
        assert_eq!(waker.check(), Wake::Gone);
        assert_eq!(waker.check_before_wait(), Wake::Gone);
    }
}

/// A hostile neighbour may write any word there; it gets rings, not a panic.
#[test]
fn any_word_can_be_looked_at() {
    let (mut word, seen) = mem::pair(64);
    let waker = Waker::new(seen, 0);
    for value in [1, u64::MAX - 1, segment::QUIET, segment::QUIET - 1, segment::GONE, 0] {
        word.store(0, value);
        let first = waker.check();
        let is_gone = value == segment::GONE;
        assert_eq!(first == Wake::Gone, is_gone);
        assert_eq!(waker.is_gone(), is_gone);
        let again = waker.check_before_wait();
        assert!(matches!(again, Wake::No | Wake::Notified | Wake::Gone) || first == Wake::Quiet);
    }
}
