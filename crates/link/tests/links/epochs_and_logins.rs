// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of epochs, which either end begins, and of the rules by which a server admits or refuses a
//! client.

use crate::support_ends;

use partywall::Address;
use partywall_link::{
    BindError, Client, Config, Delivery, Event, Group, Link, LoginAnswer, OpenError, Server,
    Storage, Transport,
};
use std::time::Instant;
use support_ends::{Ground, Pair, Via, message, number, soon};

fn config(group: &Group) -> Config {
    Config::default().ring_bytes(64 << 10).slab_bytes(64 << 10).group(group)
}

fn until(group: &Group, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = soon();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        group.poll(Some(Instant::now() + std::time::Duration::from_millis(5))).unwrap();
    }
}

fn is_epoch_over(link: &Link, is_receiving: bool) -> bool {
    let reports = link.reports().unwrap();
    let of_direction =
        |report: &&partywall_link::ReportSnapshot| report.is_receiving == is_receiving;
    let found: Vec<_> = reports.iter().filter(of_direction).collect();
    assert!(found.len() <= 1, "{found:?}");
    found
        .iter()
        .all(|report| (report.kind, report.epoch, report.is_exact) == ("undelivered", 0, true))
        && found.len() == 1
}

#[test]
fn epoch_begun_at_either_end_empties_and_reports_at_both() {
    for ground in Ground::all() {
        for from_client in [true, false] {
            let group = Group::new().unwrap();
            let config = config(&group);
            let server = ground.server(config.clone());
            let name = if from_client { "today" } else { "yesterday" };
            let link = ground.client(config).connect(server.local_address(), "bob", name).unwrap();
            let served = server.open("alice", name).unwrap();
            for n in 0..3 {
                link.send(&message(n, 100)).unwrap();
            }
            served.recv_deadline(soon()).unwrap().unwrap().ack().unwrap();
            let uncommitted = served.recv_deadline(soon()).unwrap().unwrap();
            let (begins, adopts) = if from_client { (&link, &served) } else { (&served, &link) };
            begins.begin_epoch(7).unwrap();
            assert!(begins.begin_epoch(7).is_err());
            until(&group, "adopting", || adopts.epoch().unwrap() == 7);
            begins.send(b"fresh").unwrap();
            let fresh = adopts.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!((&fresh[..], fresh.position()), (&b"fresh"[..], 0));
            fresh.ack().unwrap();
            assert!(uncommitted.ack().is_err());
            until(&group, "reports", || {
                is_epoch_over(&link, false) && is_epoch_over(&served, true)
            });
            assert!(adopts.events().contains(&Event::Epoch { epoch: 7 }));
            let (sent, received) = (link.reports().unwrap(), served.reports().unwrap());
            assert_eq!((sent[0].from, sent[0].to), (received[0].from, received[0].to));
            link.acknowledge_reports(&sent).unwrap();
            assert!(link.reports().unwrap().is_empty());
        }
    }
}

#[test]
fn login_reply_reaches_the_client() {
    for ground in [Ground::new(Via::SharedMemory, false), Ground::new(Via::Tcp, true)] {
        let group = Group::new().unwrap();
        let config = config(&group).on_login(|request| {
            assert_eq!(request.key.remote(), "alice");
            let is_unix = request.transport == Transport::Unix;
            assert_eq!(request.peer.credentials.is_some(), is_unix);
            match &request.login[..] {
                b"secret" => LoginAnswer::Accept(b"welcome".to_vec()),
                b"long" => LoginAnswer::Accept(vec![0; 5000]),
                other => {
                    LoginAnswer::Reject(format!("{} is no secret", String::from_utf8_lossy(other)))
                }
            }
        });
        let server = ground.server(config.clone());
        for (login, reason) in [("wrong", "wrong is no secret"), ("long", "5000 bytes")] {
            let client = ground.client(config.clone().login(login));
            let link = client.connect(server.local_address(), "bob", login).unwrap();
            until(&group, "a refusal", || {
                link.events().iter().any(|event| match event {
                    Event::Refused { reason: text } => text.contains(reason),
                    _ => false,
                })
            });
            // A client that the server refuses keeps trying to attach, and keeps the messages that
            // the application sends over its link.
            link.send(b"kept").unwrap();
        }
        let link = ground.client(config.clone().login("secret"));
        let link = link.connect(server.local_address(), "bob", "secret").unwrap();
        link.wait_attached(soon()).unwrap();
        assert_eq!(link.login_reply().unwrap(), &b"welcome"[..]);
        let too_long = Client::new(Storage::Memory, "alice", config.login(vec![0; 5000]));
        assert!(matches!(too_long, Err(OpenError::Config(_))));
    }
}

fn refusal(server: &Server, config: Config, called: &str) -> String {
    let client = Client::new(Storage::Memory, "alice", config).unwrap();
    let link = client.connect(server.local_address(), called, "orders").unwrap();
    let deadline = soon();
    loop {
        for event in link.events() {
            if let Event::Refused { reason } = event {
                return reason;
            }
        }
        assert!(Instant::now() < deadline);
        server.group().poll(Some(Instant::now() + std::time::Duration::from_millis(5))).unwrap();
    }
}

