// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of one direction of the torture test's link. The state of each message follows from
//! the notes that sender and receiver write to the journal.
//!
//! ```text
//!   the sender notes "about to send" ────────────────────────────▶ the message is Doubtful
//!     Doubtful ── the sender notes "sent" ───────────────────────▶ Sent
//!              ── the receiver notes "got" ──────────────────────▶ Sent
//!              ── the receiver notes "got" of a later message ───▶ Absent: must never arrive
//!              ── the sender notes "not sent" ───────────────────▶ Absent: must never arrive
//!     Sent     ── the receiver notes "got", then "acked" ────────▶ consumed
//!     its epoch is over, and the message is not consumed ────────▶ Dropped
//!
//!   the receiver notes "about to ack n", and is killed ──────────▶ message n is in doubt
//!     the next owner gets message n + 1 ──▶ n is consumed, and its answer was sent
//!     the next owner gets message n again ▶ n is not consumed, and its answer must never arrive
//! ```

use super::content::{UNNAMED, content, digest};
use std::collections::HashMap;

/// The messages that client or server sent, and for each message whether it was sent, received,
/// acknowledged or dropped, as far as the journal shows.
pub struct Ledger {
    seed: u64,
    sender: usize,
    pub messages: Vec<Message>,
    /// The index of the message at each epoch and position: no two messages ever have the same
    /// epoch and position.
    places: HashMap<(u64, u64), usize>,
    /// Index of the first message that is not known to be acknowledged.
    pub committed: usize,
    /// The index of a message that the receiver was acknowledging when it was killed. It is not
    /// known whether this message, with all messages before it, is acknowledged.
    pub doubt: Option<usize>,
    /// The last process on the receiving side that received a message: its owner number, and the
    /// index of the last message that was delivered to it.
    last: Option<(u64, usize)>,
    epoch: u64,
    pub got: u64,
    pub consumed: u64,
}

#[derive(Debug)]
pub struct Message {
    len: u64,
    pub snapshot: LinkSnapshot,
    /// The first and the last epoch in which the message may have been sent.
    pub epochs: (u64, u64),
    batch: (usize, usize),
    /// The index of the request that this message answers, in the list of the messages of the
    /// opposite direction; `None` if this message is no reply.
    pub answers: Option<usize>,
    pub place: Option<(u64, u64)>,
    pub is_consumed: bool,
    /// Whether it can no longer be found out if the message was acknowledged or was dropped by an
    /// epoch.
    pub is_lost_sight_of: bool,
    /// Whether the sender noted that its send call returned without an error.
    pub was_confirmed: bool,
    last_owner: u64,
    owners: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSnapshot {
    Doubtful,
    Sent,
    Absent,
    Dropped,
}

/// A conclusion about messages of the opposite direction. Because a reply acknowledges its request,
/// a note about a reply also shows the state of its request, and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The reply to the request with this index was received, so the request is acknowledged.
    Answered(usize),
    /// The messages of this range were acknowledged: the first index, and the index after the last.
    /// Any of them that were acknowledged by replies prove that the replies were sent.
    Sent(usize, usize),
    /// The request with this index is not acknowledged, so the reply to that request was never
    /// sent.
    Unanswered(usize),
}

/// The note that a receiver writes to the journal about a received message.
pub struct Got {
    pub owner: u64,
    pub position: u64,
    pub epoch: u64,
    pub number: u64,
    pub len: u64,
    pub digest: u64,
    pub attempt: u64,
}

type Judged<T> = Result<T, String>;

impl Ledger {
    pub fn new(seed: u64, sender: usize) -> Self {
        Self {
            seed,
            sender,
            messages: Vec::new(),
            places: HashMap::new(),
            committed: 0,
            doubt: None,
            last: None,
            epoch: 0,
            got: 0,
            consumed: 0,
        }
    }

    pub fn next(&self) -> u64 {
        self.messages.len() as u64
    }

