// SPDX-License-Identifier: MIT OR Apache-2.0
//! One round: a directory, a relay, two ends, and what happens to them.

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

/// One round of two processes and their director.
pub struct Round {
    plan: Plan,
    directory: tempfile::TempDir,
    journal: Reader,
    pub(super) oracle: Oracle,
    pub(super) relay: Relay,
    ends: [Option<Second>; 2],
    pub(super) chance: Random,
    /// The longest time for which this thread did not poll, since it was reset.
    pub(super) held_up: Duration,
}

/// Why a round cannot go on.
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

    /// Kills so often, settles, and judges.
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

    /// Settles, and judges the round whole.
    pub(super) fn finish(&mut self, figures: &mut Figures) -> Outcome<()> {
        self.settle()?;
        figures.rounds += 1;
        figures.connections += self.relay.connections();
        self.oracle.count(figures);
        Ok(())
    }

    /// Connections end by themselves now and then.
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

    /// Lets it run: until something was consumed, until an end begins some act, or for a short
    /// time; and harms it meanwhile.
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
            // The kill comes at once.
            0 => Ok(()),
            // In a moment of any order of magnitude.
            1..4 => {
                let time = Duration::from_micros(self.chance.size(20_000) as u64);
                let until = Instant::now() + time;
                self.watch(until, |_| Instant::now() >= until)
            }
            // Once some messages came.
            4..6 => {
                let side = self.receiver();
                let count = self.oracle.ends[side].got + 1 + self.chance.size(60) as u64;
                self.wait("no message comes", |oracle| oracle.ends[side].got >= count)
            }
            // In the middle of something.
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

    /// One thread receives, whatever the others do.
    fn receiver(&mut self) -> usize {
        match self.plan.mode {
            Mode::OneWay => SERVER,
            _ => self.chance.below(2) as usize,
        }
    }

    /// A thread, and its preferred operation.
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

    /// An end stands still for a while, and goes on.
    fn stop(&mut self, figures: &mut Figures) -> Outcome<()> {
        let side = self.chance.below(2) as usize;
        self.signal(side, Signal::STOP);
        figures.stops += 1;
        let until = Instant::now() + Duration::from_micros(self.chance.size(20_000) as u64);
        self.watch(until, |_| Instant::now() >= until)?;
        self.signal(side, Signal::CONT);
        Ok(())
    }

    /// Kills one or both, some of them again before they have recovered.
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

    /// Waits for the death of one that was killed, and for all it had to say.
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

    /// Takes the notes that are there.
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

    /// Takes notes until `is_so`, or until then.
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

    /// No more harm: all that was sent is consumed, and both ends say so.
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
        // Entries since then repeat that everything is acknowledged.
        let epoch = self.oracle.is_settled().ok_or("it was settled, and is not")?;
        self.oracle.close(epoch)
    }

    /// Keeps the directory, unless it is for a fault that was built in, and says all there is to
    /// say.
    pub fn autopsy(mut self, why: &str) -> String {
        self.ends = [None, None];
        self.directory.disable_cleanup(variable(FORGET).is_none());
        let path = self.directory.path().to_owned();
        let lines: Vec<&str> = self.oracle.log().map(String::as_str).collect();
        let lines = lines.join("\n");
        format!("{lines}\n{:?}\nkept: {}\nVIOLATION: {why}", self.plan, path.display())
    }
}

/// The damage is expected, and not examined further.
const FORGET: &str = "PARTYWALL_TORTURE_FORGET";
/// Time until the journal is read again.
const POLL_TIME: Duration = Duration::from_micros(200);
/// Now and then so much happens between two kills.
const HARMS_MAX: u64 = 24;
/// It is waited for no longer that an end begins some act.
const ACTS_MAX: u64 = 400;
