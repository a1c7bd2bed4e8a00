// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sources of other crates in an event loop. The loop polls a source after an event of its
//! descriptor and when its timer is due, and reports the source as long as it has events.

use partywall::event::{Event, Source};
use partywall_sys::Doorbell;
use partywall_testkit::echo_loop::{Drive, Driven};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A source under test, to which the test adds events and whose timer it sets.
#[derive(Clone)]
struct Work {
    shared: Arc<(Doorbell, Mutex<State>)>,
}

#[derive(Default)]
struct State {
    events: u32,
    timer: Option<Instant>,
    /// Number of times that the loop polled the source after its timer was due.
    expired: u32,
}

impl Work {
    fn new() -> Self {
        Self { shared: Arc::new((Doorbell::new().unwrap(), Mutex::default())) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.1.lock().unwrap()
    }

    fn give(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.0.notify().unwrap();
    }
}

impl AsFd for Work {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.0.as_fd()
    }
}

impl Source for Work {
    fn try_poll(&self) -> io::Result<bool> {
        self.shared.0.drain()?;
        let mut state = self.state();
        if state.timer.is_some_and(|timer| timer <= Instant::now()) {
            state.timer = None;
            state.expired += 1;
            state.events += 1;
        }
        Ok(state.events > 0)
    }

    fn next_timer(&self) -> Option<Instant> {
        self.state().timer
    }
}

fn is_reported(ready: &[Event]) -> bool {
    ready.iter().any(|event| event.tag == 4 && event.kinds.is_readable())
}

#[test]
fn source_is_reported_as_long_as_it_has_events() {
    for drive in Drive::ALL {
        let (mut driven, work) = (Driven::new(drive), Work::new());
        let attached = driven.events.add_source(work.clone(), 4).unwrap();
        let mut ready = Vec::new();
        while driven.turn_until(&mut ready, Instant::now()) {
            assert!(!is_reported(&ready), "{drive:?}: {ready:?}");
        }
        work.give(|state| state.events = 3);
        while work.state().events > 0 {
            driven.turn(&mut ready);
            if is_reported(&ready) {
                work.state().events -= 1;
            }
        }
        // After the last event, the event loop reports nothing in 100 turns.
        let mut turns = 0;
        while driven.turn_until(&mut ready, Instant::now()) {
            turns += 1;
            assert!(turns < 100, "{drive:?}: never silent");
        }
        work.give(|state| state.events = 1);
        drop(attached);
        for _ in 0..100 {
            if !driven.turn_until(&mut ready, Instant::now()) {
                break;
            }
            assert!(!is_reported(&ready), "{drive:?}: reported after it was removed");
        }
        partywall_testkit::until("the loop drops the source", || {
            driven.turn_until(&mut ready, Instant::now());
            Arc::strong_count(&work.shared) == 1
        });
    }
}

#[test]
fn timer_of_a_source_causes_a_turn() {
    for drive in Drive::ALL {
        let (mut driven, work) = (Driven::new(drive), Work::new());
        let _attached = driven.events.add_source(work.clone(), 4).unwrap();
        let mut ready = Vec::new();
        while driven.turn_until(&mut ready, Instant::now()) {}
        let due = Instant::now() + Duration::from_millis(20);
        work.give(|state| state.timer = Some(due));
        while !is_reported(&ready) {
            driven.turn(&mut ready);
        }
        work.state().events = 0;
        assert!(Instant::now() >= due, "{drive:?}: before it was due");
        while driven.turn_until(&mut ready, Instant::now()) {}
        assert_eq!(driven.events.next_timer(), None, "{drive:?}");
        assert_eq!(work.state().expired, 1, "{drive:?}");
    }
}
