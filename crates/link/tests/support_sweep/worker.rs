// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second processes of the kill sweep, which own the worker's link file one after another. An
//! environment variable selects the part of each:
//!
//! ```text
//!   part `past`   an earlier owner: plays the script, reports "ready", waits to be killed
//!   part `act`    the stepped worker: plays the script │ SIGSTOP │ makes the act │ SIGSTOP
//!   part `next`   the next owner: receives the remaining messages, sends the last message,
//!                 reports what it received, waits to be killed
//! ```

use super::act::{Act, Line, Liveness, View, length};
use super::conversation::{Conversation, Got, is_reported};
use super::stage::{End, Stage, WORKER, open};
use crate::support_ends::{message, soon};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::gettid;
use partywall::Wait;
use partywall_link::{Group, Message};
use partywall_testkit::{Second, variable};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Names of the files in which a worker reports: its thread id, that it is ready, and what it
/// received.
pub const THREAD: &str = "thread";
pub const READY: &str = "ready";
const GOT: &str = "got";

pub fn start(stage: &Stage, part: &str) -> Second {
    let ground = stage.ground.path().to_str().unwrap();
    let act = stage.act.to_string();
    Second::start("sweep_worker", &[(PART, part), (ACT, &act), (GROUND, ground)])
}

/// The main function of a worker process: plays the part (`past`, `act` or `next`) that the
/// environment names. Returns immediately if the environment names no part.
pub fn main() {
    let Some(part) = variable(PART) else { return };
    let act = Act::from_name(&variable(ACT).expect(ACT));
    let ground = PathBuf::from(variable(GROUND).expect(GROUND));
    // The worker's part runs in a second thread, because the tracing test must learn of that
    // thread's death. The system reports the death of a process's first thread only after the death
    // of all other threads.
    let played = thread::spawn(move || match part.as_str() {
        "past" => {
            let worker = Worker::open(act, &ground);
            let _held = worker.play();
            say(&ground, READY, "");
            worker.wait_for_death()
        }
        "act" => perform(act, &ground),
        _ => succeed(act, &ground),
    });
    played.join().unwrap();
}

fn perform(act: Act, ground: &Path) {
    let sends: Vec<Vec<u8>> =
        act.sends().iter().map(|number| message(*number, length(*number))).collect();
    say(ground, THREAD, &gettid().to_string());
    if act.opens() {
        ptrace::traceme().unwrap();
        raise(Signal::SIGSTOP).unwrap();
        let worker = Worker::open(act, ground);
        worker.end.link.send(&sends[0]).unwrap();
        worker.end.link.wait_attached(soon()).unwrap();
        raise(Signal::SIGSTOP).unwrap();
        return;
    }
    let worker = Worker::open(act, ground);
    let mut held = worker.play();
    let link = &worker.end.link;
    ptrace::traceme().unwrap();
    raise(Signal::SIGSTOP).unwrap();
    match act {
        Act::Commit => held.pop().unwrap().ack().unwrap(),
        Act::Receive => link.recv_deadline(soon()).unwrap().unwrap().ack().unwrap(),
        Act::Read => {
            link.recv_with_deadline(|message| drop(message.to_vec()), soon()).unwrap().unwrap()
        }
        Act::Reply => held.pop().unwrap().reply(&sends[0]).unwrap(),
        Act::Begin => link.begin_epoch(1).unwrap(),
        Act::Batch => {
            let mut batch = link.batch();
            for message in &sends {
                batch.send(message);
            }
            batch.try_commit().unwrap();
        }
        Act::Acknowledged => {
            assert!(link.try_recv().is_err());
            link.try_send(&sends[0]).unwrap();
        }
        _ => link.try_send(&sends[0]).unwrap(),
    }
    raise(Signal::SIGSTOP).unwrap();
}

