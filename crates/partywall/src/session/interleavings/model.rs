// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model test of sessions under shuttle: every direction of a stream behaves as a queue. Both sides
//! open random streams, send by every method, give up, finish, reset, stop and drop. Each message
//! must arrive once, whole, in order and on its own stream, and each end must be reported as it
//! happened.
//!
//! `tests/sessions/model.rs` is the same model with operating-system threads.
//!
//! ```text
//!   random plan ─▶ both sides: one opens, one accepts; each end of a stream is two threads
//!   the sessions end:  one side closes after all streams · both sides drop every handle ·
//!                      one side closes, or both are severed, during use (messages may be lost)
//! ```
//!
//! | random value | range |
//! |---|---|
//! | streams | 0 to 3 in all, 1 or 2 at a time from each side |
//! | messages | 0 to 4 in each direction, of 0 to 1,024 bytes |
//! | windows | 0, 64, 128, 512 bytes and 1 MiB |
//! | connection | 512 or 1,024 bytes of ring, 256 or 1,024 of slab in each direction |

use super::plan::{Direction, Finish, RecvEnd, SendEnd, World};
use super::sides::{Sides, Wires, give_up_after, poll_once, wait};
use super::{Chance, explore, pattern};
use crate::error::Closed;
use crate::session::{
    DROPPED, Handle, OpenError, Opening, REFUSED, RecvHalf, SendHalf, SessionError,
    StreamRecvError, StreamSendError,
};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;

/// The thread that sends the messages of one direction of a stream.
struct Sender {
    world: Arc<World>,
    model: Arc<Direction>,
    half: SendHalf,
    chance: Chance,
}

impl Sender {
    /// Sends the messages that the random plan of this execution lists for this direction, then
    /// ends the direction as the plan says.
    fn run(mut self) {
        let (mut went, mut tries) = (0, 0);
        // If a sender that never waits finds no room in `TRIES_MAX` attempts, the remaining
        // messages are not sent.
        while went < self.model.messages && tries < TRIES_MAX {
            tries += 1;
            match self.send_one() {
                Ok(true) => went += 1,
                Ok(false) => thread::yield_now(),
                Err(error) => {
                    self.model.end(SendEnd::Drop, went);
                    return self.check(&error);
                }
            }
        }
        self.model.end(self.model.send_end, went);
        match self.model.send_end {
            SendEnd::Close => {
                self.half.finish();
                let late = wait(|context| self.half.poll_send(context, b"late"));
                assert!(late.is_err(), "sent after the end");
                self.half.give_back();
            }
            SendEnd::Reset(code) => self.half.reset(code),
            SendEnd::Drop => {}
        }
    }

    /// Sends one message by a randomly chosen method. Returns whether it was sent.
    fn send_one(&mut self) -> Result<bool, StreamSendError> {
        let size_max = if self.chance.below(3) == 0 { self.world.size_max } else { 48 };
        let len = self.chance.below(size_max + 1) as usize;
        let seed = self.chance.next();
        self.model.begin((len, seed));
        let sent = self.send_somehow(&pattern(len, seed));
        self.half.give_back();
        if !matches!(sent, Ok(true)) {
            self.model.take_back();
        }
        match sent {
            Err(StreamSendError::Full) => Ok(false),
            // A message that must be sent whole may be longer than any record, although it could be
            // sent in fragments.
            Err(StreamSendError::TooLarge(_)) if len > 64 => Ok(false),
            other => other,
        }
    }

    fn send_somehow(&mut self, payload: &[u8]) -> Result<bool, StreamSendError> {
        let Self { half, chance, .. } = self;
        let polls = chance.below(3) + 1;
        let sent = match chance.below(8) {
            0 => poll_once(|context| half.poll_send_whole(context, payload)),
            1 => give_up_after(polls, |context| half.poll_send(context, payload)),
            2 => give_up_after(1, |context| half.poll_send(context, payload)),
            3 => {
                wait(|context| half.poll_reserve(context, payload.len()))?;
                None
            }
            4 | 5 => {
                // The sender reserves more bytes than the message has, if the limits permit, and
                // truncates the reservation, so that truncation is tested too.
                let more = (payload.len() + chance.below(9) as usize).min(200).max(payload.len());
                wait(|context| half.poll_reserve(context, more))?;
                half.truncate(payload.len());
                half.memory_mut().copy_from_slice(payload);
                match chance.below(2) {
                    0 => Some(wait(|context| half.poll_commit(context))),
                    _ => give_up_after(polls, |context| half.poll_commit(context)),
                }
            }
            _ => Some(wait(|context| half.poll_send(context, payload))),
        };
        sent.transpose().map(|sent| sent.is_some())
    }

