// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariants that the model checks: those of every state, and those at the end of a run
//! without further faults.
//!
//! ```text
//!   broken   checks a state
//!   unquiet  runs on from a state without faults until no event is left, and checks the end
//! ```

use partywall_reconcile::{Cause, Direction, Position, Report};

use crate::bounds::Bounds;
use crate::world::{CLIENT, SERVER, Side, World};

/// The invariants of links that the model checks, with their numbers in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// I1: messages are consumed in the order in which they were sent.
    Order,
    /// I2: no position belongs to two different records.
    OneRecord,
    /// I3: no message is lost without a report.
    NoSilentLoss,
    /// I4: no message is consumed twice.
    NoDuplicate,
    /// I5: every record that its sender has trimmed was consumed.
    TrimmedConsumed,
    /// I6: base ≤ acked ≤ consumed ≤ received ≤ tail, and an honest peer never causes a violation.
    Chain,
    /// I10: the acknowledgement of a request and its reply happen both or not at all.
    Whole,
    /// I11: a direction has one writer, which is the newest owner.
    OneWriter,
    /// I13: every acknowledgement of the receiver finally reaches the sender.
    Acknowledged,
    /// I15: each side reports a skip exactly once.
    ReportedOnce,
    /// I16: without faults, both sides attach and all messages arrive.
    NoDeadEnd,
}

/// The first invariant that this state of the model breaks, if there is one.
pub fn judge(world: &World, bounds: &Bounds) -> Option<Invariant> {
    broken(world).or_else(|| unquiet(world, bounds))
}

fn broken(world: &World) -> Option<Invariant> {
    if world.violated {
        return Some(Invariant::Chain);
    }
    if world.usurped {
        return Some(Invariant::OneWriter);
    }
    [CLIENT, SERVER]
        .into_iter()
        .find_map(|side| direction_broken(world, side).or_else(|| consumer_broken(world, side)))
}

/// Returns the invariant that the stream from `side` to its peer breaks in this state, if there is
/// one.
fn direction_broken(world: &World, side: usize) -> Option<Invariant> {
    let (sender, receiver) = (&world.sides[side], &world.sides[1 - side]);
    let out = &sender.file.out;
    let sound = !sender.damaged && !receiver.damaged;
    if world.attached().is_some() || sound {
        for eaten in &receiver.file.log {
            let named = sender
                .file
                .ledger
                .iter()
                .find(|sent| sent.stream == eaten.stream && sent.position == eaten.position);
            if named.is_some_and(|sent| sent.number != eaten.number) {
                return Some(Invariant::OneRecord);
            }
        }
    }
    let acked_offset =
        receiver.acked_offset().filter(|acked_offset| acked_offset.stream == out.stream());
    if !receiver.damaged && receiver.file.epoch == sender.file.epoch {
        let consumed = acked_offset.map_or(Position::START, |acked_offset| acked_offset.position);
        if out.base() > consumed {
            return Some(Invariant::TrimmedConsumed);
        }
        if out.acked() > consumed {
            return Some(Invariant::Chain);
        }
    }
    let life = receiver.life.as_ref().filter(|_| acked_offset.is_some() && !sender.damaged)?;
    let received = life.incoming.received();
    (received > out.tail() || life.consumed() > received).then_some(Invariant::Chain)
}

