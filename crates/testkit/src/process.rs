// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second process: the same test executable, started again to run one of its tests.
//!
//! ```text
//! first process    Second::start("death::victim", &[(ADDRESS, …)])
//! second process   … --exact death::victim     fn victim() { if variable(ADDRESS) is set … }
//! ```
//! The variable (above, `ADDRESS`) is set only in the second process. In the first process the test
//! `death::victim` finds no variable, and returns at once.

use crate::TIMEOUT;
use partywall_sys::PidFd;
use partywall_sys::poll::{self, PollFd, PollFlags};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A child process that is killed when the value is dropped, so that it does not outlive its test.
#[derive(Debug)]
pub struct Second(pub Child);

impl Second {
    /// Starts this executable again, with the given environment variables, to run only the test
    /// with the path `test`.
    pub fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        Self::spawn(command(test).envs(variables.iter().copied()))
    }

    /// Starts any command as a second process, which is killed when the value is dropped.
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// The id of the second process, in the type that signal functions take.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Whether the second process ends within `time`.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let process = PidFd::of_pid(self.pid()).unwrap();
        let mut descriptors = [PollFd::new(&process, PollFlags::IN)];
        poll::wait(&mut descriptors, Some(Instant::now() + time)).unwrap() > 0
    }

    /// Waits until the second process has ended; panics after the time limit of tests
    /// ([`TIMEOUT`]).
    pub fn wait(&mut self) -> ExitStatus {
        assert!(self.ends_within(TIMEOUT), "the second process does not end");
        self.0.wait().unwrap()
    }

    /// Kills the second process with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        // An error is ignored: `kill` fails only if the second process has ended already. The
        // signal cannot reach another process, because the system gives an id to no other process
        // before the end of the first was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command that starts this executable again to run only the test with the path `test`.
fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The value of an environment variable that was given to [`Second::start`]; `None` in the first
/// process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The command that runs the test `test` of this executable in the role `role`, with the given
/// arguments.
pub fn second_process(test: &str, role: &str, arguments: &[(&str, &str)]) -> Command {
    let mut command = command(test);
    command.env(ROLE, role);
    for (name, value) in arguments {
        command.env(format!("{ROLE}_{name}"), value);
    }
    command
}

/// The role in which [`second_process`] started this process; `None` in the first process.
pub fn role() -> Option<String> {
    variable(ROLE)
}

/// The value of an argument that [`second_process`] passed to this process.
pub fn argument(name: &str) -> String {
    variable(&format!("{ROLE}_{name}")).unwrap()
}

const ROLE: &str = "PARTYWALL_TEST_ROLE";
