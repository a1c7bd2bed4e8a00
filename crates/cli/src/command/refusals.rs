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
    /// The peer and the reason, without what differs between two attempts of one peer: its first
    /// bytes, and its port of TCP.
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
        self.line_of(without_ports(&key), &text, now)
    }

    fn line_of(&self, key: String, text: &str, now: Instant) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|printed| printed.key == key);
        let mut line = format!("partywall: refused: {text}");
        if let Some(printed) = known.and_then(|index| all.get_mut(index)) {
            printed.repeated += 1;
            if now.duration_since(printed.at) < INTERVAL {
                return None;
            }
            line = format!("{line} ({} more since the last line)", printed.repeated);
        }
        // The line that was printed last is forgotten last.
        known.map(|index| all.remove(index));
        all.push_front(Printed { key, at: now, repeated: 0 });
        all.truncate(PRINTED_MAX);
        Some(line)
    }
}

/// Returns `text` without the ports of TCP addresses: each attempt of a client has another one.
fn without_ports(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let address = word.trim_end_matches([':', ',', ';']);
        let host = address.rsplit_once(':').filter(|_| address.starts_with("tcp:"));
        host.map_or(word, |(host, _)| host)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The least time between two lines about the same peer and reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of lines that are remembered. Beyond it, the line that was printed longest ago is
/// forgotten; an equal refusal is then printed as a new one.
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
    fn attempts_of_one_host_over_tcp_are_printed_once() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let line = |peer: &str| {
            let (peer, found) = (peer.to_owned(), String::new());
            refusals.line(&HandshakeError::NotPartywall { peer, found, advice: "a link" }, now)
        };
        assert!(line("tcp:127.0.0.1:40001").is_some());
        assert!(line("tcp:127.0.0.1:40002").is_none());
        assert!(line("tcp:[::1]:40002").is_some() && line("tcp:[::1]:40003").is_none());
        let hung_up =
            |port| HandshakeError::HungUp { peer: format!("tcp:10.0.0.1:{port}"), hint: "" };
        assert!(refusals.line(&hung_up(1), now).is_some());
        assert!(refusals.line(&hung_up(2), now).is_none());
    }

    #[test]
    fn line_that_was_printed_last_is_forgotten_last() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let line = |peer: usize, seconds: u64| {
            let error = HandshakeError::HungUp { peer: peer.to_string(), hint: "" };
            refusals.line(&error, start + Duration::from_secs(seconds))
        };
        assert!((0..PRINTED_MAX).all(|peer| line(peer, 0).is_some()));
        assert!(line(0, 60).is_some(), "printed again");
        assert!(line(PRINTED_MAX, 60).is_some());
        assert!(line(0, 61).is_none(), "the second was forgotten, not the first");
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
