// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of races between users of a living session, one race per test: some users wait for room,
//! memory or credit while another thread acts.
//!
//! ```text
//!   room       the driver finds room before its waiter has woken the driver;
//!              one of two waiters gives up; senders give up messages in fragments
//!   credit     a message carries credit while other credit is sent in a record of its own;
//!              a user leaves credit to its driver while the driver goes to sleep
//!   messages   one task sends on a stream and waits for messages of it
//!   numbers    a stream reuses a number after END; the peer answers a stream immediately
//! ```
//!
//! In every test, every thread must end, and every message names its stream.

use super::acts::{
    accept_one, close, join, open, random, recv, recv_many, recv_one, send, send_many,
};
use super::sides::{Setup, Sides, Task, give_up_after};
use super::{explore, pattern};
use crate::config::BackPressure;
use crate::session::{Handle, RecvHalf, SendHalf, StreamSendError};
use shuttle::thread;

/// Race: the driver finds room, by its own check or its doorbell, before the user that waits for
/// room has woken the driver. Other users wait for room or for memory at the same time. Expected:
/// every user is woken, and every message arrives.
fn senders_short_of_room() {
    let (mut chance, setup) = random();
    let sides = Sides::connect(Setup { window: 1 << 20, ..setup });
    let [ours, theirs] = &sides.handles;
    let mut threads = Vec::new();
    for mark in 0..2 {
        let (sender, _) = open(ours, mark).unwrap();
        let (_, mut receiver) = accept_one(theirs);
        if chance.below(3) == 0 {
            threads.push(thread::spawn(move || send_long(sender, mark)));
            threads.push(thread::spawn(move || recv_long(&mut receiver, mark)));
        } else {
            threads.push(send_many(sender, mark, 10));
            threads.push(recv_many(receiver, mark, 10));
        }
    }
    join(threads);
    close(sides);
}

/// Role of a user: sends messages that each take more than half of the shared memory.
fn send_long(mut half: SendHalf, mark: u8) {
    for number in 0..3 {
        send(&mut half, &pattern(300, u64::from(mark) << 8 | number)).unwrap();
    }
}

fn recv_long(half: &mut RecvHalf, mark: u8) {
    for number in 0..3 {
        assert!(recv_one(half) == pattern(300, u64::from(mark) << 8 | number));
    }
    assert!(matches!(recv(half), Ok(None)));
}

#[test]
fn waiter_for_room_is_woken() {
    explore(9600, senders_short_of_room);
}

/// Race: one sender waits for memory, and a second sender waits for a slot of the ring and gives
/// up. Expected: the first sender is still woken when memory is free.
fn one_gives_up_waiting() {
    let (mut chance, setup) = random();
    let sides = Sides::connect(Setup { window: 1 << 20, ..setup });
    let [ours, theirs] = &sides.handles;
    let (sender, _) = open(ours, 0).unwrap();
    let (_, mut receiver) = accept_one(theirs);
    let (mut giving_up, _) = open(ours, 1).unwrap();
    let (_, mut drained) = accept_one(theirs);
    let tries = chance.below(12);
    let threads = [
        thread::spawn(move || send_long(sender, 0)),
        thread::spawn(move || recv_long(&mut receiver, 0)),
        thread::spawn(move || {
            for _ in 0..tries {
                let _ = give_up_after(1, |context| giving_up.poll_send(context, &[1; 48]));
                giving_up.give_back();
            }
        }),
        thread::spawn(move || while let Ok(Some(_)) = recv(&mut drained) {}),
    ];
    join(threads);
    close(sides);
}

#[test]
fn waiter_that_gives_up_costs_no_wake_up() {
    explore(1000, one_gives_up_waiting);
}

