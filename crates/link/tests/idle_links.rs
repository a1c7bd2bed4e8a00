// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle links wake no thread, and do not slow down busy links, whatever their number.
//!
//! `cargo xtask torture --idle` runs the same test with 10,000 links, and also checks times.

mod support_many_links;

use partywall_link::{Config, Server, Storage};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use support_many_links::figures::Figures;
use support_many_links::many::{self, Kind};
use support_many_links::{client, cost};

/// The role of the second process: it has the clients' ends of all links. The process ends when the
/// first process closes the control connection.
#[test]
fn many_links_client() {
    client::main();
}

#[test]
fn idle_links_cost_no_turns() {
    let asked =
        partywall_testkit::variable("PARTYWALL_IDLE_LINKS").map(|text| text.parse().unwrap());
    let (rest, rounds) = match asked {
        Some(_) => (Duration::from_secs(20), 1000),
        None => (Duration::from_secs(1), 50),
    };
    let limit = usize::try_from(cost::raise_limit()).unwrap();
    // The limit of descriptors bounds the number of links. Each link takes a socket. A link over
    // shared memory also takes two doorbells and, if kept in memory, a descriptor of the memory. A
    // link kept in a file takes one descriptor, and 64 KiB on each side.
    let free = limit - OTHERS;
    let all = asked.unwrap_or(500);
    let runs = [
        (all.min(free), Kind { is_kept: false, is_shared: false }),
        ((all / 5).min(free / 3), Kind { is_kept: true, is_shared: false }),
        (all.min(free / 5), Kind { is_kept: false, is_shared: true }),
        ((all / 5).min(free / 5), Kind { is_kept: true, is_shared: true }),
    ];
    for (count, kind) in runs {
        let few = many::run(many::ACTIVE, kind, rest.min(Duration::from_secs(1)), rounds);
        let many = many::run(count, kind, rest, rounds);
        println!("{few}\n{many}");
        for idle in many.idle {
            // The group, which waits for the events of all its links in one thread, polls once
            // before it sleeps, and wakes at the deadline. If each link woke the group, there would
            // be hundreds of wake-ups.
            assert!(idle.turns < 20 && idle.sleeps < 20 && idle.events == 0, "{many}");
        }
        costs_at_most_twice(&few, &many);
        let ratio = many.active.time.as_secs_f64() / few.active.time.as_secs_f64();
        println!("  {ratio:.2} times the processor time of ten alone");
        assert!(ratio <= 2.0 || asked.is_none(), "{few}\n{many}");
    }
}

/// Prints the times in which 10,000 idle links of a server are dropped and closed: by the server
/// together, and one by one. The files are in the directory for temporary files, which should be on
/// a disk. This function checks no time.
///
/// `TMPDIR=/a/disk cargo test --release -p partywall-link --test idle_links -- --ignored
/// --nocapture`
#[test]
#[ignore = "measures: it opens 40,000 files, and syncs each"]
fn times_of_closing_idle_links() {
    const LINKS: usize = 10_000;
    let limit = usize::try_from(cost::raise_limit()).unwrap();
    assert!(limit > LINKS + OTHERS, "10,000 link files are open at a time, of {limit} descriptors");
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    let address = format!("unix:{}/links.sock", directory.path().display());
    let config = || Config::default().ring_bytes(4096).slab_bytes(0).links_max(LINKS);
    for how in ["dropped", "dropped", "closed together", "closed one by one"] {
        let storage = Storage::directory(directory.path());
        let server = Server::bind(address.as_str(), storage, "bob", config()).unwrap();
        let begun = Instant::now();
        let links: Vec<_> =
            (0..LINKS).map(|n| server.open("alice", &n.to_string()).unwrap()).collect();
        println!("{LINKS} links opened in {:?}", begun.elapsed());
        let (deadline, begun) = (Instant::now() + Duration::from_secs(600), Instant::now());
        match how {
            "closed together" => server.close(deadline).unwrap(),
            "closed one by one" => links.into_iter().for_each(|link| link.close(deadline).unwrap()),
            _ => drop(server),
        }
        println!("  {how} in {:?}", begun.elapsed());
    }
}

/// Checks that idle links add no cost. The same few links receive messages, once alone and once
/// among many idle links. Among many, the group polls its sockets at most twice as often, and
/// reports at most twice as many links with events. The check measures no time.
fn costs_at_most_twice(few: &Figures, many: &Figures) {
    let ([few, many], words) = ([few.active, many.active], format!("{few}\n{many}"));
    assert_eq!(few.messages, many.messages);
    assert!(many.turns <= 2 * few.turns, "{words}");
    assert!(many.reported <= 2 * few.reported, "{words}");
}

/// Number of descriptors that the process keeps free for everything except links: standard streams,
/// the group, the control connection and the test harness.
const OTHERS: usize = 200;
