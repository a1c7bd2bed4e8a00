// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the notifications between two sides: a sleeper is notified once per sleep, and an awake
//! side never. A quiet sleeper has asked not to be notified of each record, and is notified only
//! before the waker itself waits.
#![cfg(not(loom))]

use partywall_layout::segment;
use partywall_ring::{Sleeper, Wake, Waker, mem};

fn sides() -> (Sleeper, Waker) {
    let (word, seen) = mem::pair(64);
    (Sleeper::new(word), Waker::new(&seen, 0))
}

#[test]
fn awake_peer_is_not_notified() {
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

/// Rule: if the waker notifies before it publishes, its check after publishing does not notify
/// again in the same epoch. Each arming of the sleeper begins an epoch. So the check notifies again
/// if the sleeper woke and armed again between the two calls.
#[test]
fn early_notification_counts_for_its_epoch() {
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

/// Rule: each arming begins an epoch, and the waker notifies in each epoch. The sleeper of this
/// test does not disarm in between.
#[test]
fn armed_twice_is_notified_twice() {
    let (mut sleeper, waker) = sides();
    sleeper.arm(false);
    assert_eq!(waker.check(), Wake::Notify);
    sleeper.arm(false);
    assert_eq!(waker.check(), Wake::Notify);
}

#[test]
fn quiet_sleeper_is_notified_before_wait_only() {
    let (mut sleeper, waker) = sides();
    for _ in 0..3 {
        sleeper.arm(true);
        assert_eq!(waker.check(), Wake::Quiet);
        assert_eq!(waker.check(), Wake::Quiet);
        assert_ne!(waker.check_early(), Wake::Notify);
        assert_eq!(waker.check_before_wait(), Wake::Notify);
        assert_eq!(waker.check_before_wait(), Wake::Notified);
        assert_eq!(waker.check(), Wake::Quiet);
        // The sleeper arms again, and is no longer quiet, so the next check notifies.
        sleeper.arm(false);
        assert_eq!(waker.check(), Wake::Notify);
        sleeper.disarm();
    }
}

#[test]
fn left_sleeper_stays_gone() {
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

/// Rule: whatever value a hostile peer writes into its sleeper word, the waker does not panic. The
/// peer only gets needless notifications.
#[test]
fn any_sleeper_word_is_checked_without_panic() {
    let (mut word, seen) = mem::pair(64);
    let waker = Waker::new(&seen, 0);
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
