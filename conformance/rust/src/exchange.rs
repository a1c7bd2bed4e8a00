// SPDX-License-Identifier: MIT OR Apache-2.0
//! An exchange of the conformance tests: one server, one client, and the traffic between them.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use conformance_traffic::remove_leftovers;
use tempfile::TempDir;

use super::process::{Ended, Process};
use super::roster::Peer;

/// How the two programs of a conformance test connect and share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A Unix socket that passes descriptors of memfds: version 3 of the shmipc protocol.
    UnixMemfd,
    /// A Unix socket over which the client names files of shared memory: version 2 of the protocol.
    UnixFile,
    /// TCP, over which the client names files of shared memory: version 2 of the protocol.
    TcpFile,
}

impl Transport {
    /// All transports that the published shmipc libraries for Go and Rust support.
    pub const ALL: [Self; 3] = [Self::UnixMemfd, Self::UnixFile, Self::TcpFile];

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::UnixMemfd => ["--network", "unix", "--map", "memfd"],
            Self::UnixFile => ["--network", "unix", "--map", "file"],
            Self::TcpFile => ["--network", "tcp", "--map", "file"],
        }
    }
}

/// An exchange between a server program and a client program; dropping the value removes their
/// files.
pub struct Exchange {
    /// The implementation whose program serves.
    pub server: Peer,
    /// The implementation whose program connects and drives the traffic.
    pub client: Peer,
    /// How the two programs connect and share memory.
    pub transport: Transport,
    directory: TempDir,
    prefix: String,
}

/// The ends of both programs of an exchange: exit code, report and stderr of each.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code, report and stderr of the client's program.
    pub client: Ended,
    /// Exit code, report and stderr of the server's program.
    pub server: Ended,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, client) = (self.server.name(), self.client.name());
        write!(f, "server {server}, client {client}, {:?}", self.transport)
    }
}

impl Exchange {
    /// Prepares an exchange: creates the directory for its socket, and starts no program yet.
    ///
    /// # Errors
    /// If the directory for the socket cannot be created.
    pub fn new((server, client): (Peer, Peer), transport: Transport) -> Result<Self> {
        static NUMBER: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut next = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let directory = tempfile::Builder::new().prefix("conformance").tempdir()?;
        let prefix = format!("/dev/shm/conformance-{}-{number}", std::process::id());
        Ok(Self { server, client, transport, directory, prefix })
    }

    /// The path that the server's socket has if the transport is a Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The prefix with which the names begin of all shared memory that the two programs of this
    /// exchange create.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Starts the server's program, and returns its process and its address.
    ///
    /// # Errors
    /// If the server cannot be built or started, or is not ready in time.
    pub fn serve(&self, arguments: &str) -> Result<(Process, String)> {
        let address = match self.transport {
            Transport::TcpFile => "127.0.0.1:0".to_owned(),
            _ => self.socket().display().to_string(),
        };
        let arguments = self.arguments("serve", &address, "s", arguments);
        let mut server = Process::start(&self.server.program()?, &arguments)?;
        let address = server.wait_for_line("ready", READY_TIMEOUT)?;
        Ok((server, address))
    }

    /// Starts the client, which connects to the server at `address`.
    ///
    /// # Errors
    /// If the client cannot be built or started.
    pub fn run(&self, address: &str, arguments: &str) -> Result<Process> {
        let arguments = self.arguments("run", address, "c", arguments);
        Process::start(&self.client.program()?, &arguments)
    }

    /// Performs the whole exchange: starts the server, runs the client, and ends the server.
    ///
    /// # Errors
    /// If a program cannot be started, or does not end in time. The caller judges how the programs
    /// ended.
    pub fn outcome(&self, arguments: &str) -> Result<Outcome> {
        let (mut server, address) = self.serve("")?;
        let client = self.run(&address, arguments)?.finish(RUN_TIMEOUT);
        server.end_stdin();
        let server = server.finish(END_TIMEOUT);
        Ok(Outcome { client: client.context("client")?, server: server.context("server")? })
    }

    /// Performs the whole exchange, and checks that there were no faults and `requests` correct
    /// requests.
    ///
    /// # Errors
    /// If a check fails; the error message names the fault.
    pub fn clean(&self, arguments: &str, requests: u64) -> Result<Outcome> {
        let judged = self.outcome(arguments).and_then(|outcome| {
            outcome.judge(requests)?;
            Ok(outcome)
        });
        judged.with_context(|| format!("{self}: {arguments}"))
    }

    fn arguments(&self, verb: &str, address: &str, side: &str, rest: &str) -> Vec<String> {
        let prefix = format!("{}-{side}", self.prefix);
        [verb, "--address", address, "--prefix", &prefix]
            .into_iter()
            .chain(self.transport.arguments())
            .chain(rest.split_whitespace())
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        remove_leftovers(&format!("{}-", self.prefix));
    }
}

impl Outcome {
    /// Checks that neither program had faults, and that `requests` requests were correct.
    ///
    /// # Errors
    /// If a check fails; the error message names the fault.
    pub fn judge(&self, requests: u64) -> Result<()> {
        for (role, ended) in [("client", &self.client), ("server", &self.server)] {
            let report = ended.report.as_ref();
            let report = report.with_context(|| format!("no report of the {role}: {ended:?}"))?;
            let clean = ended.code == Some(0) && report.failed == 0 && report.uploads_cut == 0;
            ensure!(clean, "the {role} was not content: {ended:?}");
            ensure!(report.requests == requests, "{role}: {} requests", report.requests);
            ensure!(role == "client" || report.streams_open == 0, "streams are left: {report:?}");
        }
        Ok(())
    }
}

const READY_TIMEOUT: Duration = Duration::from_secs(20);
const RUN_TIMEOUT: Duration = Duration::from_secs(100);
const END_TIMEOUT: Duration = Duration::from_secs(20);
