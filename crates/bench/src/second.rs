// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second process of a measurement, and the pipes to it: a JSON value on each line, either way.
//!
//! ```text
//! first                               second: this program once more
//!   Second::start   ── spawns ──►       hear: a thread parses stdin
//!   tell            ── a line ──►       what hear gives
//!   next_reply      ◄── a line ──       say
//!   dropped: kills it                   stdin ends: exits
//! ```
//! What is said is not decided here, but in `control.rs`. The benchmark of the rivals (`bench/peers`) includes this
//! file, and says other things.
//!
//! Invariants: the second process ends when its stdin does, so it never outlives the first; the first waits for
//! every reply with a deadline.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first process's handle of the second one, whose replies are `R`.
pub struct Second<R> {
    process: Child,
    requests: ChildStdin,
    replies: Receiver<R>,
}

impl<R: DeserializeOwned + Send + 'static> Second<R> {
    /// Starts this program again to do `what`, on CPU `cpu` if one is given.
    pub fn start(what: &str, cpu: Option<usize>) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg(what);
        if let Some(cpu) = cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the second process")?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the second process has no control pipe");
        };
        let (sender, replies) = channel();
        thread::spawn(move || forward_lines(BufReader::new(answers), &sender));
        Ok(Self { process, requests, replies })
    }

    /// Says what it is to do.
    pub fn tell(&mut self, request: &impl Serialize) -> Result<()> {
        write_line(&mut self.requests, request).context("talking to the second process")
    }

    /// Its next reply.
    pub fn next_reply(&self, timeout: Duration) -> Result<R> {
        self.replies.recv_timeout(timeout).context("no answer from the second process")
    }
}

impl<R> Drop for Second<R> {
    fn drop(&mut self) {
        // It may be stuck in what just failed. Should it leave something behind, that is found by name.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Takes stdin of the second process, whose end is from now on the end of the process, after `at_end`; what it is told.
pub fn hear<T: DeserializeOwned + Send + 'static>(
    at_end: impl FnOnce() + Send + 'static,
) -> Receiver<T> {
    let (sender, requests) = channel();
    thread::spawn(move || {
        forward_lines(std::io::stdin().lock(), &sender);
        at_end();
        std::process::exit(0);
    });
    requests
}

/// Answers the first process.
pub fn say(reply: &impl Serialize) -> Result<()> {
    write_line(&mut std::io::stdout().lock(), reply).context("talking to the first process")
}

fn write_line(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// Parses lines until the pipe ends, a line is no message, or nobody listens any more.
fn forward_lines<T: DeserializeOwned>(from: impl BufRead, to: &Sender<T>) {
    for line in from.lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str(&line) else { return };
        if to.send(message).is_err() {
            return;
        }
    }
}

/// No batch is longer than the watchdog allows, and everything else takes milliseconds; mapping a gigabyte may take
/// longer.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the reason for a failure may take to arrive after the failure itself.
pub const FAILURE_TIMEOUT: Duration = Duration::from_millis(500);