fn succeed(act: Act, ground: &Path) {
    let worker = Worker::open(act, ground);
    let link = &worker.end.link;
    let mut conversation = Conversation::new(link, true);
    let deadline = soon();
    while !conversation.is_over() {
        if let Err(why) = conversation.turn() {
            return say(ground, GOT, &why);
        }
        assert!(Instant::now() < deadline, "no end: {}", link.status());
        worker.group.poll(Some(Instant::now() + POLL_TIME)).unwrap();
        let _ = worker.group.ready();
    }
    let epoch = link.epoch().unwrap();
    match is_reported(link, epoch) {
        Err(why) => say(ground, GOT, &why),
        Ok(is_reported) => {
            let mut text = format!("{epoch} {}", u64::from(is_reported));
            for got in conversation.got() {
                text += &format!(" {} {} {}", got.number, got.position, got.attempt);
            }
            say(ground, GOT, &text);
        }
    }
    worker.wait_for_death();
}

/// Reads the report of the process that opened the link file of a killed worker: what it found in
/// the file, and each message that it received. `None` until the report exists.
pub fn said(ground: &Path) -> Option<Result<(View, Vec<Got>), String>> {
    let text = fs::read_to_string(ground.join(GOT)).ok()?;
    let words: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
    let Ok(words) = words else { return Some(Err(text)) };
    let [epoch, is_reported, rest @ ..] = &words[..] else { return Some(Err(text)) };
    let got: Vec<Got> = rest
        .chunks_exact(3)
        .map(|of| Got { number: of[0], position: of[1], attempt: of[2] as u32 })
        .collect();
    let to_worker = got.iter().map(|got| got.number).collect();
    let view =
        View { epoch: *epoch, is_reported: *is_reported == 1, to_worker, to_peer: Vec::new() };
    Some(Ok((view, got)))
}

/// The worker process of the kill sweep: the tested operation that it makes, its end of the link,
/// and the group that the link belongs to.
struct Worker {
    act: Act,
    group: Group,
    end: End,
}

impl Worker {
    fn open(act: Act, ground: &Path) -> Self {
        let group = Group::with_wait(Wait::Park).unwrap();
        let end = open(ground, act, WORKER, &group).unwrap();
        Self { act, group, end }
    }

    /// Sends, receives and acknowledges the worker's messages that precede the tested operation.
    /// Returns the messages that were delivered to the worker and not acknowledged.
    fn play(&self) -> Vec<Message> {
        let link = &self.end.link;
        let mut held = Vec::new();
        for line in self.act.script() {
            match line {
                Line::Worker(number, liveness) => {
                    link.send_deadline(&message(number, length(number)), soon()).unwrap();
                    if liveness == Liveness::Consumed {
                        link.wait_acked(soon()).unwrap();
                    }
                }
                Line::Peer(_, Liveness::Kept) => {}
                Line::Peer(number, liveness) => {
                    let came = link.recv_deadline(soon()).unwrap().unwrap();
                    assert!(came == message(number, length(number)));
                    if liveness == Liveness::Handed {
                        held.push(came);
                    } else {
                        came.ack().unwrap();
                        // The worker sends the acknowledgement to the peer only when its group is
                        // polled.
                        self.group.poll(Some(Instant::now() + POLL_TIME)).unwrap();
                    }
                }
            }
        }
        held
    }

    fn wait_for_death(&self) {
        let parent = std::os::unix::process::parent_id();
        while std::os::unix::process::parent_id() == parent {
            self.group.poll(Some(Instant::now() + PARENT_LOOK)).unwrap();
            let _ = self.group.ready();
        }
    }
}

/// Writes `text` to a file under a temporary name, and then renames the file. So the file is
/// complete or absent.
fn say(ground: &Path, name: &str, text: &str) {
    let path = ground.join(format!("{name}.new"));
    fs::write(&path, text).unwrap();
    fs::rename(path, ground.join(name)).unwrap();
}

const PART: &str = "PARTYWALL_SWEEP_PART";
const ACT: &str = "PARTYWALL_SWEEP_ACT";
const GROUND: &str = "PARTYWALL_SWEEP_GROUND";
const POLL_TIME: Duration = Duration::from_millis(1);
const PARENT_LOOK: Duration = Duration::from_millis(500);
