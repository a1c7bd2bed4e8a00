// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the journal of a torture run, in which client and server note their operations on the
//! link. The oracle checks each note as it is read, and keeps the last notes to help explain a
//! violation.

use super::content::{CLIENT, SERVER};
use super::figures::Figures;
use super::journal::{Note, What};
use super::ledger::{Effect, Got, Ledger};
use super::reports::{Report, ReportSet};
use std::collections::VecDeque;

/// The operation that the client or server process was making when it was killed. The kills are
/// counted by this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Starting,
    Recovering,
    Waiting,
    Sending,
    Consuming,
    Replying,
    Beginning,
}

impl Moment {
    pub const COUNT: usize = 7;
    pub const NAMES: [&'static str; Self::COUNT] = [
        "starting",
        "attaching",
        "between steps",
        "sending",
        "committing",
        "replying",
        "beginning an epoch",
    ];
}

/// The oracle of one round of the torture test: it checks every note that client and server write
/// to the journal, and so knows what each of them sent, received and acknowledged.
pub struct Oracle {
    /// For the client and for the server, the ledger of the messages that it sent: which of them
    /// were sent, received and acknowledged.
    ledgers: [Ledger; 2],
    /// For the client and for the server, the numbers of a request that it sent and of the reply to
    /// that request, if it is in doubt whether the reply was sent.
    asked: [Option<(usize, usize)>; 2],
    reported: ReportSet,
    pub ends: [EndState; 2],
    log: VecDeque<String>,
    ring_bytes: u64,
    pub epochs: u64,
    shared: u64,
}

/// The facts that the oracle knows from the journal of the process that is now the client or the
/// server.
#[derive(Clone, Debug)]
pub struct EndState {
    pub owner: u64,
    pub moment: Moment,
    pub notes: u64,
    pub got: u64,
    /// How often this process (the present client or server) has attached so far (`attached`), and
    /// that number when a message last arrived (`flowed`).
    pub attached: u64,
    pub flowed: u64,
    /// The epoch in which this owner has noted that it has acknowledged all messages that arrived;
    /// `None` before such a note.
    pub idle: Option<u64>,
    pub has_failed: bool,
}

impl Oracle {
    pub fn new(seed: u64, ring_bytes: u64) -> Self {
        let end = EndState::new(0);
        Self {
            ledgers: [Ledger::new(seed, CLIENT), Ledger::new(seed, SERVER)],
            asked: [None; 2],
            reported: ReportSet::default(),
            ends: [end.clone(), end],
            log: VecDeque::new(),
            ring_bytes,
            epochs: 0,
            shared: 0,
        }
    }

    /// Records that a new process starts as the client or the server. Returns the number of this
    /// owner of the link file, and the number of its first message.
    pub fn starts(&mut self, side: usize) -> (u64, u64) {
        self.ends[side] = EndState::new(self.ends[side].owner + 1);
        self.say(format!("{} start as {}", NAMES[side], self.ends[side].owner));
        (self.ends[side].owner, self.ledgers[side].next())
    }

    pub fn say(&mut self, line: String) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    pub fn log(&self) -> impl Iterator<Item = &String> {
        self.log.iter()
    }

    pub fn take(&mut self, note: &Note) -> Result<(), String> {
        let Note { what, side, owner, words } = *note;
        self.say(format!("{} {owner} {what:?} {words:?}", NAMES[side]));
        let end = &mut self.ends[side];
        assert_eq!(end.owner, owner, "the dead say nothing");
        end.notes += 1;
        if !matches!(what, What::Idle | What::Reported | What::Attached) {
            self.ends.iter_mut().for_each(|end| end.idle = None);
        }
        let end = &mut self.ends[side];
        let is_attached = !matches!(end.moment, Moment::Starting | Moment::Recovering);
        match what {
            What::Opened => end.moment = Moment::Recovering,
            What::Attached => {
                end.moment = Moment::Waiting;
                end.attached += 1;
            }
            What::Idle => end.idle = (words[1] == 0).then_some(words[0]),
            What::Failed => end.has_failed = true,
            _ if is_attached => end.moment = moment(what),
            _ => {}
        }
        let judged = self.judge(what, side, owner, &words);
        judged.map_err(|why| format!("{} {owner} {what:?} {words:?}: {why}", NAMES[side]))
    }

