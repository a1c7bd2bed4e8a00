// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client process and the server process of one language.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The transport of the measured messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A channel of Partywall over shared memory.
    Ours,
    /// A Unix socket, used through the language's own library.
    Socket,
}

/// A server process, and a client process to which the benchmark sends the tasks to measure.
/// Dropping the value ends both processes.
pub struct Pair {
    /// The name of the language in which both programs of the pair are written.
    pub language: String,
    client: Child,
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Pair {
    /// Starts the server and the client of a language with the given command.
    ///
    /// # Errors
    /// If one of the two processes does not start.
    pub fn start(words: &[String]) -> Result<Self, String> {
        let [language, program, rest @ ..] = words else {
            return Err("`--program` needs a language and a command".to_owned());
        };
        let cannot = |error: std::io::Error| format!("{language}: {error}");
        let name = format!("partywall-bench-{}-{language}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&directory).map_err(cannot)?;
        let address = format!("unix:{}", directory.join("channel").display());
        let start = |role: &str| {
            let mut command = Command::new(program);
            command.args(rest).arg(role).arg(&address).arg(directory.join("socket"));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)
        };
        let mut server = start("serve")?;
        let mut line = String::new();
        let output = server.stdout.take().ok_or("a pipe was asked for")?;
        BufReader::new(output).read_line(&mut line).map_err(cannot)?;
        let mut client = start("run")?;
        let input = client.stdin.take().ok_or("a pipe was asked for")?;
        let output = BufReader::new(client.stdout.take().ok_or("a pipe was asked for")?);
        let mut pair =
            Self { language: language.clone(), client, server, input, output, directory };
        match (line.trim(), pair.line()?.as_str()) {
            ("ready", "ready") => Ok(pair),
            (server, client) => Err(format!("{language}: `{server}` and `{client}`, not ready")),
        }
    }

    /// Makes the client perform a task with `count` messages, and returns the nanoseconds that one
    /// message took.
    ///
    /// # Errors
    /// If a process has ended, or its answer is no number.
    pub fn time_ns(
        &mut self,
        carrier: Carrier,
        task: &str,
        size: usize,
        count: u64,
    ) -> Result<f64, String> {
        let carrier = if carrier == Carrier::Ours { "ours" } else { "socket" };
        let asked = writeln!(self.input, "{carrier} {task} {size} {count}");
        asked.map_err(|error| format!("{}: {error}", self.language))?;
        let line = self.line()?;
        let time_ns: f64 = line.parse().map_err(|_| format!("{} says `{line}`", self.language))?;
        Ok(time_ns / count as f64)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(|error| format!("{}: {error}", self.language))?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            // An error of `kill` is ignored: the child process has then ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
