// SPDX-License-Identifier: MIT OR Apache-2.0
//! One race each: who waits for what, while somebody else does what.
//!
//! ```text
//!   room       found before its waiter has called the driver · given up by another · for pieces of a message
//!   credit     told along with a message, beside credit that is told alone · END beside a message
//!   numbers    used again behind END · opened while the other side answers, goes away or is gone
//!   the end    close, abandon, sever, while somebody waits for each thing that can be waited for
//! ```
//!
//! Every thread has to come to an end, and every message says which stream it is of.

use super::sides::{Front, Setup, Sides, give_up_after, poll_once, wait};
use super::{Chance, explore, pattern};
use crate::config::BackPressure;
use crate::message::Message;
use crate::session::{
    Handle, OpenError, Opening, Outgoing, REFUSED, RecvHalf, SendHalf, SessionError,
    StreamRecvError, StreamSendError,
};
use shuttle::thread::{self, JoinHandle};

fn open(session: &Handle, id: u8) -> Result<(SendHalf, RecvHalf), OpenError> {
    let mut opening = Opening::default();
    wait(|context| session.poll_open(context, &[id], &mut opening))
}

fn accept(session: &Handle) -> Result<(SendHalf, RecvHalf), SessionError> {
    wait(|context| session.poll_accept(context))
}

fn send(half: &mut SendHalf, payload: &[u8]) -> Result<(), StreamSendError> {
    let mut outgoing = Outgoing::default();
    let sent = wait(|context| half.poll_send(context, &mut outgoing, payload));
    half.give_back(&mut outgoing);
    sent
}

fn recv(half: &RecvHalf) -> Result<Message, StreamRecvError> {
    wait(|context| half.poll_recv(context))
}

/// Sends so many messages of one slot, each with the stream's mark and its own number.
fn send_many(mut half: SendHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            send(&mut half, &[mark, number]).unwrap();
        }
    })
}

/// Receives just those, to the end.
fn recv_many(half: RecvHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            assert_eq!(recv(&half).unwrap(), [mark, number]);
        }
        assert!(matches!(recv(&half), Err(StreamRecvError::Finished)));
    })
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One side closes, and both drivers end.
fn close(sides: Sides) {
    sides.handles[0].close();
    drop(sides.handles);
    sides.wires.join();
}

fn by_chance() -> (Chance, Setup) {
    let mut chance = Chance::of_execution();
    let front = chance.pick(&[Front::Task, Front::Thread]);
    (chance, Setup { front, ..Setup::default() })
}

/// Room is found by a driver before the one who waits for it has called it, by its look or by its bell; others
/// that wait want room as well, or memory.
fn senders_short_of_room() {
    let (mut chance, setup) = by_chance();
    let sides = Sides::connect(Setup { window: 1 << 20, ..setup });
    let [ours, theirs] = &sides.handles;
    let mut threads = Vec::new();
    for mark in 0..2 {
        let (sender, _) = open(ours, mark).unwrap();
        let (_, receiver) = accept(theirs).unwrap();
        if chance.below(3) == 0 {
            threads.push(thread::spawn(move || send_long(sender, mark)));
            threads.push(thread::spawn(move || recv_long(&receiver, mark)));
        } else {
            threads.push(send_many(sender, mark, 10));
            threads.push(recv_many(receiver, mark, 10));
        }
    }
    join(threads);
    close(sides);
}

/// Each takes more than half of the memory.
fn send_long(mut half: SendHalf, mark: u8) {
    for number in 0..3 {
        send(&mut half, &pattern(300, u64::from(mark) << 8 | number)).unwrap();
    }
}

fn recv_long(half: &RecvHalf, mark: u8) {
    for number in 0..3 {
        assert!(recv(half).unwrap() == pattern(300, u64::from(mark) << 8 | number));
    }
    assert!(matches!(recv(half), Err(StreamRecvError::Finished)));
}

#[test]
fn who_waits_for_room_is_told_of_it() {
    explore(1200, senders_short_of_room);
}

