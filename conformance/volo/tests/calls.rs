// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of Volo's thrift with the server in a process of its own:
//!
//! ```text
//! client                                server
//! our streams (Connector)               our streams (serve)
//! Volo's shmipc transport, unmodified   our shmipc protocol, at the listener of our streams
//! our shmipc protocol (Connector)       Volo's server on its shmipc transport, unmodified
//! ```
//! Each row is a client and a server that a test connects with each other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::File;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conformance_volo::echo::{Echo, EchoClient, MakeEchoClient, Reply, Request};
use conformance_volo::{Connector, serve};
use partywall::Config;
use partywall::tokio::{Incoming, Listener};
use partywall_shmipc::Shmipc;
use partywall_testkit::{
    Directory, Second, Watchdog, argument, is_pattern, pattern, role, run, second_process, until,
};
use volo::net::dial::MakeTransport;
use volo::net::{Address, shmipc};
use volo_thrift::client::ClientBuilder;
use volo_thrift::server::Server;

const CALLS: u64 = 100_000;
/// Number of tasks that make calls at the same time.
const CALLERS: u64 = 8;
const LIMIT: Duration = Duration::from_secs(300);

/// The second process of each test: it runs the server whose role the first process has named.
#[test]
fn server() {
    let Some(role) = role() else { return };
    run("server", LIMIT, async move {
        let path = argument("path");
        if role == "volo" {
            let address = Address::from(shmipc_address(&path));
            File::create(argument("ready")).unwrap();
            Server::<_, _, Request, _, _>::new(Echo).run(address).await.unwrap();
        } else {
            let listener = Listener::bind(format!("unix:{path}")).unwrap();
            let listener = listener.with_protocol(Arc::new(Shmipc::default()));
            File::create(argument("ready")).unwrap();
            serve(Incoming::new(listener), Echo).await;
        }
    });
}

/// Starts a server with the given role in a second process, and returns once the server accepts
/// connections.
fn start(place: &Directory, role: &str) -> Second {
    let (path, ready) = (place.path("socket"), place.path("ready"));
    let _ = std::fs::remove_file(&ready);
    let (path, ready) = (path.to_str().unwrap(), ready.to_str().unwrap());
    let arguments = [("path", path), ("ready", ready)];
    let second = Second::spawn(&mut second_process("server", role, &arguments));
    until("the server is there", || {
        Path::new(ready).exists() && std::os::unix::net::UnixStream::connect(path).is_ok()
    });
    second
}

fn shmipc_address(path: &str) -> shmipc::Address {
    shmipc::Address::Unix(SocketAddr::from_pathname(path).unwrap())
}

fn client_over(connector: Connector) -> EchoClient {
    // Volo's pool requires an address, which the connector ignores.
    let unused = Address::from(SocketAddr::from_pathname("unused").unwrap());
    ClientBuilder::<_, _, _, Request, Reply, _, _, _>::new("Echo", MakeEchoClient)
        .make_transport(connector)
        .address(unused)
        .rpc_timeout(Some(LIMIT))
        .build()
}

/// The payload of call `number`: mostly short, and in one of a hundred calls longer than several
/// messages.
fn payload(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(100) { 200_000 } else { number % 1000 };
    pattern(usize::try_from(len).unwrap() + 8, number)
}

/// Makes `CALLS` calls from [`CALLERS`] tasks, and checks the reply of each.
async fn many_calls(client: &EchoClient) {
    let tasks = (0..CALLERS).map(|caller| {
        let client = client.clone();
        tokio::spawn(async move {
            for number in (caller..CALLS).step_by(CALLERS as usize) {
                let reply = client.echo(payload(number).into()).await.unwrap();
                assert!(is_pattern(&reply, number), "call {number}");
                assert_eq!(reply.len(), payload(number).len());
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[test]
fn hundred_thousand_calls_over_our_streams() {
    let _watchdog = Watchdog::new("calls over our streams", LIMIT);
    let place = Directory::new();
    let _server = start(&place, "ours");
    run("calls", LIMIT, async move {
        many_calls(&client_over(Connector::new(&place.address("socket"), Config::default()))).await;
    });
}

#[test]
fn hundred_thousand_calls_of_volos_shmipc_client_to_our_server() {
    let _watchdog = Watchdog::new("Volo's shmipc client", LIMIT);
    let place = Directory::new();
    let _server = start(&place, "ours");
    let path = place.path("socket");
    run("calls", LIMIT, async move {
        let client = ClientBuilder::<_, _, _, Request, Reply, _, _, _>::new("Echo", MakeEchoClient)
            .address(Address::Shmipc(shmipc_address(path.to_str().unwrap())))
            .rpc_timeout(Some(LIMIT))
            .build();
        many_calls(&client).await;
    });
}

#[test]
fn hundred_thousand_calls_of_our_shmipc_client_to_volos_server() {
    let _watchdog = Watchdog::new("Volo's shmipc server", LIMIT);
    let place = Directory::new();
    let _server = start(&place, "volo");
    run("calls", LIMIT, async move {
        let connector = Connector::new(&place.address("socket"), Config::default());
        many_calls(&client_over(connector.with_protocol(Arc::new(Shmipc::default())))).await;
    });
}

/// Input: the server is killed during a call. Expected: the call fails, and the same client
/// succeeds once another server listens at the address.
#[test]
fn client_survives_the_death_of_its_server() {
    let _watchdog = Watchdog::new("death of a server", LIMIT);
    let place = Directory::new();
    let mut server = start(&place, "ours");
    run("calls", LIMIT, async move {
        let connector = Connector::new(&place.address("socket"), Config::default());
        let client = client_over(connector);
        assert!(is_pattern(&client.echo(payload(1).into()).await.unwrap(), 1));
        let calling = {
            let client = client.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    if client.echo(payload(number).into()).await.is_err() {
                        return;
                    }
                }
            })
        };
        tokio::task::yield_now().await;
        server.kill();
        calling.await.unwrap();
        let place = tokio::task::spawn_blocking(move || (start(&place, "ours"), place));
        let (_server, _place) = place.await.unwrap();
        assert!(is_pattern(&client.echo(payload(2).into()).await.unwrap(), 2));
    });
}

/// Input: the server takes no more streams over the first session. Expected: the connector opens
/// another session.
#[test]
fn connector_leaves_a_session_that_takes_no_more_streams() {
    let _watchdog = Watchdog::new("a session that goes away", LIMIT);
    let place = Directory::new();
    run("connections", LIMIT, async move {
        let listener = Listener::bind(place.address("socket")).unwrap();
        // The server's task returns its listener, sessions and streams, so that they stay open
        // after its last step, while the loop below may still make a connection.
        let mut serving = tokio::spawn(async move {
            let first = listener.accept().await.unwrap();
            let stream = first.accept().await.unwrap().unwrap();
            first.go_away(0);
            let second = listener.accept().await.unwrap();
            let other = second.accept().await.unwrap().unwrap();
            (listener, [first, second], [stream, other])
        });
        let connector = Connector::new(&place.address("socket"), Config::default());
        let unused = Address::from(SocketAddr::from_pathname("unused").unwrap());
        let mut connections = Vec::new();
        // The loop makes connections until the server has accepted a stream of the second session.
        // It waits for the server's task at the same time, because opening a stream waits as long
        // as the session has as many streams as its peer allows.
        let _opened = loop {
            tokio::select! {
                opened = &mut serving => break opened.unwrap(),
                made = connector.make_transport(unused.clone()) => connections.push(made.unwrap()),
            }
        };
    });
}
