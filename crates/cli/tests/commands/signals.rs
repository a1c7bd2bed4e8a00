// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that SIGINT and SIGTERM end a listening command with exit code 128 plus the signal's
//! number, and that its socket file is removed.

use crate::program;

use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use partywall_sys::signal::{Signal, kill};
use program::{Listening, Running, announced, partywall};

const SIGNALS: [(Signal, i32); 2] = [(Signal::INT, 2), (Signal::TERM, 15)];

fn end_by(process: &mut Running, signal: Signal) -> ExitStatus {
    kill(process.0.id().cast_signed(), signal).unwrap();
    process.wait()
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn listen_ended_by_a_signal_leaves_no_file() {
    for (signal, number) in SIGNALS {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/l.sock", directory.path().display());
        let mut listen = Listening::start(&[&address], Stdio::null());
        assert_eq!(files(directory.path()), ["l.sock"]);
        assert_eq!(end_by(&mut listen.process, signal).code(), Some(128 + number));
        assert!(files(directory.path()).is_empty());
    }
}

#[test]
fn echo_serve_ended_by_a_signal_leaves_no_file() {
    for (signal, number) in SIGNALS {
        let directory = tempfile::tempdir().unwrap();
        let at = |prefix: &str| format!("{prefix}:{}/{}", directory.path().display(), prefix.len());
        let (shm, plain) = (at("unix"), at("plain:unix"));
        let mut serve =
            Running::start(&mut partywall(&["echo", "serve", "--listen", &shm, &plain]));
        let mut stdout = BufReader::new(serve.0.stdout.take().unwrap());
        let address = announced(&mut stdout);
        announced(&mut stdout);
        let mut client = partywall::connect(address.as_str()).unwrap();
        for _ in 0..2 {
            client.send(b"hello").unwrap();
            assert_eq!(client.recv().unwrap().unwrap(), b"hello");
        }
        assert_eq!(files(directory.path()).len(), 2);
        assert_eq!(end_by(&mut serve, signal).code(), Some(128 + number));
        assert!(files(directory.path()).is_empty());
        let mut printed = String::new();
        stdout.read_to_string(&mut printed).unwrap();
        // Expected result: the server reports one or two echoed messages. When the signal arrives,
        // the server may have sent the last echo without having counted it.
        let is_right = ["echoed 1 message of", "echoed 2 messages of"];
        assert!(is_right.iter().any(|count| printed.contains(count)), "{printed}");
        let end = client.recv();
        assert!(matches!(end, Ok(None) | Err(_)), "the server is gone, but {end:?}");
    }
}

#[test]
fn connected_listener_ends_at_once() {
    for (signal, number) in SIGNALS {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/l.sock", directory.path().display());
        let mut listen = Listening::start(&[&address], Stdio::piped());
        let mut client = partywall::connect(address.as_str()).unwrap();
        listen.process.0.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        assert_eq!(client.recv().unwrap().unwrap(), b"?");
        assert!(files(directory.path()).is_empty(), "the address is free");
        assert_eq!(end_by(&mut listen.process, signal).signal(), Some(number));
    }
}
