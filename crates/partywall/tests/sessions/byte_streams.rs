// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `into_io`: bytes written from one or several buffers arrive in order in both
//! directions, under any window and with any lack of memory.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::{ReadHalf, Session, StreamIo, WriteHalf};
use partywall::{BackPressure, Config};
use partywall_testkit::{Kind, Random, TIMEOUT, Watchdog, run, session_pair};
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Builder;
use tokio::task::unconstrained;

/// Number of bytes in each direction of an exchange.
const TOTAL: usize = 3 << 20;
/// Length in bytes of a frame of HTTP/2 with the longest payload that all peers accept.
const FRAME: usize = 9 + (16 << 10);

/// A change of the configuration, under which an exchange of bytes must give the same result.
type Change = (&'static str, fn(Config) -> Config);

const CHANGES: [Change; 6] = [
    ("defaults", |config| config),
    ("a window of 8 KiB", |config| config.stream_window(8 << 10)),
    ("a window of 100 bytes", |config| config.stream_window(100)),
    ("short messages", |config| config.message_max(5000)),
    ("little memory", |config| config.memory_max(128 << 10).ring_bytes(8 << 10)),
    ("little memory, overflow", |config| {
        let config = config.memory_max(128 << 10).ring_bytes(64 << 10);
        config.back_pressure(BackPressure::Overflow).stream_window(1 << 20)
    }),
];

/// Returns the byte at index `at` of the direction `way`. The bytes repeat after a number that is
/// no power of two, so a block in the wrong place is noticed.
const fn byte(way: usize, at: usize) -> u8 {
    ((at % 251) ^ (at / 251) ^ (way * 77)) as u8
}

/// Makes both ends of a stream, with their sessions, which must stay alive.
async fn streams(kind: Kind, change: fn(Config) -> Config) -> ((Session, Session), [StreamIo; 2]) {
    let (client, server) = session_pair(kind, change).await;
    let ours = client.open(b"").await.unwrap().into_io();
    let theirs = server.accept().await.unwrap().unwrap().into_io();
    ((client, server), [ours, theirs])
}

/// Writes `TOTAL` bytes, each time from a random number of buffers of random lengths, empty ones
/// among them.
async fn write_all(mut half: WriteHalf, way: usize) -> WriteHalf {
    let bytes: Vec<u8> = (0..TOTAL).map(|at| byte(way, at)).collect();
    let mut random = Random::new(way as u64 + 1);
    let mut at = 0;
    while at < TOTAL {
        let mut slices = Vec::new();
        let mut end = at;
        for _ in 0..=random.below(4) {
            let max = [0, 20, 600, FRAME as u64, 100_000][random.below(5) as usize];
            let next = (end + random.size(max)).min(TOTAL);
            slices.push(IoSlice::new(&bytes[end..next]));
            end = next;
        }
        let written = half.write_vectored(&slices).await.unwrap();
        assert!(written <= end - at && (written > 0 || end == at), "{written} of {}", end - at);
        at += written;
    }
    half
}

/// Reads until the end of the direction, into buffers of random lengths, and verifies each byte.
async fn read_all(mut half: ReadHalf, way: usize) {
    let mut random = Random::new(way as u64 + 100);
    let mut buffer = vec![0; 80_000];
    let mut at = 0;
    loop {
        let len = random.size(79_999) + 1;
        let count = half.read(&mut buffer[..len]).await.unwrap();
        if count == 0 {
            break;
        }
        for (index, &found) in buffer[..count].iter().enumerate() {
            assert_eq!(found, byte(way, at + index), "byte {} of direction {way}", at + index);
        }
        at += count;
    }
    assert_eq!(at, TOTAL);
}

#[test]
fn slices_written_both_ways_at_once_arrive_in_order() {
    run("both ways", TIMEOUT, async {
        for kind in Kind::ALL {
            for (name, change) in CHANGES {
                let (_sessions, [ours, theirs]) = streams(kind, change).await;
                let ((our_read, our_write), (their_read, their_write)) =
                    (ours.into_split(), theirs.into_split());
                let tasks =
                    [tokio::spawn(read_all(our_read, 1)), tokio::spawn(read_all(their_read, 0))];
                let writing = tokio::spawn(write_all(their_write, 1));
                // One direction ends while the other still has bytes to send, and continues.
                drop(write_all(our_write, 0).await);
                drop(writing.await.unwrap());
                for task in tasks {
                    task.await.unwrap_or_else(|error| panic!("{kind:?}, {name}: {error}"));
                }
            }
        }
    });
}

/// Polls once a write from two buffers. Returns the number of bytes written; `None` if the write
/// would have to wait, and was given up.
fn try_write(io: &mut StreamIo, slices: &[IoSlice<'_>]) -> Option<usize> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(io).poll_write_vectored(&mut context, slices) {
        Poll::Ready(written) => Some(written.unwrap()),
        Poll::Pending => None,
    }
}

/// Input: a reader that reads nothing at first, and everything later. Expected: a write for which
/// there is no credit sends none of its bytes, although a shorter write would have enough credit.
#[test]
fn write_without_credit_waits_whole_and_sends_nothing_if_given_up() {
    run("credit", TIMEOUT, async {
        for kind in [Kind::SharedMemory, Kind::Untrusted] {
            let (_sessions, [mut ours, mut theirs]) = streams(kind, |config| config).await;
            let (head, body) = ([1; 9], vec![2; FRAME - 9]);
            let mut written = 0;
            while let Some(count) =
                try_write(&mut ours, &[IoSlice::new(&head), IoSlice::new(&body)])
            {
                assert_eq!(count, FRAME, "{kind:?}: a write was cut");
                written += count;
            }
            assert!(written > 0);
            let other = [3; 64];
            let reading = tokio::spawn(async move {
                let mut bytes = Vec::new();
                theirs.read_to_end(&mut bytes).await.unwrap();
                bytes
            });
            let slices = [IoSlice::new(&other[..1]), IoSlice::new(&other[1..])];
            let after =
                poll_fn(|context| Pin::new(&mut ours).poll_write_vectored(context, &slices));
            assert_eq!(after.await.unwrap(), 64);
            ours.shutdown().await.unwrap();
            let frame = [&head[..], &body].concat();
            let mut expected = frame.repeat(written / FRAME);
            expected.extend(other);
            assert!(reading.await.unwrap() == expected, "{kind:?}");
        }
    });
}

/// Input: a long transfer in one task, which never lets the tasks of both sessions run. Expected:
/// the writer finds the credit that the reader returns, and the reader the bytes, as on a socket.
#[test]
fn long_transfer_goes_on_while_the_tasks_of_the_sessions_cannot_run() {
    const MESSAGE: usize = 60_000;
    let _watchdog = Watchdog::new("a long transfer", TIMEOUT);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_sessions, [mut ours, mut theirs]) =
            streams(Kind::SharedMemory, |config| config).await;
        let bytes: Vec<u8> = (0..TOTAL).map(|at| byte(0, at)).collect();
        let mut buffer = vec![0; MESSAGE];
        ours.write_all(&bytes[..MESSAGE]).await.unwrap();
        theirs.read_exact(&mut buffer).await.unwrap();
        let (mut written, mut read) = (MESSAGE, buffer);
        read.reserve(TOTAL);
        let transfer = poll_fn(|_| {
            while read.len() < TOTAL {
                let message = &bytes[written..TOTAL.min(written + MESSAGE)];
                if !message.is_empty() {
                    written += try_write(&mut ours, &[IoSlice::new(message)]).unwrap_or_default();
                }
                try_read(&mut theirs, &mut read);
            }
            Poll::Ready(())
        });
        unconstrained(transfer).await;
        assert!(read == bytes);
    });
}

