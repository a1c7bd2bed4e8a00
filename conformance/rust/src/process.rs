// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running program of the conformance tests. The harness reads the program's lines on stdout,
//! writes commands to its stdin, and waits for its end and its report.
//!
//! Invariant: when a `Process` has been dropped, its program does not run any more.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use conformance_traffic::Report;
use rustix::process::{Pid, Signal, kill_process};

/// A running program of the conformance tests.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    what: String,
}

/// The results of a program that has ended: exit code, report and stderr.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code of the program; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The JSON report that the program printed; `None` if it printed none.
    pub report: Option<Report>,
    /// All that the ended program has written to stderr.
    pub stderr: String,
}

impl Process {
    /// Starts the program at the path `program`, with the given arguments.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(program: &Path, arguments: &[String]) -> Result<Self> {
        let what = format!("{} {}", program.display(), arguments.join(" "));
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {what}"))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut stderr = child.stderr.take().context("no stderr")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            // An error of reading stderr is ignored: its text only helps to explain a failed test.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).chars().take(STDERR_CHARS_MAX).collect()
        });
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, lines, stderr: Some(stderr), what })
    }

    /// The process id of the running program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line that begins with `start`, and returns the rest of that line.
    ///
    /// # Errors
    /// If the program ends without such a line, or prints none within the time `within`.
    pub fn wait_for_line(&mut self, start: &str, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(start) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no `{start}` in time from {}", self.what),
                Err(RecvTimeoutError::Disconnected) => {
                    self.kill();
                    let complaint = self.complaint();
                    bail!("`{}` ended without `{start}`: {complaint}", self.what);
                }
            }
        }
    }

    /// Writes a line to the program's stdin.
    ///
    /// # Errors
    /// If the program's stdin is closed.
    pub fn command(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("telling {}", self.what))
    }

    /// Closes the program's stdin. A server program of the conformance tests ends when its stdin
    /// ends.
    pub fn end_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the program's end and its report.
    ///
    /// # Errors
    /// If the program does not end in time; then it is killed.
    pub fn finish(mut self, within: Duration) -> Result<Ended> {
        let deadline = Instant::now() + within;
        let mut report = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => report = serde_json::from_str(&line).ok().or(report),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    let complaint = self.complaint();
                    bail!("not done in {within:?}: {}\n{complaint}", self.what);
                }
            }
        }
        // The program has closed its stdout, so it will end soon. If `finish` fails before, the
        // drop of `self` kills the program.
        let status = self.child.wait().with_context(|| format!("waiting for {}", self.what))?;
        Ok(Ended { code: status.code(), report, stderr: self.complaint() })
    }

    /// Kills the program with SIGKILL, so that it ends without cleaning up, as after a crash.
    pub fn kill(&mut self) {
        // An error of `kill` is ignored: the program has then ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends the program a signal, to stop it or to let it continue.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(id, signal).with_context(|| format!("signalling {}", self.what))
    }

    fn complaint(&mut self) -> String {
        self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

const STDERR_CHARS_MAX: usize = 4000;
