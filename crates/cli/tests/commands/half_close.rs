// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests `connect` and `listen` when the stdin of one of them ends. The direction from that process
//! closes, and the opposite direction continues until its own end.

use crate::program;

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use program::{Listening, Running, partywall, text, wait_until};

/// The transports of the test, each as the family of the address and the value of `--transport`.
const WIRES: [(&str, &str); 3] = [("unix", "shm"), ("unix", "socket"), ("tcp", "auto")];

/// Calls `test` for each transport, with its name, and with a `listen` and a `connect` whose
/// standard streams are pipes.
fn each(mut test: impl FnMut(&str, Listening, Running)) {
    for (family, transport) in WIRES {
        let directory = tempfile::tempdir().unwrap();
        let address = match family {
            "unix" => format!("unix:{}/half.sock", directory.path().display()),
            _ => "tcp:127.0.0.1:0".to_owned(),
        };
        let options = ["--transport", transport];
        let listen = Listening::start(&[&[&*address][..], &options].concat(), Stdio::piped());
        let arguments = [&["connect", &listen.address][..], &options].concat();
        let connect = Running::start(partywall(&arguments).stdin(Stdio::piped()));
        test(transport, listen, connect);
    }
}

/// One process sends a question and closes its sending direction; the other process then sends a
/// long reply, which must arrive whole.
fn ask_and_answer(name: &str, asking: &mut Running, answering: &mut Running) {
    let mut input = asking.0.stdin.take().unwrap();
    input.write_all(b"question").unwrap();
    drop(input);
    let mut question = [0; 8];
    answering.0.stdout.as_mut().unwrap().read_exact(&mut question).unwrap();
    assert_eq!(&question, b"question", "{name}");

    let answer: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    let mut output = answering.0.stdin.take().unwrap();
    let mut reply = asking.0.stdout.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            output.write_all(&answer).unwrap();
            drop(output);
        });
        let mut whole = Vec::new();
        reply.read_to_end(&mut whole).unwrap();
        assert!(whole == answer, "{name}: {} bytes came", whole.len());
    });
    assert_eq!(asking.code(), 0, "{name}");
    assert_eq!(answering.code(), 0, "{name}");
}

#[test]
fn listener_replies_after_the_request_has_ended() {
    each(|name, mut listen, mut connect| {
        ask_and_answer(name, &mut connect, &mut listen.process);
    });
}

#[test]
fn connecting_side_replies_after_the_request_has_ended() {
    each(|name, mut listen, mut connect| {
        ask_and_answer(name, &mut listen.process, &mut connect);
    });
}

#[test]
fn conversation_is_carried_line_by_line() {
    each(|name, mut listen, mut connect| {
        let (mut there, mut here) = (connect.0.stdin.take().unwrap(), listen.stdout());
        let (mut back, mut reply) =
            (listen.process.0.stdin.take().unwrap(), connect.0.stdout.take().unwrap());
        for index in 0..100_u8 {
            let mut got = [0; 2];
            there.write_all(&[index, b'?']).unwrap();
            here.read_exact(&mut got).unwrap();
            assert_eq!(got, [index, b'?'], "{name}");
            back.write_all(&[index, b'!']).unwrap();
            reply.read_exact(&mut got).unwrap();
            assert_eq!(got, [index, b'!'], "{name}");
        }
        drop((there, back));
        assert_eq!((listen.process.code(), connect.code()), (0, 0), "{name}");
    });
}

/// Whether the process `pid` has received the end of the peer's bytes: its thread `stdout`, which
/// writes received bytes, has then ended.
fn has_received_the_end(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process of ours");
    let names = tasks.flatten().map(|task| fs::read_to_string(task.path().join("comm")));
    names.flatten().all(|name| name.trim_end() != "stdout")
}

#[test]
fn death_after_a_half_close_is_noticed_while_stdin_is_silent() {
    each(|name, mut listen, mut connect| {
        if name == "auto" {
            return; // over TCP, this side learns of the peer's death only when it sends
        }
        let (mut there, mut here) = (connect.0.stdin.take().unwrap(), listen.stdout());
        let mut byte = [0];
        there.write_all(b"?").unwrap();
        here.read_exact(&mut byte).unwrap();
        drop(listen.process.0.stdin.take());
        let pid = connect.0.id();
        wait_until("the end is received", || has_received_the_end(pid));
        listen.process.0.kill().unwrap();
        let output = connect.finish();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{name}: {errors}");
        assert!(errors.contains("the peer died"), "{name}: {errors}");
        // The pipe to the stdin of `connect` stays open until this line. So `connect` ended because
        // its peer died, and not because its stdin ended.
        drop(there);
    });
}
