// SPDX-License-Identifier: MIT OR Apache-2.0
//! One round of a torture run: a directory, a client process and a server process with one link,
//! the relay between them, and the kills, stops and cuts that the test makes.

use super::content::{CLIENT, SERVER};
use super::end;
use super::figures::Figures;
use super::journal::Reader;
use super::oracle::{Moment, NAMES, Oracle};
use super::relay::{Harm, Relay};
use super::settings::{Mode, Plan, Via};
use partywall_sys::signal::{self, Signal};
use partywall_testkit::{Random, Second, TIMEOUT, variable};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// One round of the torture test: the client and the server process, the relay between them, and
/// the oracle, which checks the journal of their operations.
pub struct Round {
    plan: Plan,
    directory: tempfile::TempDir,
    journal: Reader,
    pub(super) oracle: Oracle,
    pub(super) relay: Relay,
    ends: [Option<Second>; 2],
    pub(super) chance: Random,
    /// The longest time between two polls of the journal by the test's main thread, since the value
    /// was last reset. A long time shows that the machine was busy.
    pub(super) held_up: Duration,
}

/// The result of a step of a round of the torture test. The error text says why the round cannot
/// continue.
pub type Outcome<T> = Result<T, String>;

impl Round {
    pub fn new(plan: Plan) -> Self {
        let directory = super::directory::with(&NAMES);
        let journal = Reader::new(directory.path());
        let relay = Relay::new(directory.path(), plan.via);
        let oracle = Oracle::new(plan.seed, plan.ring_bytes);
        let chance = Random::new(plan.seed ^ 0x5eed);
        Self {
            plan,
            directory,
            journal,
            oracle,
            relay,
            ends: [None, None],
            chance,
            held_up: Duration::ZERO,
        }
    }

    /// Kills and restarts client and server until `kills` processes were killed. Then lets both
    /// acknowledge all messages, and checks the whole journal of the round.
    pub fn run(&mut self, kills: u64, figures: &mut Figures) -> Outcome<()> {
        let before = figures.kills();
        self.start(SERVER);
        self.start(CLIENT);
        while figures.kills() - before < kills {
            self.wait_for_a_moment(figures)?;
            self.kill(figures)?;
        }
        self.finish(figures)
    }

    /// Lets client and server acknowledge all messages, and checks the whole journal of the round.
    pub(super) fn finish(&mut self, figures: &mut Figures) -> Outcome<()> {
        self.settle()?;
        figures.rounds += 1;
        figures.connections += self.relay.connections();
        self.oracle.count(figures);
        Ok(())
    }

    pub(super) fn has_epochs(&self) -> bool {
        self.plan.epochs
    }

    pub(super) fn start(&mut self, side: usize) {
        let (owner, next) = self.oracle.starts(side);
        let directory = self.directory.path();
        let address = match (side, self.plan.via) {
            (CLIENT, _) => self.relay.address().to_owned(),
            (_, Via::Tcp) => "tcp:127.0.0.1:0".to_owned(),
            (_, Via::SharedMemory | Via::Unix) => {
                format!("unix:{}/server.sock", directory.display())
            }
        };
        self.ends[side] = Some(Second::start(
            "torture_end",
            &[
                (end::ROLE, NAMES[side]),
                (end::DIRECTORY, directory.to_str().unwrap()),
                (end::PLAN, &self.plan.words()),
                (end::OWNER, &format!("{owner} {next}")),
                (end::ADDRESS, &address),
            ],
        ));
    }

    /// Lets client and server run until the next kill: for a short time, until some messages have
    /// arrived, or until one of them makes a certain operation. Meanwhile disturbs the network and
    /// the processes.
    fn wait_for_a_moment(&mut self, figures: &mut Figures) -> Outcome<()> {
        let most = if self.chance.below(8) == 0 { HARMS_MAX } else { 3 };
        let harms = self.chance.below(most);
        for _ in 0..harms {
            self.pause()?;
            match self.chance.below(4) {
                0 => self.stop(figures)?,
                _ => self.harm(figures),
            }
        }
        self.pause()
    }