/// One waits for memory, another for a slot and gives up: what came for the first is not overlooked.
fn one_gives_up_waiting() {
    let (mut chance, setup) = by_chance();
    let sides = Sides::connect(Setup { window: 1 << 20, ..setup });
    let [ours, theirs] = &sides.handles;
    let (sender, _) = open(ours, 0).unwrap();
    let (_, receiver) = accept(theirs).unwrap();
    let (mut giving_up, _) = open(ours, 1).unwrap();
    let (_, drained) = accept(theirs).unwrap();
    let tries = chance.below(12);
    let threads = [
        thread::spawn(move || send_long(sender, 0)),
        thread::spawn(move || recv_long(&receiver, 0)),
        thread::spawn(move || {
            for _ in 0..tries {
                let mut outgoing = Outgoing::default();
                let _ = give_up_after(1, |context| {
                    giving_up.poll_send(context, &mut outgoing, &[1; 48])
                });
                giving_up.give_back(&mut outgoing);
            }
        }),
        thread::spawn(move || while recv(&drained).is_ok() {}),
    ];
    join(threads);
    close(sides);
}

#[test]
fn who_gives_up_waiting_costs_nobody_a_wake_up() {
    explore(1000, one_gives_up_waiting);
}

/// Pieces of messages that are given up half-way, between pieces of another stream's.
fn pieces_given_up() {
    let (_, setup) = by_chance();
    let mut limits = setup.limits;
    (limits.policy, limits.memory_bytes) = (BackPressure::Overflow, 128);
    let sides = Sides::connect(Setup { limits, window: 1024, ..setup });
    let [ours, theirs] = &sides.handles;
    let mut threads = Vec::new();
    for mark in 0..2 {
        let (mut sender, _) = open(ours, mark).unwrap();
        let (_, receiver) = accept(theirs).unwrap();
        threads.push(thread::spawn(move || {
            for number in 0..3 {
                let mut outgoing = Outgoing::default();
                let given_up = pattern(600, 99);
                let sent =
                    give_up_after(1, |context| sender.poll_send(context, &mut outgoing, &given_up));
                assert!(sent.is_none_or(|sent| sent.is_ok()), "it is in its limits");
                sender.give_back(&mut outgoing);
                send(&mut sender, &pattern(300, u64::from(mark) << 8 | number)).unwrap();
            }
        }));
        threads.push(thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                let message = recv(&receiver).unwrap();
                if message != pattern(600, 99) {
                    assert!(message == pattern(300, u64::from(mark) << 8 | next));
                    next += 1;
                }
            }
            assert!(matches!(recv(&receiver), Err(StreamRecvError::Finished)));
        }));
    }
    join(threads);
    close(sides);
}

#[test]
fn a_message_given_up_half_way_leaves_nothing() {
    explore(800, pieces_given_up);
}

/// Both directions of a stream at once, with a window of two messages: credit goes along with messages and alone.
fn credit_both_ways() {
    let (mut chance, setup) = by_chance();
    let window = chance.pick(&[0, 64, 128, 256]);
    let sides = Sides::connect(Setup { window, ..setup });
    let (our_send, our_recv) = open(&sides.handles[0], 0).unwrap();
    let (their_send, their_recv) = accept(&sides.handles[1]).unwrap();
    join([
        send_many(our_send, 1, 7),
        recv_many(their_recv, 1, 7),
        send_many(their_send, 2, 7),
        recv_many(our_recv, 2, 7),
    ]);
    close(sides);
}

#[test]
fn credit_beside_messages_is_never_older_than_what_was_told() {
    explore(1600, credit_both_ways);
}

/// One number at a time, so that each stream has that of the one before: what the answerer still sends when it is
/// over must not come behind END.
fn one_number_for_all() {
    let (mut chance, setup) = by_chance();
    let sides = Sides::connect(Setup { streams_max: 1, ..setup });
    let [ours, theirs] = sides.handles.each_ref().map(Handle::clone);
    let stops = [chance.below(4), chance.below(4), chance.below(4)];
    let opening = thread::spawn(move || {
        for (mark, stop_after) in (0..).zip(stops) {
            let (sender, receiver) = open(&ours, mark).unwrap();
            drop(sender);
            for _ in 0..stop_after {
                assert_eq!(recv(&receiver).unwrap(), [mark]);
            }
        }
    });
    let accepting = thread::spawn(move || {
        for mark in 0..3 {
            let (mut sender, receiver) = accept(&theirs).unwrap();
            let ending = thread::spawn(move || assert!(recv(&receiver).is_err()));
            let stopped = loop {
                if let Err(error) = send(&mut sender, &[mark]) {
                    break error;
                }
            };
            assert!(matches!(stopped, StreamSendError::Stopped { .. }), "{stopped}");
            ending.join().unwrap();
        }
    });
    join([opening, accepting]);
    close(sides);
}

