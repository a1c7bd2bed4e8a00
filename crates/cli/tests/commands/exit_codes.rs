// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that each way in which the command `partywall` can end has its own exit code, and that
//! stderr states the reason.

use crate::program;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use partywall_bench::former_names::FORMER_NAMES;
use program::{Listening, Running, announced, partywall, run, text};

const FAILURE: i32 = 1;
const USAGE: i32 = 2;
const NO_CONNECTION: i32 = 3;
const PEER_DIED: i32 = 4;
const PROTOCOL: i32 = 5;
const OUTPUT_CLOSED: i32 = 6;

/// Asserts that `partywall` ends with this exit code and an error text that contains `says`.
fn ends(arguments: &[&str], code: i32, says: &str) {
    let output = run(arguments);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.contains(says), "{arguments:?}: {errors:?} does not say {says:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

fn address(directory: &Path) -> String {
    format!("unix:{}/exit.sock", directory.display())
}

/// Calls `test` for each transport, with a `listen` and a `connect` whose standard streams are
/// pipes.
fn each(mut test: impl FnMut(Listening, Running)) {
    for transport in ["shm", "socket"] {
        let directory = tempfile::tempdir().unwrap();
        let options = ["--transport", transport];
        let address = address(directory.path());
        let mut listen = Listening::start(&[&[&*address][..], &options].concat(), Stdio::piped());
        let arguments = [&["connect", &listen.address][..], &options].concat();
        let mut connect = Running::start(partywall(&arguments).stdin(Stdio::piped()));
        // A byte in each direction shows that the two processes are connected.
        let mut byte = [0];
        connect.0.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        listen.process.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        listen.process.0.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        connect.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        test(listen, connect);
    }
}

#[test]
fn wrong_usage_is_2_in_every_command() {
    ends(&[], USAGE, "Usage");
    ends(&["nonsense"], USAGE, "unrecognized");
    ends(&["listen"], USAGE, "ADDRESS");
    ends(&["connect", "/no/scheme"], USAGE, "must begin with unix: or tcp:");
    ends(&["listen", "tcp:127.0.0.1"], USAGE, "port is missing");
    ends(&["connect", "unix:/x", "--wait", "sleep"], USAGE, "poll:1ms");
    ends(&["connect", "unix:/x", "--memory", "none"], USAGE, "64k");
    ends(&["connect", "unix:/x", "--block", "2m", "--memory", "1m"], USAGE, "--block");
    ends(&["listen", "unix:/x", "--mode", "rw"], USAGE, "octal");
    for command in ["bench", "echo", "proxy", "doctor", "inspect", "shmipc", "link", "man"] {
        ends(&[command, "--nonsense"], USAGE, "--nonsense");
    }
    ends(&["bench", "ping", "--fresh"], USAGE, "belong to `bench connect`");
    ends(&["bench", "connect", "--transport", "baseline-spin"], USAGE, "none of the chosen");
    ends(&["echo", "run", "--connect", "unix:/x", "--message", "a\nb"], USAGE, "a newline");
    ends(&["man", "nonsense"], USAGE, "has no command nonsense");
    ends(&["link", "send", "--name", "a", "--peer", "b", "unix:/x"], USAGE, "needs a directory");
    let receive = ["link", "recv", "--name", "b", "--volatile", "tcp:127.0.0.1:0"];
    ends(&receive, USAGE, "--token-file");
    let proxy = ["proxy", "--listen", "tcp:127.0.0.1:0", "--to", "unix:/x", "--window", "2g"];
    ends(&proxy, USAGE, "exceeds --memory");
    for command in ["connect", "listen"] {
        ends(&[command, "plain:unix:/x"], USAGE, "only echo and proxy take plain:");
    }
}

#[test]
fn former_value_is_an_error_with_the_present_name() {
    for row in FORMER_NAMES {
        let line = row.place.command_line(row.former);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        ends(&line, USAGE, &format!("is now called '{}'", row.present));
    }
}

#[test]
fn unwritable_report_is_1_before_any_measurement() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    // `bench` must report the error of `--out` before it measures: a measurement of 600 s would
    // exceed the time limit of the test.
    let long = ["bench", "ping", "--duration", "600s", "--out"];
    for out in [file.clone(), file.join("within")] {
        ends(&[&long[..], &[out.to_str().unwrap()]].concat(), FAILURE, out.to_str().unwrap());
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
}

#[test]
fn unreadable_stdin_is_1_and_the_peer_sees_no_good_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut listen = Listening::start(&[&address(directory.path())], Stdio::null());
    let unreadable = File::open(directory.path()).unwrap();
    let mut connect = partywall(&["connect", &listen.address]);
    let output = Running::start(connect.stdin(unreadable)).finish();
    assert_eq!(output.status.code(), Some(FAILURE));
    assert!(text(&output.stderr).contains("reading stdin"), "{}", text(&output.stderr));
    assert_eq!(listen.process.code(), PEER_DIED);
}