/// Returns the invariant that the messages consumed or reported by `side` break, if there is one.
fn consumer_broken(world: &World, side: usize) -> Option<Invariant> {
    let file = &world.sides[side].file;
    for (index, entry) in file.log.iter().enumerate() {
        let before = &file.log[..index];
        if before.iter().any(|earlier| earlier.number == entry.number) {
            return Some(Invariant::NoDuplicate);
        }
        if before
            .iter()
            .any(|earlier| earlier.stream == entry.stream && earlier.position >= entry.position)
        {
            return Some(Invariant::Order);
        }
    }
    for (index, sent) in file.ledger.iter().enumerate() {
        let Some(answered) = sent.answers else { continue };
        let twice = file.ledger[..index].iter().any(|other| other.answers == Some(answered));
        if twice || !file.log.iter().any(|entry| entry.number == answered) {
            return Some(Invariant::Whole);
        }
    }
    for (index, report) in file.reports.iter().enumerate() {
        if file.reports[..index].iter().any(|earlier| same_event(earlier, report)) {
            return Some(Invariant::ReportedOnce);
        }
    }
    let acked_offset = world.sides[side].acked_offset()?;
    for position in 0..acked_offset.position.0 {
        let position = Position(position);
        let eaten = file
            .log
            .iter()
            .any(|entry| entry.stream == acked_offset.stream && entry.position == position);
        let unstored = world.sides[side].life.iter().flat_map(|life| &life.unstored);
        let reported = file.reports.iter().chain(unstored).any(|report| {
            report.direction == Direction::Incoming && covers(report, acked_offset.stream, position)
        });
        if !eaten && !reported {
            return Some(Invariant::NoSilentLoss);
        }
    }
    let beyond = file.log.iter().any(|entry| {
        entry.stream == acked_offset.stream && entry.position >= acked_offset.position
    });
    beyond.then_some(Invariant::Whole)
}

fn same_event(one: &Report, other: &Report) -> bool {
    one.direction == other.direction
        && one.cause == other.cause
        && one.epoch == other.epoch
        && one.stream == other.stream
        && one.span.from == other.span.from
}

fn covers(report: &Report, stream: partywall_reconcile::StreamId, position: Position) -> bool {
    report.stream == Some(stream)
        && !matches!(report.cause, Cause::Quarantined(_))
        && report.span.from <= position
        && report.span.to.is_none_or(|to| position < to)
}

/// Lets a copy of this state of the model run without further faults until no event is left.
/// Returns the invariant that the last state breaks, if there is one.
fn unquiet(world: &World, bounds: &Bounds) -> Option<Invariant> {
    let mut world = world.clone();
    if !settle(&mut world, bounds) {
        return Some(Invariant::NoDeadEnd);
    }
    if let Some(invariant) = broken(&world) {
        return Some(invariant);
    }
    let went_back = bounds.rollbacks != [0, 0] && world.sides.iter().any(|side| side.damaged);
    if world.sides.iter().any(|side| side.file.quarantined) {
        return (!went_back).then_some(Invariant::NoDeadEnd);
    }
    if world.attached().is_none() || world.sides[0].file.epoch != world.sides[1].file.epoch {
        return Some(Invariant::NoDeadEnd);
    }
    [CLIENT, SERVER].into_iter().find_map(|side| end_broken(&world, side))
}

