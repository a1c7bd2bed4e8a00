// SPDX-License-Identifier: MIT OR Apache-2.0
//! The random plan of one execution of the model, and the log of what its senders did. A seed
//! determines the whole plan before any thread starts.
//!
//! ```text
//!   World ── how the sessions end, limits of the connection, the window
//!     └─ streams of each side ── Direction, out and back ── messages, and how both ends end
//!                                  └─ Sent: the messages really sent, and how the direction ended
//! ```
//!
//! The log is behind locks of the standard library, which shuttle does not explore; each is held
//! briefly.

use super::Chance;
use super::sides::{Front, Setup};
use crate::config::BackPressure;
use crate::transport::shm::model::ModelLimits;
use std::sync::{Arc, Mutex};

/// How the sender of one direction of a stream ends that direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    Close,
    Drop,
    Reset(u32),
}

/// How the receiver of one direction of a stream ends that direction: after how many messages, and
/// with which code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvEnd {
    ToTheEnd,
    Stop(u64, u32),
    Drop(u64),
}

/// One direction of a stream: the plan of what its sender and receiver do, and the log of what the
/// sender did.
#[derive(Debug)]
pub(super) struct Direction {
    pub messages: u64,
    pub send_end: SendEnd,
    pub recv_end: RecvEnd,
    pub record: Mutex<Sent>,
}

/// The log of one direction: the messages that its sender sent, and how the sender ended.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Length and pattern seed of each message that was sent or is being sent.
    pub sent: Vec<(usize, u64)>,
    /// How the sender really ended, and after how many messages; a sender may have to stop early.
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
        Arc::new(Self { messages, send_end, recv_end, record: Mutex::default() })
    }

    pub(super) fn begin(&self, message: (usize, u64)) {
        self.record.lock().unwrap().sent.push(message);
    }

    pub(super) fn take_back(&self) {
        self.record.lock().unwrap().sent.pop();
    }

    pub(super) fn end(&self, how: SendEnd, after: u64) {
        self.record.lock().unwrap().ended = Some((how, after));
    }
}

/// How both sessions of one execution of the model test end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// One side closes its session once all streams have ended.
    Closed,
    /// Neither side closes its session; both drop all their handles.
    Abandoned,
    /// One side closes its session while streams are in use.
    CutByClose,
    /// Both sides notice a hang-up of their peer while streams are in use.
    CutBySevering,
}

/// The plan of one execution of the model, and the log of what its senders did. All threads of the
/// execution share it.
#[derive(Debug)]
pub(super) struct World {
    pub seed: u64,
    pub setup: Setup,
    pub finish: Finish,
    pub size_max: u64,
    /// The planned directions of each stream: first the direction from the stream's opener, then
    /// the direction to the opener. The first byte of a stream's metadata is the side that opened
    /// it, the second byte its index among the streams of that side.
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

    /// Whether receivers drop each message before they wait for the next. Without overflow into the
    /// ring, a receiver that holds a message could wait for ever: its sender needs the memory of
    /// that message.
    pub(super) fn lets_go(&self) -> bool {
        self.setup.limits.policy != BackPressure::Overflow
    }
}
