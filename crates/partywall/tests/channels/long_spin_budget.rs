// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that an adaptive wait with a spin budget of hours ends at its deadline, and when the peer
//! closes the channel.

use partywall::{Channel, RecvError, Wait};
use partywall_testkit::{Kind, Watchdog};
use std::time::{Duration, Instant};

const HOURS: Duration = Duration::from_secs(20_000);
const LIMIT: Duration = Duration::from_secs(60);

fn pair(kind: Kind) -> (Channel, Channel) {
    kind.pair(|config| config.wait(Wait::Adaptive).spin_budget(HOURS))
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let _watchdog = Watchdog::new("deadlines", LIMIT);
    for kind in Kind::ALL {
        let (mut client, _server) = pair(kind);
        let soon = || Instant::now() + Duration::from_millis(10);
        assert!(matches!(client.recv_deadline(soon()), Err(RecvError::TimedOut)), "{kind:?}");
        while client.send_deadline(&[7; 1000], soon()).is_ok() {}
    }
}

#[test]
fn a_wait_ends_when_the_peer_closes() {
    let _watchdog = Watchdog::new("ends", LIMIT);
    for kind in Kind::ALL {
        let (mut client, server) = pair(kind);
        let waiting = std::thread::spawn(move || client.recv().map(|message| message.is_none()));
        drop(server);
        assert!(waiting.join().unwrap().unwrap_or(true), "{kind:?}");
    }
}
