// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of races between users of a session and the session's end, one race per test. The session
//! is closed, abandoned (all handles dropped), severed (a hang-up), or ends after `go_away`.
//!
//! ```text
//!   opening a stream    open or recv reports the end; a refused stream ends once;
//!                       a stream opened around go_away is either served or refused
//!   waiting             the end wakes every waiter, even one that begins to wait at that moment
//!   pending records     are sent before the session ends
//! ```
//!
//! In every test, every thread must end.

use super::acts::{
    accept, accept_one, join, open, random, recv, recv_many, recv_one, send, send_many,
};
use super::explore;
use super::sides::{Setup, Sides, give_up_after, poll_once, wait};
use crate::session::{Handle, OpenError, REFUSED, StreamRecvError, StreamSendError};
use shuttle::thread;

/// Race: a thread opens streams while the session ends. Expected: either `open` or `recv` reports
/// the end of the session.
fn open_into_the_end() {
    let (mut chance, setup) = random();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let how = chance.below(4);
    let session = ours.clone();
    let opening = thread::spawn(move || {
        while let Ok((mut sender, mut receiver)) = open(&session, 0) {
            let _ = send(&mut sender, b"anybody?");
            match recv(&mut receiver) {
                Err(StreamRecvError::Session(_)) => break,
                // This thread and the peer's driver could go on for ever while the thread that
                // drops the last handle never runs. So it lets that thread run.
                Err(StreamRecvError::Reset { code: REFUSED }) => thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    });
    match how {
        0 => ours.close(0, ""),
        1 => theirs.close(0, ""),
        2 => wires.sever(),
        // In this variant of the test, nothing ends the session here: it ends when both handles are
        // dropped, after this `match`. A stream that is being opened is then refused by the peer,
        // or `open` reports the closed session.
        _ => {}
    }
    drop((ours, theirs));
    join([opening]);
    wires.join();
}

#[test]
fn stream_opened_as_session_ends_reports_the_end() {
    explore(1600, open_into_the_end);
}

/// Race: the peer refuses every stream while this side closes the session. Expected: each stream
/// ends once.
fn refused_into_the_end() {
    let (mut chance, setup) = random();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let kept = (open(&ours, 0).unwrap(), accept_one(&theirs));
    drop(theirs);
    let session = ours.clone();
    let opening = thread::spawn(move || {
        for _ in 0..2 {
            let Ok((_sender, mut receiver)) = open(&session, 1) else { return };
            match recv(&mut receiver) {
                Err(StreamRecvError::Session(_)) => return,
                Err(StreamRecvError::Reset { code: REFUSED }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    for _ in 0..chance.below(30) {
        thread::yield_now();
    }
    ours.close(0, "");
    drop(ours);
    join([opening]);
    drop(kept);
    wires.join();
}

#[test]
fn stream_refused_as_session_closes_ends_once() {
    explore(3000, refused_into_the_end);
}

/// Race: the peer sends GO_AWAY while this side opens streams. Expected: each stream is either
/// served or refused.
fn open_while_going_away() {
    let (_, setup) = random();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let going = thread::spawn(move || {
        let accepted = give_up_after(1, |context| theirs.poll_accept(context));
        theirs.shared.go_away(9);
        let mut threads = Vec::new();
        if let Some(accepted) = accepted {
            let (sender, receiver) = accepted.unwrap().expect("the session ended first");
            threads = vec![send_many(sender, 5, 2), recv_many(receiver, 6, 2)];
        }
        // Streams that arrived before GO_AWAY was sent can still be accepted.
        while let Some(Ok(Some((sender, receiver)))) =
            poll_once(|context| theirs.poll_accept(context))
        {
            threads.extend([send_many(sender, 5, 2), recv_many(receiver, 6, 2)]);
        }
        join(threads);
        // From here on the thread only waits for the end of the session, which itself refuses the
        // streams that arrive after GO_AWAY.
        drop(wait(|context| theirs.poll_closed(context)));
    });
    loop {
        match open(&ours, 0) {
            Ok((mut sender, mut receiver)) => {
                let sent = (0..2).try_for_each(|number| send(&mut sender, &[6, number]));
                drop(sender);
                match recv(&mut receiver) {
                    Ok(message) => assert_eq!(message.expect("a message"), [5, 0]),
                    Err(StreamRecvError::Reset { code: REFUSED }) => {
                        assert!(matches!(
                            sent,
                            Ok(()) | Err(StreamSendError::Stopped { code: REFUSED })
                        ));
                        continue;
                    }
                    Err(end) => panic!("{end}"),
                }
                assert_eq!(recv_one(&mut receiver), [5, 1]);
                assert!(matches!(recv(&mut receiver), Ok(None)));
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
fn streams_opened_during_go_away_are_served_or_refused() {
    explore(1000, open_while_going_away);
}

/// Race: for each kind of event of a session one thread waits, while the session ends in one of
/// four ways. Expected: every thread is woken.
fn all_wait_for_the_end() {
    let (mut chance, setup) = random();
    let setup = Setup { streams_max: 1, window: 0, ..setup };
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let (mut sender, mut receiver) = open(&ours, 0).unwrap();
    let halves = accept_one(&theirs);
    let mut threads = Vec::new();
    let mut waits = |act: fn(&Handle)| {
        let session = ours.clone();
        threads.push(thread::spawn(move || act(&session)));
    };
    // The peer may drop the first stream before the session ends. Then a stream number becomes free
    // and `open` succeeds.
    waits(|session| drop(open(session, 1)));
    waits(|session| assert!(!matches!(accept(session), Ok(Some(_)))));
    waits(|session| assert!(wait(|context| session.poll_going_away(context)).is_err()));
    waits(|session| drop(wait(|context| session.poll_closed(context))));
    waits(|session| {
        // The peer may answer the PING before the session ends, so the thread that waits for the
        // answer may also get it.
        let token = session.ask().unwrap();
        let _ = wait(|context| session.poll_answer(context, token));
    });
    threads.push(thread::spawn(move || while send(&mut sender, &[0; 20]).is_ok() {}));
    threads.push(thread::spawn(move || assert!(!matches!(recv(&mut receiver), Ok(Some(_))))));
    match chance.below(4) {
        0 => ours.close(0, ""),
        1 => theirs.close(0, ""),
        2 => wires.sever(),
        // In this variant of the test, the session ends because both sides drop their session
        // handles, and the peer drops its streams.
        _ => {}
    }
    drop((ours, theirs, halves));
    join(threads);
    wires.join();
}

#[test]
fn every_waiter_is_woken_by_the_end() {
    explore(1200, all_wait_for_the_end);
}

/// Race: a sender begins to wait for memory that will never be free, while another thread closes
/// the session. Expected: the waiter is woken. Only the PCT scheduler finds this race soon, because
/// both threads must be interrupted at one place each. A short test body makes these interruptions
/// likelier.
fn reserve_into_the_end() {
    let (_, setup) = random();
    let Sides { handles: [ours, theirs], wires } = Sides::connect(setup);
    let (mut holder, _receiver) = open(&ours, 0).unwrap();
    let (mut waiter, _its_receiver) = open(&ours, 1).unwrap();
    let waiting = thread::spawn(move || {
        // The session may already be over when the first reservation is made.
        let holds = wait(|context| holder.poll_reserve(context, 400)).is_ok();
        let waited = wait(|context| waiter.poll_reserve(context, 300));
        assert!(waited.is_err(), "held: {holds}");
        waiter.give_back();
        holder.give_back();
    });
    ours.close(0, "");
    join([waiting]);
    drop((ours, theirs));
    wires.join();
}

#[test]
fn waiter_that_begins_as_session_closes_is_woken() {
    explore(48_000, reserve_into_the_end);
}

/// Race: a user drops all handles while more records are pending than the ring has room for.
/// Expected: the records are sent before the session ends.
fn let_go_with_much_to_say() {
    let (_, setup) = random();
    let Sides { handles: [ours, theirs], wires } =
        Sides::connect(Setup { streams_max: 8, ..setup });
    let receiving = thread::spawn(move || {
        for mark in 0..6 {
            let (_sender, mut receiver) = accept_one(&theirs);
            assert_eq!(recv_one(&mut receiver), [mark]);
            assert!(matches!(recv(&mut receiver), Ok(None)));
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
fn pending_records_are_sent_before_abandoned_session_ends() {
    explore(1000, let_go_with_much_to_say);
}
