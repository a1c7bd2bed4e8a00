// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setup of the session tests under shuttle: two connected sessions over shared memory in one
//! process, a thread that runs each driver, and functions with which users wait.
//!
//! ```text
//!   driver as a task:    register waker ─▶ turn ─▶ arm ─▶ poll ── records or room ──▶ turn
//!                            ▲                              └─ neither ─▶ sleep ──┐
//!                            └────────────────────────────────────────────────────┘
//!   driver as a thread:  as a task, but registers its waker before every turn
//!   users:               poll ── Pending ─▶ sleep until woken ─▶ poll
//! ```

use crate::channel::{AnyReceiver, AnySender};
use crate::config::{BackPressure, Config};
use crate::handshake::{Established, StreamTerms};
use crate::peer::{Peer, Trust};
use crate::session::{Driver, Handle, SeatHold, Sleep, Turn};
use crate::transport::shm::Side;
use crate::transport::shm::model::{Ends, Link, ModelLimits, pair};
use crate::transport::{LiveTransport, Transport};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// The settings of one test run: the settings of both sessions whose threads shuttle interleaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub limits: ModelLimits,
    pub window: u64,
    pub streams_max: u32,
    pub front: Front,
}

/// Which API (`partywall::tokio` or `partywall::blocking`) a thread imitates that runs the driver
/// of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// As in `partywall::tokio`: the session gets the driver's waker once in each poll of the task,
    /// and one poll may run the driver several times. Users may take records themselves.
    Task,
    /// As in `partywall::blocking`: the session gets the driver's waker before each run of the
    /// driver.
    Thread,
}

impl Default for Setup {
    fn default() -> Self {
        let limits = ModelLimits {
            ring_bytes: 512,
            memory_bytes: 512,
            message_max: 4096,
            inline_max: 64,
            policy: BackPressure::Block,
        };
        Self { limits, window: 256, streams_max: 2, front: Front::Task }
    }
}

/// Both sides of a connection: a handle of each session, and the connection itself.
pub(super) struct Sides {
    pub handles: [Handle; 2],
    pub wires: Wires,
}

/// The simulated connection of both sides, and the threads that run their drivers.
pub(super) struct Wires {
    links: [Link; 2],
    drivers: [JoinHandle<()>; 2],
}

impl Sides {
    pub(super) fn connect(setup: Setup) -> Self {
        let ends = pair(setup.limits, &config(setup));
        let links = [0, 1].map(|index: usize| ends[index].link.clone());
        let mut index = 0;
        let driven = ends.map(|end| {
            let (side, is_acceptor) = (Arc::clone(&end.side), index == 1);
            index += 1;
            let (shared, mut driver) =
                Driver::new(established(end, setup, is_acceptor), &config(setup));
            driver.defer_credit();
            (Handle::new(shared), thread::spawn(move || drive(driver, &side, setup.front)))
        });
        let [(ours, our_driver), (theirs, their_driver)] = driven;
        let drivers = [our_driver, their_driver];
        Self { handles: [ours, theirs], wires: Wires { links, drivers } }
    }
}

impl Wires {
    /// Makes both sides notice a hang-up of their peer, although neither side sent the record that
    /// ends the session.
    pub(super) fn sever(&self) {
        self.links.iter().for_each(Link::hang_up);
    }

    /// Returns how many blocks of shared memory are in use in both directions together: reserved,
    /// or published and not yet released.
    pub(super) fn blocks_in_use(&self) -> i64 {
        let [one, other] = &self.links;
        let in_use = |sender: &Link, receiver: &Link| {
            let in_flight = receiver.published_by_peer() - sender.released_by_peer();
            sender.reserved() + i64::try_from(in_flight).unwrap()
        };
        in_use(one, other) + in_use(other, one)
    }

    /// Waits until the drivers of both sides have ended.
    pub(super) fn join(self) {
        for driver in self.drivers {
            driver.join().unwrap();
        }
    }
}

fn config(setup: Setup) -> Config {
    Config::default()
        .back_pressure(setup.limits.policy)
        .inline_max(setup.limits.inline_max)
        .stream_window(setup.window)
        .streams_max(setup.streams_max)
}

fn established(end: Ends, setup: Setup, is_acceptor: bool) -> Established {
    Established {
        sender: AnySender::SharedMemory(end.sender),
        receiver: AnyReceiver::SharedMemory(end.receiver),
        peer: Peer::new(None, Trust::Trusted, "model".into()).into(),
        transport: LiveTransport::Fixed(Transport::SharedMemory),
        is_acceptor,
        peer_streams: StreamTerms {
            window: setup.window,
            streams_max: setup.streams_max,
            opens: true,
        },
    }
}

