// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proxy's log, which a thread of its own writes to stderr. A task that prints a line never
//! waits for this thread, because a full pipe on stderr must not stop a connection.
//!
//! ```text
//!   print ──▶ ┌─ up to LINES_MAX lines ─┐ ──▶ thread `log` writes and may block
//!             └─────────────────────────┘
//!   queue full: the line is dropped and counted ──▶ the log prints "… 17 lines are missing here"
//! ```
//! At the end of the proxy, [`Log::finish`] waits for the last lines, but only for a limited time.
//!
//! # Invariants
//!
//! - Lines are written in the order of the calls. Lines dropped in a row are replaced by one line
//!   that states how many are missing.
//! - No thread holds the lock of the queue while it writes.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A queue of lines that a thread writes to stderr.
#[derive(Clone, Debug)]
pub struct Log(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<String>,
    /// Number of lines that were dropped, because the queue was full, since a line was last queued.
    missing: u64,
    /// The last printed line; `print` does not print an equal line again.
    last: String,
    is_closed: bool,
    /// Whether no line is left to write and none will be queued, because `finish` was called.
    is_done: bool,
}

impl Log {
    /// Creates a log, and starts a thread that writes its lines to `out`.
    pub fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let log = Self(Arc::default());
        let queue = Arc::clone(&log.0);
        thread::Builder::new().name("log".to_owned()).spawn(move || queue.write_all(out))?;
        Ok(log)
    }

    /// Prints a line on the log, unless it equals the last printed line.
    pub fn print(&self, line: &str) {
        let mut lines = self.0.lines();
        if lines.last != line {
            line.clone_into(&mut lines.last);
            lines.add(line);
            self.0.changed.notify_all();
        }
    }

    /// Prints a line even if it equals the last printed line. The caller prints the counters at
    /// intervals by this method, and they may be equal.
    pub fn report(&self, line: &str) {
        self.0.lines().add(line);
        self.0.changed.notify_all();
    }

    /// Queues `last` as the last lines of the log, and waits for up to `limit` until all queued
    /// lines are written. Lines printed after this call are dropped.
    pub fn finish(&self, last: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut lines = self.0.lines();
        // `finish` adds at most two entries, even to a full queue: the line that states how many
        // lines were dropped, and `last`.
        let gap = lines.gap();
        lines.waiting.extend(gap);
        lines.waiting.extend((!last.is_empty()).then(|| last.to_owned()));
        lines.is_closed = true;
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
    fn add(&mut self, line: &str) {
        if self.is_closed {
            return;
        }
        // Once a line has been dropped, further lines are dropped as well, until the log has
        // written the line that states how many are missing.
        if self.missing > 0 || self.waiting.len() >= LINES_MAX {
            self.missing += 1;
        } else {
            self.waiting.push_back(line.to_owned());
        }
    }

    /// Takes the oldest queued line. If no line is queued, takes the line that states how many
    /// lines were dropped, if any.
    fn next(&mut self) -> Option<String> {
        self.waiting.pop_front().or_else(|| self.gap())
    }

    /// Returns the line that states how many lines were dropped, and sets their number to 0. `None`
    /// if no line was dropped.
    fn gap(&mut self) -> Option<String> {
        let missing = std::mem::take(&mut self.missing);
        let lines = if missing == 1 { "line is" } else { "lines are" };
        (missing > 0)
            .then(|| format!("… {missing} {lines} missing here: the output was not read in time"))
    }
}

impl Queue {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut out: impl Write) {
        let mut lines = self.lines();
        loop {
            if let Some(mut line) = lines.next() {
                drop(lines);
                line.push('\n');
                // An error of the write is ignored, because a failed write to stderr must not
                // affect the connections.
                let _ = out.write_all(line.as_bytes());
                lines = self.lines();
            } else if lines.is_closed {
                lines.is_done = true;
                self.changed.notify_all();
                return;
            } else {
                lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Maximum number of lines that wait to be written; further lines are dropped and counted. It
/// bounds the memory of the log while nobody reads stderr.
const LINES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// A slow output for tests: it passes on one line at a time, and blocks until the test has read
    /// that line.
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
    fn lines_that_are_read_come_in_order() {
        let (log, reader) = slow();
        let printer = thread::spawn(move || {
            for number in 0..100 {
                log.print(&number.to_string());
                log.print(&number.to_string());
            }
            log.report("99");
            log.finish("table", LIMIT);
        });
        let mut expected: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        expected.extend(["99".to_owned(), "table".to_owned()]);
        assert_eq!(all(&reader), expected);
        printer.join().unwrap();
    }

    #[test]
    fn unread_lines_are_dropped_and_counted_without_blocking() {
        let (log, reader) = slow();
        for number in 0..1000 {
            log.print(&number.to_string());
        }
        // The output of the log is blocked, so `finish` would wait for ever if it had no time
        // limit.
        log.finish("table", Duration::ZERO);
        let lines = all(&reader);
        // Expected result: as many lines as the queue holds, plus one if the log's thread had taken
        // a line from the queue before the first drop.
        let missing = 1000 - (lines.len() - 2);
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&(lines.len() - 2)), "{}", lines.len());
        assert_eq!(lines[lines.len() - 1], "table");
        let note = format!("… {missing} lines are missing here: the output was not read in time");
        assert_eq!(lines[lines.len() - 2], note);
        for (number, line) in lines[..lines.len() - 2].iter().enumerate() {
            assert_eq!(*line, number.to_string());
        }
    }

    #[test]
    fn line_after_a_gap_is_written() {
        let (log, reader) = slow();
        for number in 0..1000 {
            log.print(&number.to_string());
        }
        let gap = reader.iter().find(|text| text.contains("missing"));
        assert!(gap.is_some());
        log.print("again");
        assert!(reader.iter().any(|text| text.contains("again")));
    }

    const LIMIT: Duration = Duration::from_secs(60);
}
