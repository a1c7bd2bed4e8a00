// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the examples in `bindings/cpp/examples`, each with a second process.

use crate::compiler::{Program, Running, Sanitizers};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longest wait of a test for another process.
const LIMIT: Duration = Duration::from_secs(30);

fn example(name: &str, sanitizers: Sanitizers) -> Program {
    Program::build_as("c++17", &format!("examples/{name}.cpp"), sanitizers)
}

/// Makes directories for links below the program's directory, and returns their paths.
fn directories<const COUNT: usize>(program: &Program, names: [&str; COUNT]) -> [String; COUNT] {
    names.map(|name| {
        let path = program.directory().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path.display().to_string()
    })
}

fn output(running: &mut Running) -> BufReader<impl Read + use<>> {
    BufReader::new(running.0.stdout.take().unwrap())
}

#[test]
fn echo_answers() {
    let program = example("echo", Sanitizers::On);
    let address = format!("unix:{}/app.sock", program.directory().display());
    let server = program.start(&["serve", &address], Stdio::null(), Stdio::inherit());
    let until = Instant::now() + LIMIT;
    loop {
        // The client fails until the server listens, so the test starts it again.
        let mut client = program.start(&[&address, "hello"], Stdio::null(), Stdio::piped());
        let mut answer = String::new();
        output(&mut client).read_to_string(&mut answer).unwrap();
        if answer == "hello\n" {
            client.succeed();
            break;
        }
        assert!(Instant::now() < until, "the client got {answer:?}");
    }
    server.succeed();
}

#[test]
fn calls_are_answered_in_order() {
    let program = example("calls", Sanitizers::On);
    let address = format!("unix:{}/app.sock", program.directory().display());
    let server = program.start(&["serve", &address], Stdio::null(), Stdio::inherit());
    let until = Instant::now() + LIMIT;
    loop {
        // The client fails until the server listens, so the test starts it again.
        let arguments = [&address, "1", "2", "-7"];
        let mut client = program.start(&arguments, Stdio::null(), Stdio::piped());
        let mut sums = String::new();
        output(&mut client).read_to_string(&mut sums).unwrap();
        if sums == "1\n3\n-4\n" {
            client.succeed();
            break;
        }
        assert!(Instant::now() < until, "the client got {sums:?}");
    }
    server.succeed();
}

#[test]
fn link_survives_a_kill_of_either_side() {
    let program = example("link", Sanitizers::Off);
    let address = format!("unix:{}/link.sock", program.directory().display());
    let [alice, bob] = directories(&program, ["alice", "bob"]);
    let lines: Vec<String> = (0..600).map(|number| format!("line {number}\n")).collect();
    let rest = program.directory().join("rest");
    fs::write(&rest, lines[300..].concat()).unwrap();

    // The test kills the sender while it waits for more input. A second sender sends the other
    // lines.
    let mut sender = program.start(&["send", &alice, &address], Stdio::piped(), Stdio::null());
    sender.0.stdin.as_mut().unwrap().write_all(lines[..300].concat().as_bytes()).unwrap();
    let receive = || program.start(&["recv", &bob, &address], Stdio::null(), Stdio::piped());
    let mut receiver = receive();
    let mut received = Vec::new();
    let mut printed = output(&mut receiver);
    while received.len() < 300 {
        let mut line = String::new();
        assert_ne!(printed.read_line(&mut line).unwrap(), 0, "the receiver ended");
        received.push(line);
    }
    drop(sender);
    drop(receiver);

    let rest = File::open(rest).unwrap();
    let sender = program.start(&["send", &alice, &address], rest.into(), Stdio::null());
    let mut receiver = receive();
    let mut again: Vec<String> =
        output(&mut receiver).lines().map(|line| line.unwrap() + "\n").collect();
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

#[test]
fn log_agent_prints_or_counts_every_record_of_two_programs() {
    const RECORDS: usize = 20_000;
    let program = example("log_agent", Sanitizers::On);
    let address = format!("unix:{}/log.sock", program.directory().display());
    let mut agent = program.start(&["collect", &address, "2"], Stdio::null(), Stdio::piped());
    let mut printed = output(&mut agent);
    let mut ready = String::new();
    printed.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let records = RECORDS.to_string();
    let log =
        |name| program.start(&["log", &address, name, &records], Stdio::null(), Stdio::null());
    let programs = [log("one"), log("two")];
    // If the test reads the agent's output slowly, the agent is slow, and the programs that log
    // lose records.
    let mut count = [0; 2];
    for line in printed.lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let place = usize::from(words[0] == "two");
        match words[1..] {
            ["lost", number] => count[place] += number.parse::<usize>().unwrap(),
            ["record", number] => {
                assert_eq!(number.parse::<usize>().unwrap(), count[place], "{line}");
                count[place] += 1;
            }
            _ => panic!("{line:?}"),
        }
    }
    assert_eq!(count, [RECORDS; 2]);
    programs.into_iter().for_each(Running::succeed);
    agent.succeed();
}

#[test]
fn echo_of_tcpshm_has_every_answer_once_over_a_kill_of_the_server() {
    const MESSAGES: &str = "3000";
    let program = example("tcpshm_echo", Sanitizers::Off);
    let address = format!("unix:{}/echo.sock", program.directory().display());
    let [servers, clients] = directories(&program, ["server", "client"]);
    let serve = || program.start(&["serve", &servers, &address], Stdio::null(), Stdio::null());
    let server = serve();
    let arguments = ["connect", &clients[..], &address, MESSAGES];
    let mut client = program.start(&arguments, Stdio::null(), Stdio::piped());
    let mut printed = output(&mut client);
    let mut half = String::new();
    printed.read_line(&mut half).unwrap();
    assert_eq!(half, "1500 answers\n");
    drop(server); // killed
    let server = serve();
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "3000 answers\n");
    client.succeed();
    let one = ["connect", &clients[..], &address, "1"];
    program.start(&one, Stdio::null(), Stdio::null()).succeed();
    drop(server); // it serves for ever
}