    pub fn about(
        &mut self,
        number: u64,
        len: u64,
        epoch: u64,
        batch: (u64, u64),
        answers: Option<usize>,
    ) {
        assert_eq!(number, self.next(), "an end counts its messages");
        self.messages.push(Message {
            len,
            snapshot: LinkSnapshot::Doubtful,
            epochs: (epoch, u64::MAX),
            batch: (index(batch.0), index(batch.1)),
            answers,
            place: None,
            is_consumed: false,
            is_lost_sight_of: false,
            was_confirmed: false,
            last_owner: 0,
            owners: 0,
        });
    }

    /// Checks a note of the sender: the send of message `number` returned without an error, in
    /// `epoch` or earlier.
    pub fn sent(&mut self, number: usize, epoch: u64) -> Judged<()> {
        let message = &mut self.messages[number];
        message.epochs.1 = message.epochs.1.min(epoch);
        message.was_confirmed = true;
        match message.snapshot {
            // The sender's note may come after the message has arrived, or after a message of the
            // next epoch has arrived. The sender writes the note only when the send has returned.
            LinkSnapshot::Sent | LinkSnapshot::Dropped => Ok(()),
            LinkSnapshot::Doubtful => {
                message.snapshot = LinkSnapshot::Sent;
                Ok(())
            }
            LinkSnapshot::Absent => {
                Err(format!("{number} was sent, and a later one came before it"))
            }
        }
    }

    /// Records that message `number` was not sent. Fails if the message has arrived, which
    /// contradicts this.
    pub fn absent(&mut self, number: usize) -> Judged<()> {
        match self.messages[number].snapshot {
            LinkSnapshot::Sent => Err(format!("{number} was not sent, and yet it is there")),
            LinkSnapshot::Doubtful => {
                self.messages[number].snapshot = LinkSnapshot::Absent;
                self.rest_of_batch(number, LinkSnapshot::Absent)
            }
            _ => Ok(()),
        }
    }

