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
    /// The peer and the reason, without bytes of the peer that differ between two attempts.
    key: String,
    at: Instant,
    /// Number of equal refusals since the text was printed.
    repeated: u64,
}

impl Refusals {
    /// Returns the line to print about a connection that was refused at the time `now`; `None` if
    /// a line about the same peer and reason was printed less than `INTERVAL` ago.
    pub fn line(&self, error: &HandshakeError, now: Instant) -> Option<String> {
        let text = refusal_in_flags(error);
        let key = match error {
            HandshakeError::NotPartywall { peer, advice, .. } => format!("{peer}: {advice}"),
            _ => text.clone(),
        };
        self.line_of(key, &text, now)
    }

    fn line_of(&self, key: String, text: &str, now: Instant) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(printed) = all.iter_mut().find(|printed| printed.key == key) else {
            let line = format!("partywall: refused: {text}");
            all.push_front(Printed { key, at: now, repeated: 0 });
            all.truncate(PRINTED_MAX);
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

/// The least time between two lines about the same peer and reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// Number of lines that are remembered; beyond it the oldest is forgotten, and printed again.
const PRINTED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_peer_are_printed_once_and_then_counted() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let line = |peer: &str, seconds: u64| {
            let (peer, found) = (peer.to_owned(), format!("{seconds} of each attempt"));
            let error = HandshakeError::NotPartywall { peer, found, advice: "a link" };
            refusals.line(&error, start + Duration::from_secs(seconds))
        };
        assert!(line("one", 0).unwrap().starts_with("partywall: refused: one does not"));
        assert!((1..60).all(|second| line("one", second).is_none()));
        assert!(line("another", 59).unwrap().ends_with("a link"));
        assert!(line("one", 60).unwrap().ends_with("a link (60 more since the last line)"));
        assert_eq!(line("one", 119), None);
        assert!(line("one", 121).unwrap().ends_with("a link (2 more since the last line)"));
    }

    #[test]
    fn lines_beyond_the_maximum_are_forgotten() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let line = |peer: usize| {
            refusals.line(&HandshakeError::HungUp { peer: peer.to_string(), hint: "" }, now)
        };
        assert!((0..=PRINTED_MAX).all(|peer| line(peer).is_some()));
        assert_eq!(line(1), None);
        assert!(line(0).is_some());
    }
}
