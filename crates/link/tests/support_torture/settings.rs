// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long, from which seed, and what each round is like.

use partywall_testkit::{Random, variable};
use std::time::Duration;

/// Settings from the environment.
pub struct Settings {
    pub kills: u64,
    /// Cuts without kills; of a long run the times are judged, too.
    pub cuts: u64,
    pub is_long_of_cuts: bool,
    pub seed: u64,
    /// Rounds begin until then, whatever `kills` says.
    pub time: Option<Duration>,
}

/// The settings that all processes of one round share.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub via: Via,
    pub mode: Mode,
    pub ring_bytes: u64,
    pub slab_bytes: u64,
    pub epochs: bool,
}

/// Over what the two are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Shared memory; now and then what it takes gets lost on the way, and it is a Unix socket.
    SharedMemory,
    Unix,
    Tcp,
}

/// The traffic of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client sends, the server consumes.
    OneWay,
    /// Both send, consume and answer as they like.
    BothWays,
    /// The client asks, the server answers each request with a reply.
    Replies,
}

impl Settings {
    pub fn from_variables() -> Self {
        let number = |name: &str| variable(name).map(|text| text.parse().expect(name));
        let minutes = number("PARTYWALL_TORTURE_MINUTES");
        let cuts = number("PARTYWALL_TORTURE_CUTS");
        Self {
            kills: number("PARTYWALL_TORTURE_KILLS").unwrap_or(KILLS_DEFAULT),
            cuts: cuts.unwrap_or(CUTS_DEFAULT),
            is_long_of_cuts: cuts.is_some(),
            seed: number("PARTYWALL_TORTURE_SEED").unwrap_or_else(|| u64::from(std::process::id())),
            time: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
        }
    }

    pub const fn is_timed(&self) -> bool {
        self.time.is_some()
    }
}

impl Plan {
    pub fn draw(seed: u64, round: u64) -> Self {
        let mut chance = Random::new(seed);
        let mode = [Mode::OneWay, Mode::BothWays, Mode::Replies][(round % 3) as usize];
        Self {
            seed,
            via: VIAS[(round % 4) as usize],
            mode,
            ring_bytes: 4096 << chance.below(3),
            slab_bytes: 16384 << chance.below(3),
            epochs: chance.below(3) == 0,
        }
    }

    /// For the environment of an end.
    pub fn words(&self) -> String {
        let mode = match self.mode {
            Mode::OneWay => 0,
            Mode::BothWays => 1,
            Mode::Replies => 2,
        };
        format!(
            "{} {} {mode} {} {} {}",
            self.seed,
            self.via as u8,
            self.ring_bytes,
            self.slab_bytes,
            u8::from(self.epochs)
        )
    }

    pub fn from_words(words: &str) -> Self {
        let words: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        let [seed, via, mode, ring_bytes, slab_bytes, epochs] = words[..] else {
            panic!("{words:?}")
        };
        let mode = [Mode::OneWay, Mode::BothWays, Mode::Replies][mode as usize];
        let via = [Via::SharedMemory, Via::Unix, Via::Tcp][via as usize];
        Self { seed, via, mode, ring_bytes, slab_bytes, epochs: epochs == 1 }
    }
}

/// Each of them with each mode.
const VIAS: [Via; 4] = [Via::SharedMemory, Via::Tcp, Via::SharedMemory, Via::Unix];
/// In each run of all tests.
const KILLS_DEFAULT: u64 = 150;
const CUTS_DEFAULT: u64 = 60;