    fn judge(
        &mut self,
        what: What,
        side: usize,
        owner: u64,
        words: &[u64; 7],
    ) -> Result<(), String> {
        let [first, second, third, fourth, fifth, sixth, _] = *words;
        let other = 1 - side;
        match what {
            What::AboutToSend => {
                self.ledgers[side].about(first, second, third, (fourth, fifth), None);
            }
            What::Sent => return self.ledgers[side].sent(index(first), second),
            What::NotSent => return self.ledgers[side].absent(index(first)),
            What::Got => {
                let (position, epoch, number) = (first, second, third);
                let (len, digest, attempt) = (fourth, fifth, sixth);
                let got = Got { owner, position, epoch, number, len, digest, attempt };
                let end = &mut self.ends[side];
                end.got += 1;
                end.flowed = end.attached;
                let effects = self.ledgers[other].got(&got)?;
                return self.apply(other, effects);
            }
            What::AboutToCommit => {
                let number = self.ledgers[other].at(second, first);
                self.ledgers[other].doubt = Some(number);
            }
            What::NotCommitted => self.ledgers[other].doubt = None,
            What::Committed => {
                let number = self.ledgers[other].at(second, first);
                let _ = self.ledgers[other].consume(number);
            }
            What::AboutToReply => {
                let request = self.ledgers[other].at(second, first);
                self.ledgers[other].doubt = Some(request);
                self.asked[other] = Some((request, index(third)));
                let batch = (third, 1);
                self.ledgers[side].about(third, fourth, second, batch, Some(request));
            }
            What::Replied => {
                self.asked[other] = None;
                let request = self.ledgers[other].at(second, first);
                let _ = self.ledgers[other].consume(request);
                return self.ledgers[side].sent(index(third), second);
            }
            What::NotReplied => {
                self.asked[other] = None;
                self.ledgers[other].doubt = None;
                return self.ledgers[side].absent(index(third));
            }
            What::AboutToBegin => self.epochs += 1,
            What::Reported => self.reported(side, words),
            What::Attached => self.shared += second,
            What::Opened | What::Idle | What::Failed => {}
        }
        Ok(())
    }

    /// Applies conclusions, which follow from messages that `sender` sent, to the record of the
    /// messages of the opposite direction.
    fn apply(&mut self, sender: usize, effects: Vec<Effect>) -> Result<(), String> {
        let other = 1 - sender;
        for effect in effects {
            match effect {
                Effect::Answered(request) => {
                    if self.ledgers[other].doubt == Some(request) {
                        let _ = self.ledgers[other].consume(request);
                        self.asked[other] = None;
                    }
                    if self.ledgers[other].committed <= request {
                        return Err(format!("{request} is answered, and is not consumed"));
                    }
                }
                Effect::Sent(_, end) => {
                    if let Some((request, answer)) = self.asked[sender].take() {
                        if request + 1 == end {
                            let place = self.ledgers[sender].messages[request].place;
                            let epoch = place.map_or(u64::MAX, |(epoch, _)| epoch);
                            self.ledgers[other].sent(answer, epoch)?;
                        }
                    }
                }
                Effect::Unanswered(request) => {
                    if let Some((asked, answer)) = self.asked[sender].take() {
                        if asked == request {
                            self.ledgers[other].absent(answer)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn reported(&mut self, side: usize, words: &[u64; 7]) {
        let is_receiving = words[0] & 1 != 0;
        self.reported.add(Report {
            sender: if is_receiving { 1 - side } else { side },
            is_receiving,
            is_exact: words[0] & 2 != 0,
            is_open: words[0] & 4 != 0,
            epoch: words[1],
            from: words[2],
            to: words[3],
        });
    }

    /// The epoch in which both client and server have noted that all messages are acknowledged;
    /// `None` until both notes exist.
    pub fn is_settled(&self) -> Option<u64> {
        let epoch = self.ends[CLIENT].idle?;
        (self.ends[SERVER].idle == Some(epoch)).then_some(epoch)
    }

    /// Makes the final checks of a round, in whose last epoch `epoch` everything was acknowledged.
    pub fn close(&mut self, epoch: u64) -> Result<(), String> {
        for sender in [CLIENT, SERVER] {
            let effects = self.ledgers[sender].close(epoch)?;
            self.apply(sender, effects)?;
        }
        for sender in [CLIENT, SERVER] {
            let ledger = &self.ledgers[sender];
            let judged = ledger.check_all(epoch);
            let judged =
                judged.and_then(|()| self.reported.check(sender, ledger, epoch, self.ring_bytes));
            judged.map_err(|why| format!("sent by the {}: {why}", NAMES[sender]))?;
        }
        Ok(())
    }

    pub fn count(&self, figures: &mut Figures) {
        let got: u64 = self.ledgers.iter().map(|ledger| ledger.got).sum();
        let consumed: u64 = self.ledgers.iter().map(|ledger| ledger.consumed).sum();
        figures.sent += self.ledgers.iter().map(Ledger::next).sum::<u64>();
        figures.consumed += consumed;
        figures.again_received += got.saturating_sub(consumed);
        figures.shared += self.shared;
        figures.epochs += self.epochs;
        figures.reports += self.reported.count();
    }
}

impl EndState {
    const fn new(owner: u64) -> Self {
        let moment = Moment::Starting;
        Self {
            owner,
            moment,
            notes: 0,
            got: 0,
            attached: 0,
            flowed: 0,
            idle: None,
            has_failed: false,
        }
    }
}

const fn moment(what: What) -> Moment {
    match what {
        What::AboutToSend => Moment::Sending,
        What::AboutToCommit => Moment::Consuming,
        What::AboutToReply => Moment::Replying,
        What::AboutToBegin => Moment::Beginning,
        _ => Moment::Waiting,
    }
}

fn index(word: u64) -> usize {
    usize::try_from(word).unwrap()
}

pub const NAMES: [&str; 2] = ["client", "server"];
/// Maximum number of log lines (journal notes and disturbances) that the test keeps, and prints
/// after a violation.
const LOG_MAX: usize = 200;
