// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a run of the matrix: which pairs of programs exchange what, and the outcome of each
//! exchange.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::causes;
use crate::chain::{self, Victim};
use crate::exchange::Exchange;
use crate::place::Place;
use crate::roster::{Program, Roster};

/// The part of the matrix of languages that a run performs.
pub struct Plan {
    /// The sizes of the messages of each exchange, in bytes.
    pub sizes: Vec<usize>,
    kinds: Vec<&'static str>,
    /// Whether the run is short: each pair kills one end of a link in one exchange only, and causes
    /// errors over one transport only.
    is_short: bool,
}

/// A server, and the kind of exchange that it performs with the client of every language.
pub struct Job<'a> {
    /// The program whose server takes part in the exchanges of this job.
    pub server: &'a Program,
    /// The kind of exchange: `channel`, `session`, `link`, `chain` or `errors` ([`KINDS`]).
    pub kind: &'static str,
    /// The transport between server and client: `shared`, `unix` or `tcp` ([`TRANSPORTS`]).
    pub transport: &'static str,
    /// The index of the job's server program in the roster.
    index: usize,
    /// The index of the job in the plan of the run.
    number: usize,
}

/// The outcome of one exchange between a server and a client.
pub struct Outcome {
    /// The language of the server's program.
    pub server: String,
    /// The language of the client's program.
    pub client: String,
    /// The kind of exchange: `channel`, `session`, `link`, `chain` or `errors` ([`KINDS`]).
    pub kind: &'static str,
    /// The transport between server and client: `shared`, `unix` or `tcp` ([`TRANSPORTS`]).
    pub transport: &'static str,
    /// `Ok` if the exchange passed, or else a description of the failure.
    pub result: Result<(), String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, client, kind, transport, result } = self;
        let verdict = result.as_ref().err().map_or("passed", String::as_str);
        write!(f, "{client} → {server}, {kind} over {transport}: {verdict}")
    }
}

impl Plan {
    /// Returns the plan of a run that performs the whole matrix.
    pub fn whole() -> Self {
        let sizes = [0, 1, 47, 48, 4095, 4096, 65_535, 65_536, 1 << 20, 8 << 20].to_vec();
        Self { sizes, kinds: KINDS.to_vec(), is_short: false }
    }

    /// Returns the short plan, with every pair, one kill per pair, and messages of three sizes:
    /// empty, within the ring, and in a block.
    pub fn short() -> Self {
        Self { sizes: vec![0, 47, 65_535], is_short: true, ..Self::whole() }
    }

    /// Leaves out every kind of exchange but the given one.
    ///
    /// # Errors
    /// If there is no such kind.
    pub fn only(&mut self, kind: &str) -> Result<(), String> {
        self.kinds.retain(|it| *it == kind);
        if self.kinds.is_empty() {
            return Err(format!("there is no kind `{kind}`; the kinds are {}", KINDS.join(" ")));
        }
        Ok(())
    }

    /// Runs every job, and returns the outcomes of all exchanges in the order of the plan.
    ///
    /// # Errors
    /// If there is no place for sockets and files.
    pub fn run(&self, roster: &Roster) -> Result<Vec<Outcome>, String> {
        let place = Place::new()?;
        let jobs = self.jobs(roster);
        let waiting = Mutex::new(jobs.iter());
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(job) = job else { break };
                        let outcomes = self.perform(job, roster, &place);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((job.number, outcomes));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(number, _)| *number);
        Ok(done.into_iter().flat_map(|(_, outcomes)| outcomes).collect())
    }

    fn jobs<'a>(&self, roster: &'a Roster) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        for &kind in &self.kinds {
            for transport in TRANSPORTS {
                let servers = roster.programs.iter().enumerate();
                for (index, server) in servers.filter(|(_, it)| it.has(feature_of(kind))) {
                    jobs.push(Job { server, kind, transport, index, number: jobs.len() });
                }
            }
        }
        jobs
    }

    /// Runs a job with the client of every language that has the feature which the kind of exchange
    /// needs.
    fn perform(&self, job: &Job<'_>, roster: &Roster, place: &Place) -> Vec<Outcome> {
        let mut exchange = Exchange::new(job, place, &self.sizes);
        let clients = roster.programs.iter().enumerate();
        let clients = clients.filter(|(_, client)| client.has(feature_of(job.kind)));
        let clients = clients.filter(|(index, _)| !self.leaves_out(job, *index));
        let outcomes = clients.map(|(index, client)| {
            let result = match job.kind {
                "errors" => causes::compare(job, client, place),
                "chain" => self.victims(job, index).iter().try_for_each(|&victim| {
                    chain::run(job, client, victim, place)
                        .map_err(|error| format!("{victim:?} killed: {error}"))
                }),
                _ => exchange.with(client),
            };
            let (server, client) = (job.server.language.clone(), client.language.clone());
            let outcome =
                Outcome { server, client, kind: job.kind, transport: job.transport, result };
            println!("{outcome}");
            outcome
        });
        outcomes.collect()
    }

    /// Whether the short plan leaves out a client of a job. For each pair it runs one exchange in
    /// which an end of a link is killed and one set of errors, over a transport that depends on the
    /// pair.
    fn leaves_out(&self, job: &Job<'_>, client: usize) -> bool {
        let transport = TRANSPORTS[(job.index + client) % TRANSPORTS.len()];
        self.is_short && matches!(job.kind, "errors" | "chain") && transport != job.transport
    }

    /// The ends of a link that a job kills, each in an exchange of its own.
    fn victims(&self, job: &Job<'_>, client: usize) -> &'static [Victim] {
        match (self.is_short, (job.index + client) / TRANSPORTS.len() % 2) {
            (false, _) => &[Victim::Server, Victim::Client],
            (true, 0) => &[Victim::Server],
            (true, _) => &[Victim::Client],
        }
    }
}

/// The feature that a language needs to take part in a kind of exchange.
pub fn feature_of(kind: &str) -> &str {
    match kind {
        "chain" => "link",
        "errors" => "channel",
        other => other,
    }
}

/// The kinds of exchange, which are performed by every pair of languages that have the needed
/// feature.
pub const KINDS: [&str; 5] = ["channel", "session", "link", "chain", "errors"];
/// The transports between the server and the client of a pair.
pub const TRANSPORTS: [&str; 3] = ["shared", "unix", "tcp"];
/// Number of jobs of the plan that run at the same time.
const AT_ONCE: usize = 2;
