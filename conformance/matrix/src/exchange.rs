// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges of messages over channels, sessions and links between one server and, one after the
//! other, the client of each language. Each end checks every byte, and prints how many messages and
//! bytes it has received.

use crate::place::Place;
use crate::plan::Job;
use crate::process::Process;
use crate::roster::Program;

/// The exchanges of one server with several clients, one client after the other.
pub struct Exchange<'a> {
    job: &'a Job<'a>,
    place: &'a Place,
    sizes: &'a [usize],
    /// The running server process and its address; `None` before the first exchange, and after an
    /// exchange that failed.
    server: Option<(Process, String)>,
}

impl<'a> Exchange<'a> {
    /// Prepares the exchanges of a job, of which the first starts the server.
    pub fn new(job: &'a Job<'a>, place: &'a Place, sizes: &'a [usize]) -> Self {
        Self { job, place, sizes, server: None }
    }

    /// Runs a client against the server, and compares the messages and bytes that both ends report.
    ///
    /// # Errors
    /// If an end fails, or reports something else than what was sent.
    pub fn with(&mut self, client: &Program) -> Result<(), String> {
        let (mut server, address) = match self.server.take() {
            Some(running) => running,
            None => self.start()?,
        };
        let sizes = self.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut arguments = vec!["run", self.job.kind, self.job.transport, &address, &sizes];
        let directory = self.place.directory()?.to_string_lossy().into_owned();
        let name = format!("from-{}", client.language);
        if self.job.kind == "link" {
            arguments.extend([directory.as_str(), name.as_str()]);
        }
        let lines = Process::start(client, &arguments)?.rest()?;
        let report = report(self.job.kind, self.sizes);
        if lines != [format!("done {report}")] {
            return Err(format!("{} says {lines:?} instead of done {report}", client.language));
        }
        server.expect(&format!("served {report}"))?;
        self.server = Some((server, address));
        Ok(())
    }

    fn start(&self) -> Result<(Process, String), String> {
        let address = self.place.address(self.job.transport);
        let directory = self.place.directory()?.to_string_lossy().into_owned();
        let arguments = ["serve", self.job.kind, self.job.transport, &address, &directory];
        let mut server = Process::start(self.job.server, &arguments)?;
        server.expect("ready")?;
        Ok((server, address))
    }
}

/// What both ends print after an exchange: the number of received messages, and the sum of their
/// bytes. In a session both numbers are twice as large, because it has two streams.
fn report(kind: &str, sizes: &[usize]) -> String {
    let streams = if kind == "session" { 2 } else { 1 };
    format!("{} {}", streams * sizes.len(), streams * sizes.iter().sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_of_a_session_count() {
        assert_eq!(report("channel", &[0, 10, 5]), "3 15");
        assert_eq!(report("session", &[0, 10, 5]), "6 30");
    }
}
