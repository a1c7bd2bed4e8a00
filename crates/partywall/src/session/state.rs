// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a session's state that one lock guards: streams, counts of users, and the wakers of
//! users that wait.
//!
//! One lock guards the state, and each thread holds it briefly. Methods return the wakers to call;
//! callers call them after they have released every lock but that of the driver's seat, on tokio.

use super::numbers::Numbers;
use super::stream::StreamShared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The state of a session that users and driver share: streams, counts of users, and the wakers of
/// users that wait. The driver has its own table of streams.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(super) numbers: Numbers,
    /// Streams that this side opened and that are not in the driver's table yet.
    pub(super) fresh: Vec<Arc<StreamShared>>,
    /// Streams that the peer opened and that the application has not accepted yet.
    pub(super) waiting: VecDeque<Arc<StreamShared>>,
    /// Number of streams of the session that have not ended.
    pub(crate) live: usize,
    /// Number of session handles. At 0, this side refuses the streams that the peer opens.
    pub(super) sessions: usize,
    /// Number of handles of the session and of its streams. At 0, the session closes.
    pub(super) users: usize,
    /// The code of the peer's GO_AWAY; `None` until GO_AWAY was received.
    pub(super) going_away: Option<u32>,
    /// Code and reason with which the peer closes the session; `None` until both were received.
    pub(super) farewell: Option<(u32, Arc<str>)>,
    pub(super) has_gone_away: bool,
    pub(super) pings: Pings,
    pub(super) openers: WakerSet,
    pub(super) accepters: WakerSet,
    /// Waiters for a PING's answer, for the end of the last stream, or for the end of the session.
    pub(super) others: WakerSet,
    pub(super) is_over: bool,
    /// Whether the driver has ended, so that no more record will be written.
    pub(super) has_finished: bool,
}

/// The tokens of the newest PING that was sent, and of the newest PING that was answered (SPEC
/// 11.6).
#[derive(Debug, Default)]
pub(crate) struct Pings {
    pub(super) asked: u64,
    pub(super) answered: u64,
}

impl SessionState {
    /// Makes the state of a new session. `streams_max` is the number of streams that the peer lets
    /// this side open at a time.
    pub(super) fn new(streams_max: u32) -> Self {
        Self {
            numbers: Numbers::new(streams_max.min(crate::config::STREAMS_MAX)),
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            live: 0,
            sessions: 1,
            users: 1,
            going_away: None,
            farewell: None,
            has_gone_away: false,
            pings: Pings::default(),
            openers: WakerSet::default(),
            accepters: WakerSet::default(),
            others: WakerSet::default(),
            is_over: false,
            has_finished: false,
        }
    }

    /// Counts `count` ended streams. Returns the wakers of waiters for the end of the last stream.
    pub(super) fn ended(&mut self, count: usize) -> Vec<Waker> {
        self.live -= count;
        if self.live == 0 { self.others.take() } else { Vec::new() }
    }
}

/// The wakers of all users that wait for one kind of event of a session, each waker once.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    wakers: Vec<Waker>,
    /// Number of wakers above which `register` empties the set, to remove the wakers of dropped
    /// futures.
    bound: usize,
}

/// Least number of wakers above which a set is emptied, so that small sets are never emptied early.
const WAITING_BOUND_MIN: usize = 64;

impl WakerSet {
    /// Registers the waker of a waiter. A dropped future does not remove its waker, so above
    /// `bound` wakers this call empties the set. The caller must call the returned wakers without
    /// holding a lock; living waiters then register again.
    pub(super) fn register(&mut self, context: &Context<'_>) -> Vec<Waker> {
        if self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            return Vec::new();
        }
        let mut woken = Vec::new();
        if self.wakers.len() >= self.bound.max(WAITING_BOUND_MIN) {
            woken = self.take();
            self.bound = 2 * woken.len();
        } else if self.wakers.is_empty() {
            self.bound = WAITING_BOUND_MIN;
        }
        self.wakers.push(context.waker().clone());
        woken
    }

    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }
}

/// Calls all the given wakers. The caller must hold no lock, except that of the driver's seat, for
/// which nobody waits.
pub(super) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