/// Polls a read once, and appends the bytes that have arrived to `bytes`.
fn try_read(io: &mut StreamIo, bytes: &mut Vec<u8>) {
    let mut place = [0; 10_000];
    let mut buffer = ReadBuf::new(&mut place);
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(read) = Pin::new(io).poll_read(&mut context, &mut buffer) {
        read.unwrap();
        bytes.extend_from_slice(buffer.filled());
    }
}

/// Input: other streams have exhausted the shared memory. Expected: a write sends only as many
/// bytes as the ring has room for, and does not wait for memory that would never be freed.
#[test]
fn write_without_memory_is_cut_and_goes_through_the_ring() {
    run("memory", TIMEOUT, async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| {
            let config = config.back_pressure(BackPressure::Overflow).memory_max(128 << 10);
            config.ring_bytes(32 << 10).stream_window(8 << 20)
        })
        .await;
        let mut hog = client.open(b"").await.unwrap();
        let held = server.accept().await.unwrap().unwrap();
        while hog.try_send(&[0; 4000]).is_ok() && client.stats().overflows == 0 {}
        assert!(client.stats().overflows > 0, "memory is exhausted");
        let mut ours = client.open(b"").await.unwrap().into_io();
        let mut theirs = server.accept().await.unwrap().unwrap().into_io();
        let (head, body) = ([1; 9], vec![2; FRAME - 9]);
        let reading = tokio::spawn(async move {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).await.unwrap();
            bytes
        });
        for _ in 0..20 {
            ours.write_all(&head).await.unwrap();
            ours.write_all_buf(&mut bytes::Buf::chain(&head[..], &body[..])).await.unwrap();
        }
        ours.shutdown().await.unwrap();
        assert!(reading.await.unwrap() == [&head[..], &head[..], &body].concat().repeat(20));
        drop(held);
    });
}