#[test]
fn nothing_comes_behind_the_end_of_a_stream() {
    explore(1200, one_number_for_all);
}

/// The other side answers a stream as soon as it is open: its opener's driver has to know it by then.
fn answered_at_once() {
    let (_, setup) = by_chance();
    let sides = Sides::connect(setup);
    let [ours, theirs] = sides.handles.each_ref().map(Handle::clone);
    let opening = thread::spawn(move || {
        for mark in 0..3 {
            let (_sender, receiver) = open(&ours, mark).unwrap();
            assert_eq!(recv(&receiver).unwrap(), [mark]);
        }
    });
    let answering = thread::spawn(move || {
        for mark in 0..3 {
            let (mut sender, _receiver) = accept(&theirs).unwrap();
            // Whoever stopped had what it wanted.
            let _ = send(&mut sender, &[mark]);
        }
    });
    join([opening, answering]);
    close(sides);
}

#[test]
fn a_stream_that_is_answered_at_once_is_known() {
    explore(1200, answered_at_once);
}

/// Whoever opens a stream while the session ends learns of it, there or when it receives.
fn open_into_the_end() {
    let (mut chance, setup) = by_chance();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let how = chance.below(4);
    let session = ours.clone();
    let opening = thread::spawn(move || {
        while let Ok((mut sender, receiver)) = open(&session, 0) {
            let _ = send(&mut sender, b"anybody?");
            match recv(&receiver) {
                Err(StreamRecvError::Session(_)) => break,
                Err(StreamRecvError::Reset { code: REFUSED }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    match how {
        0 => ours.close(),
        1 => theirs.close(),
        2 => wires.sever(),
        // Nobody accepts: what was opened is refused, or the session is closed.
        _ => {}
    }
    drop((ours, theirs));
    join([opening]);
    wires.join();
}

#[test]
fn who_opens_a_stream_as_the_session_ends_learns_of_it() {
    explore(1600, open_into_the_end);
}

/// The other side refuses whatever is opened, while the session closes here: each stream ends once.
fn refused_into_the_end() {
    let (mut chance, setup) = by_chance();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let kept = (open(&ours, 0).unwrap(), accept(&theirs).unwrap());
    drop(theirs);
    let session = ours.clone();
    let opening = thread::spawn(move || {
        for _ in 0..2 {
            let Ok((_sender, receiver)) = open(&session, 1) else { return };
            match recv(&receiver) {
                Err(StreamRecvError::Session(_)) => return,
                Err(StreamRecvError::Reset { code: REFUSED }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    for _ in 0..chance.below(30) {
        thread::yield_now();
    }
    ours.close();
    drop(ours);
    join([opening]);
    drop(kept);
    wires.join();
}

#[test]
fn a_stream_that_is_refused_as_the_session_closes_ends_once() {
    explore(3000, refused_into_the_end);
}

/// The other side asks for no more streams while some are opened.
fn open_while_going_away() {
    let (_, setup) = by_chance();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let going = thread::spawn(move || {
        let accepted = give_up_after(1, |context| theirs.poll_accept(context));
        theirs.core.go_away(9);
        let mut threads = Vec::new();
        if let Some(accepted) = accepted {
            let (sender, receiver) = accepted.unwrap();
            threads = vec![send_many(sender, 5, 2), recv_many(receiver, 6, 2)];
        }
        // What was waiting to be accepted then still can be.
        while let Some(Ok((sender, receiver))) = poll_once(|context| theirs.poll_accept(context)) {
            threads.extend([send_many(sender, 5, 2), recv_many(receiver, 6, 2)]);
        }
        join(threads);
        // What comes now is refused.
        drop(wait(|context| theirs.poll_closed(context)));
    });
    loop {
        match open(&ours, 0) {
            Ok((mut sender, receiver)) => {
                let sent = (0..2).try_for_each(|number| send(&mut sender, &[6, number]));
                drop(sender);
                match recv(&receiver) {
                    Ok(message) => assert_eq!(message, [5, 0]),
                    Err(StreamRecvError::Reset { code: REFUSED }) => {
                        assert!(matches!(
                            sent,
                            Ok(()) | Err(StreamSendError::Stopped { code: REFUSED })
                        ));
                        continue;
                    }
                    Err(end) => panic!("{end}"),
                }
                assert_eq!(recv(&receiver).unwrap(), [5, 1]);
                assert!(matches!(recv(&receiver), Err(StreamRecvError::Finished)));
            }
            Err(OpenError::GoingAway { code: 9 }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    wait(|context| ours.poll_drained(context)).unwrap();
    drop(ours);
    join([going]);
    wires.join();
}

#[test]
fn streams_opened_while_the_other_side_goes_away_are_served_or_refused() {
    explore(1000, open_while_going_away);
}

/// Somebody waits for each thing there is, and the session ends in one of the ways.
fn all_wait_for_the_end() {
    let (mut chance, setup) = by_chance();
    let setup = Setup { streams_max: 1, window: 0, ..setup };
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let (mut sender, receiver) = open(&ours, 0).unwrap();
    let halves = accept(&theirs).unwrap();
    let mut threads = Vec::new();
    let mut waits = |act: fn(&Handle)| {
        let session = ours.clone();
        threads.push(thread::spawn(move || act(&session)));
    };
    // The other side may let go of the first stream before the session ends: then there is a number.
    waits(|session| drop(open(session, 1)));
    waits(|session| assert!(accept(session).is_err()));
    waits(|session| assert!(wait(|context| session.poll_going_away(context)).is_err()));
    waits(|session| drop(wait(|context| session.poll_closed(context))));
    waits(|session| {
        // It may be answered before.
        let token = session.ask();
        let _ = wait(|context| session.poll_answer(context, token));
    });
    threads.push(thread::spawn(move || while send(&mut sender, &[0; 20]).is_ok() {}));
    threads.push(thread::spawn(move || assert!(recv(&receiver).is_err())));
    match chance.below(4) {
        0 => ours.close(),
        1 => theirs.close(),
        2 => wires.sever(),
        // Nobody is left on the other side.
        _ => {}
    }
    drop((ours, theirs, halves));
    join(threads);
    wires.join();
}

#[test]
fn whoever_waits_learns_of_the_end() {
    explore(1200, all_wait_for_the_end);
}

/// Memory is awaited that never comes, while the session closes: whoever begins to wait just then is told. Only PCT
/// finds it soon, and the less is done the sooner: both threads have to stop at one place each.
fn reserve_into_the_end() {
    let (_, setup) = by_chance();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let (mut sender, _receiver) = open(&ours, 0).unwrap();
    let waiting = thread::spawn(move || {
        let [mut held, mut outgoing] = [Outgoing::default(), Outgoing::default()];
        // The session may be over before.
        let holds = wait(|context| sender.poll_reserve(context, &mut held, 400)).is_ok();
        let waited = wait(|context| sender.poll_reserve(context, &mut outgoing, 300));
        assert!(waited.is_err(), "held: {holds}");
        sender.give_back(&mut outgoing);
        sender.give_back(&mut held);
    });
    ours.close();
    join([waiting]);
    drop((ours, theirs));
    wires.join();
}

#[test]
fn who_begins_to_wait_for_room_as_the_session_closes_is_told() {
    explore(12_000, reserve_into_the_end);
}

/// Everybody lets go of a session that has said more than there is room for: it is said before the session ends.
fn let_go_with_much_to_say() {
    let (_, setup) = by_chance();
    let Sides { handles: [ours, theirs], wires } =
        Sides::connect(Setup { streams_max: 8, ..setup });
    let receiving = thread::spawn(move || {
        for mark in 0..6 {
            let (_sender, receiver) = accept(&theirs).unwrap();
            assert_eq!(recv(&receiver).unwrap(), [mark]);
            assert!(matches!(recv(&receiver), Err(StreamRecvError::Finished)));
        }
    });
    for mark in 0..6 {
        let (mut sender, _receiver) = open(&ours, mark).unwrap();
        send(&mut sender, &[mark]).unwrap();
    }
    drop(ours);
    join([receiving]);
    wires.join();
}

#[test]
fn what_is_owed_is_said_before_an_abandoned_session_ends() {
    explore(1000, let_go_with_much_to_say);
}
