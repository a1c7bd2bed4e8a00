// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that run the program `partywall` as a child process, which never outlives the test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Makes a command that runs `partywall` with these arguments.
pub fn partywall(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partywall"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `partywall` with these arguments to its end; returns its status and output.
pub fn run(arguments: &[&str]) -> Output {
    let child = partywall(arguments).spawn().expect("the program starts");
    Running(child).finish()
}

/// A child process, which is killed when this value is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// Waits until the process has ended, and returns its exit status.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.0.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("waited for")
    }

    /// Waits until the process has ended; returns its exit code, or 128 plus the number of the
    /// signal that ended it, as a shell does.
    pub fn code(&mut self) -> i32 {
        self.wait().code().expect("no signal")
    }

    /// Waits until the process has ended; returns its exit status and all that it printed.
    pub fn finish(mut self) -> Output {
        let stdout = self.0.stdout.take().map(drain);
        let stderr = self.0.stderr.take().map(drain);
        let status = self.wait();
        let text = |thread: Option<thread::JoinHandle<Vec<u8>>>| {
            thread.map_or_else(Vec::new, |thread| thread.join().expect("readable"))
        };
        Output { status, stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `partywall listen`, and its address.
pub struct Listening {
    pub process: Running,
    pub address: String,
    /// The command's stderr. Its first line, with the address of the listener, has been read
    /// already.
    pub stderr: BufReader<ChildStderr>,
}

impl Listening {
    /// Starts `partywall listen` with these arguments and this stdin.
    pub fn start(arguments: &[&str], stdin: Stdio) -> Self {
        let arguments = [&["listen"], arguments].concat();
        let mut process = Running::start(partywall(&arguments).stdin(stdin));
        let mut stderr = BufReader::new(process.0.stderr.take().expect("piped"));
        let address = announced(&mut stderr);
        Self { process, address, stderr }
    }

    pub fn stdout(&mut self) -> ChildStdout {
        self.process.0.stdout.take().expect("piped, and taken once")
    }
}

/// Reads the next line of `from`, in which a listening command prints its address, and returns that
/// address.
pub fn announced(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("readable");
    let address = line.strip_prefix("listening on ");
    address.unwrap_or_else(|| panic!("no address in {line:?}")).trim_end().to_owned()
}

/// Waits until the condition `is_so` holds; panics with the text `what` after the time limit of
/// these tests ([`TIMEOUT`]).
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn drain(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("readable");
        bytes
    })
}

/// Longest time that a test waits for a condition or a process.
pub const TIMEOUT: Duration = Duration::from_secs(120);