    pub(super) fn pause(&mut self) -> Outcome<()> {
        match self.chance.below(8) {
            0 => Ok(()),
            1..4 => {
                let time = Duration::from_micros(self.chance.size(20_000) as u64);
                let until = Instant::now() + time;
                self.watch(until, |_| Instant::now() >= until)
            }
            4..6 => {
                let side = self.receiver();
                let count = self.oracle.ends[side].got + 1 + self.chance.size(60) as u64;
                self.wait("no message comes", |oracle| oracle.ends[side].got >= count)
            }
            _ => {
                let (side, moment) = self.act();
                let notes = self.oracle.ends[side].notes + 1 + self.chance.size(40) as u64;
                self.wait("an end does nothing", |oracle| {
                    let end = &oracle.ends[side];
                    end.notes >= notes && (end.moment == moment || end.notes >= notes + ACTS_MAX)
                })
            }
        }
    }

    /// Chooses at random client or server, of those that receive messages in this round's message
    /// pattern (`Mode`).
    fn receiver(&mut self) -> usize {
        match self.plan.mode {
            Mode::OneWay => SERVER,
            _ => self.chance.below(2) as usize,
        }
    }

    /// Chooses at random client or server, and an operation that it makes in this round's message
    /// pattern (`Mode`).
    fn act(&mut self) -> (usize, Moment) {
        let consuming = Moment::Consuming;
        match (self.plan.mode, self.chance.below(4)) {
            (Mode::OneWay, 0 | 1) => (CLIENT, Moment::Sending),
            (Mode::OneWay, _) => (SERVER, consuming),
            (Mode::Replies, 0) => (CLIENT, Moment::Sending),
            (Mode::Replies, 1) => (CLIENT, consuming),
            (Mode::Replies, _) => (SERVER, Moment::Replying),
            (Mode::BothWays, which) => {
                let side = self.chance.below(2) as usize;
                (
                    side,
                    [Moment::Sending, Moment::Sending, consuming, Moment::Replying][which as usize],
                )
            }
        }
    }

    fn harm(&mut self, figures: &mut Figures) {
        let harm = Harm::draw(&mut self.chance);
        let time = Duration::from_micros(self.chance.size(20_000) as u64);
        self.oracle.say(format!("{harm:?} {time:?}"));
        if !self.relay.harm(harm, time) {
            return;
        }
        match harm {
            Harm::Cut => figures.cuts += 1,
            Harm::Delay(_) => figures.delays += 1,
            Harm::CutAndKeep(_) => {
                figures.cuts += 1;
                figures.late += 1;
            }
        }
    }

    /// Stops the client or the server process by SIGSTOP for a while, and then lets it continue by
    /// SIGCONT.
    fn stop(&mut self, figures: &mut Figures) -> Outcome<()> {
        let side = self.chance.below(2) as usize;
        self.signal(side, Signal::STOP);
        figures.stops += 1;
        let until = Instant::now() + Duration::from_micros(self.chance.size(20_000) as u64);
        self.watch(until, |_| Instant::now() >= until)?;
        self.signal(side, Signal::CONT);
        Ok(())
    }

    /// Kills the client, the server or both, and starts them again. Some of the new processes are
    /// killed before they have recovered.
    fn kill(&mut self, figures: &mut Figures) -> Outcome<()> {
        let sides: &[usize] = match self.chance.below(5) {
            0 => &[CLIENT, SERVER],
            1 => &[SERVER, CLIENT],
            2 => &[CLIENT],
            _ => &[SERVER],
        };
        if sides.len() == 2 {
            figures.both += 2;
        }
        for side in sides {
            if self.chance.below(10) == 0 {
                self.signal(*side, Signal::STOP);
            }
            self.signal(*side, Signal::KILL);
        }
        for side in sides {
            self.bury(*side, figures)?;
        }
        for side in sides {
            self.start(*side);
        }
        for side in sides {
            while self.chance.below(4) == 0 {
                let until = Instant::now() + Duration::from_micros(self.chance.size(15_000) as u64);
                self.watch(until, |_| Instant::now() >= until)?;
                figures.again += 1;
                self.signal(*side, Signal::KILL);
                self.bury(*side, figures)?;
                self.start(*side);
            }
        }
        Ok(())
    }

