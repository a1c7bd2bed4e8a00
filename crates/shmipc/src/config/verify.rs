// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the choices fit together, and what to choose where they do not.
//!
//! ```text
//!   region  │ 8 │ 36 + n·(size + 20) │ 36 + n·(size + 20) │ … │ unused
//!               └ n = its percent of the region / (size + 20), 2 at least: the last slice is never lent
//! ```
//!
//! Peers check less, some of them only on some processors, and round what does not fit. What they let pass
//! and cannot work (two classes of one size, a class with one slice, a queue of nothing) is refused here. It does not
//! look at the system: whether there is so much memory shows when it is taken.

use super::{Config, MemMapType, SizePercentPair};
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::names::{NameError, Naming};

/// A setting that is not possible, or not with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value that cannot be.
    #[error("Config::{setting} is {found}: {advice}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What to choose instead.
        advice: String,
    },
    /// Classes of slices that cannot be.
    #[error("Config::buffer_slice_sizes has {found}: {advice}")]
    Classes {
        /// What is wrong.
        found: String,
        /// What to choose instead.
        advice: String,
    },
    /// Regions cannot be called that.
    // The name is no source: its words are in these already.
    #[error("Config::share_memory_path_prefix: {0}")]
    Name(NameError),
}

impl From<NameError> for ConfigError {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl Config {
    /// Whether these choices are possible. Binding and connecting ask it too.
    ///
    /// # Errors
    /// See [`ConfigError`]: the first that is not, and what to choose instead.
    pub fn verify(&self) -> Result<(), ConfigError> {
        self.verify_times()?;
        self.verify_queue()?;
        self.verify_classes()?;
        self.verify_places()?;
        self.verify_pool()?;
        self.verify_bounds()
    }

    fn verify_times(&self) -> Result<(), ConfigError> {
        let times = [
            ("rebuild_interval", self.rebuild_interval),
            ("monitor_interval", self.monitor_interval),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((setting, _)) => refuse(setting, "0", "choose a time"),
            None => Ok(()),
        }
    }

    fn verify_queue(&self) -> Result<(), ConfigError> {
        let (setting, entries) = ("queue_cap", self.queue_cap);
        if entries == 0 || entries % QUEUE_CAP_MULTIPLE != 0 {
            let above = u64::from(entries / QUEUE_CAP_MULTIPLE + 1) * u64::from(QUEUE_CAP_MULTIPLE);
            let better = above.min(QUEUE_ENTRIES_MOST.into());
            return refuse(
                setting,
                entries,
                format!("choose a multiple of 16, {better} for example"),
            );
        }
        let most = self.queue_entries_max;
        if entries > most {
            return refuse(
                setting,
                entries,
                format!("choose at most queue_entries_max, {most}, or raise that"),
            );
        }
        if most > QUEUE_ENTRIES_MOST {
            return refuse(
                "queue_entries_max",
                most,
                format!("choose at most {QUEUE_ENTRIES_MOST}"),
            );
        }
        Ok(())
    }

    fn verify_classes(&self) -> Result<(), ConfigError> {
        let bytes = self.share_memory_buffer_cap;
        if bytes < BUFFER_CAP_MIN {
            let advice = format!("choose {BUFFER_CAP_MIN} or more");
            return refuse("share_memory_buffer_cap", bytes, advice);
        }
        let classes = &self.buffer_slice_sizes;
        if classes.is_empty() || classes.len() > CLASSES_MAX {
            let found = format!("{} classes", classes.len());
            return refuse_classes(found, format!("choose 1 to {CLASSES_MAX}"));
        }
        let percent: u64 = classes.iter().map(|class| u64::from(class.percent)).sum();
        if percent != 100 {
            return refuse_classes(
                format!("{percent} % together"),
                "let their percents sum to 100",
            );
        }
        for (index, class) in classes.iter().enumerate() {
            self.verify_class(*class)?;
            if classes[..index].iter().any(|other| other.size == class.size) {
                let found = format!("two classes of {} bytes", class.size);
                return refuse_classes(found, "make one of them, with the percents of both");
            }
        }
        Ok(())
    }

