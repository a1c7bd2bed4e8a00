// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `partywall echo` counts and verifies all messages, and compares the transports.

use crate::program;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ChildStdout;
use std::thread;

use program::{Running, announced, partywall, run, text};

/// A running `partywall echo serve` and its addresses.
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

    /// Waits until `echo serve` has ended; returns the rest of its output, the counts of echoed
    /// messages.
    fn verdict(mut self) -> String {
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed).unwrap();
        assert_eq!(self.process.code(), 0, "{printed}");
        printed
    }
}

/// Runs `partywall echo run` with these server addresses and options; returns its output. The
/// command must succeed.
fn ask(addresses: &[String], options: &[&str]) -> String {
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let output = run(&[&["echo", "run", "--connect"], &addresses[..], options].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{addresses:?} {options:?}: {errors}");
    text(&output.stdout)
}

fn uses_shared_memory(printed: &str) -> bool {
    let mut transports = printed.lines().filter(|line| line.starts_with("  transport "));
    transports.any(|line| !line.contains("socket") && line.ends_with("shared memory"))
}

/// Starts `echo serve` at four addresses, a Unix socket and TCP, each for channels and for plain
/// sockets. The socket files are in a private directory.
fn serve_all(options: &[&str]) -> (tempfile::TempDir, Serving) {
    let directory = tempfile::tempdir().unwrap();
    let at = |prefix: &str, name: &str| format!("{prefix}:{}/{name}", directory.path().display());
    let (shm, plain) = (at("unix", "e.sock"), at("plain:unix", "p.sock"));
    let all = [&*shm, "tcp:127.0.0.1:0", &plain, "plain:tcp:127.0.0.1:0"];
    let serving = Serving::start(&all, options);
    (directory, serving)
}

#[test]
fn echo_over_all_transports_is_verified_and_compared() {
    let (_directory, serving) = serve_all(&["--count", "4004"]);
    let printed = ask(&serving.addresses, &["--count", "1000", "--size", "100"]);
    for address in &serving.addresses {
        assert!(printed.contains(&format!("{address}\n  transport")), "{printed}");
    }
    assert_eq!(printed.matches("sent        1000 messages of 100 bytes").count(), 4, "{printed}");
    assert_eq!(printed.matches("received    1000 echoes, all verified").count(), 4, "{printed}");
    assert!(uses_shared_memory(&printed) && printed.contains("plain lines"), "{printed}");
    assert!(printed.contains("÷ fastest") && printed.contains("is the fastest:"), "{printed}");

    let one = ask(&serving.addresses, &["--count", "1", "--message", "hello"]);
    assert_eq!(one.matches("sent        1 message of 5 bytes").count(), 4, "{one}");
    let verdict = serving.verdict();
    assert!(
        verdict.contains("echoed 4004 messages of 400020 bytes in all, to 8 clients"),
        "{verdict}"
    );
}

#[test]
fn echo_with_a_pipeline_is_verified_in_all_sizes() {
    let (_directory, serving) = serve_all(&[]);
    for (size, count) in
        [("1", "5000"), ("64", "5000"), ("4k", "2000"), ("100k", "200"), ("2m", "40")]
    {
        for transport in ["auto", "socket"] {
            let options =
                ["--size", size, "--count", count, "--pipeline", "16", "--transport", transport];
            let printed = ask(&serving.addresses, &options);
            let verified = format!("received    {count} echoes, all verified");
            assert_eq!(printed.matches(&verified).count(), 4, "{printed}");
            assert_eq!(uses_shared_memory(&printed), transport == "auto", "{printed}");
        }
    }
    let empty = ask(&serving.addresses, &["--message", "", "--count", "100", "--pipeline", "3"]);
    assert_eq!(empty.matches("sent        100 messages of 0 bytes").count(), 4, "{empty}");
}

#[test]
fn clients_beyond_the_limit_wait() {
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
fn line_client_without_partywall_is_served() {
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
fn count_is_parsed_with_units_and_is_not_zero() {
    let serving = Serving::start(&["tcp:127.0.0.1:0"], &["--count", "2k"]);
    let printed = ask(&serving.addresses, &["--count", "1k"]);
    assert!(printed.contains("sent        1000 messages"), "{printed}");
    let printed = ask(&serving.addresses, &["-n", "1000"]);
    assert!(printed.contains("sent        1000 messages"), "{printed}");
    assert!(serving.verdict().contains("echoed 2000 messages"));

    for side in [["run", "--connect"], ["serve", "--listen"]] {
        for (count, says) in [("0", "at least 1"), ("k", "10k"), ("5q", "use k, m or g")] {
            let output = run(&["echo", side[0], side[1], "unix:/x", "-n", count]);
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{side:?} {count}: {errors}");
            assert!(errors.contains(says), "{side:?} {count}: {errors}");
        }
    }
}

#[test]
fn serve_ends_after_its_time() {
    let serving = Serving::start(&["tcp:127.0.0.1:0"], &["--for", "50ms"]);
    assert!(serving.verdict().contains("echoed 0 messages"));
}

#[test]
fn wrong_echo_is_5() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("liar.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let liar = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut line = [0; 65];
        for _ in 0..2 {
            // The faulty server, a thread of this test, answers the second message with the first
            // reply again.
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
fn silent_server_is_4_and_missing_server_is_3() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent.sock");
    let address = format!("plain:unix:{}", path.display());
    let options = ["--timeout", "50ms", "--count", "1"];
    let ask = || run(&[&["echo", "run", "--connect", &address][..], &options].concat());
    assert_eq!(ask().status.code(), Some(3), "nobody is there");
    let _silent = UnixListener::bind(&path).unwrap();
    assert_eq!(ask().status.code(), Some(4), "nobody answers");
    let both = run(&["echo", "run", "--connect", "unix:/x", "--message", "a", "--size", "5"]);
    assert_eq!(both.status.code(), Some(2));
    let framed = run(&["echo", "run", "--connect", "unix:/x", "--message", "a\nb"]);
    assert_eq!(framed.status.code(), Some(2));
}
