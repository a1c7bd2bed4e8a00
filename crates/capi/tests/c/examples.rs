// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the examples in `bindings/c/examples`, each with a second process.

use crate::compiler::{Program, Running, Sanitizers};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longest wait of a test for another process.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn echo_answers() {
    let program = Program::build_as("c11", "examples/echo.c", Sanitizers::On);
    let address = format!("unix:{}/app.sock", program.directory().display());
    let server = program.start(&["serve", &address], Stdio::null(), Stdio::inherit());
    let until = Instant::now() + LIMIT;
    loop {
        // The client fails until the server listens, so the test starts it again.
        let mut client = program.start(&[&address, "hello"], Stdio::null(), Stdio::piped());
        let mut answer = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
        if answer == "hello\n" {
            client.succeed();
            break;
        }
        assert!(Instant::now() < until, "the client got {answer:?}");
    }
    server.succeed();
}

/// Starts the example of links as a receiver.
fn receive(program: &Program, directory: &str, address: &str) -> Running {
    program.start(&["recv", directory, address], Stdio::null(), Stdio::piped())
}

#[test]
fn link_survives_a_kill_of_either_side() {
    let program = Program::build_as("c11", "examples/link.c", Sanitizers::Off);
    let path = |name: &str| program.directory().join(name).display().to_string();
    let address = format!("unix:{}", path("link.sock"));
    for name in ["alice", "bob"] {
        fs::DirBuilder::new().mode(0o700).create(path(name)).unwrap();
    }
    let lines: Vec<String> = (0..600).map(|number| format!("line {number}\n")).collect();
    fs::write(path("rest"), lines[300..].concat()).unwrap();

    // The test kills the sender while it waits for more input. A second sender sends the other
    // lines.
    let mut sender =
        program.start(&["send", &path("alice"), &address], Stdio::piped(), Stdio::null());
    sender.0.stdin.as_mut().unwrap().write_all(lines[..300].concat().as_bytes()).unwrap();
    let mut receiver = receive(&program, &path("bob"), &address);
    let mut output = BufReader::new(receiver.0.stdout.take().unwrap());
    let mut received = Vec::new();
    while received.len() < 300 {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the receiver ended");
        received.push(line);
    }
    drop(sender);
    drop(receiver);

    let rest = File::open(path("rest")).unwrap();
    let sender = program.start(&["send", &path("alice"), &address], rest.into(), Stdio::null());
    let mut receiver = receive(&program, &path("bob"), &address);
    let output = BufReader::new(receiver.0.stdout.take().unwrap());
    let mut again: Vec<String> = output.lines().map(|line| line.unwrap() + "\n").collect();
    // The example prints a line before it acknowledges the line's message, so the last line may
    // come again.
    if again.first() == received.last() {
        again.remove(0);
    }
    received.extend(again);
    assert_eq!(received, lines);
    receiver.succeed();
    sender.succeed();
}