/// Race: senders give up messages of which some fragments were sent, between fragments of another
/// stream. Expected: every message that was not given up arrives whole.
fn pieces_given_up() {
    let (_, setup) = random();
    let mut limits = setup.limits;
    (limits.policy, limits.memory_bytes) = (BackPressure::Overflow, 128);
    let sides = Sides::connect(Setup { limits, window: 1024, ..setup });
    let [ours, theirs] = &sides.handles;
    let mut threads = Vec::new();
    for mark in 0..2 {
        let (mut sender, _) = open(ours, mark).unwrap();
        let (_, mut receiver) = accept_one(theirs);
        threads.push(thread::spawn(move || {
            for number in 0..3 {
                let given_up = pattern(600, 99);
                let sent = give_up_after(1, |context| sender.poll_send(context, &given_up));
                assert!(sent.is_none_or(|sent| sent.is_ok()), "it is in its limits");
                sender.give_back();
                send(&mut sender, &pattern(300, u64::from(mark) << 8 | number)).unwrap();
            }
        }));
        threads.push(thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                let message = recv_one(&mut receiver);
                if message != pattern(600, 99) {
                    assert!(message == pattern(300, u64::from(mark) << 8 | next));
                    next += 1;
                }
            }
            assert!(matches!(recv(&mut receiver), Ok(None)));
        }));
    }
    join(threads);
    close(sides);
}

#[test]
fn message_given_up_half_way_leaves_nothing() {
    explore(800, pieces_given_up);
}

/// Race: both directions of a stream send at the same time, within a window of at most a few
/// messages. Credit is carried by messages or sent in records of its own. Expected: every message
/// arrives, and neither side reports a violation.
fn credit_both_ways() {
    let (mut chance, setup) = random();
    let window = chance.pick(&[0, 64, 128, 256]);
    let sides = Sides::connect(Setup { window, ..setup });
    let (our_send, our_recv) = open(&sides.handles[0], 0).unwrap();
    let (their_send, their_recv) = accept_one(&sides.handles[1]);
    join([
        send_many(our_send, 1, 7),
        recv_many(their_recv, 1, 7),
        send_many(their_send, 2, 7),
        recv_many(our_recv, 2, 7),
    ]);
    close(sides);
}

#[test]
fn credit_of_messages_is_never_older_than_reported() {
    explore(1600, credit_both_ways);
}

/// Race: a user has answered a message, takes the next one, and neither answers nor asks for more.
/// So it leaves the credit of that message to its driver, which may be about to sleep. Expected:
/// the peer gets the credit that its next message needs.
fn credit_left_to_the_driver() {
    let (mut chance, setup) = random();
    let window = chance.pick(&[0, 64, 128]);
    let sides = Sides::connect(Setup { window, ..setup });
    let (mut our_send, mut our_recv) = open(&sides.handles[0], 0).unwrap();
    let (mut their_send, mut their_recv) = accept_one(&sides.handles[1]);
    let asking = thread::spawn(move || {
        send(&mut our_send, &pattern(150, 0)).unwrap();
        assert_eq!(recv_one(&mut our_recv), [1]);
        send(&mut our_send, &pattern(150, 2)).unwrap();
        send(&mut our_send, &pattern(150, 3)).unwrap();
    });
    let answering = thread::spawn(move || {
        assert!(recv_one(&mut their_recv) == pattern(150, 0));
        send(&mut their_send, &[1]).unwrap();
        assert!(recv_one(&mut their_recv) == pattern(150, 2));
        asking.join().unwrap();
        assert!(recv_one(&mut their_recv) == pattern(150, 3));
        assert!(matches!(recv(&mut their_recv), Ok(None)));
    });
    join([answering]);
    close(sides);
}

#[test]
fn credit_left_to_the_driver_is_reported() {
    explore(1600, credit_left_to_the_driver);
}