/// Runs a session's driver in the calling thread until the session is over, as the API does that
/// `front` names: `partywall::tokio` or `partywall::blocking`.
fn drive(mut driver: Driver, side: &Arc<Side>, front: Front) {
    let waker = Waker::from(Arc::new(Called(Arc::clone(side))));
    if front == Front::Task {
        return drive_from_seat(&SeatHold::new(driver), side, &waker);
    }
    loop {
        // The waker is registered before the turn, so a user that calls it during the turn wakes
        // the driver after the turn.
        driver.register(&waker);
        let Some(for_room) = poll(&mut driver, side, front) else { return };
        side.sleep(for_room);
    }
}

/// Runs a driver that users of its session may run, too, as `partywall::tokio` does.
fn drive_from_seat(seat: &SeatHold, side: &Arc<Side>, waker: &Waker) {
    loop {
        let Some(mut guard) = seat.try_lock() else {
            thread::yield_now();
            continue;
        };
        let seated = guard.get().expect("only the task takes the driver out of the seat");
        seated.is_asleep = false;
        seated.driver.register(waker);
        let Some(for_room) = poll(&mut seated.driver, side, Front::Task) else { return };
        seated.is_asleep = true;
        drop(guard);
        side.sleep(for_room);
    }
}

/// Performs one poll of a driver's task, or one pass of the loop of a driver's thread. Returns
/// whether to block for room as well as records, or `None` once the session is over.
fn poll(driver: &mut Driver, side: &Arc<Side>, front: Front) -> Option<bool> {
    loop {
        match driver.turn() {
            Turn::Over => return None,
            Turn::Busy => {
                // A busy driver wakes itself instead of turning again, so that other threads can
                // run before its next poll.
                side.wake();
                return Some(false);
            }
            Turn::Idle => {}
        }
        let for_room = match driver.arm(false).unwrap() {
            Sleep::ForRecords => Some(false),
            Sleep::ForBoth => Some(true),
            Sleep::No => None,
        };
        if let Some(for_room) = for_room {
            let (records, room) = side.poll(for_room);
            if room {
                driver.found_room();
            }
            if !records && !room {
                return Some(for_room);
            }
        }
        if front == Front::Thread {
            side.wake();
            return Some(false);
        }
    }
}

/// The waker of one side's driver, which users of the session call.
struct Called(Arc<Side>);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// The place where a user's thread blocks until its waker is called.
#[derive(Default)]
struct Bed {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bed {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Bed {
    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().unwrap();
        while !*is_woken {
            is_woken = self.changed.wait(is_woken).unwrap();
        }
        *is_woken = false;
    }
}

/// A task of a user: a waker that several operations of one thread use.
pub(super) struct Task {
    bed: Arc<Bed>,
    waker: Waker,
}

impl Task {
    pub(super) fn new() -> Self {
        let bed = Arc::new(Bed::default());
        Self { waker: Waker::from(Arc::clone(&bed)), bed }
    }

    /// Calls `poll` until its result is ready. Between two calls, blocks the calling thread until
    /// the task is woken.
    pub(super) fn wait<T>(&self, mut poll: impl FnMut(&Context<'_>) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(value) = poll(&Context::from_waker(&self.waker)) {
                return value;
            }
            self.bed.sleep();
        }
    }
}

/// Waits for one operation, in a task of its own.
pub(super) fn wait<T>(poll: impl FnMut(&Context<'_>) -> Poll<T>) -> T {
    Task::new().wait(poll)
}

/// Polls an operation now and each time the thread is woken, at most `polls` times in all, and then
/// gives up. If `polls` is 0, the function never polls.
pub(super) fn give_up_after<T>(
    polls: u64,
    mut poll: impl FnMut(&Context<'_>) -> Poll<T>,
) -> Option<T> {
    let bed = Arc::new(Bed::default());
    let waker = Waker::from(Arc::clone(&bed));
    for left in (0..polls).rev() {
        if let Poll::Ready(value) = poll(&Context::from_waker(&waker)) {
            return Some(value);
        }
        if left > 0 {
            bed.sleep();
        }
    }
    None
}

/// Calls `poll` once, with a waker that wakes no thread.
pub(super) fn poll_once<T>(mut poll: impl FnMut(&Context<'_>) -> Poll<T>) -> Option<T> {
    match poll(&Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
