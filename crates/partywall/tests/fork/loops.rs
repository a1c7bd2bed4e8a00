// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a forked child neither runs an event loop of its parent nor adds sources to it: the
//! kernel has only one epoll set for both processes.

use partywall::Listener;
use partywall::event::{Forked, Loop};
use partywall_testkit::fork::in_a_fork;
use partywall_testkit::{Kind, TIMEOUT};
use std::io;
use std::time::Instant;

fn is_forked<T>(result: Result<T, io::Error>) -> bool {
    result.is_err_and(|error| error.get_ref().is_some_and(|inner| inner.is::<Forked>()))
}

#[test]
fn a_child_neither_turns_a_loop_nor_adds_to_it() {
    for kind in Kind::ALL {
        let events = Loop::new().unwrap();
        let (mut client, server) = kind.pair(|config| config);
        let mut server = events.add_channel(server, 7).unwrap();
        let mut ends = Some((kind.pair(|config| config), kind.pair(|config| config)));
        let mut listener = Some(Listener::bind("tcp:127.0.0.1:0").unwrap());
        let mut reported = Vec::new();
        assert!(
            in_a_fork(|| {
                let ((a, _b), (c, _d)) = ends.take().unwrap();
                let (_sender, receiver) = c.split();
                is_forked(events.wait(&mut reported, None))
                    && is_forked(events.poll(&mut reported))
                    && is_forked(events.poll_spinning(&mut reported))
                    && is_forked(events.add_channel(a, 1))
                    && is_forked(events.add_receiver(receiver, 2))
                    && is_forked(events.add_listener(listener.take().unwrap(), 3))
            }),
            "{}",
            kind.name()
        );
        client.send(b"to the parent").unwrap();
        let received = loop {
            assert!(events.wait(&mut reported, Some(Instant::now() + TIMEOUT)).unwrap() > 0);
            assert!(reported.iter().all(|event| event.tag == 7));
            if let Ok(received) = server.try_recv() {
                break received.unwrap();
            }
        };
        assert_eq!(received, b"to the parent");
    }
}