    fn signal(&mut self, side: usize, which: Signal) {
        self.oracle.say(format!("{} {which:?}", NAMES[side]));
        let end = self.ends[side].as_ref().expect("both are there between kills");
        signal::kill(end.pid(), which).unwrap();
    }

    /// Waits until the killed client or server process is dead, and passes its remaining notes from
    /// the journal to the oracle, which checks them.
    fn bury(&mut self, side: usize, figures: &mut Figures) -> Outcome<()> {
        let mut end = self.ends[side].take().expect("both are there between kills");
        let status = end.wait();
        self.drain()?;
        if status.code().is_some() {
            return Err(format!("the {} ended by itself: {status}", NAMES[side]));
        }
        figures.by_moment[self.oracle.ends[side].moment as usize] += 1;
        Ok(())
    }

    /// Passes the notes that client and server have written to the journal so far to the oracle,
    /// which checks them.
    fn drain(&mut self) -> Outcome<()> {
        for note in self.journal.read() {
            self.oracle.take(&note)?;
        }
        if self.oracle.ends.iter().any(|end| end.has_failed) {
            let words = fs::read_to_string(self.directory.path().join("failed"));
            return Err(format!("an end failed: {words:?}"));
        }
        Ok(())
    }

    /// Passes notes from the journal to the oracle, which checks them, until `is_so` holds for the
    /// oracle, or until the instant `until`.
    fn watch(&mut self, until: Instant, is_so: impl Fn(&Oracle) -> bool) -> Outcome<()> {
        let mut last = Instant::now();
        loop {
            self.drain()?;
            let now = Instant::now();
            self.held_up = self.held_up.max(now - last);
            last = now;
            if is_so(&self.oracle) || now >= until {
                return Ok(());
            }
            thread::park_timeout(POLL_TIME);
        }
    }

    pub(super) fn wait(&mut self, what: &str, is_so: impl Fn(&Oracle) -> bool) -> Outcome<()> {
        let until = Instant::now() + TIMEOUT;
        self.watch(until, &is_so)?;
        if is_so(&self.oracle) { Ok(()) } else { Err(format!("{what} in {TIMEOUT:?}")) }
    }

    /// Stops the disturbances. Waits until client and server have noted that all sent messages are
    /// acknowledged, kills both, and makes the final checks of the round.
    fn settle(&mut self) -> Outcome<()> {
        self.oracle.say("settle".to_owned());
        fs::write(self.directory.path().join(end::SETTLE), "").unwrap();
        self.wait("it does not settle", |oracle| oracle.is_settled().is_some())?;
        for side in [CLIENT, SERVER] {
            self.signal(side, Signal::KILL);
            if let Some(mut end) = self.ends[side].take() {
                end.wait();
            }
        }
        self.drain()?;
        // Client and server may have written further notes after all messages were acknowledged.
        // Each of these notes only says so again, so the oracle still finds the round settled.
        let epoch = self.oracle.is_settled().ok_or("it was settled, and is not")?;
        self.oracle.close(epoch)
    }

    /// Describes the failure of the round. Keeps the round's directory for examination, unless a
    /// test provoked the failure on purpose.
    pub fn autopsy(mut self, why: &str) -> String {
        self.ends = [None, None];
        self.directory.disable_cleanup(variable(FORGET).is_none());
        let path = self.directory.path().to_owned();
        let lines: Vec<&str> = self.oracle.log().map(String::as_str).collect();
        let lines = lines.join("\n");
        format!("{lines}\n{:?}\nkept: {}\nVIOLATION: {why}", self.plan, path.display())
    }
}

/// An environment variable that is set by a test which provokes a failure on purpose: the round's
/// directory is then not kept.
const FORGET: &str = "PARTYWALL_TORTURE_FORGET";
/// Pause between two reads of the journal. It bounds the error of measured recovery times, which
/// are milliseconds.
const POLL_TIME: Duration = Duration::from_micros(200);
/// Maximum number of disturbances (stops of a process, cuts and delays of the network) between two
/// kills; most kills have fewer before them.
const HARMS_MAX: u64 = 24;
/// Maximum number of journal notes that a client or server writes while the test waits for a
/// certain operation of it. After that the test continues, because this operation may never come.
const ACTS_MAX: u64 = 400;
