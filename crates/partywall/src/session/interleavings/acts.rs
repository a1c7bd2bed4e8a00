// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the race tests of sessions: the operations of users on a session or stream, as
//! functions with short names.
//!
//! ```text
//!   open accept send recv    block the calling thread        send_many recv_many    start a thread
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

/// Accepts the next stream; fails the test if the session ends before the peer opened one.
pub(super) fn accept_one(session: &Handle) -> (SendHalf, RecvHalf) {
    accept(session).unwrap().expect("the session ended first")
}

pub(super) fn send(half: &mut SendHalf, payload: &[u8]) -> Result<(), StreamSendError> {
    let sent = wait(|context| half.poll_send(context, payload));
    half.give_back();
    sent
}

pub(super) fn recv(half: &mut RecvHalf) -> Result<Option<Message>, StreamRecvError> {
    wait(|context| {
        // As a byte stream of tokio after a long message. It does nothing where a thread keeps the
        // driver.
        half.shared.receive();
        half.poll_recv(context)
    })
}

/// Receives the next message; fails the test if the peer finishes before it sent one.
pub(super) fn recv_one(half: &mut RecvHalf) -> Message {
    recv(half).unwrap().expect("the peer finished first")
}

/// Starts a thread that sends `count` messages, each of one ring slot. A message contains `mark`,
/// which names the stream, and its own number.
pub(super) fn send_many(mut half: SendHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            send(&mut half, &[mark, number]).unwrap();
        }
    })
}

/// Starts a thread that receives exactly the messages of `send_many`, and then the end of the
/// direction.
pub(super) fn recv_many(mut half: RecvHalf, mark: u8, count: u8) -> JoinHandle<()> {
    thread::spawn(move || {
        for number in 0..count {
            assert_eq!(recv_one(&mut half), [mark, number]);
        }
        assert!(matches!(recv(&mut half), Ok(None)));
    })
}

pub(super) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Closes the session from one side, and waits until the drivers of both sides have ended.
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
