// SPDX-License-Identifier: MIT OR Apache-2.0
//! Actions of users in races, one word each.
//!
//! ```text
//!   open accept send recv    block until done       send_many recv_many    threads of their own
//! ```

use super::Chance;
use super::sides::{Front, Setup, Sides, wait};
use crate::message::Message;
use crate::session::{
    Handle, OpenError, Opening, RecvHalf, SendHalf, SessionError, StreamRecvError, StreamSendError,
};
use shuttle::thread::{self, JoinHandle};

pub(super) fn open(session: &Handle, id: u8) -> Result<(SendHalf, RecvHalf), OpenError> {
    let mut opening = Opening::default();
    wait(|context| session.poll_open(context, &[id], &mut opening))
}

pub(super) fn accept(session: &Handle) -> Result<Option<(SendHalf, RecvHalf)>, SessionError> {
    wait(|context| session.poll_accept(context))
}

/// Accepts a stream that the peer opens before it ends the session.
pub(super) fn accept_one(session: &Handle) -> (SendHalf, RecvHalf) {
    accept(session).unwrap().expect("the session ended first")
}

pub(super) fn send(half: &mut SendHalf, payload: &[u8]) -> Result<(), StreamSendError> {
    let sent = wait(|context| half.poll_send(context, payload));
    half.give_back();
    sent
}

pub(super) fn recv(half: &RecvHalf) -> Result<Option<Message>, StreamRecvError> {
    wait(|context| half.poll_recv(context))
}

/// Receives a message that the peer sends before it finishes.
pub(super) fn recv_one(half: &RecvHalf) -> Message {
    recv(half).unwrap().expect("the peer finished first")
}

/// Sends `count` messages of one slot, each with the stream's mark and its own number.
pub(super) fn send_many(mut half: SendHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            send(&mut half, &[mark, number]).unwrap();
        }
    })
}

/// Receives exactly those, to the end.
pub(super) fn recv_many(half: RecvHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            assert_eq!(recv_one(&half), [mark, number]);
        }
        assert!(matches!(recv(&half), Ok(None)));
    })
}

pub(super) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One side closes, and both drivers end.
pub(super) fn close(sides: Sides) {
    sides.handles[0].close(0, "");
    drop(sides.handles);
    sides.wires.join();
}

pub(super) fn random() -> (Chance, Setup) {
    let mut chance = Chance::of_execution();
    let front = chance.pick(&[Front::Task, Front::Thread]);
    (chance, Setup { front, ..Setup::default() })
}
