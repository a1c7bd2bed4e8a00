// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `redis-benchmark`, which reaches a Redis server through two proxies, finds no error.
//!
//! The test is skipped with a message if redis-server or redis-benchmark is not installed.

use crate::program;
use crate::proxied;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use program::Running;
use proxied::{Pair, listen, until};

#[test]
fn redis_benchmark_runs_through_two_proxies_without_an_error() {
    if !is_there("redis-server") || !is_there("redis-benchmark") {
        println!(
            "SKIPPED: redis-server or redis-benchmark is missing (apt-get install redis-server redis-tools)"
        );
        return;
    }
    let port = listen().local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let text = port.to_string();
    let _server = Running::start(
        Command::new("redis-server")
            .args(["--port", &text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    until("redis answers", || ping(port));
    let pair = Pair::start("tcp:127.0.0.1:0", &format!("tcp:127.0.0.1:{port}"), &["--stats"]);
    let front = pair.entry.address.rsplit_once(':').unwrap().1.to_owned();
    let benchmark = |tests: &str, clients: &str, requests: &str, extra: &[&str]| {
        let arguments =
            ["-h", "127.0.0.1", "-p", &front, "-t", tests, "-c", clients, "-n", requests];
        let mut command = Command::new("redis-benchmark");
        command.args(arguments).args(extra).arg("--csv");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = Running::start(&mut command).finish();
        let (out, errors) = (program::text(&output.stdout), program::text(&output.stderr));
        assert!(output.status.success(), "{out}{errors}");
        assert!(!out.contains("rror") && !errors.contains("rror"), "{out}{errors}");
        println!("{out}");
        for test in tests.split(',') {
            let name = format!("\"{}\"", test.to_uppercase());
            assert!(out.lines().any(|line| line.starts_with(&name)), "{out}{errors}");
        }
    };
    benchmark("set,get", "50", "200000", &[]);
    benchmark("set,get", "20", "2000", &["-d", "100000", "-P", "4"]);
    for proxy in [pair.entry, pair.exit] {
        proxy.signal("TERM");
        let (code, printed) = proxy.finish();
        assert_eq!(code, 0, "{printed}");
        assert!(
            printed.contains("failures       0 ") && printed.contains("cut off        0 "),
            "{printed}"
        );
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn ping(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = [0; 7];
    socket.write_all(b"PING\r\n").is_ok()
        && socket.read_exact(&mut answer).is_ok()
        && &answer == b"+PONG\r\n"
}