    /// Checks that the error is one with which this direction may end, according to the random plan
    /// of this execution.
    fn check(&self, error: &StreamSendError) {
        let is_cut = self.world.is_cut();
        match error {
            StreamSendError::Stopped { code } => match self.model.recv_end {
                // If the random plan of this execution ends the session during use, the receiver
                // may drop the stream because its session has ended.
                _ if is_cut && *code == DROPPED => {}
                // If the random plan of this execution ends the session during use, the peer may
                // have dropped its session handles. The stream is then refused instead of accepted.
                _ if is_cut && *code == REFUSED => {}
                RecvEnd::Stop(_, stop) => assert_eq!(*code, stop),
                RecvEnd::Drop(_) => assert_eq!(*code, DROPPED),
                RecvEnd::ToTheEnd => panic!("stopped ({code}) by one who reads to the end"),
            },
            // If the receiver stops and the session ends before the sender next checks the stream,
            // the sender gets the error of the session.
            StreamSendError::Session(error) => {
                assert!(is_cut || self.model.recv_end != RecvEnd::ToTheEnd, "{error}");
            }
            error => panic!("{error}"),
        }
    }
}

/// The thread that receives the messages of one direction of a stream.
struct Receiver {
    world: Arc<World>,
    model: Arc<Direction>,
    half: RecvHalf,
    chance: Chance,
}

impl Receiver {
    /// Receives messages until the direction ends, or until the random plan of this execution tells
    /// the receiver to stop or drop.
    fn run(mut self) {
        let mut held = Vec::new();
        for count in 0.. {
            match self.model.recv_end {
                RecvEnd::Stop(after, code) if after == count => {
                    self.half.stop(code);
                    let late = wait(|context| self.half.poll_recv(context));
                    assert!(!matches!(late, Ok(Some(_))), "received after stopping");
                    return;
                }
                RecvEnd::Drop(after) if after == count => return,
                _ => {}
            }
            if self.world.lets_go() {
                held.clear();
            }
            let polls = self.chance.below(3);
            let received = give_up_after(polls, |context| self.half.poll_recv(context))
                .unwrap_or_else(|| wait(|context| self.half.poll_recv(context)));
            match received {
                Ok(Some(message)) => {
                    let sent = self.model.record.lock().unwrap().sent.get(count as usize).copied();
                    let (len, seed) = sent.expect("nobody sent it");
                    assert!(message == pattern(len, seed), "message {count} is another");
                    // The receiver holds each message until the next one arrives, so that its
                    // memory stays in use meanwhile.
                    held = vec![message];
                }
                Ok(None) => return self.check_finished(count),
                Err(end) => return self.check(count, &end),
            }
        }
    }

    /// Checks that the sender ended in good order after exactly `count` messages.
    fn check_finished(&self, count: u64) {
        let ended = self.model.record.lock().unwrap().ended;
        let Some((SendEnd::Close | SendEnd::Drop, after)) = ended else {
            panic!("finished instead of {ended:?} after {count}")
        };
        assert_eq!(count, after);
    }

    /// Checks that the error is one with which this direction may end, according to the log of the
    /// sender's actions.
    fn check(&self, count: u64, end: &StreamRecvError) {
        let is_cut = self.world.is_cut();
        let ended = self.model.record.lock().unwrap().ended;
        match (end, ended) {
            (StreamRecvError::Session(error), _) => assert!(is_cut, "{error}"),
            (StreamRecvError::Reset { code: REFUSED }, _) if is_cut => {}
            (StreamRecvError::Reset { code }, Some((SendEnd::Reset(sent), after))) => {
                assert_eq!((*code, count), (sent, after));
            }
            (end, ended) => panic!("{end} instead of {ended:?} after {count}"),
        }
    }
}

/// Starts a thread for each direction of a stream; `side` is 0 for the stream's opener.
fn use_stream(
    world: &Arc<World>,
    halves: (SendHalf, RecvHalf),
    id: [u8; 2],
    side: usize,
) -> [JoinHandle<()>; 2] {
    let [out, back] = world.streams[usize::from(id[0])][usize::from(id[1])].clone();
    let (sending, receiving) = if side == 0 { (out, back) } else { (back, out) };
    let chance = |half: u64| {
        Chance(world.seed ^ (u64::from(id[0]) << 8 | u64::from(id[1]) << 16 | side as u64 | half))
    };
    let (half, theirs) = halves;
    let sender = Sender { world: Arc::clone(world), model: sending, half, chance: chance(1 << 32) };
    let receiver = Receiver {
        world: Arc::clone(world),
        model: receiving,
        half: theirs,
        chance: chance(1 << 33),
    };
    [thread::spawn(move || sender.run()), thread::spawn(move || receiver.run())]
}

