// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines that a listening command prints about refused connections. A peer that connects again
//! and again is printed once, and then with a count at intervals.
//!
//! ```text
//! 0 s   refused: process 7 … asks for a link
//! 60 s  refused: process 7 … asks for a link (1799 more since the last line)
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use partywall::HandshakeError;

use super::advice::refusal_in_flags;

/// The refusals that were printed last.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<VecDeque<Printed>>);

#[derive(Debug)]
struct Printed {
    text: String,
    at: Instant,
    /// Number of equal refusals since the text was printed.
    repeated: u64,
}

impl Refusals {
    /// Returns the line to print about a connection that was refused at the time `now`; `None` if
    /// an equal line was printed less than `INTERVAL` ago. The text of the error names the peer.
    pub fn line(&self, error: &HandshakeError, now: Instant) -> Option<String> {
        self.line_of(refusal_in_flags(error), now)
    }

    fn line_of(&self, text: String, now: Instant) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(printed) = all.iter_mut().find(|printed| printed.text == text) else {
            let line = format!("partywall: refused: {text}");
            all.push_front(Printed { text, at: now, repeated: 0 });
            all.truncate(TEXTS_MAX);
            return Some(line);
        };
        printed.repeated += 1;
        if now.duration_since(printed.at) < INTERVAL {
            return None;
        }
        printed.at = now;
        let repeated = std::mem::take(&mut printed.repeated);
        Some(format!("partywall: refused: {text} ({repeated} more since the last line)"))
    }
}

/// The least time between two lines with an equal text.
const INTERVAL: Duration = Duration::from_secs(60);

/// Number of texts that are remembered; beyond it the oldest is forgotten, and printed again.
const TEXTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_peer_are_printed_once_and_then_counted() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let line = |text: &str, seconds| {
            refusals.line_of(text.to_owned(), start + Duration::from_secs(seconds))
        };
        assert_eq!(line("one", 0).unwrap(), "partywall: refused: one");
        assert!((1..60).all(|second| line("one", second).is_none()));
        assert_eq!(line("another", 59).unwrap(), "partywall: refused: another");
        assert!(line("one", 60).unwrap().ends_with("one (60 more since the last line)"));
        assert_eq!(line("one", 119), None);
        assert!(line("one", 121).unwrap().ends_with("one (2 more since the last line)"));
    }

    #[test]
    fn texts_beyond_the_maximum_are_forgotten() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..=TEXTS_MAX {
            assert!(refusals.line_of(number.to_string(), now).is_some());
        }
        assert_eq!(refusals.line_of("1".to_owned(), now), None);
        assert!(refusals.line_of("0".to_owned(), now).is_some());
    }
}
