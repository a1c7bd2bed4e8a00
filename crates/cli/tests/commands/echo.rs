// SPDX-License-Identifier: MIT OR Apache-2.0
//! `echo` counts what it sends and receives, verifies every echo, and compares the wires.

use crate::program;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ChildStdout;
use std::thread;

use program::{Running, announced, partywall, run, text};

/// A serving `partywall echo serve`, and its addresses.
struct Serving {
    process: Running,
    stdout: BufReader<ChildStdout>,
    addresses: Vec<String>,
}

impl Serving {
    fn start(addresses: &[&str], options: &[&str]) -> Self {
        let arguments = [&["echo", "serve", "--listen"], addresses, options].concat();
        let mut process = Running::start(&mut partywall(&arguments));
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        let addresses = addresses.iter().map(|_| announced(&mut stdout)).collect();
        Self { process, stdout, addresses }
    }

    /// Waits for its end; what it says then.
    fn verdict(mut self) -> String {
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).unwrap();
        assert_eq!(self.process.code(), 0, "{said}");
        said
    }
}

/// Runs `partywall echo run` to its end in order; what it says.
fn ask(addresses: &[String], options: &[&str]) -> String {
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let output = run(&[&["echo", "run", "--connect"], &addresses[..], options].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{addresses:?} {options:?}: {errors}");
    text(&output.stdout)
}

/// Whether a transport of the output is shared memory.
fn uses_shared_memory(said: &str) -> bool {
    let mut transports = said.lines().filter(|line| line.starts_with("  transport "));
    transports.any(|line| !line.contains("socket") && line.ends_with("shared memory"))
}

/// All four kinds of wire, in a directory of their own.
fn serve_all(options: &[&str]) -> (tempfile::TempDir, Serving) {
    let directory = tempfile::tempdir().unwrap();
    let at = |prefix: &str, name: &str| format!("{prefix}:{}/{name}", directory.path().display());
    let (shm, plain) = (at("unix", "e.sock"), at("plain:unix", "p.sock"));
    let all = [&*shm, "tcp:127.0.0.1:0", &plain, "plain:tcp:127.0.0.1:0"];
    let serving = Serving::start(&all, options);
    (directory, serving)
}

#[test]
fn over_every_wire_and_then_compares_them() {
    let (_directory, serving) = serve_all(&["--count", "4004"]);
    let said = ask(&serving.addresses, &["--count", "1000", "--size", "100"]);
    for address in &serving.addresses {
        assert!(said.contains(&format!("{address}\n  transport")), "{said}");
    }
    assert_eq!(said.matches("sent        1000 messages of 100 bytes").count(), 4, "{said}");
    assert_eq!(said.matches("received    1000 echoes, all verified").count(), 4, "{said}");
    assert!(uses_shared_memory(&said) && said.contains("plain lines"), "{said}");
    assert!(said.contains("÷ fastest") && said.contains("is the fastest:"), "{said}");

    let one = ask(&serving.addresses, &["--count", "1", "--message", "hello"]);
    assert_eq!(one.matches("sent        1 message of 5 bytes").count(), 4, "{one}");
    let verdict = serving.verdict();
    assert!(
        verdict.contains("echoed 4004 messages of 400020 bytes in all, to 8 clients"),
        "{verdict}"
    );
}

#[test]
fn with_many_on_their_way_and_of_many_sizes() {
    let (_directory, serving) = serve_all(&[]);
    for (size, count) in
        [("1", "5000"), ("64", "5000"), ("4k", "2000"), ("100k", "200"), ("2m", "40")]
    {
        for transport in ["auto", "socket"] {
            let options =
                ["--size", size, "--count", count, "--pipeline", "16", "--transport", transport];
            let said = ask(&serving.addresses, &options);
            let verified = format!("received    {count} echoes, all verified");
            assert_eq!(said.matches(&verified).count(), 4, "{said}");
            assert_eq!(uses_shared_memory(&said), transport == "auto", "{said}");
        }
    }
    let empty = ask(&serving.addresses, &["--message", "", "--count", "100", "--pipeline", "3"]);
    assert_eq!(empty.matches("sent        100 messages of 0 bytes").count(), 4, "{empty}");
}

#[test]
fn for_many_clients_at_a_time_but_no_more_than_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/many.sock", directory.path().display());
    let serving = Serving::start(&[&address], &["--clients", "2", "--count", "6000"]);
    let ask_some = || ask(&serving.addresses, &["--count", "1000", "--wait", "park"]);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(ask_some)).collect();
        for client in clients {
            assert!(client.join().unwrap().contains("received    1000 echoes"));
        }
    });
    let verdict = serving.verdict();
    assert!(
        verdict.contains("echoed 6000 messages") && verdict.contains("to 6 clients"),
        "{verdict}"
    );
    assert!(!directory.path().join("many.sock").exists(), "the socket file is gone");
}

