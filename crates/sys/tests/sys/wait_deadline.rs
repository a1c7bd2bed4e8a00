// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a wait for descriptors ends when one is ready or at the deadline, never before.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::time::{Duration, Instant};

use partywall_sys::epoll::EventFlags;
use partywall_sys::poll::{PollFd, PollFlags, wait};
use partywall_sys::{Doorbell, EpollSet, Ready, Socket, Timer};
use support::deadline;

const PAUSE: Duration = Duration::from_millis(20);

#[test]
fn wait_without_event_ends_at_deadline() {
    let (doorbell, set) = (Doorbell::new().unwrap(), EpollSet::new().unwrap());
    set.add(&doorbell, EventFlags::IN, 1).unwrap();
    let end = Instant::now() + PAUSE;
    assert_eq!(wait(&mut [PollFd::new(&doorbell, PollFlags::IN)], Some(end)).unwrap(), 0);
    assert!(Instant::now() >= end);

    let end = Instant::now() + PAUSE;
    let mut ready = vec![Ready { token: 9, flags: EventFlags::IN }];
    assert_eq!(set.wait(&mut ready, Some(end)).unwrap(), 0);
    assert!(Instant::now() >= end && ready.is_empty());
    // With a deadline in the past, a wait checks the descriptors once and does not block.
    assert_eq!(wait(&mut [PollFd::new(&doorbell, PollFlags::IN)], Some(end)).unwrap(), 0);
}

/// Input: the peer has filled the counter of the doorbell's eventfd. Expected: `notify_edge` still
/// wakes a waiter that reacts to edges and never drains the doorbell.
#[test]
fn edge_of_doorbell_whose_counter_is_full_wakes() {
    let (doorbell, set) = (Doorbell::new().unwrap(), EpollSet::new().unwrap());
    set.add(&doorbell, EventFlags::IN | EventFlags::ET, 1).unwrap();
    let mut ready = Vec::new();
    rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert_eq!(set.wait(&mut ready, deadline()).unwrap(), 1);
    doorbell.notify().unwrap();
    assert_eq!(
        set.wait(&mut ready, Some(Instant::now())).unwrap(),
        0,
        "a full counter has no edge"
    );
    doorbell.notify_edge().unwrap();
    assert_eq!(set.wait(&mut ready, deadline()).unwrap(), 1);
}

#[test]
fn doorbell_hang_up_and_timer_report_own_tokens() {
    let doorbell = Doorbell::new().unwrap();
    let (near, far) = Socket::pair().unwrap();
    let timer = Timer::new().unwrap();
    let set = EpollSet::new().unwrap();
    set.add(&doorbell, EventFlags::IN, 1).unwrap();
    set.add(&near, EventFlags::RDHUP, 2).unwrap();
    set.add(&timer, EventFlags::IN, 3).unwrap();
    let mut ready = Vec::new();

    doorbell.notify().unwrap();
    doorbell.notify().unwrap();
    set.wait(&mut ready, deadline()).unwrap();
    assert_eq!(ready, [Ready { token: 1, flags: EventFlags::IN }]);
    assert!(doorbell.drain().unwrap() && !doorbell.drain().unwrap());

    let time = Instant::now() + PAUSE;
    timer.set(Some(time)).unwrap();
    set.wait(&mut ready, deadline()).unwrap();
    assert_eq!(ready[0].token, 3);
    assert!(Instant::now() >= time);
    assert!(timer.drain().unwrap() && !timer.drain().unwrap());
    timer.set(Some(time)).unwrap(); // a time in the past fires at once
    set.modify(&timer, EventFlags::IN, 4).unwrap();
    set.wait(&mut ready, deadline()).unwrap();
    assert_eq!(ready[0].token, 4);
    timer.set(None).unwrap();
    assert!(!timer.drain().unwrap());

    drop(far);
    set.wait(&mut ready, deadline()).unwrap();
    assert!(ready[0].token == 2 && ready[0].flags.contains(EventFlags::RDHUP | EventFlags::HUP));
    set.remove(&near).unwrap();
    assert_eq!(set.wait(&mut ready, Some(Instant::now())).unwrap(), 0);
    let mut fds = [PollFd::new(&near, PollFlags::RDHUP)];
    assert_eq!(wait(&mut fds, deadline()).unwrap(), 1);
    assert!(fds[0].revents().contains(PollFlags::RDHUP));
}
