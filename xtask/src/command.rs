// SPDX-License-Identifier: MIT OR Apache-2.0
//! One external command, which can be run, captured, and printed so that it can be pasted into a
//! shell.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// A program, its arguments, and the environment variables that are set for it in addition to those
/// of this process.
#[derive(Clone, Debug, Default)]
pub struct Step {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: Option<String>,
}

impl Step {
    /// A command that runs `cargo` with the given arguments, which are separated by spaces.
    ///
    /// `cargo` is looked up by name, not taken from `$CARGO`, because only the rustup proxy
    /// understands `+nightly`.
    pub fn cargo(arguments: &str) -> Self {
        Step::new("cargo").args(arguments)
    }

    /// A command that runs `program` without arguments.
    pub fn new(program: &str) -> Self {
        Step { program: program.to_owned(), ..Step::default() }
    }

    /// Adds arguments to the command; `arguments` separates them by spaces.
    pub fn args(mut self, arguments: &str) -> Self {
        self.arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// Adds one argument to the command; the argument may contain spaces.
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets one environment variable of the command. The value replaces an earlier one.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(earlier, _)| earlier != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the directory in which the command runs. Without a set directory the command runs in
    /// that of this process.
    pub fn directory(mut self, directory: &str) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Returns the command with a time limit. When the time is over, the command is killed with all
    /// its children, and its exit status is 124.
    pub fn within_seconds(self, limit_seconds: u32) -> Self {
        let mut arguments = vec!["--kill-after=5".to_owned(), limit_seconds.to_string()];
        arguments.push(self.program.clone());
        arguments.extend(self.arguments.iter().cloned());
        Step { program: "timeout".to_owned(), arguments, ..self }
    }

    /// Runs the command with the standard streams of this process.
    ///
    /// # Errors
    /// If the command could not start or did not succeed; the message contains the command to
    /// repeat.
    pub fn run(&self) -> Result<(), String> {
        let status = self
            .command()
            .status()
            .map_err(|error| format!("cannot start `{}`: {error}", self.program))?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{status}; repeat it with:\n    {self}"))
    }

    /// Runs the command, and calls `each` for each line of its standard output as soon as it is
    /// printed. Its standard error is that of this process.
    ///
    /// # Errors
    /// If the command could not start or did not succeed, or its output is not text; and the first
    /// error of `each`, after which `each` is not called again.
    pub fn lines(&self, mut each: impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
        let cannot = |error| format!("cannot start `{}`: {error}", self.program);
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let output = child.stdout.take().ok_or("a pipe was asked for")?;
        let mut outcome = Ok(());
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|_| format!("`{self}` did not print text"));
            // After an error of `each`, the rest of the output is read and dropped, because the
            // command would block on a full pipe.
            outcome = outcome.and_then(|()| each(&line?));
        }
        let status = child.wait().map_err(|error| format!("`{self}`: {error}"))?;
        if !status.success() {
            return Err(format!("{status}; repeat it with:\n    {self}"));
        }
        outcome
    }

    /// Runs the command, and returns its exit status, its standard output and its standard error.
    ///
    /// # Errors
    /// If the command could not start. A command that fails is not an error of this function.
    pub fn capture(&self) -> Result<Output, String> {
        self.command()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start `{}`: {error}", self.program))
    }

    /// Whether the command starts and succeeds; its output is discarded. Callers use the method to
    /// look for an optional tool.
    pub fn works(&self) -> bool {
        self.capture().is_ok_and(|output| output.status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if plain_output() {
            command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(directory) = &self.directory {
            write!(f, "cd {} && ", quoted(directory))?;
        }
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// Whether the output of this process goes to a log, not to a terminal: the environment variable
/// `CI` has a value other than `false`.
pub fn plain_output() -> bool {
    env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// Returns `word` with the quotes that a POSIX shell needs to read it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_prints_as_a_command_a_shell_accepts() {
        let step = Step::cargo("test --test").arg("loom_*").variable("RUSTFLAGS", "--cfg loom");
        assert_eq!(step.to_string(), "RUSTFLAGS='--cfg loom' cargo test --test 'loom_*'");
    }

    #[test]
    fn later_value_of_variable_replaces_earlier() {
        let step = Step::new("env").variable("FAULT", "").variable("FAULT", "late");
        assert_eq!(step.to_string(), "FAULT=late env");
    }

    #[test]
    fn a_failing_command_says_how_to_repeat_it() {
        let error = Step::new("false").args("--now").run().expect_err("false fails");
        assert!(error.contains("false --now"), "{error}");
    }

    #[test]
    fn each_line_of_the_output_is_handed_over() {
        let mut lines = Vec::new();
        let step = Step::new("printf").arg("one\\ntwo\\nthree");
        let take = |line: &str| {
            lines.push(line.to_owned());
            if lines.len() == 2 { Err("two suffice".to_owned()) } else { Ok(()) }
        };
        assert_eq!(step.lines(take), Err("two suffice".to_owned()));
        assert_eq!(lines, ["one", "two"]);
        let error = Step::new("false").lines(|_| Ok(())).expect_err("false fails");
        assert!(error.contains("repeat it with"), "{error}");
    }

    #[test]
    fn a_missing_program_is_not_available() {
        assert!(!Step::new("partywall-no-such-program").works());
        assert!(Step::new("true").works());
    }

    #[test]
    fn a_limit_stops_a_command_that_hangs() {
        let step = Step::new("sleep").args("60").within_seconds(1);
        let output = step.capture().expect("timeout is part of coreutils");
        assert_eq!(output.status.code(), Some(124));
    }
}
