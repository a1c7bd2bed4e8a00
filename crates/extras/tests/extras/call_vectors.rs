// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a server and a client react to the messages of `spec/calls.tsv` as its rows say.
//! Implementations in other languages read the same table.

use partywall::blocking::{Listener, Session, Stream, connect_with};
use partywall::{Config, ErrorCode, StreamRecvError};
use partywall_extras::calls::blocking::{Client, Server};
use partywall_extras::calls::{CallError, CallsConfig, Lost, VIOLATION};
use partywall_testkit::{Directory, soon};
use std::thread;

/// Number of rows that the table `spec/calls.tsv` must have, so that no row is overlooked.
const VECTORS: usize = 56;

/// One row of `spec/calls.tsv`.
struct Vector<'a> {
    name: &'a str,
    reader: &'a str,
    made: usize,
    messages: Vec<Vec<u8>>,
    outcome: u32,
}

fn vectors() -> Vec<Vector<'static>> {
    let table = include_str!("../../../../spec/calls.tsv");
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let cells: Vec<_> = line.split('\t').collect();
        let [name, reader, made, messages, outcome] = cells[..] else { panic!("{line}") };
        let messages = messages.split(',').filter(|digits| *digits != "none").map(bytes).collect();
        let (made, outcome) = (made.parse().unwrap(), outcome.parse().unwrap());
        Vector { name, reader, made, messages, outcome }
    };
    rows.map(row).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits = digits.trim_matches('-');
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn sessions(directory: &Directory) -> (Session, Session) {
    let address = directory.address("c.sock");
    let config = Config::default();
    let mut listener = Listener::bind_with(&*address, &config).unwrap();
    let client = thread::spawn(move || connect_with(&*address, &config).unwrap());
    let server = listener.accept().unwrap();
    (client.join().unwrap(), server)
}

#[test]
fn messages_have_the_outcome_of_their_row() {
    let (vectors, directory) = (vectors(), Directory::new());
    assert_eq!(vectors.len(), VECTORS);
    let (here, there) = sessions(&directory);
    for vector in vectors {
        let peer = here.open(b"calls").unwrap();
        let stream = there.accept().unwrap().unwrap();
        let outcome = match vector.reader {
            "server" => serve(&vector, stream, peer),
            "client" => call(&vector, stream, peer),
            other => panic!("no reader {other}"),
        };
        assert_eq!(outcome, vector.outcome, "{}", vector.name);
    }
}

/// Sends the messages of a row to a server, and returns how the server's stream ended.
fn serve(vector: &Vector<'_>, stream: Stream, mut peer: Stream) -> u32 {
    send(vector, &mut peer);
    let server = Server::new(stream, CallsConfig::default());
    let outcome = loop {
        match server.recv(Some(soon())) {
            Ok(Some(request)) => {
                let answer = request.to_vec();
                request.answer(&answer, Some(soon())).unwrap();
            }
            Ok(None) => break 0,
            Err(error) => break error.code(),
        }
    };
    drop(server);
    check_end(vector, &mut peer);
    outcome
}

/// Lets a client make the calls that the row demands, sends it the messages of the row, and returns
/// how the client's stream ended.
fn call(vector: &Vector<'_>, stream: Stream, mut peer: Stream) -> u32 {
    let client = Client::new(stream, CallsConfig::default());
    let mut calls = Vec::new();
    for _ in 0..vector.made {
        calls.push(client.begin(b"", Some(soon())).unwrap());
        peer.recv_deadline(soon()).unwrap().unwrap();
    }
    send(vector, &mut peer);
    let outcome = loop {
        // The client without a runtime receives messages only while a call waits. So the test makes
        // a further call if no earlier one is left to wait for.
        let called = match calls.pop() {
            Some(mut call) => call.wait(Some(soon())),
            None => client.call(b"", Some(soon())),
        };
        match called {
            Err(CallError::Lost(Lost::Finished)) => break 0,
            Err(CallError::Lost(lost)) => break lost.code(),
            _ => {}
        }
    };
    drop((calls, client));
    check_end(vector, &mut peer);
    outcome
}

fn send(vector: &Vector<'_>, peer: &mut Stream) {
    for message in &vector.messages {
        peer.send(message).unwrap();
    }
    peer.finish();
}

/// Checks how the tested side ended its own direction: with a reset after a violation, or else in
/// good order.
fn check_end(vector: &Vector<'_>, peer: &mut Stream) {
    let end = loop {
        match peer.recv_deadline(soon()) {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(StreamRecvError::Reset { code }) => break Some(code),
            Err(error) => panic!("{}: {error}", vector.name),
        }
    };
    assert_eq!(end, (vector.outcome != 0).then_some(VIOLATION), "{}", vector.name);
}
