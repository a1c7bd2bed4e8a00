// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests how a proxy ends. If it is killed, its connections are reset. After SIGTERM it waits for
//! their ends first. A proxy that is started again carries later connections.

use crate::program;
use crate::proxied;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;

use program::run;
use proxied::{Pair, Proxy, assert_reset, connect, echo_tcp, echo_unix, exchange, pattern, until};

#[test]
fn killed_exit_ends_every_connection_and_a_new_one_takes_over() {
    let server = echo_tcp();
    let mut pair = Pair::tcp(&server, &[]);
    let mut clients: Vec<_> = (0..20).map(|_| pair.connect()).collect();
    for client in &mut clients {
        exchange(client, b"before");
    }
    // Input: one of the connections has bytes in flight when the test kills the exit proxy.
    let mut busy = clients[0].try_clone().unwrap();
    let busy = thread::spawn(move || while busy.write_all(&[7; 65_536]).is_ok() {});
    pair.exit.process.0.kill().unwrap();
    pair.exit.process.wait();
    // An error of the read is ignored: if an earlier write already reported the reset, the read
    // finds only the end of the stream.
    let _ = io::copy(&mut clients[0], &mut io::sink());
    clients[1..].iter_mut().for_each(assert_reset);
    busy.join().unwrap();

    // A new client connects to the entry proxy while no exit proxy runs, and waits for the next
    // exit proxy.
    let mut early = pair.connect();
    early.write_all(b"first").unwrap();
    let to = proxied::address_of(&server);
    let shm = pair.exit.address.clone();
    pair.exit = Proxy::start(&shm, &to, &[]);
    let mut back = [0; 5];
    early.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"first");
    exchange(&mut pair.connect(), b"after");
}

#[test]
fn killed_entry_ends_every_connection_to_the_server() {
    let server = proxied::listen();
    let mut pair = Pair::tcp(&server, &[]);
    let mut client = pair.connect();
    let mut server_end = proxied::accept(&server);
    exchange_across(&mut client, &mut server_end);
    pair.entry.process.0.kill().unwrap();
    assert_reset(&mut server_end);
    pair.entry = Proxy::start("tcp:127.0.0.1:0", &pair.exit.address, &[]);
    exchange_across(&mut pair.connect(), &mut proxied::accept(&server));
}

fn exchange_across(client: &mut TcpStream, server_end: &mut TcpStream) {
    client.write_all(b"?").unwrap();
    let mut byte = [0];
    server_end.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"?");
}

#[test]
fn connection_without_an_exit_is_closed_after_the_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let shm = format!("unix:{}/nobody.sock", directory.path().display());
    let entry = Proxy::start("tcp:127.0.0.1:0", &shm, &["--connect-timeout", "100ms"]);
    assert_reset(&mut connect(&entry.address));
    entry.signal("INT");
    let (code, printed) = entry.finish();
    assert_eq!(code, 0);
    assert!(printed.contains("trying again") && printed.contains("--connect-timeout"), "{printed}");
}

#[test]
fn sigterm_drains_open_connections_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let (front, back) = (directory.path().join("front"), directory.path().join("back"));
    echo_unix(&back);
    let pair = Pair::unix(&front, &back, &["--drain", "1h"]);
    let shm = pair.directory.path().join("shm.sock");
    let mut client = UnixStream::connect(&front).unwrap();
    exchange(&mut client, b"before");
    pair.exit.signal("TERM");
    until("the exit takes its socket file away", || !shm.exists());
    exchange(&mut client, b"the exit drains");
    pair.entry.signal("TERM");
    until("the entry takes its socket file away", || !front.exists());
    assert!(UnixStream::connect(&front).is_err());
    exchange(&mut client, &pattern(100_000, 9));
    drop(client);
    for proxy in [pair.entry, pair.exit] {
        let (code, printed) = proxy.finish();
        assert_eq!(code, 0, "{printed}");
    }
}

#[test]
fn connection_that_outlasts_the_drain_is_reset() {
    let server = proxied::listen();
    let pair = Pair::tcp(&server, &["--drain", "50ms", "--stats"]);
    let mut client = pair.connect();
    let mut server_end = proxied::accept(&server);
    exchange_across(&mut client, &mut server_end);
    pair.entry.signal("TERM");
    assert_reset(&mut client);
    assert_reset(&mut server_end);
    let (code, printed) = pair.entry.finish();
    assert_eq!(code, 0);
    assert!(printed.contains("cut off        1 "), "{printed}");
}

#[test]
fn second_signal_ends_at_once() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &["--drain", "24h"]);
    let mut client = pair.connect();
    exchange(&mut client, b"open");
    let mut exit = pair.exit;
    exit.signal("INT");
    until("the socket file is gone", || !pair.directory.path().join("shm.sock").exists());
    assert!(exit.process.0.try_wait().unwrap().is_none(), "it waits for what is open");
    exit.signal("TERM");
    assert_eq!(exit.finish().0, 143);
    assert_reset(&mut client);
}

#[test]
fn exit_restarted_in_good_order_loses_no_connection() {
    let server = echo_tcp();
    let mut pair = Pair::tcp(&server, &["--drain", "1h"]);
    let mut old = pair.connect();
    exchange(&mut old, b"over the first");
    let (shm, to) = (pair.exit.address.clone(), proxied::address_of(&server));
    pair.exit.signal("TERM");
    let path = pair.directory.path().join("shm.sock");
    until("the first exit takes its socket file away", || !path.exists());
    let first = std::mem::replace(&mut pair.exit, Proxy::start(&shm, &to, &[]));
    exchange(&mut pair.connect(), b"over the second");
    exchange(&mut old, b"still over the first");
    drop(old);
    assert_eq!(first.finish().0, 0);
}

#[test]
fn ambiguous_arguments_are_an_error_with_advice() {
    let check = |arguments: &[&str], code: i32, part: &str| {
        let output = run(&[&["proxy"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(part), "{arguments:?}: {errors}");
    };
    check(&["--listen", "unix:/a", "--to", "unix:/b"], 2, "--listen plain:unix:/a");
    check(&["--listen", "plain:unix:/a", "--to", "plain:unix:/b"], 2, "both sides are plain");
    check(&["--listen", "tcp:127.0.0.1:0"], 2, "--to");
    check(&["--listen", "unix:/no/such/dir/a", "--to", "tcp:127.0.0.1:1"], 3, "directory");
    check(&["--listen", "tcp:0.0.0.0:0", "--to", "unix:/a"], 3, "--allow-remote");
    let window =
        ["--listen", "tcp:127.0.0.1:0", "--to", "unix:/a", "--window", "2m", "--memory", "1m"];
    check(&window, 2, "--window");
}
