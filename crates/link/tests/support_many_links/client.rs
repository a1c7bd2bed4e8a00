// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second process of the tests with many links: it has the clients' ends of all links, and
//! executes the commands that the first process sends over a control socket.

use super::cost::{self, Holdings};
use super::figures::Idle;
use super::many::{ACTIVE, Ground, Kind, config, idle};
use partywall::Wait;
use partywall_link::{Client, Group, Link};
use partywall_testkit::{soon, variable};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Environment variables that give the second process its directory, the number of links, and the
/// kind of the links.
pub const GROUND: &str = "PARTYWALL_LINKS_GROUND";
pub const LINKS: &str = "PARTYWALL_LINKS_LINKS";
pub const KEPT: &str = "PARTYWALL_LINKS_KEPT";
pub const SHARED: &str = "PARTYWALL_LINKS_SHARED";

/// The main function of the second process, which returns immediately in any other process. It runs
/// until the first process closes the control connection.
pub fn main() {
    let Some(path) = variable(GROUND) else { return };
    let count: usize = variable(LINKS).unwrap().parse().unwrap();
    let (is_kept, is_shared) = (variable(KEPT).is_some(), variable(SHARED).is_some());
    let ground = Ground { path: PathBuf::from(path), kind: Kind { is_kept, is_shared } };
    cost::raise_limit();
    let mut control = UnixStream::connect(ground.control()).unwrap();
    let group = Group::with_wait(Wait::Park).unwrap();
    let before = Holdings::now();
    let client = Client::new(ground.place("client"), "alice", config(&group, ground.kind)).unwrap();
    let links: Vec<Link> = (0..count)
        .map(|n| client.connect(ground.address().as_str(), "bob", &n.to_string()).unwrap())
        .collect();
    attach(&group, &links);
    writeln!(control, "attached").unwrap();
    let lines = BufReader::new(control.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("cost", _) => {
                let Holdings { descriptors, resident_bytes } = Holdings::now().since(before);
                format!("{descriptors} {resident_bytes}")
            }
            ("rest", millis) => {
                let time = Duration::from_millis(millis.parse().unwrap());
                let Idle { turns, sleeps, events } = idle(&group, time);
                format!("{turns} {sleeps} {events}")
            }
            ("send", round) => {
                let bytes = round.parse::<u64>().unwrap().to_le_bytes();
                active(&links).for_each(|link| link.try_send(&bytes).unwrap());
                "sent".to_owned()
            }
            ("hear", _) => {
                hear(&group, &links);
                "received".to_owned()
            }
            other => panic!("{other:?}"),
        };
        writeln!(control, "{answer}").unwrap();
    }
}

/// The active links, over which a run of the test sends messages: every n-th of all links.
fn active(links: &[Link]) -> impl Iterator<Item = &Link> {
    links.iter().step_by(links.len().div_ceil(ACTIVE)).take(ACTIVE)
}

fn attach(group: &Group, links: &[Link]) {
    let (mut attached, deadline) = (0, soon());
    while attached < links.len() {
        group.poll(Some(Instant::now() + POLL_TIME)).unwrap();
        let _ = group.ready();
        let rest = links[attached..].iter();
        attached += rest.take_while(|link| link.stats().connections > 0).count();
        assert!(Instant::now() < deadline, "{attached} of {} attach", links.len());
    }
}

fn hear(group: &Group, links: &[Link]) {
    let deadline = soon();
    while active(links).any(|link| link.unacked_bytes().unwrap() > 0) {
        group.poll(Some(Instant::now() + POLL_TIME)).unwrap();
        let _ = group.ready();
        assert!(Instant::now() < deadline, "messages are not acknowledged");
    }
}

const POLL_TIME: Duration = Duration::from_millis(5);
