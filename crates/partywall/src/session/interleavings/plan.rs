// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be done in one execution, and the books over what was: chosen by the seed, before anything runs.
//!
//! ```text
//!   World ── how the sessions end, what the wire bears, the window
//!     └─ streams of each side ── Direction, out and back ── how many messages, how both ends of it end
//!                                  └─ Book: what was sent, and how it ended in truth
//! ```
//!
//! The books are behind the language's own locks, held for moments: they are no part of what is explored.

use super::Chance;
use super::sides::{Front, Setup};
use crate::config::BackPressure;
use crate::transport::shm::model::ModelLimits;
use std::sync::{Arc, Mutex};

/// How a sending direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    Close,
    Drop,
    Reset(u32),
}

/// How a receiving direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvEnd {
    ToTheEnd,
    Stop(u64, u32),
    Drop(u64),
}

/// One direction of a stream, as it should be.
#[derive(Debug)]
pub(super) struct Direction {
    pub messages: u64,
    pub send_end: SendEnd,
    pub recv_end: RecvEnd,
    pub book: Mutex<Book>,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Length and pattern of each message that was sent, or is being sent.
    pub sent: Vec<(usize, u64)>,
    /// How it ended in truth, and after how many: a sender may have to stop early.
    pub ended: Option<(SendEnd, u64)>,
}

impl Direction {
    pub(super) fn new(chance: &mut Chance) -> Arc<Self> {
        let code = chance.below(1000) as u32;
        let messages = chance.below(5);
        let send_end = match chance.below(6) {
            0 => SendEnd::Reset(code),
            1 => SendEnd::Drop,
            _ => SendEnd::Close,
        };
        let recv_end = match chance.below(8) {
            0 => RecvEnd::Stop(chance.below(messages + 1), code),
            1 => RecvEnd::Drop(chance.below(messages + 1)),
            _ => RecvEnd::ToTheEnd,
        };
        Arc::new(Self { messages, send_end, recv_end, book: Mutex::default() })
    }

    pub(super) fn begin(&self, message: (usize, u64)) {
        self.book.lock().unwrap().sent.push(message);
    }

    pub(super) fn take_back(&self) {
        self.book.lock().unwrap().sent.pop();
    }

    pub(super) fn end(&self, how: SendEnd, after: u64) {
        self.book.lock().unwrap().ended = Some((how, after));
    }
}

/// How the sessions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// One side closes once all streams have ended.
    Closed,
    /// Nobody closes: both sides let go of all they have.
    Abandoned,
    /// One side closes in between.
    CutByClose,
    /// Both hang up in between.
    CutBySevering,
}

/// What both sides share: the model.
#[derive(Debug)]
pub(super) struct World {
    pub seed: u64,
    pub setup: Setup,
    pub finish: Finish,
    pub size_max: u64,
    /// The directions of each stream, away from its opener and towards it; the opener is the first byte of the
    /// metadata, the place in here the second.
    pub streams: [Vec<[Arc<Direction>; 2]>; 2],
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let mut chance = Chance(seed);
        let policy = chance.pick(&[
            BackPressure::Block,
            BackPressure::Error,
            BackPressure::Overflow,
            BackPressure::Overflow,
        ]);
        let memory_bytes = chance.pick(&[256, 1024]);
        let limits = ModelLimits {
            ring_bytes: chance.pick(&[512, 1024]),
            memory_bytes,
            message_max: 4096,
            inline_max: 64,
            policy,
        };
        let setup = Setup {
            limits,
            window: chance.pick(&[0, 64, 128, 512, 1 << 20]),
            streams_max: chance.pick(&[1, 2]),
            front: chance.pick(&[Front::Task, Front::Thread]),
        };
        let finish = match chance.below(8) {
            0 => Finish::CutByClose,
            1 => Finish::CutBySevering,
            2 | 3 => Finish::Abandoned,
            _ => Finish::Closed,
        };
        let size_max = if policy == BackPressure::Overflow { 700 } else { memory_bytes };
        let mut streams = |most: u64| {
            let count = chance.below(most + 1);
            let directions = |_| [Direction::new(&mut chance), Direction::new(&mut chance)];
            (0..count).map(directions).collect::<Vec<_>>()
        };
        let streams = [streams(2), streams(1)];
        Arc::new(Self { seed, setup, finish, size_max, streams })
    }

    pub(super) fn is_cut(&self) -> bool {
        matches!(self.finish, Finish::CutByClose | Finish::CutBySevering)
    }

    /// Where nothing goes another way when memory is exhausted, one who keeps messages while it waits for the next
    /// would wait for itself.
    pub(super) fn lets_go(&self) -> bool {
        self.setup.limits.policy != BackPressure::Overflow
    }
}