/// Race: one task sends on a stream and receives on it, so its wait for a message begins when it
/// sends. The peer answers each message. Or it sends fewer messages than it gets, in its own time,
/// and ends its direction before or after the task has taken them. Expected: the task is woken for
/// each message and for the end.
fn one_task_sends_and_receives() {
    let (mut chance, setup) = random();
    let window = chance.pick(&[0, 64, 128, 1 << 12]);
    let (answers, ends_early) = (chance.below(3) == 0, chance.below(2) == 0);
    // Short of credit, the two sides must take turns, or both wait to send.
    let (window, count) = if answers { (window, 4) } else { (1 << 12, chance.below(4)) };
    let sides = Sides::connect(Setup { window, ..setup });
    let (mut our_send, mut our_recv) = open(&sides.handles[0], 0).unwrap();
    our_send.await_answers(true);
    let (their_send, mut their_recv) = accept_one(&sides.handles[1]);
    let asking = thread::spawn(move || {
        let (task, mut taken) = (Task::new(), 0);
        for number in 0..4 {
            let sent = task.wait(|context| our_send.poll_send(context, &[number; 40]));
            our_send.give_back();
            sent.unwrap();
            if taken < count || ends_early {
                let received = task.wait(|context| our_recv.poll_recv(context)).unwrap();
                assert_eq!(received.is_some(), taken < count);
                taken += u64::from(received.is_some());
            }
        }
        assert_eq!(taken, count);
    });
    let (mut answering, sending) =
        if answers { (Some(their_send), None) } else { (None, Some(their_send)) };
    let receiving = thread::spawn(move || {
        for number in 0..4 {
            assert!(recv_one(&mut their_recv) == [number; 40]);
            if let Some(sender) = &mut answering {
                send(sender, &[number]).unwrap();
            }
        }
        asking.join().unwrap();
    });
    let sending = sending.map(|mut sender| {
        thread::spawn(move || {
            (0..count).for_each(|_| send(&mut sender, &[7]).unwrap());
            (!ends_early).then_some(sender)
        })
    });
    join([receiving]);
    drop(sending.map(|sending| sending.join().unwrap()));
    close(sides);
}

#[test]
fn wait_that_begins_with_sending_ends_with_a_message() {
    explore(1600, one_task_sends_and_receives);
}

/// Race: only one stream may be open at a time, so each stream reuses the number of the one before.
/// The answerer sends while it ends the stream. Expected: none of its messages follows the stream's
/// END.
fn one_number_for_all() {
    let (mut chance, setup) = random();
    let sides = Sides::connect(Setup { streams_max: 1, ..setup });
    let [ours, theirs] = sides.handles.each_ref().map(Handle::clone);
    let stops = [chance.below(4), chance.below(4), chance.below(4)];
    let opening = thread::spawn(move || {
        for (mark, stop_after) in (0..).zip(stops) {
            let (sender, mut receiver) = open(&ours, mark).unwrap();
            drop(sender);
            for _ in 0..stop_after {
                assert_eq!(recv_one(&mut receiver), [mark]);
            }
        }
    });
    let accepting = thread::spawn(move || {
        for mark in 0..3 {
            let (mut sender, mut receiver) = accept_one(&theirs);
            let ending =
                thread::spawn(move || assert!(!matches!(recv(&mut receiver), Ok(Some(_)))));
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
fn nothing_follows_end_of_stream() {
    explore(1200, one_number_for_all);
}

/// Race: the peer answers a stream as soon as it is opened. Expected: the opener's driver has the
/// stream in its table before the answer arrives.
fn answered_at_once() {
    let (_, setup) = random();
    let sides = Sides::connect(setup);
    let [ours, theirs] = sides.handles.each_ref().map(Handle::clone);
    let opening = thread::spawn(move || {
        for mark in 0..3 {
            let (_sender, mut receiver) = open(&ours, mark).unwrap();
            assert_eq!(recv_one(&mut receiver), [mark]);
        }
    });
    let answering = thread::spawn(move || {
        for mark in 0..3 {
            let (mut sender, _receiver) = accept_one(&theirs);
            // An error of `send` is ignored, because a receiver that has received its message may
            // drop the stream immediately.
            let _ = send(&mut sender, &[mark]);
        }
    });
    join([opening, answering]);
    close(sides);
}

#[test]
fn stream_answered_at_once_is_known() {
    explore(1200, answered_at_once);
}
