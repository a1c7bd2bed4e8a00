// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two sides that trust their transport less than its users may: pairs, patterns that tell every byte
//! apart, chance that can be repeated, and a second process that never outlives its test.
#![allow(dead_code, reason = "each test file uses a part")]

use partywall::{Channel, Config, Listener, TransportPolicy, TrustPolicy, Wait};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What takes longer than this has failed.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The deadline of everything that must happen.
pub fn soon() -> Instant {
    Instant::now() + TIMEOUT
}

/// A connected pair in this process: connecting side, accepting side.
pub fn pair(address: &str, client: &Config, server: &Config) -> (Channel, Channel) {
    let mut listener = Listener::bind_with(address, server).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| partywall::connect_with(&address, client).unwrap());
        let accepted = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

/// Every transport and trust that one process can have with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    SharedMemory,
    Untrusted,
    Unix,
    Tcp,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::SharedMemory, Self::Untrusted, Self::Unix, Self::Tcp];

    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shm",
            Self::Untrusted => "isolated",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }

    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap()
    }

    /// An address where nobody else is.
    pub fn address(self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Tcp => "tcp:127.0.0.1:0".into(),
            _ => format!("unix:@partywall-test-{}-{next}", std::process::id()),
        }
    }

    pub fn config(self) -> Config {
        let config = Config::default();
        match self {
            Self::SharedMemory => {
                config.transport(TransportPolicy::SharedMemory).trust(TrustPolicy::Peer)
            }
            Self::Untrusted => {
                config.transport(TransportPolicy::SharedMemory).trust(TrustPolicy::Untrusted)
            }
            Self::Unix => config.transport(TransportPolicy::Socket),
            Self::Tcp => config,
        }
    }

    pub const fn is_shared_memory(self) -> bool {
        matches!(self, Self::SharedMemory | Self::Untrusted)
    }

    /// A pair of this kind, where `adapt` changes what both sides choose.
    pub fn pair(self, adapt: impl Fn(Config) -> Config) -> (Channel, Channel) {
        let config = adapt(self.config());
        pair(&self.address(), &config, &config)
    }
}

/// Chance that can be repeated (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 0 to `max`, every order of magnitude as likely as any other.
    pub fn size(&mut self, max: u64) -> usize {
        let exponent = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let size = ((max + 2) as f64).powf(exponent) as u64;
        (size.min(max + 1) - 1) as usize
    }

    pub fn wait(&mut self) -> Wait {
        match self.below(8) {
            0 => Wait::Spin,
            1 => Wait::Park,
            2 => Wait::Poll(Duration::from_micros(200)),
            _ => Wait::Adaptive,
        }
    }
}

const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// No two words of a pattern are equal, nor are words at the same place of two patterns.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `bytes` with the pattern of `seed`, at the speed of memory.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut word = mix(seed);
    let mut words = bytes.chunks_exact_mut(8);
    for place in &mut words {
        place.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&word.to_le_bytes()[..len]);
}

/// Whether every byte is that of the pattern of `seed`.
pub fn is_pattern(bytes: &[u8], seed: u64) -> bool {
    let mut word = mix(seed);
    let mut difference = 0;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for place in words {
        let mut found = [0; 8];
        found.copy_from_slice(place);
        difference |= u64::from_le_bytes(found) ^ word;
        word = word.wrapping_add(STEP);
    }
    difference == 0 && rest == &word.to_le_bytes()[..rest.len()]
}

/// A vector of `len` bytes with the pattern of `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

/// This test's executable once more, running only the test `name` with these variables.
pub struct Second(Child);

impl Second {
    pub fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Its process id, as signals take it.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Whether it ends within this time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let process = partywall_sys::PidFd::of_pid(self.pid()).unwrap();
        let flags = partywall_sys::poll::PollFlags::IN;
        let mut descriptors = [partywall_sys::poll::PollFd::new(&process, flags)];
        partywall_sys::poll::wait(&mut descriptors, Some(Instant::now() + time)).unwrap() > 0
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        assert!(self.ends_within(TIMEOUT), "the second process does not end");
        self.0.wait().unwrap()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // No error if it has ended; never anybody else, because nobody has waited for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A variable of [`Second::start`]; `None` in the first process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