/// Opens the planned streams one after the other, without waiting for earlier ones to end.
fn open_many(world: &Arc<World>, session: Handle, side: usize) {
    let mut chance = Chance(world.seed ^ (side as u64 + 10));
    let mut threads = Vec::new();
    for index in 0..world.streams[side].len() {
        let id = [side as u8, index as u8];
        let opened = loop {
            let mut opening = Opening::default();
            let polls = chance.below(3);
            let opened =
                give_up_after(polls, |context| session.poll_open(context, &id, &mut opening));
            if let Some(opened) = opened {
                break opened;
            }
            if chance.below(2) == 0 {
                break wait(|context| session.poll_open(context, &id, &mut opening));
            }
        };
        match opened {
            Ok(halves) => threads.extend(use_stream(world, halves, id, 0)),
            Err(OpenError::Session(error)) => {
                assert!(world.is_cut(), "{error}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop(session);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Accepts streams until the session is over, or until all planned streams were accepted.
fn accept_all(world: &Arc<World>, session: Handle, side: usize) -> Option<SessionError> {
    let mut chance = Chance(world.seed ^ (side as u64 + 20));
    let mut threads = Vec::new();
    let mut left = match world.finish {
        Finish::Abandoned => world.streams[1 - side].len(),
        _ => usize::MAX,
    };
    let end = loop {
        if left == 0 {
            break None;
        }
        let polls = chance.below(3);
        let accepted = give_up_after(polls, |context| session.poll_accept(context))
            .unwrap_or_else(|| wait(|context| session.poll_accept(context)));
        match accepted {
            Err(end) => break Some(end),
            // `accept` returns `None` whichever side closed; the reason in the session says which.
            Ok(None) => break session.shared.check().err(),
            Ok(Some(halves)) => {
                left -= 1;
                let id = <[u8; 2]>::try_from(&*halves.1.stream.metadata).unwrap();
                threads.extend(use_stream(world, halves, id, 1));
            }
        }
    };
    drop(session);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    end
}

/// A guard of one execution of the model test. If the execution fails, the guard prints its random
/// plan.
struct OnFailure<'a>(&'a World);

impl Drop for OnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it failed in {:#?}", self.0);
        }
    }
}

fn one_run() {
    let world = World::new(Chance::of_execution().next());
    let _on_failure = OnFailure(&world);
    let Sides { handles, wires } = Sides::connect(world.setup);
    let each = |act: fn(&Arc<World>, Handle, usize) -> Option<SessionError>| {
        [0, 1].map(|side: usize| {
            let (world, handle) = (Arc::clone(&world), handles[side].clone());
            thread::spawn(move || act(&world, handle, side))
        })
    };
    let accepting = each(accept_all);
    let opening = each(|world, handle, side| {
        open_many(world, handle, side);
        None
    });
    if world.is_cut() {
        cut(&world, &handles[0], &wires);
    }
    for thread in opening {
        thread.join().unwrap();
    }
    finish(&world, handles);
    let ends = accepting.map(|thread| thread.join().unwrap());
    if world.finish == Finish::Closed {
        assert_eq!(wires.blocks_in_use(), 0, "memory was not given back");
    }
    match world.finish {
        Finish::Abandoned => assert!(matches!(ends, [None, None])),
        Finish::Closed | Finish::CutByClose => {
            assert!(matches!(ends[0], Some(SessionError::ClosedHere { .. })), "{ends:?}");
            assert!(matches!(ends[1], Some(SessionError::Closed(Closed::Finished))), "{ends:?}");
        }
        Finish::CutBySevering => {
            assert!(
                ends.iter().all(|end| matches!(end, Some(SessionError::Closed(_)))),
                "{ends:?}"
            );
        }
    }
    wires.join();
}

/// Ends the sessions during use, as the random plan of this execution says (a close or a hang-up),
/// after a random number of thread switches.
fn cut(world: &World, handle: &Handle, wires: &Wires) {
    for _ in 0..Chance(world.seed ^ 5).below(300) {
        thread::yield_now();
    }
    match world.finish {
        Finish::CutBySevering => wires.sever(),
        _ => handle.close(0, ""),
    }
}

/// If the random plan of this execution says that one side closes after all streams have ended:
/// checks that every ended stream has freed its resources, then closes the session.
fn finish(world: &World, handles: [Handle; 2]) {
    if world.finish == Finish::Closed {
        let token = handles[0].ask().unwrap();
        wait(|context| handles[0].poll_answer(context, token)).unwrap();
        for handle in &handles {
            wait(|context| handle.poll_drained(context)).unwrap();
        }
        assert_eq!([0, 1].map(|side: usize| handles[side].shared.state().live), [0, 0]);
        handles[0].close(0, "");
    }
}

#[test]
fn streams_are_queues_in_any_order_of_threads() {
    explore(EXECUTIONS, one_run);
}

/// Number of executions of the model under each scheduler, each with another random plan.
const EXECUTIONS: usize = 6000;
/// Most attempts to send that one sender makes in an execution. The limit ends a sender that never
/// waits and finds no room.
const TRIES_MAX: u64 = 40;
