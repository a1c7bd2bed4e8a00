// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books of a session: its streams as far as users are concerned, and who waits for what.
//!
//! One lock of the session guards all of it, held for moments; whoever is to be woken is handed out and
//! woken once no lock is held.

use super::numbers::Numbers;
use super::stream::StreamShared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The streams as far as users are concerned; the driver has a table of its own.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(super) numbers: Numbers,
    /// Opened by us and not in the driver's table yet.
    pub(super) fresh: Vec<Arc<StreamShared>>,
    /// Opened by the other side, not accepted yet.
    pub(super) waiting: VecDeque<Arc<StreamShared>>,
    /// How many there are that have not ended.
    pub(crate) live: usize,
    /// Handles of the session: without one, nobody accepts.
    pub(super) sessions: usize,
    /// Handles of the session and of its streams; with the last one the session closes.
    pub(super) users: usize,
    /// The other side asked for no more.
    pub(super) going_away: Option<u32>,
    /// We asked for no more.
    pub(super) has_gone_away: bool,
    pub(super) pings: Pings,
    pub(super) openers: WakerSet,
    pub(super) accepters: WakerSet,
    /// Those who wait for an answer, or for the last stream, or for the end.
    pub(super) others: WakerSet,
    pub(super) is_over: bool,
    /// The driver has ended: nothing more is written.
    pub(super) has_finished: bool,
}

/// Questions and answers (SPEC 11.6).
#[derive(Debug, Default)]
pub(crate) struct Pings {
    pub(super) asked: u64,
    pub(super) answered: u64,
}

impl SessionState {
    /// The other side bears so many of ours at a time.
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

    /// Streams have ended; those to be told, if they were the last.
    pub(super) fn ended(&mut self, count: usize) -> Vec<Waker> {
        self.live -= count;
        if self.live == 0 { self.others.take() } else { Vec::new() }
    }
}

/// Wakers of those who wait for one kind of thing, each once.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    wakers: Vec<Waker>,
    /// So many may be noted before those who gave up are sorted out.
    bound: usize,
}

/// The least of such bounds.
const WAITING_BOUND_MIN: usize = 64;

impl WakerSet {
    /// Notes who waits; those to be woken once no lock is held. Nobody tells when he gives up: now and then all
    /// are woken, and those who still wait come again.
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

/// Wakes all of them; no lock of ours may be held.
pub(super) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
