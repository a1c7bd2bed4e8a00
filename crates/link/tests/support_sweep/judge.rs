// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether the state that new owners find after the worker process was killed is allowed.
//!
//! The worker makes the act, the tested operation, instruction by instruction. At each boundary
//! between two instructions, two new owners open the image (a copy of both link files), as if both
//! ends were killed there. In the order of the boundaries, the judge checks that
//!
//! - the files are whole, their positions never fall, and the first kept, the acknowledged and the
//!   last position (base, acked, tail) are in order;
//! - the new owners find the messages and reports (the view) from before the act, and from some
//!   boundary on those from after the act;
//! - a message always has the same position and bytes, and as many attempts as owners received it.

use super::act::{Act, View};
use super::conversation::{Conversation, Got, is_reported};
use super::images::Image;
use super::stage::{Ground, PEER, WORKER, file, open, place};
use partywall::Wait;
use partywall_link::{Group, inspect};
use partywall_testkit::TIMEOUT;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The facts from all images of the link files that were checked so far. Each later image is
/// compared with these facts.
pub struct Judge {
    act: Act,
    peer_lives: bool,
    /// Whether the tested operation had taken effect in an earlier image of the link files. If so,
    /// it must have taken effect in all later images.
    is_done: bool,
    /// The position of each message of either direction, by the message's number.
    positions: BTreeMap<u64, u64>,
    attempts: BTreeMap<u64, u32>,
    /// For the worker's link file and the peer's, the values in the last judged image: store id,
    /// epoch, and the values that never fall within an epoch.
    marks: [Option<Marks>; 2],
    pub before: u64,
    pub after: u64,
}

#[derive(Clone, Copy, Debug)]
struct Marks {
    store_id: [u8; 16],
    epoch: u64,
    rising: [u64; 4],
}

/// The findings of new owners that open one image of the link files: the messages and reports of
/// both, and every received message.
pub struct Findings {
    pub view: View,
    pub got: Vec<Got>,
}

impl Judge {
    pub fn new(act: Act, peer_lives: bool) -> Self {
        Self {
            act,
            peer_lives,
            is_done: false,
            positions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            marks: [None; 2],
            before: 0,
            after: 0,
        }
    }

    /// Checks one image of both link files, taken between two instructions of the worker. The
    /// caller must pass the images in the order of the instructions.
    pub fn image(&mut self, image: &Image, is_last: bool) -> Result<(), String> {
        let ground = Ground::new();
        for which in [WORKER, PEER] {
            if !image[which].is_empty() {
                let path = file(ground.path(), self.act, which);
                fs::write(&path, &image[which]).map_err(|error| error.to_string())?;
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(path, mode).map_err(|error| error.to_string())?;
            }
            self.check(ground.path(), which)?;
        }
        let findings = settle(ground.path(), self.act)?;
        let is_after = self.may_be(&findings)?;
        if self.is_done && !is_after {
            return Err(format!("the act was done, and is not: {:?}", findings.view));
        }
        if is_last && !is_after {
            return Err(format!("the act is over, and was not done: {:?}", findings.view));
        }
        for got in &findings.got {
            let attempt = self.attempts.entry(got.number).or_insert(0);
            if got.attempt < *attempt && !self.act.opens() {
                return Err(format!("{got:?} after attempt {attempt}"));
            }
            *attempt = got.attempt;
        }
        self.is_done = is_after;
        Ok(())
    }

    /// Checks that the messages and reports which new owners found are allowed after a death of the
    /// worker in the tested operation. Returns whether the operation has taken effect.
    pub fn may_be(&mut self, findings: &Findings) -> Result<bool, String> {
        for got in &findings.got {
            let (least, most) = self.act.attempts(got.number);
            if !(least..=most).contains(&got.attempt) {
                return Err(format!("{got:?}: not {least} to {most} attempts"));
            }
            let position = *self.positions.entry(got.number).or_insert(got.position);
            if position != got.position {
                return Err(format!("{got:?} was at {position}"));
            }
        }
        let (before, after) = (self.act.before(), self.act.after());
        let also = if self.peer_lives { self.act.after_consumed() } else { None };
        if findings.view == after || also.is_some_and(|also| findings.view == also) {
            self.after += 1;
            return Ok(true);
        }
        if findings.view == before {
            self.before += 1;
            return Ok(false);
        }
        Err(format!("{:?} is neither {before:?} nor {after:?}", findings.view))
    }

    /// Checks one link file of an image: it is undamaged, its positions are in order, and its
    /// values have not fallen since the image that was judged before.
    fn check(&mut self, ground: &Path, which: usize) -> Result<(), String> {
        let found = inspect(&place(ground, which)).map_err(|error| error.to_string())?;
        for found in found {
            let inspection = found.inspection.map_err(|error| format!("damaged: {error}"))?;
            if inspection.base > inspection.acked || inspection.quarantine.is_some() {
                return Err(format!("{inspection:?}"));
            }
            let rising =
                [inspection.incarnation, inspection.base, inspection.acked, inspection.consumed];
            let marks = Marks { store_id: inspection.store_id, epoch: inspection.epoch, rising };
            if let Some(last) = self.marks[which] {
                let is_same = last.epoch == marks.epoch;
                let has_fallen = last.rising.iter().zip(rising).any(|(last, now)| now < *last);
                if last.store_id != marks.store_id
                    || marks.epoch < last.epoch
                    || (is_same && has_fallen)
                {
                    return Err(format!("{marks:?} after {last:?}"));
                }
            }
            self.marks[which] = Some(marks);
        }
        Ok(())
    }
}

/// Opens copies of both link files as new owners, which exchange messages until each has received
/// all messages of the other. Returns the messages and reports that they found.
fn settle(ground: &Path, act: Act) -> Result<Findings, String> {
    let text = |error: std::io::Error| error.to_string();
    let group = Group::with_wait(Wait::Park).map_err(text)?;
    // The server of the link is opened first, so that the client attaches at its first attempt.
    let order = if act.is_served() { [WORKER, PEER] } else { [PEER, WORKER] };
    let mut ends = order.map(|which| Some(open(ground, act, which, &group)));
    let mut end = |which: usize| ends[usize::from(order[0] != which)].take().expect("each once");
    let (worker, peer) = (end(WORKER)?, end(PEER)?);
    let mut there = Conversation::new(&worker.link, true);
    let mut here = Conversation::new(&peer.link, false);
    let deadline = Instant::now() + TIMEOUT;
    while !(there.is_over() && here.is_over()) {
        there.turn()?;
        here.turn()?;
        if Instant::now() > deadline {
            let (worker, peer) = (worker.link.status(), peer.link.status());
            return Err(format!("no end: the worker is {worker}, the peer {peer}"));
        }
        group.poll(Some(Instant::now() + POLL_TIME)).map_err(text)?;
        let _ = group.ready();
    }
    let epoch = worker.link.epoch().map_err(|error| error.to_string())?;
    let is_reported = is_reported(&worker.link, epoch)?;
    self::is_reported(&peer.link, epoch)?;
    let (there, here) = (there.got(), here.got());
    let to_worker = there.iter().map(|got| got.number).collect();
    let to_peer = here.iter().map(|got| got.number).collect();
    let view = View { epoch, to_peer, to_worker, is_reported };
    Ok(Findings { view, got: [there, here].concat() })
}

const POLL_TIME: Duration = Duration::from_millis(1);
