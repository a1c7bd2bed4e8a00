// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the closure with which an application reads a message in place. The closure runs while
//! the link is locked, so using a link in the closure panics. A closure that is not called is
//! dropped without any lock.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_ends;

use partywall::Wait;
use partywall_link::{Group, Link, MessageView, RecvError, TryRecvError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use support_ends::every_length::{attach, config, message};
use support_ends::{Ground, Pair, soon};

/// Rule: a closure that is not called is dropped without a lock. Under a lock, a destructor that
/// uses a link would deadlock with itself, or with another call that waits for it.
#[test]
fn closure_that_is_not_called_is_dropped_without_a_lock() {
    struct Uses<'a>(&'a Link);
    impl Drop for Uses<'_> {
        fn drop(&mut self) {
            assert!(matches!(self.0.try_recv(), Err(TryRecvError::Empty)));
        }
    }
    for wait in [Wait::Spin, Wait::Park] {
        for ground in Ground::all() {
            let Pair { server: _server, served, link } = ground.pair(&config().wait(wait));
            attach(&link, &served);
            for count in [1, 100] {
                for number in 0..count {
                    link.send(&message(number, 10)).unwrap();
                    served.recv_with_deadline(|_| (), soon()).unwrap().unwrap();
                }
                let uses = Uses(&served);
                let none = served.try_recv_with(move |_| drop(uses));
                assert!(matches!(none, Err(TryRecvError::Empty)), "{none:?}");
                let (uses, until) = (Uses(&served), Instant::now() + Duration::from_millis(2));
                let none = served.recv_with_deadline(move |_| drop(uses), until);
                assert!(matches!(none, Err(RecvError::TimedOut)), "{none:?}");
            }
        }
    }
}

/// Rule: a reader, the closure that gets a message in place, panics if it uses a link. Without the
/// panic, its receive call would deadlock with itself, or with another call that waits for it.
#[test]
fn read_that_uses_a_link_panics() {
    for wait in [Wait::Spin, Wait::Park] {
        for ground in Ground::all() {
            let group = Group::new().unwrap();
            let config = config().wait(wait).group(&group);
            let Pair { server, served, link } = ground.pair(&config);
            attach(&link, &served);
            // The test covers both states of the link's lock. After 1 message the lock is not
            // biased yet; after 100 messages it is biased towards this thread, which then locks it
            // without an atomic read-modify-write.
            for count in [1, 100] {
                for number in 0..count {
                    link.send(&message(number, 10)).unwrap();
                    served.recv_with_deadline(|_| (), soon()).unwrap().unwrap();
                }
                let uses: [&dyn Fn(); 6] = [
                    &|| drop(served.try_send(b"to itself")),
                    &|| drop(served.try_recv()),
                    &|| drop(served.recv_with_deadline(|_| (), Instant::now())),
                    &|| drop(link.try_send(b"to another")),
                    &|| drop(link.try_recv()),
                    &|| _ = served.stats(),
                ];
                for (number, uses) in uses.iter().enumerate() {
                    link.send(b"something").unwrap();
                    let reads = || served.recv_with_deadline(|_| uses(), soon());
                    let panicked = catch_unwind(AssertUnwindSafe(reads)).unwrap_err();
                    let words = panicked.downcast_ref::<&str>().unwrap();
                    assert!(words.contains("do that before or after"), "use {number}: {words}");
                }
                let again = AssertUnwindSafe(|| served.try_recv_with(panics));
                assert!(catch_unwind(again).is_err(), "it is there");
                served.rewind().unwrap();
                for _ in 0..uses.len() {
                    let bytes =
                        served.recv_with_deadline(|lies| lies.to_vec(), soon()).unwrap().unwrap();
                    assert_eq!(bytes, b"something");
                }
            }
            link.send(b"something").unwrap();
            // The closure that reads the message in place owns a link, and drops it. Dropping a
            // link uses it, which such a closure must not do. So the receive call has to panic,
            // instead of waiting for itself for ever.
            let drops = || served.recv_with_deadline(|_| drop(link), soon());
            let panicked = catch_unwind(AssertUnwindSafe(drops));
            assert!(panicked.is_err());
            drop(server);
        }
    }
}

fn panics(_: MessageView<'_>) {
    panic!("while it reads")
}
