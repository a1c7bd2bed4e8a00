// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a torture run: its length, its seed, and the settings of each round (`Plan`).

use partywall_testkit::{Random, variable};
use std::time::Duration;

/// The settings of a torture run, which environment variables give.
pub struct Settings {
    pub kills: u64,
    /// Number of cuts of the network in rounds without kills. In a long run (`is_long_of_cuts`) the
    /// recovery times are checked, too.
    pub cuts: u64,
    pub is_long_of_cuts: bool,
    pub seed: u64,
    /// The time for which the run begins new rounds, however many kills they make; `None` if the
    /// number of kills (`kills`) limits the run.
    pub time: Option<Duration>,
}

/// The settings of one round, which the test's main process, the client and the server share.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub via: Via,
    pub mode: Mode,
    pub ring_bytes: u64,
    pub slab_bytes: u64,
    pub epochs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Shared memory, except that some connections lose their descriptors and fall back to a Unix
    /// socket.
    SharedMemory,
    Unix,
    Tcp,
}

/// The pattern of a round's messages: whether client, server or both send, and whether a receiver
/// replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client sends, and the server acknowledges.
    OneWay,
    /// Client and server both send messages, acknowledge, and reply to some at random.
    BothWays,
    /// The client sends requests, and the server replies to each.
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

    /// The settings of a round as text, for an environment variable of the client and server
    /// processes.
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

/// The transports of successive rounds; each entry is combined with each message pattern (`Mode`).
const VIAS: [Via; 4] = [Via::SharedMemory, Via::Tcp, Via::SharedMemory, Via::Unix];
/// Number of kills of a normal test run, if `PARTYWALL_TORTURE_KILLS` does not set it.
const KILLS_DEFAULT: u64 = 150;
const CUTS_DEFAULT: u64 = 60;