#[test]
fn client_of_another_server_is_refused_with_the_name() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let server = ground.server(config(&group));
    let text = refusal(&server, config(&group), "carol");
    assert!(text.contains("\"bob\", not \"carol\""), "{text}");
    assert_eq!(server.refused(), 1);
}

#[test]
fn server_without_login_does_not_listen_over_tcp() {
    let group = Group::new().unwrap();
    let bind = |address: &str, config| Server::bind(address, Storage::Memory, "bob", config);
    let nobody_asked = bind("tcp:127.0.0.1:0", config(&group)).unwrap_err();
    let near = Ground::new(Via::Unix, false);
    let server = bind(&near.address(), config(&group)).unwrap();
    for refused in [nobody_asked, server.listen_also("tcp:127.0.0.1:0").unwrap_err()] {
        assert!(matches!(refused, BindError::Anonymous { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("on_login") && text.contains("allow_anonymous_tcp"), "{text}");
    }
    let asks = config(&group).on_login(|_| LoginAnswer::Accept(Vec::new()));
    server_listens(bind("tcp:127.0.0.1:0", asks.clone()));
    server_listens(bind("tcp:127.0.0.1:0", config(&group).allow_anonymous_tcp(true)));
    let everywhere = bind("tcp:0.0.0.0:0", asks);
    assert!(everywhere.unwrap_err().to_string().contains("allow_remote"));
}

fn server_listens(bound: Result<Server, BindError>) {
    assert!(matches!(bound.unwrap().local_address(), Address::Tcp { .. }));
}

#[test]
fn client_with_a_window_too_large_is_refused() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let server = ground.server(config(&group).peer_max(32 << 10, 0));
    let text = refusal(&server, config(&group), "bob");
    assert!(text.contains("peer_max"), "{text}");
}

#[test]
fn server_with_a_window_too_large_is_refused() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let server = ground.server(config(&group));
    let client = ground.client(config(&group).peer_max(32 << 10, 0));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    until(&group, "a refusal", || {
        link.events().iter().any(|event| match event {
            Event::Detached { reason } => reason.contains("peer_max"),
            _ => false,
        })
    });
}

#[test]
fn message_at_most_once_is_acked_by_recv() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = config(&group).delivery(Delivery::AtMostOnce);
    let Pair { server, served, link } = ground.pair(&config);
    for n in 0..3 {
        link.send(&message(n, 8)).unwrap();
    }
    assert_eq!(number(&served.recv_deadline(soon()).unwrap().unwrap()), 0);
    let second = served.recv_deadline(soon()).unwrap().unwrap();
    second.ack().unwrap();
    drop((served, server));
    let server = ground.server(config);
    let served = server.open("alice", "orders").unwrap();
    assert_eq!(number(&served.recv_deadline(soon()).unwrap().unwrap()), 2);
}

#[test]
fn message_above_attempts_max_is_poison() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let config = config(&group).attempts_max(2);
    let Pair { server, served, link } = ground.pair(&config);
    link.send(b"harmful").unwrap();
    drop((served, server));
    for attempt in 1..=4 {
        let server = ground.server(config.clone());
        let served = server.open("alice", "orders").unwrap();
        let message = served.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!((message.attempt(), message.is_poison()), (attempt, attempt > 2));
        if message.is_poison() {
            message.reply(b"it is put aside").unwrap();
            // The loop has opened and dropped the server several times. Each dropped server ended
            // its stream of messages, so the client's `recv` first returns `None` for each of them:
            // the test skips these results.
            let mut answers = std::iter::repeat_with(|| link.recv_deadline(soon()).unwrap());
            assert_eq!(answers.find_map(|answer| answer).unwrap(), b"it is put aside");
            break;
        }
    }
}

#[test]
fn a_link_larger_than_all_memory_is_an_error() {
    for address in ["tcp:127.0.0.1:1", "unix:/nowhere"] {
        for shift in [40, 46, 62] {
            let config = Config::default().slab_bytes(1 << shift);
            let client = Client::new(Storage::Memory, "alice", config);
            let refused = client.map(|client| client.connect(address, "bob", "orders"));
            let message = match refused {
                Ok(Ok(link)) => panic!("{link:?}"),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(message.contains("slab_bytes"), "{message}");
        }
    }
}

/// Rule: if the link drops a report (of messages that an epoch dropped) while the application
/// acknowledges the reports it has read, newer reports are kept. A link has room for sixteen
/// reports.
#[test]
fn report_merged_after_read_is_kept() {
    let ground = Ground::new(Via::Tcp, true);
    let link = ground.client(Config::default()).connect("unix:/nowhere", "bob", "orders");
    let link = link.unwrap();
    let mut epoch = 0;
    let mut drop_one = || {
        link.send(b"never consumed").unwrap();
        epoch += 1;
        link.begin_epoch(epoch).unwrap();
    };
    while link.reports().unwrap().len() < 16 {
        drop_one();
    }
    assert_eq!(link.reports_dropped().unwrap(), 0);
    let seen = link.reports().unwrap();
    drop_one();
    link.acknowledge_reports(&seen).unwrap();
    let rest = link.reports().unwrap();
    assert_eq!((rest.len(), rest[0].epoch), (1, seen[15].epoch + 1), "{rest:?}");
    // For lack of room for a seventeenth report, the link dropped the oldest one, which the
    // application had already read.
    assert_eq!(link.reports_dropped().unwrap(), 1);
}