#[test]
fn unreachable_address_is_3() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    ends(&["connect", &format!("unix:{path}/nobody")], NO_CONNECTION, "does not exist");
    ends(&["connect", "tcp:127.0.0.1:1"], NO_CONNECTION, "start it; --retry 5s waits");
    for endpoint in ["tcp:127.0.0.1:1", "plain:tcp:127.0.0.1:1"] {
        let says = "partywall: no server listens on tcp:127.0.0.1:1: start it; --retry 5s";
        ends(&["echo", "run", "--connect", endpoint], NO_CONNECTION, says);
    }
    ends(&["connect", "unix:@partywall-nobody", "--retry", "50ms"], NO_CONNECTION, "nobody");
    ends(&["listen", &format!("unix:{path}/no/such/dir")], NO_CONNECTION, "directory");
    ends(&["listen", "tcp:0.0.0.0:0"], NO_CONNECTION, "--allow-remote");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    ends(&["listen", &format!("unix:{}", file.display())], NO_CONNECTION, "not a socket");
    ends(&["connect", &format!("unix:{}", file.display())], NO_CONNECTION, "is a regular file");
    let retried = ["connect", &format!("unix:{path}"), "--retry", "2min"];
    ends(&retried, NO_CONNECTION, "is a directory, not a socket");
    let _taken = Listening::start(&[&address(directory.path())], Stdio::null());
    ends(&["listen", &address(directory.path())], NO_CONNECTION, "in use");
    let late = format!("unix:{path}/late");
    let output = run(&["listen", &late, "--timeout", "50ms"]);
    assert_eq!(output.status.code(), Some(NO_CONNECTION));
    assert!(!Path::new(&late[5..]).exists(), "the socket file is gone");
}

#[test]
fn listener_without_partywall_is_3() {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("exit.sock")).unwrap();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n, and so on and so forth").unwrap();
        let _ = stream.read(&mut [0; 512]);
    });
    ends(&["connect", &address(directory.path())], NO_CONNECTION, "is no Partywall listener");
    other.join().unwrap();
}

#[test]
fn channel_to_a_proxy_is_refused_with_a_reason_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let mut proxy =
        Running::start(&mut partywall(&["proxy", "--listen", &address, "--to", "tcp:127.0.0.1:1"]));
    let mut stderr = BufReader::new(proxy.0.stderr.take().unwrap());
    let address = announced(&mut stderr);
    ends(&["connect", &address], NO_CONNECTION, "proxy makes a session with another proxy");
    ends(&["echo", "run", "--connect", &address], NO_CONNECTION, "serves something else");
    let mut refused = String::new();
    stderr.read_line(&mut refused).unwrap();
    assert!(refused.contains("asks for channels, and this listener serves sessions"), "{refused}");
}

#[test]
fn without_shared_memory_asked_for_shm_is_3() {
    let listen = Listening::start(&["tcp:127.0.0.1:0"], Stdio::null());
    ends(&["connect", &listen.address, "--transport", "shm"], NO_CONNECTION, "--transport auto");
}

#[test]
fn advice_names_flags_of_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let silent = directory.path().join("silent.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    let silent = format!("unix:{}", silent.display());
    let impatient = ["connect", &silent, "--handshake-timeout", "50ms"];
    ends(&impatient, NO_CONNECTION, "--handshake-timeout");
    // The option `--memory` of the sender and that of the peer each limit the length of a message.
    // Expected result: the error text names the side with the lower limit.
    for (ours, theirs, says) in [("64k", "64m", "on this side"), ("64m", "64k", "at the peer")] {
        let mut listen = Listening::start(&[&address, "--memory", theirs], Stdio::null());
        let ask = ["echo", "run", "--connect", &listen.address, "--size", "1m", "--memory", ours];
        ends(&ask, FAILURE, &format!("raise --memory {says}"));
        assert_eq!(listen.process.code(), 0, "{says}");
    }
}

#[test]
fn killed_peer_is_4_on_either_side() {
    each(|mut listen, mut connect| {
        listen.process.0.kill().unwrap();
        assert_eq!(connect.code(), PEER_DIED);
    });
    each(|mut listen, mut connect| {
        connect.0.kill().unwrap();
        assert_eq!(listen.process.code(), PEER_DIED);
    });
}

#[test]
fn changed_bytes_are_5() {
    let mut listen = Listening::start(&["tcp:127.0.0.1:0"], Stdio::piped());
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:127.0.0.1:{}", proxy.local_addr().unwrap().port());
    let beyond = listen.address.strip_prefix("tcp:").unwrap().to_owned();
    thread::spawn(move || {
        let (near, _) = proxy.accept().unwrap();
        let far = TcpStream::connect(beyond).unwrap();
        let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || pass(far_back, near_back));
        pass(near, far);
    });
    let mut connect = partywall(&["connect", &address]);
    let mut connect = Running::start(connect.stdin(Stdio::piped()));
    let mut input = connect.0.stdin.take().unwrap();
    input.write_all(b"first").unwrap();
    let mut first = [0; 5];
    listen.process.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    input.write_all(b"SPOIL").unwrap();
    assert_eq!(listen.process.code(), PROTOCOL);
    assert_eq!(connect.code(), PEER_DIED);
    let mut printed = String::new();
    listen.stderr.read_to_string(&mut printed).unwrap();
    assert!(printed.contains("broke the protocol"), "{printed}");
}

/// One direction of a faulty relay between a `listen` and a `connect`. It copies bytes from one
/// socket to the other, but inverts all bytes of a read that contains the text `SPOIL`.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        if bytes.windows(5).any(|window| window == b"SPOIL") {
            bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn closed_output_is_6_and_the_sender_sees_a_dead_peer() {
    each(|mut listen, mut connect| {
        drop(listen.stdout());
        let mut input = connect.0.stdin.take().unwrap();
        // The error of the write is ignored, because the command may end before it has read all
        // bytes of its stdin.
        let _ = input.write_all(&[7; 1_000_000]);
        assert_eq!(listen.process.code(), OUTPUT_CLOSED);
        assert_eq!(connect.code(), PEER_DIED);
    });
}