    fn verify_class(&self, class: SizePercentPair) -> Result<(), ConfigError> {
        let SizePercentPair { size, percent } = class;
        if size == 0 || size % SLICE_MULTIPLE != 0 {
            let better = u64::from(size / SLICE_MULTIPLE + 1) * u64::from(SLICE_MULTIPLE);
            let better = better.min(self.share_memory_buffer_cap.into());
            let advice = format!("choose a multiple of 4, {better} for example");
            return refuse_classes(format!("slices of {size} bytes"), advice);
        }
        if percent == 0 {
            let found = format!("0 % in slices of {size} bytes");
            return refuse_classes(found, "leave them out, or give them 1 % or more");
        }
        let slices = self.slices(class);
        if slices < SLICES_MIN {
            let found =
                format!("{percent} % in slices of {size} bytes, which are {slices} of them");
            let advice = match self.buffer_cap_needed() {
                Some(cap) => format!(
                    "at least {SLICES_MIN} are needed: choose smaller ones, more percent, or a share_memory_buffer_cap of at \
                     least {cap} bytes"
                ),
                None => format!(
                    "at least {SLICES_MIN} are needed: choose smaller ones, or more percent"
                ),
            };
            return refuse_classes(found, advice);
        }
        Ok(())
    }

    /// How many slices of a class the region has, as peers calculate it.
    fn slices(&self, class: SizePercentPair) -> u64 {
        let room = u64::from(self.share_memory_buffer_cap).saturating_sub(self.headers());
        room * u64::from(class.percent) / 100 / (u64::from(class.size) + SLICE_HEADER_BYTES)
    }

    /// What stands before all slices.
    fn headers(&self) -> u64 {
        REGION_HEADER_BYTES + LIST_HEADER_BYTES * self.buffer_slice_sizes.len() as u64
    }

    /// The smallest region that has enough slices of every class; `None` if none can be so large.
    fn buffer_cap_needed(&self) -> Option<u32> {
        let room = |class: &SizePercentPair| {
            let bytes = SLICES_MIN * (u64::from(class.size) + SLICE_HEADER_BYTES);
            (bytes * 100).div_ceil(u64::from(class.percent).max(1))
        };
        let room = self.buffer_slice_sizes.iter().map(room).max()?;
        u32::try_from(self.headers() + room).ok()
    }

    fn verify_places(&self) -> Result<(), ConfigError> {
        let prefix = &self.share_memory_path_prefix;
        Naming::unique(prefix)?;
        if self.mem_map_type == MemMapType::DevShmFile && !prefix.starts_with('/') {
            let advice = "choose an absolute path, which means the same to the server";
            return refuse("share_memory_path_prefix", prefix, advice);
        }
        if !self.directory.is_absolute() {
            return refuse("directory", self.directory.display(), "choose an absolute path");
        }
        Ok(())
    }

    fn verify_pool(&self) -> Result<(), ConfigError> {
        let sessions = self.session_num;
        if !(1..=SESSIONS_MAX).contains(&sessions) {
            return refuse("session_num", sessions, format!("choose 1 to {SESSIONS_MAX}"));
        }
        let streams = self.max_stream_num;
        if streams > STREAMS_MAX {
            return refuse("max_stream_num", streams, format!("choose at most {STREAMS_MAX}"));
        }
        Ok(())
    }

    fn verify_bounds(&self) -> Result<(), ConfigError> {
        let region = self.region_bytes_max;
        if region < BUFFER_CAP_MIN {
            let advice =
                format!("choose {BUFFER_CAP_MIN} or more: clients have no smaller regions");
            return refuse("region_bytes_max", region, advice);
        }
        let own = self.share_memory_buffer_cap;
        if own > region {
            let advice = format!("choose at most region_bytes_max, {region}, or raise that");
            return refuse("share_memory_buffer_cap", own, advice);
        }
        let message = self.fallback_message_max;
        if !(FALLBACK_MESSAGE_MIN..=PAYLOAD_BYTES_MAX).contains(&message) {
            let advice = format!(
                "choose {FALLBACK_MESSAGE_MIN} to {PAYLOAD_BYTES_MAX}, which is the most that peers accept"
            );
            return refuse("fallback_message_max", message, advice);
        }
        let unread = self.fallback_unread_max;
        if unread < u64::from(message) {
            let advice = format!("choose fallback_message_max, {message}, or more");
            return refuse("fallback_unread_max", unread, advice);
        }
        Ok(())
    }
}

fn refuse(
    setting: &'static str,
    found: impl ToString,
    advice: impl Into<String>,
) -> Result<(), ConfigError> {
    Err(ConfigError::Setting { setting, found: found.to_string(), advice: advice.into() })
}

fn refuse_classes(found: impl Into<String>, advice: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Classes { found: found.into(), advice: advice.into() })
}

