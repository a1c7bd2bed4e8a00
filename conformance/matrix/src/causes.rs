// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the numbers of errors: the client of each language causes each error, and must print
//! the number that the specification gives the error (SPEC 17).

use crate::place::Place;
use crate::plan::Job;
use crate::process::Process;
use crate::roster::Program;

/// Makes a client cause each error of the list [`CAUSES`], in order, and compares the numbers that
/// the client prints. For the last error the harness kills the client's server.
///
/// # Errors
/// If an end fails, or the client reports a number that differs from that of the list.
pub fn compare(job: &Job<'_>, client: &Program, place: &Place) -> Result<(), String> {
    let address = place.address(job.transport);
    let nobody = place.left_address(job.transport)?;
    let mut server =
        Process::start(job.server, &["serve", "errors", job.transport, &address, NO_USER])?;
    server.expect("ready")?;
    let arguments = ["run", "errors", job.transport, &address, &nobody, NO_USER];
    let mut running = Process::start(client, &arguments)?;
    let mut found = Vec::new();
    while let Some(line) = running.line()? {
        match line.as_str() {
            "connected" => server.kill(),
            _ => found.push(line),
        }
    }
    judge(job.transport, &found)
}

fn judge(transport: &str, found: &[String]) -> Result<(), String> {
    let is_here = |cause: &&Cause| transport != "tcp" || !cause.of_unix_sockets;
    let line = |cause: &Cause| format!("cause {} {}", cause.name, cause.number);
    let wanted: Vec<String> = CAUSES.iter().filter(is_here).map(line).collect();
    if found == wanted {
        return Ok(());
    }
    let differing = |from: &[String], to: &[String]| {
        from.iter().filter(|line| !to.contains(line)).cloned().collect::<Vec<_>>().join(", ")
    };
    Err(format!("found: {}; wanted: {}", differing(found, &wanted), differing(&wanted, found)))
}

/// A cause of an error, and the number that the error must have.
pub struct Cause {
    /// The name of the cause, as the client prints it.
    pub name: &'static str,
    /// What the client does in the matrix of languages to cause this error.
    pub what: &'static str,
    /// The number that SPEC 17 gives this error.
    pub number: u32,
    of_unix_sockets: bool,
}

const fn cause(name: &'static str, what: &'static str, number: u32) -> Cause {
    Cause { name, what, number, of_unix_sockets: false }
}

const fn cause_of_unix_sockets(name: &'static str, what: &'static str, number: u32) -> Cause {
    Cause { name, what, number, of_unix_sockets: true }
}

/// All causes of errors that the matrix compares, in the order in which a client brings them about.
pub const CAUSES: [Cause; 9] = [
    cause("address-syntax", "connects to `nowhere`", 301),
    cause("no-listener", "connects where nobody listens", 333),
    cause("setting", "asks for a ring of 5000 bytes", 13),
    cause_of_unix_sockets("no-socket", "connects to a path that does not exist", 332),
    cause_of_unix_sockets("not-admitted", "admits only another user", 206),
    cause_of_unix_sockets("refused", "connects where only another user is admitted", 205),
    cause("deadline", "waits 20 ms for a message that does not come", 4),
    cause("too-long", "sends one byte more than the peer receives", 11),
    cause("gone", "waits for a message of a peer that is killed", 10),
];

/// A user id that no process of the run has, so that a listener which admits only this user refuses
/// every client.
const NO_USER: &str = "424242";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(of: impl Fn(&Cause) -> bool) -> Vec<String> {
        let line = |cause: &Cause| format!("cause {} {}", cause.name, cause.number);
        CAUSES.iter().filter(|cause| of(cause)).map(line).collect()
    }

    #[test]
    fn every_cause_has_to_be_met_with_its_number() {
        assert_eq!(judge("unix", &lines(|_| true)), Ok(()));
        assert_eq!(judge("tcp", &lines(|cause| !cause.of_unix_sockets)), Ok(()));
        let without_last = lines(|cause| cause.name != "gone");
        assert!(judge("unix", &without_last).unwrap_err().contains("wanted: cause gone 10"));
        let mut other = lines(|_| true);
        other[0] = "cause address-syntax 302".to_owned();
        assert!(judge("unix", &other).unwrap_err().contains("found: cause address-syntax 302"));
    }
}
