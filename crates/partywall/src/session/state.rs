// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a session as its users see it: streams, users, and the wakers of waiters.
//!
//! One lock guards all of it and is held for moments. Methods return the wakers to wake, and
//! callers wake them once no lock is held.

use super::numbers::Numbers;
use super::stream::StreamShared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The streams of a session as its users see them. The driver has a table of its own.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(super) numbers: Numbers,
    /// Streams that this side opened and that are not in the driver's table yet.
    pub(super) fresh: Vec<Arc<StreamShared>>,
    /// Streams that the peer opened and that were not accepted yet.
    pub(super) waiting: VecDeque<Arc<StreamShared>>,
    /// Number of streams that have not ended.
    pub(crate) live: usize,
    /// Number of session handles. Without one, streams of the peer are refused.
    pub(super) sessions: usize,
    /// Number of handles of the session and its streams. Without one, the session closes.
    pub(super) users: usize,
    /// Code of the peer's GO_AWAY.
    pub(super) going_away: Option<u32>,
    /// Whether this side has sent GO_AWAY.
    pub(super) has_gone_away: bool,
    pub(super) pings: Pings,
    pub(super) openers: WakerSet,
    pub(super) accepters: WakerSet,
    /// Waiters for a PING's answer, for the last stream, or for the end.
    pub(super) others: WakerSet,
    pub(super) is_over: bool,
    /// Whether the driver has ended: nothing more is written.
    pub(super) has_finished: bool,
}

/// Tokens of PINGs that were sent, and of those that were answered (SPEC 11.6).
#[derive(Debug, Default)]
pub(crate) struct Pings {
    pub(super) asked: u64,
    pub(super) answered: u64,
}

impl SessionState {
    /// `streams_max` is the number of our streams that the peer allows at a time.
    pub(super) fn new(streams_max: u32) -> Self {
        Self {
            numbers: Numbers::new(streams_max.min(crate::config::STREAMS_MAX)),
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            live: 0,
            sessions: 1,
            users: 1,
            going_away: None,
            has_gone_away: false,
            pings: Pings::default(),
            openers: WakerSet::default(),
            accepters: WakerSet::default(),
            others: WakerSet::default(),
            is_over: false,
            has_finished: false,
        }
    }

    /// Counts `count` streams that have ended. Returns the waiters for the last one.
    pub(super) fn ended(&mut self, count: usize) -> Vec<Waker> {
        self.live -= count;
        if self.live == 0 { self.others.take() } else { Vec::new() }
    }
}

/// Wakers of the waiters for one kind of event, each once.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    wakers: Vec<Waker>,
    /// Number of wakers above which those of futures that were dropped are removed.
    bound: usize,
}

/// Least value of `bound`.
const WAITING_BOUND_MIN: usize = 64;

impl WakerSet {
    /// Registers a waiter. Returns wakers to wake once no lock is held: a dropped future does not
    /// remove its waker, so now and then all are woken, and the remaining waiters register again.
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

/// Wakes all of them. The caller holds no lock.
pub(super) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