/// With a multiple of it, the counters of the second queue lie as those of the first.
const QUEUE_CAP_MULTIPLE: u32 = 16;
/// The longest queue at all: 384 MiB for both directions.
const QUEUE_ENTRIES_MOST: u32 = 1 << 24;
/// The smallest region, as peers have it.
const BUFFER_CAP_MIN: u32 = 1 << 20;
/// How many classes there can be. Peers could count 65,535, and need three.
const CLASSES_MAX: usize = 64;
/// With a multiple of it, all headers of slices are aligned.
const SLICE_MULTIPLE: u32 = 4;
/// The last slice of a class is never lent.
const SLICES_MIN: u64 = 2;
/// What stands before each slice.
const SLICE_HEADER_BYTES: u64 = 20;
/// What stands before the slices of a class.
const LIST_HEADER_BYTES: u64 = 36;
/// What stands before all classes.
const REGION_HEADER_BYTES: u64 = 8;
/// How many sessions a pool can have.
const SESSIONS_MAX: usize = 1024;
/// How many idle streams a pool can keep for a session.
const STREAMS_MAX: usize = 1 << 20;
/// With less in a message, more than the data would be headers and calls.
const FALLBACK_MESSAGE_MIN: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn refused(config: &Config) -> String {
        config.verify().expect_err("it was accepted").to_string()
    }

    fn classes(pairs: &[(u32, u32)]) -> Config {
        let pair =
            |(size, percent): &(u32, u32)| SizePercentPair { size: *size, percent: *percent };
        Config::default().buffer_slice_sizes(pairs.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn the_defaults_are_possible_and_those_of_the_peers() {
        let config = Config::default();
        assert_eq!(config.verify(), Ok(()));
        let counts: Vec<u64> =
            config.buffer_slice_sizes.iter().map(|class| config.slices(*class)).collect();
        assert_eq!(counts, [2047, 307, 51]);
        assert_eq!(config.clone().mem_map_type(MemMapType::DevShmFile).verify(), Ok(()));
    }

    #[test]
    fn a_queue_has_a_multiple_of_16_entries() {
        for (entries, better) in [(0, 16), (8, 16), (8191, 8192), (8200, 8208), (u32::MAX, 1 << 24)]
        {
            let expected = format!(
                "Config::queue_cap is {entries}: choose a multiple of 16, {better} for example"
            );
            assert_eq!(refused(&Config::default().queue_cap(entries)), expected);
        }
        assert_eq!(
            refused(&Config::default().queue_cap(64).queue_entries_max(32)),
            "Config::queue_cap is 64: choose at most queue_entries_max, 32, or raise that"
        );
        assert_eq!(
            refused(&Config::default().queue_entries_max(u32::MAX)),
            "Config::queue_entries_max is 4294967295: choose at most 16777216"
        );
    }

    #[test]
    fn classes_fill_the_region_exactly_once() {
        assert_eq!(
            refused(&classes(&[])),
            "Config::buffer_slice_sizes has 0 classes: choose 1 to 64"
        );
        assert_eq!(
            refused(&classes(&[(4096, 50), (8192, 49)])),
            "Config::buffer_slice_sizes has 99 % together: let their percents sum to 100"
        );
        let wrapping = [(4096, u32::MAX), (8192, 101)];
        assert!(refused(&classes(&wrapping)).contains("4294967396 % together"));
        assert_eq!(
            refused(&classes(&[(4096, 50), (8192, 20), (4096, 30)])),
            "Config::buffer_slice_sizes has two classes of 4096 bytes: make one of them, with the percents of both"
        );
        assert_eq!(classes(&[(8192, 50), (4096, 50)]).verify(), Ok(()));
    }

    #[test]
    fn slices_are_aligned_and_never_alone() {
        for (size, better) in [(0, 4), (4094, 4096), (u32::MAX, 32 << 20)] {
            let expected = format!(
                "Config::buffer_slice_sizes has slices of {size} bytes: choose a multiple of 4, {better} for example"
            );
            assert_eq!(refused(&classes(&[(size, 100)])), expected);
        }
        let half = 16 << 20;
        assert_eq!(
            refused(&classes(&[(half, 100)])),
            "Config::buffer_slice_sizes has 100 % in slices of 16777216 bytes, which are 1 of them: at least 2 are needed: \
             choose smaller ones, more percent, or a share_memory_buffer_cap of at least 33554516 bytes"
        );
        // It is the least that will do.
        let roomy = classes(&[(half, 100)]).share_memory_buffer_cap(33_554_516);
        assert_eq!(roomy.verify(), Ok(()));
        assert!(refused(&roomy.share_memory_buffer_cap(33_554_515)).contains("33554516"));
        // Two of these do not fit into any region.
        let advice = refused(&classes(&[(u32::MAX - 3, 100)]));
        assert!(advice.ends_with("choose smaller ones, or more percent"), "{advice}");
        // Of 32 MiB less 8 and 36 bytes, two with their headers leave 4 over.
        assert_eq!(classes(&[(16_777_172, 100)]).verify(), Ok(()));
        assert!(refused(&classes(&[(16_777_176, 100)])).contains("which are 1 of them"));
        assert_eq!(
            refused(&classes(&[(4096, 100), (8192, 0)])),
            "Config::buffer_slice_sizes has 0 % in slices of 8192 bytes: leave them out, or give them 1 % or more"
        );
    }

    #[test]
    fn a_region_has_a_mebibyte_at_least() {
        let config = Config::default().share_memory_buffer_cap((1 << 20) - 1);
        assert_eq!(
            refused(&config),
            "Config::share_memory_buffer_cap is 1048575: choose 1048576 or more"
        );
        let config = config.share_memory_buffer_cap(1 << 20);
        // Of the largest slices of the defaults there would be one.
        let advice = refused(&config);
        assert!(advice.contains("20 % in slices of 131052 bytes, which are 1 of them"), "{advice}");
        assert!(
            advice.ends_with("a share_memory_buffer_cap of at least 1310836 bytes"),
            "{advice}"
        );
        assert_eq!(config.clone().share_memory_buffer_cap(1_310_836).verify(), Ok(()));
        let class = SizePercentPair { size: 8192, percent: 100 };
        assert_eq!(config.buffer_slice_sizes([class]).verify(), Ok(()));
        assert!(refused(&Config::default().region_bytes_max(0)).contains("region_bytes_max"));
        assert_eq!(
            refused(&Config::default().region_bytes_max(16 << 20)),
            "Config::share_memory_buffer_cap is 33554432: choose at most region_bytes_max, 16777216, or raise that"
        );
    }

    #[test]
    fn names_and_places_can_be_found_by_the_other_side() {
        let config = Config::default().share_memory_path_prefix("shmipc");
        assert_eq!(config.verify(), Ok(()));
        assert_eq!(
            refused(&config.mem_map_type(MemMapType::DevShmFile)),
            "Config::share_memory_path_prefix is shmipc: choose an absolute path, which means the same to the server"
        );
        let long = Config::default().share_memory_path_prefix("x".repeat(180));
        assert!(refused(&long).contains("choose a shorter share_memory_path_prefix"));
        // Who prints an error and its sources reads it once.
        let error = long.verify().unwrap_err();
        assert!(std::error::Error::source(&error).is_none(), "{error}");
        assert_eq!(
            refused(&Config::default().directory("shm")),
            "Config::directory is shm: choose an absolute path"
        );
    }

    #[test]
    fn what_goes_by_the_socket_is_bounded() {
        for bytes in [0, 4095, PAYLOAD_BYTES_MAX + 1] {
            let expected = format!(
                "Config::fallback_message_max is {bytes}: choose 4096 to 33554416, which is the most that peers accept"
            );
            assert_eq!(refused(&Config::default().fallback_message_max(bytes)), expected);
        }
        assert_eq!(
            refused(&Config::default().fallback_unread_max(1)),
            "Config::fallback_unread_max is 1: choose fallback_message_max, 33554416, or more"
        );
    }

    #[test]
    fn times_and_pools_are_something() {
        for config in [
            Config::default().rebuild_interval(Duration::ZERO),
            Config::default().monitor_interval(Duration::ZERO),
        ] {
            assert!(refused(&config).ends_with(" is 0: choose a time"));
        }
        assert_eq!(
            refused(&Config::default().session_num(0)),
            "Config::session_num is 0: choose 1 to 1024"
        );
        assert!(refused(&Config::default().max_stream_num(usize::MAX)).contains("max_stream_num"));
    }
}