#[test]
fn a_foreign_line_client_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.sock");
    let address = format!("unix:{}", path.display());
    let serving = Serving::start(&[&address], &["--plain", "--count", "3"]);
    assert_eq!(serving.addresses, [format!("plain:{address}")]);
    let mut client = BufReader::new(UnixStream::connect(&path).unwrap());
    for line in ["hi\n", "\n", "over and out\n"] {
        client.get_mut().write_all(line.as_bytes()).unwrap();
        let mut echo = String::new();
        client.read_line(&mut echo).unwrap();
        assert_eq!(echo, line);
    }
    assert!(serving.verdict().contains("echoed 3 messages of 14 bytes"));
}

#[test]
fn counts_are_written_with_k_and_m_and_are_not_zero() {
    let serving = Serving::start(&["tcp:127.0.0.1:0"], &["--count", "2k"]);
    let said = ask(&serving.addresses, &["--count", "1k"]);
    assert!(said.contains("sent        1000 messages"), "{said}");
    let said = ask(&serving.addresses, &["-n", "1000"]);
    assert!(said.contains("sent        1000 messages"), "{said}");
    assert!(serving.verdict().contains("echoed 2000 messages"));

    for side in [["run", "--connect"], ["serve", "--listen"]] {
        for (count, says) in [("0", "at least 1"), ("k", "10k"), ("5q", "use k, m or g")] {
            let output = run(&["echo", side[0], side[1], "unix:/x", "-n", count]);
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{side:?} {count}: {errors}");
            assert!(errors.contains(says), "{side:?} {count}: {errors}");
        }
    }
}

#[test]
fn it_ends_when_its_time_is_over() {
    let serving = Serving::start(&["tcp:127.0.0.1:0"], &["--for", "50ms"]);
    assert!(serving.verdict().contains("echoed 0 messages"));
}

#[test]
fn an_echo_that_is_not_what_was_sent_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("liar.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let liar = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut line = [0; 65];
        for _ in 0..2 {
            // The first answer given twice.
            let mut next = [0; 65];
            client.read_exact(&mut next).unwrap();
            if line[0] == 0 {
                line = next;
            }
            client.write_all(&line).unwrap();
        }
    });
    let address = format!("plain:unix:{}", path.display());
    let output = run(&["echo", "run", "--connect", &address, "--count", "5"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("not what was sent"));
    liar.join().unwrap();
}

#[test]
fn silence_and_absence_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent.sock");
    let address = format!("plain:unix:{}", path.display());
    let options = ["--timeout", "50ms", "--count", "1"];
    let ask = || run(&[&["echo", "run", "--connect", &address][..], &options].concat());
    assert_eq!(ask().status.code(), Some(3), "nobody is there");
    let _silent = UnixListener::bind(&path).unwrap();
    assert_eq!(ask().status.code(), Some(4), "nobody answers");
    let both = run(&["echo", "run", "--connect", "unix:/x", "--message", "a", "--size", "5"]);
    assert_eq!(both.status.code(), Some(1));
    let framed = run(&["echo", "run", "--connect", "unix:/x", "--message", "a\nb"]);
    assert_eq!(framed.status.code(), Some(1));
}
