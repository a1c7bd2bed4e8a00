// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of messages over a link, of which one end is killed under load.
//!
//! ```text
//! client   sends 0 … 7; then, for each answer n, acknowledges it and sends n + 8: both or neither
//! server   for each message n, acknowledges it and sends answer n: both or neither
//! ```
//!
//! "Both or neither" means that a kill leaves both steps done, or none. Both ends keep only the
//! files of their link. So a lost or repeated message would change all later numbers that the ends
//! print. A killed end may receive a message again that it had printed and not acknowledged; the
//! message's delivery count is then above 1.

use std::thread;

use crate::place::Place;
use crate::plan::Job;
use crate::process::Process;
use crate::roster::Program;

/// The end of a link that the harness kills while the two ends exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The server is killed.
    Server,
    /// The client is killed.
    Client,
}

/// Runs the exchange of messages over a link between a server and a client, kills the end `victim`
/// in the middle, and starts that end again.
///
/// # Errors If an end fails, or if a number is missing or printed twice.
pub fn run(job: &Job<'_>, client: &Program, victim: Victim, place: &Place) -> Result<(), String> {
    let address = place.address(job.transport);
    let paths = [place.directory()?, place.directory()?];
    let [alice, bob] = paths.each_ref().map(|path| path.to_string_lossy().into_owned());
    let count = COUNT.to_string();
    let serve = ["serve", "chain", job.transport, &address, &bob];
    let begin = ["run", "chain", job.transport, &address, &count, &alice, "chain", "new"];
    let go_on = ["run", "chain", job.transport, &address, &count, &alice, "chain", "again"];
    let mut server = Process::start(job.server, &serve)?;
    server.expect("ready")?;
    let running = Process::start(client, &begin)?;
    let (mut first, mut other) = match victim {
        Victim::Server => (server, running),
        Victim::Client => (running, server),
    };
    let killer = other.killer();
    let (lines, others) = thread::scope(|scope| {
        let others = scope.spawn(|| other.rest());
        let lines = kill_and_restart(&mut first, || match victim {
            Victim::Server => Process::start(job.server, &serve),
            Victim::Client => Process::start(client, &go_on),
        });
        if lines.is_err() {
            killer.kill();
        }
        (lines, others.join())
    });
    let [before, after] = lines?;
    let others = others.map_err(|_| "a thread has panicked")??;
    judge(&[&before, &after], COUNT)
        .map_err(|error| format!("the end that was killed: {error}"))?;
    judge(&[&others], COUNT).map_err(|error| format!("the end that lived: {error}"))
}

/// Kills a process after it has printed a number of lines, starts it again, and returns the lines
/// of both processes. The first process cannot end before the kill, because its unread lines fill
/// the pipe to the harness.
fn kill_and_restart(
    first: &mut Process,
    restart: impl FnOnce() -> Result<Process, String>,
) -> Result<[Vec<String>; 2], String> {
    let mut before = Vec::new();
    for _ in 0..KILLED_AFTER {
        before.push(first.next_line()?);
    }
    first.kill();
    before.extend(first.rest()?);
    Ok([before, restart()?.rest()?])
}

/// Checks the lines that one end printed before and after its kill: every number occurs once and in
/// order. Only the last number before the kill may occur again after the restart.
fn judge(lives: &[&Vec<String>], count: u64) -> Result<(), String> {
    let mut next = 0;
    for (life, lines) in lives.iter().enumerate() {
        let mut is_first = life > 0;
        for line in lines.iter().filter(|line| line.starts_with("got ")) {
            let mut words = line.split(' ').skip(1).map(str::parse::<u64>);
            let (Some(Ok(number)), Some(Ok(attempt))) = (words.next(), words.next()) else {
                // The kill has cut this line off in the middle, so the line is ignored.
                continue;
            };
            let comes_again = is_first && number + 1 == next && attempt > 1;
            if number != next && !comes_again {
                return Err(format!("message {number}, attempt {attempt}, instead of {next}"));
            }
            next = number + 1;
            is_first = false;
        }
    }
    if next != count {
        return Err(format!("{next} messages of {count}"));
    }
    match lives.last().and_then(|lines| lines.last()) {
        Some(line) if line == "finished" => Ok(()),
        other => Err(format!("{other:?} at last instead of `finished`")),
    }
}

/// Number of messages in the test that kills an end of the link. An end prints a line for each: far
/// more lines than the pipe and the harness's reader hold, so an end cannot finish before it is
/// killed.
const COUNT: u64 = 2000;
/// Number of lines that an end of a link prints before the harness kills it.
const KILLED_AFTER: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(',').map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn each_number_comes_once() {
        assert_eq!(judge(&[&lines("ready, got 0 1 -, got 1 1 -, finished")], 2), Ok(()));
        for wrong in [
            "got 0 1 -, finished",
            "got 0 1 -, got 2 1 -, finished",
            "got 0 1 -, got 0 2 -, got 1 1 -, finished",
            "got 0 1 -, got 1 1 -",
        ] {
            assert!(judge(&[&lines(wrong)], 2).is_err(), "{wrong}");
        }
    }

    #[test]
    fn message_that_was_not_acknowledged_comes_again_with_its_count() {
        let before = lines("got 0 1 -, got 1 1 -, got");
        let judged = |after: &str| judge(&[&before, &lines(after)], 3);
        assert_eq!(judged("ready, got 1 2 -, got 2 1 -, finished"), Ok(()));
        assert_eq!(judged("ready, got 2 1 -, finished"), Ok(()));
        assert!(judged("got 1 1 -, got 2 1 -, finished").is_err(), "as if it were new");
        assert!(judged("got 0 2 -, got 1 2 -, got 2 1 -, finished").is_err(), "acknowledged");
        assert!(judged("got 2 1 -, got 2 2 -, finished").is_err(), "twice in one life");
    }
}
