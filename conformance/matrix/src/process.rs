// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running program of the matrix, whose standard output is read line by line.
//!
//! The reading thread holds one line until the harness takes it. So a program whose lines nobody
//! takes blocks once its pipe is full.
//!
//! Invariant: when a `Process` has been dropped, its program does not run any more.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::roster::Program;

/// A running program of the matrix.
pub struct Process {
    child: Arc<Mutex<Child>>,
    /// The standard input of the program. A server ends when it is closed.
    _input: Option<ChildStdin>,
    events: Receiver<Event>,
    what: String,
}

enum Event {
    Line(String),
    Ended(ExitStatus),
}

impl Process {
    /// Starts the program of one language with the given command line.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(program: &Program, arguments: &[&str]) -> Result<Self, String> {
        let what = format!("{} {}", program.language, arguments.join(" "));
        let mut command = program.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {what}: {error}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a pipe was asked for")?;
        let child = Arc::new(Mutex::new(child));
        let (sender, events) = sync_channel(0);
        let ended = Arc::clone(&child);
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                if sender.send(Event::Line(line)).is_err() {
                    return;
                }
            }
            tell_end(&ended, &sender);
        });
        Ok(Self { child, _input: input, events, what })
    }

    /// Waits for the program's next line; returns `None` if the program has ended with code 0 or
    /// was killed.
    ///
    /// # Errors
    /// If the program says that it failed, ends with another code, or says nothing in time. A
    /// program that says nothing in time is killed.
    pub fn line(&mut self) -> Result<Option<String>, String> {
        match self.events.recv_timeout(LIMIT) {
            Ok(Event::Line(line)) if line.starts_with("failed") => {
                Err(format!("{}: {line}", self.what))
            }
            Ok(Event::Line(line)) => Ok(Some(line)),
            Ok(Event::Ended(status)) if status.success() || status.signal() == Some(SIGKILL) => {
                Ok(None)
            }
            Ok(Event::Ended(status)) => Err(format!("{} ended: {status}", self.what)),
            // An earlier call has noticed the end of the program and checked its exit code.
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                Err(format!("{}: nothing within {LIMIT:?}", self.what))
            }
        }
    }

    /// Waits for the program's next line, which the program has to print before it ends.
    ///
    /// # Errors
    /// If the program says that it failed, ends with another code than 0, or says nothing in time,
    /// and if it ends without a line.
    pub fn next_line(&mut self) -> Result<String, String> {
        self.line()?.ok_or_else(|| format!("{} ended without a word", self.what))
    }

    /// Waits for the program's next line, which has to equal `wanted`.
    ///
    /// # Errors
    /// If the program says that it failed, ends with another code than 0, or says nothing in time,
    /// if it ends without a line, and if the line is another.
    pub fn expect(&mut self, wanted: &str) -> Result<(), String> {
        let line = self.next_line()?;
        if line == wanted {
            return Ok(());
        }
        Err(format!("{} says `{line}` instead of `{wanted}`", self.what))
    }

    /// Waits for the end of the program, and returns all lines that it prints until then.
    ///
    /// # Errors
    /// If the program says that it failed, ends with another code than 0, or says nothing in time.
    pub fn rest(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
        }
        Ok(lines)
    }

    /// Kills the program with SIGKILL.
    pub fn kill(&self) {
        self.killer().kill();
    }

    /// Returns a handle with which another thread can kill the program.
    pub fn killer(&self) -> Killer {
        Killer(Arc::clone(&self.child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = lock(&self.child).wait();
    }
}

/// A handle with which any thread can kill one program of the matrix.
pub struct Killer(Arc<Mutex<Child>>);

impl Killer {
    /// Kills the program with SIGKILL.
    pub fn kill(&self) {
        // An error of `kill` is ignored: the program has then ended already.
        let _ = lock(&self.0).kill();
    }
}

/// Waits until a program that has closed its standard output ends, and sends its exit status to the
/// harness.
fn tell_end(child: &Mutex<Child>, sender: &SyncSender<Event>) {
    loop {
        let status = lock(child).try_wait();
        match status {
            Ok(None) => thread::yield_now(),
            Ok(Some(status)) => {
                let _ = sender.send(Event::Ended(status));
                return;
            }
            Err(_) => return,
        }
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

const SIGKILL: i32 = 9;
/// Maximum time that the harness waits for the next line of a program.
const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Roster;

    fn shell(script: &str) -> Process {
        let guarded =
            format!("if [ \"$1\" = features ]; then echo channel session link; exit; fi; {script}");
        let words = ["--program", "shell", "sh", "-c", &guarded, "sh"].map(str::to_owned);
        let roster = Roster::parse(&words).unwrap();
        Process::start(&roster.programs[0], &["go"]).unwrap()
    }

    #[test]
    fn lines_and_end_of_a_program_are_received() {
        let mut process = shell("echo one; echo two");
        process.expect("one").unwrap();
        assert_eq!(process.rest(), Ok(vec!["two".to_owned()]));
        assert!(shell("exit 3").rest().unwrap_err().contains("exit status: 3"));
        assert!(shell("kill -ABRT $$").rest().unwrap_err().contains("signal: 6"));
        assert!(shell("echo failed so").next_line().unwrap_err().contains("so"));
        assert!(shell("echo one").expect("two").unwrap_err().contains("instead of"));
        assert!(shell("true").next_line().unwrap_err().contains("without a word"));
    }

    #[test]
    fn program_whose_lines_nobody_takes_blocks_until_it_is_killed() {
        let mut process = shell("while echo line; do :; done");
        process.expect("line").unwrap();
        process.kill();
        let rest = process.rest().unwrap().len();
        // The pipe from the program and the buffer of the reading thread hold at most this number
        // of lines of five bytes, so the program has printed no more.
        assert!(rest < 2 * (64 + 8) * 1024 / 5, "{rest}");
    }

    #[test]
    fn program_is_killed_from_another_thread() {
        let mut process = shell("read line");
        let killer = process.killer();
        thread::spawn(move || killer.kill());
        assert_eq!(process.line(), Ok(None));
    }
}