/// Checks the messages that `side` sent, at the end of a run without further faults.
fn end_broken(world: &World, side: usize) -> Option<Invariant> {
    let (sender, receiver) = (&world.sides[side], &world.sides[1 - side]);
    let out = &sender.file.out;
    if out.acked() != out.tail() {
        return Some(Invariant::Acknowledged);
    }
    for sent in &sender.file.ledger {
        let eaten = receiver.file.log.iter().any(|entry| entry.number == sent.number);
        let outgoing = |report: &&Report| {
            report.direction == Direction::Outgoing && covers(report, sent.stream, sent.position)
        };
        let reported = sender.file.reports.iter().find(outgoing);
        // A receiver that consumed messages and then lost its store can no longer know or report
        // these messages.
        let forgotten = receiver.damaged && sent.stream != out.stream();
        if !eaten && reported.is_none() && !forgotten {
            return Some(Invariant::NoSilentLoss);
        }
        if eaten && reported.is_some_and(|report| report.span.exact) && !receiver.damaged {
            return Some(Invariant::ReportedOnce);
        }
    }
    let mirrored = |one: &Report, others: &[Report]| {
        others.iter().any(|other| {
            other.direction != one.direction
                && other.cause == one.cause
                && other.stream == one.stream
                && (other.span == one.span || (receiver.damaged && one.cause == Cause::Lost))
        })
    };
    for report in &receiver.file.reports {
        // If the sender's store was lost, neither side can report a gap in the lost stream.
        let skipped = match report.cause {
            Cause::Gap => report.stream == Some(out.stream()),
            cause => cause == Cause::Lost,
        };
        let sound = !sender.damaged && !receiver.damaged;
        let both = skipped || (report.span.exact && sound && remembers(sender, report));
        let incoming = report.direction == Direction::Incoming;
        if incoming && both && !mirrored(report, &sender.file.reports) {
            return Some(Invariant::ReportedOnce);
        }
    }
    for report in &sender.file.reports {
        let sound = !receiver.damaged && !sender.damaged;
        let skipped = matches!(report.cause, Cause::Gap | Cause::Lost);
        let both = sound && (skipped || (report.span.exact && remembers(receiver, report)));
        let outgoing = report.direction == Direction::Outgoing;
        if outgoing && both && !mirrored(report, &receiver.file.reports) {
            return Some(Invariant::ReportedOnce);
        }
    }
    None
}

/// Whether `side` still has the past of the reported epoch, so that both sides could compare their
/// pasts. A side that has begun two epochs since the last attach has reported the older one without
/// comparison.
fn remembers(side: &Side, report: &Report) -> bool {
    side.file.past.is_some_and(|past| past.epoch == report.epoch)
}

/// Takes the steps of the model that need no fault, in a fixed order, until none is left. Returns
/// `false` if the steps never end.
pub fn settle(world: &mut World, bounds: &Bounds) -> bool {
    world.left.replays = 0;
    for link in 0..world.links.len() {
        if world.links[link].replayed {
            world.close(link, SERVER);
        }
    }
    for _ in 0..ROUNDS_MAX {
        if !round(world, bounds) {
            return true;
        }
    }
    false
}

/// Takes each step of the model that is possible now without a fault, once. Returns whether any
/// step was possible.
fn round(world: &mut World, bounds: &Bounds) -> bool {
    use crate::steps::Step;
    let mut busy = false;
    for side in [CLIENT, SERVER] {
        // A process is fenced if its peer has met a newer owner of the same link file. The model
        // restarts a fenced side.
        if world.sides[side].fenced {
            world.crash(side);
        }
        if world.sides[side].life.is_none() {
            world.restart(side, bounds);
            busy = true;
        }
    }
    for link in 0..world.links.len() {
        for side in [CLIENT, SERVER] {
            while world.links[link].open[side] && !world.links[link].queue[side].is_empty() {
                world.take(Step::Deliver(link, side), bounds);
                busy = true;
            }
            let (open, cut) = (world.links[link].open, world.links[link].cut);
            if open[side] && (cut || !open[1 - side]) {
                world.take(Step::SeeEnd(link, side), bounds);
                busy = true;
            }
        }
    }
    for side in [CLIENT, SERVER] {
        let mut steps = Vec::new();
        world.steps(bounds, &mut steps);
        let works = |step: &Step| {
            [
                Step::Reply(side),
                Step::Consume(side),
                Step::Trim(side),
                Step::LookAtAck(side),
                Step::StoreReports(side),
            ]
            .contains(step)
        };
        if let Some(step) = steps.into_iter().find(works) {
            world.take(step, bounds);
            busy = true;
        }
    }
    let idle = world.sides[CLIENT].life.as_ref().is_some_and(|life| life.active.is_none());
    if idle && world.may_connect() && !world.sides[SERVER].file.quarantined {
        world.connect(bounds);
        busy = true;
    }
    busy
}

/// Maximum number of times that a run without further faults takes every possible step once; after
/// that, the steps count as endless. No state that an exploration reaches needs more.
const ROUNDS_MAX: usize = 80;
