// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the proxy says on stderr. Whoever says it never waits: a full pipe there must not stop what is carried.
//!
//! ```text
//!   say ──▶ ┌─ up to LINES_MAX lines ─┐ ──▶ a thread of its own writes; it may wait as long as it likes
//!           └─────────────────────────┘
//!   no room: left out, and counted ──▶ "… 17 lines are missing here" behind the others
//! ```
//! It does not wait for its last lines for ever either: see [`Log::finish`].
//!
//! # Invariants
//!
//! - What is written is in the order in which it was said, and what is missing is missing at one place.
//! - The lock is held for moments, never while writing.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Lines on their way to stderr.
#[derive(Clone, Debug)]
pub struct Log(Arc<Desk>);

#[derive(Debug, Default)]
struct Desk {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<String>,
    /// So many were left out since the last one that waits.
    missing: u64,
    /// The last line said, which is not said again at once.
    last_said: String,
    is_over: bool,
    /// All was written, and nothing more will be.
    is_done: bool,
}

impl Log {
    /// Starts a thread that writes to `out`.
    pub fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let log = Self(Arc::default());
        let desk = Arc::clone(&log.0);
        thread::Builder::new().name("log".to_owned()).spawn(move || desk.write_all(out))?;
        Ok(log)
    }

    /// Says a line, unless it was the last one said.
    pub fn say(&self, what: &str) {
        let mut lines = self.0.lines();
        if lines.last_said != what {
            what.clone_into(&mut lines.last_said);
            lines.add(what);
            self.0.changed.notify_all();
        }
    }

    /// Says a line, also if it was just said: counts have their meaning from when they are.
    pub fn report(&self, what: &str) {
        self.0.lines().add(what);
        self.0.changed.notify_all();
    }

    /// Says the last lines, and waits for up to `limit` until all is written. What comes later is not.
    pub fn finish(&self, last: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut lines = self.0.lines();
        // Two at the most: no bound is needed.
        let gap = lines.gap();
        lines.waiting.extend(gap);
        lines.waiting.extend((!last.is_empty()).then(|| last.to_owned()));
        lines.is_over = true;
        self.0.changed.notify_all();
        while !lines.is_done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Lines {
    fn add(&mut self, what: &str) {
        if self.is_over {
            return;
        }
        // Behind a gap nothing is added before the gap was told.
        if self.missing > 0 || self.waiting.len() >= LINES_MAX {
            self.missing += 1;
        } else {
            self.waiting.push_back(what.to_owned());
        }
    }

    /// The next to be written.
    fn next(&mut self) -> Option<String> {
        self.waiting.pop_front().or_else(|| self.gap())
    }

    /// What to say of those that were left out.
    fn gap(&mut self) -> Option<String> {
        let missing = std::mem::take(&mut self.missing);
        let lines = if missing == 1 { "line is" } else { "lines are" };
        (missing > 0).then(|| format!("… {missing} {lines} missing here: nobody read this in time"))
    }
}

impl Desk {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut out: impl Write) {
        let mut lines = self.lines();
        loop {
            if let Some(mut line) = lines.next() {
                drop(lines);
                line.push('\n');
                // If nobody reads it, the connections go on all the same.
                let _ = out.write_all(line.as_bytes());
                lines = self.lines();
            } else if lines.is_over {
                lines.is_done = true;
                self.changed.notify_all();
                return;
            } else {
                lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// So many lines may wait for a reader.
const LINES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// A reader that takes one line at a time, when it is asked.
    struct Slow(SyncSender<String>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Log, Receiver<String>) {
        let (sender, receiver) = sync_channel(0);
        (Log::start(Slow(sender)).unwrap(), receiver)
    }

    fn all(reader: &Receiver<String>) -> Vec<String> {
        let text: String = reader.iter().collect();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn all_is_written_in_order_while_somebody_reads() {
        let (log, reader) = slow();
        let said = thread::spawn(move || {
            for number in 0..100 {
                log.say(&number.to_string());
                log.say(&number.to_string());
            }
            log.report("99");
            log.finish("table", LIMIT);
        });
        let mut expected: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        expected.extend(["99".to_owned(), "table".to_owned()]);
        assert_eq!(all(&reader), expected);
        said.join().unwrap();
    }

    #[test]
    fn what_nobody_reads_is_left_out_and_counted_and_holds_up_nobody() {
        let (log, reader) = slow();
        for number in 0..1000 {
            log.say(&number.to_string());
        }
        // It would wait for ever.
        log.finish("table", Duration::ZERO);
        let lines = all(&reader);
        // One may have been on its way already when the first was left out.
        let missing = 1000 - (lines.len() - 2);
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&(lines.len() - 2)), "{}", lines.len());
        assert_eq!(lines[lines.len() - 1], "table");
        let told = format!("… {missing} lines are missing here: nobody read this in time");
        assert_eq!(lines[lines.len() - 2], told);
        for (number, line) in lines[..lines.len() - 2].iter().enumerate() {
            assert_eq!(*line, number.to_string());
        }
    }

    #[test]
    fn after_a_gap_it_goes_on() {
        let (log, reader) = slow();
        for number in 0..1000 {
            log.say(&number.to_string());
        }
        let gap = reader.iter().find(|text| text.contains("missing"));
        assert!(gap.is_some());
        log.say("again");
        assert!(reader.iter().any(|text| text.contains("again")));
    }

    const LIMIT: Duration = Duration::from_secs(60);
}