    /// Records the state `snapshot` for all messages of the same batch as message `number`, because
    /// a batch is sent completely or not at all.
    fn rest_of_batch(&mut self, number: usize, snapshot: LinkSnapshot) -> Judged<()> {
        let batch = self.messages[number].batch;
        let end = (batch.0 + batch.1).min(self.messages.len());
        for other in batch.0..end {
            if self.messages[other].batch != batch {
                // The sender was killed before it had written notes of all messages of the batch,
                // so the journal names no further message of it.
                break;
            }
            match self.messages[other].snapshot {
                LinkSnapshot::Doubtful => self.messages[other].snapshot = snapshot,
                found if found == snapshot || found == LinkSnapshot::Dropped => {}
                found => {
                    return Err(format!(
                        "half a batch: {number} is {snapshot:?}, {other} of the same is {found:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks a note of the receiver: the message that `got` describes was delivered to its
    /// application.
    pub fn got(&mut self, got: &Got) -> Judged<Vec<Effect>> {
        if got.epoch < self.epoch {
            return Err(format!("epoch {} after {}", got.epoch, self.epoch));
        }
        let number = self.identify(got)?;
        self.check_content(number, got)?;
        let mut effects = Vec::new();
        if let Some(doubt) = self.doubt.take() {
            let is_behind = number > doubt;
            let is_same = self.messages[doubt].place.is_some_and(|(epoch, _)| epoch == got.epoch);
            match (is_behind, is_same) {
                (true, true) => effects.push(self.consume(doubt)),
                (true, false) => self.lose_sight(doubt),
                (false, _) => effects.push(Effect::Unanswered(doubt)),
            }
        }
        for passed in self.start(number, got.owner)..number {
            self.pass(passed, got.epoch)?;
        }
        let message = &mut self.messages[number];
        message.epochs = (got.epoch, got.epoch);
        message.snapshot = LinkSnapshot::Sent;
        message.place = Some((got.epoch, got.position));
        self.places.insert((got.epoch, got.position), number);
        self.count_attempt(number, got)?;
        self.rest_of_batch(number, LinkSnapshot::Sent)?;
        self.last = Some((got.owner, number));
        self.got += 1;
        self.epoch = got.epoch;
        effects.extend(self.messages[number].answers.map(Effect::Answered));
        Ok(effects)
    }

    /// Identifies the message that the note `got` is about, and checks that this message may arrive
    /// now.
    fn identify(&self, got: &Got) -> Judged<usize> {
        let known = self.places.get(&(got.epoch, got.position)).copied();
        let number = match (known, got.number) {
            (Some(known), _) => known,
            (None, UNNAMED) => self.search(got)?,
            (None, number) => index(number),
        };
        if got.number != UNNAMED && index(got.number) != number {
            return Err(format!(
                "position {} names {number}, and now {}",
                got.position, got.number
            ));
        }
        let Some(message) = self.messages.get(number) else {
            return Err(format!("{number} was never about to be sent"));
        };
        if number < self.committed {
            return Err(format!("{number} comes again, and is consumed up to {}", self.committed));
        }
        if matches!(message.snapshot, LinkSnapshot::Absent | LinkSnapshot::Dropped) {
            return Err(format!("{number} comes, and is {:?}", message.snapshot));
        }
        if got.epoch < message.epochs.0 || got.epoch > message.epochs.1 {
            return Err(format!("{number} comes in epoch {}: {message:?}", got.epoch));
        }
        if message.place.is_some_and(|place| place != (got.epoch, got.position)) {
            return Err(format!("{number} has two places: {message:?}, now {}", got.position));
        }
        Ok(number)
    }

    /// Identifies a received message that is too short to contain its number: the first sent
    /// message with its length and digest that may arrive now.
    fn search(&self, got: &Got) -> Judged<usize> {
        let start = self.start(usize::MAX, got.owner);
        // The sender sends in order, and epochs only rise. So if a message was certainly sent in an
        // earlier epoch than that of the received message, it and all messages before it are of
        // earlier epochs. None of them is the received message, even if it is unknown whether they
        // were sent.
        let is_of_before =
            |message: &Message| message.was_confirmed && message.epochs.1 < got.epoch;
        let of_before =
            self.messages[start.min(self.messages.len())..].iter().rposition(is_of_before);
        let start = of_before.map_or(start, |last| start + last + 1);
        for number in start..self.messages.len() {
            let message = &self.messages[number];
            let may_come = matches!(message.snapshot, LinkSnapshot::Doubtful | LinkSnapshot::Sent)
                && message.epochs.0 <= got.epoch
                && got.epoch <= message.epochs.1
                && message.place.is_none();
            if may_come && message.len == got.len && self.digest_of(number) == got.digest {
                return Ok(number);
            }
        }
        Err(format!("a message of {} bytes was never about to be sent", got.len))
    }

    /// The index of the first message that the receiving process `owner` has not received and that
    /// is not known to be acknowledged. Receipts of message `number` and later ones do not count.
    fn start(&self, number: usize, owner: u64) -> usize {
        let last = self.last.filter(|(of, last)| *of == owner && *last < number);
        last.map_or(self.committed, |(_, last)| (last + 1).max(self.committed))
    }

    /// Records that a later message arrived before message `number`. So message `number` must never
    /// have been sent, or was dropped by an epoch.
    fn pass(&mut self, number: usize, epoch: u64) -> Judged<()> {
        let message = &mut self.messages[number];
        let may_be_of_before = message.epochs.0 < epoch;
        match message.snapshot {
            LinkSnapshot::Absent | LinkSnapshot::Dropped => Ok(()),
            LinkSnapshot::Doubtful | LinkSnapshot::Sent if may_be_of_before => {
                message.snapshot = LinkSnapshot::Dropped;
                Ok(())
            }
            LinkSnapshot::Doubtful => self.absent(number),
            LinkSnapshot::Sent => Err(format!("{number} was sent and is passed over: {message:?}")),
        }
    }

    fn check_content(&self, number: usize, got: &Got) -> Judged<()> {
        if self.messages[number].len == got.len && self.digest_of(number) == got.digest {
            return Ok(());
        }
        Err(format!("{number} has other bytes: {} of {}", got.len, self.messages[number].len))
    }

    fn digest_of(&self, number: usize) -> u64 {
        let message = &self.messages[number];
        let is_answer = message.answers.is_some();
        let len = index(message.len);
        digest(&content(self.seed, self.sender, number as u64, is_answer, len))
    }

    /// Checks the delivery count of a message: 1, plus one for each former owner that received the
    /// message. A higher count is allowed, because an owner may be killed before it has noted the
    /// delivery.
    fn count_attempt(&mut self, number: usize, got: &Got) -> Judged<()> {
        let message = &mut self.messages[number];
        if message.last_owner != got.owner {
            message.last_owner = got.owner;
            message.owners += 1;
        }
        let (least, most) = (message.owners.min(ATTEMPTS_COUNTED), got.owner);
        if (least..=most).contains(&got.attempt) {
            return Ok(());
        }
        Err(format!("{number} says attempt {}, of {least} to {most}", got.attempt))
    }

    pub fn at(&self, epoch: u64, position: u64) -> usize {
        self.places[&(epoch, position)]
    }

    /// Records that message `number` and all messages before it are acknowledged.
    pub fn consume(&mut self, number: usize) -> Effect {
        self.doubt = None;
        let first = self.committed;
        let epoch = self.messages[number].place.map(|(epoch, _)| epoch);
        for message in &mut self.messages[first.min(number + 1)..=number] {
            // Only messages of the same epoch count as acknowledged. Messages of a past epoch that
            // were delivered and unacknowledged at its end stay so.
            let is_of_it = message.place.map(|(epoch, _)| epoch) == epoch;
            if message.snapshot == LinkSnapshot::Sent && is_of_it {
                message.is_consumed = true;
                self.consumed += 1;
            }
        }
        self.committed = self.committed.max(number + 1);
        Effect::Sent(first, number + 1)
    }

    /// Records that another epoch began before it could be known whether message `number` was
    /// acknowledged.
    fn lose_sight(&mut self, number: usize) {
        for message in &mut self.messages[self.committed.min(number + 1)..=number] {
            message.is_lost_sight_of = true;
        }
        self.committed = self.committed.max(number + 1);
    }

    /// Ends the record of one direction's messages after the last note of the round, and decides
    /// whether a message in doubt was acknowledged.
    pub fn close(&mut self, epoch: u64) -> Judged<Vec<Effect>> {
        let mut effects = Vec::new();
        if let Some(doubt) = self.doubt.take() {
            let is_present = self.messages[doubt].place.is_some_and(|(of, _)| of == epoch);
            if is_present {
                effects.push(self.consume(doubt));
            } else {
                self.lose_sight(doubt);
            }
        }
        Ok(effects)
    }

    /// Checks the rule that every message that was certainly sent in the last epoch is
    /// acknowledged.
    pub fn check_all(&self, epoch: u64) -> Judged<()> {
        let lost = self.messages.iter().position(|message| {
            message.snapshot == LinkSnapshot::Sent
                && message.epochs.0 == epoch
                && !message.is_consumed
                && !message.is_lost_sight_of
        });
        lost.map_or(Ok(()), |lost| Err(format!("{lost} never came: {:?}", self.messages[lost])))
    }

    /// Minimum number of bytes that message `number` takes in the sender's ring.
    pub fn footprint(&self, number: usize, ring_bytes: u64) -> u64 {
        let len = self.messages[number].len;
        if (PREFIXED_BYTES + len).next_multiple_of(64) > ring_bytes / 4 {
            return 64;
        }
        (COMPACT_BYTES + len).next_multiple_of(64)
    }
}

fn index(word: u64) -> usize {
    usize::try_from(word).unwrap()
}

/// Length in bytes of the header and the prefix of a link record, which precede the message's bytes
/// in the ring.
const PREFIXED_BYTES: u64 = 40;
/// Length in bytes of the header of a compact record, which has no prefix. The sender writes
/// compact records while the link uses shared memory.
const COMPACT_BYTES: u64 = 16;
/// Number up to which a link certainly counts the deliveries of a message. After more deliveries,
/// the test demands no higher count.
const ATTEMPTS_COUNTED: u64 = 16;
