// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for the tests of `partywall link`: they run `link send` and `link recv` as processes on
//! one link, in a private directory.
#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::program::{Running, partywall, run, text};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

/// The directories and the address of one link under test. The directories are on a memory file
/// system if possible.
pub struct Ground {
    pub directory: tempfile::TempDir,
    /// The directory that holds the link files of sender and receiver.
    pub links: PathBuf,
    pub address: String,
}

impl Ground {
    pub fn new(is_tcp: bool) -> Self {
        let memory = Path::new("/dev/shm");
        let directory = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        let links = directory.path().join("links");
        fs::create_dir(&links).unwrap();
        fs::set_permissions(&links, Permissions::from_mode(0o700)).unwrap();
        let address = match is_tcp {
            true => format!("tcp:{}", free_address()),
            false => format!("unix:{}", directory.path().join("links.sock").display()),
        };
        Self { directory, links, address }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub fn read(&self, name: &str) -> String {
        text(&fs::read(self.path(name)).unwrap())
    }

    /// The arguments of the command `link send` with the name alice, which sends to bob, followed
    /// by `more`.
    pub fn alice<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let own = ["link", "send", "--name", "alice", "--peer", "bob", &self.address, "--quiet"];
        [&own[..], &["--dir", self.links.to_str().unwrap()], more].concat()
    }

    /// The arguments of the command `link recv` with the name bob, which receives from alice,
    /// followed by `more`.
    pub fn bob<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let own = ["link", "recv", "--name", "bob", "--peer", "alice", &self.address, "--quiet"];
        [&own[..], &["--dir", self.links.to_str().unwrap(), "--allow-anonymous"], more].concat()
    }

    /// The output of `partywall link inspect` for the link files of sender and receiver.
    pub fn inspected(&self) -> String {
        text(&run(&["link", "inspect", "--dir", self.links.to_str().unwrap()]).stdout)
    }

    /// Starts the sender or the receiver with these arguments, without input and with its output
    /// discarded.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(partywall(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Path of a file that the sender or receiver with the name `local` keeps beside the link.
    /// `ending` is the end of the file's name: `link` selects the link file.
    pub fn file_of(&self, local: &str, ending: &str) -> PathBuf {
        let remote = if local == "alice" { "bob" } else { "alice" };
        let key = partywall_link::Key::new(local, remote, "messages").unwrap();
        self.links.join(key.file_name()).with_extension(ending)
    }

    /// Sends `input` from a sender with the options `sending` to a receiver with the options
    /// `receiving`; returns outputs and exit codes.
    pub fn carry(&self, input: &str, sending: &[&str], receiving: &[&str]) -> Carried {
        let input = self.write("input", input);
        let receiver =
            Running::start(&mut partywall(&self.bob(&[receiving, &["--once"]].concat())));
        let sender =
            partywall(&self.alice(&[&["--in", &input], sending].concat())).spawn().unwrap();
        // A thread reads the receiver's output while the test waits for the sender. A full pipe
        // that is not read would block the receiver, and then the sender.
        let receiver = std::thread::spawn(|| receiver.finish());
        let (sender, receiver) = (Running(sender).finish(), receiver.join().unwrap());
        Carried {
            codes: (sender.status.code(), receiver.status.code()),
            output: text(&receiver.stdout),
            sender: text(&sender.stderr),
            receiver: text(&receiver.stderr),
        }
    }
}

/// The result of one transfer from a sender to a receiver.
#[derive(Debug)]
pub struct Carried {
    /// Exit codes of the sender's and the receiver's process.
    pub codes: (Option<i32>, Option<i32>),
    pub output: String,
    pub sender: String,
    pub receiver: String,
}

/// A free address, outside the range from which the kernel takes client ports, because a client
/// that dials a free port of that range may connect to itself. Each process uses its own loopback
/// address, so no other test takes the port after one process has freed it and before the next one
/// listens.
fn free_address() -> SocketAddrV4 {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high | 0x80, middle, low);
    static NEXT: AtomicU16 = AtomicU16::new(12_000);
    loop {
        let one = SocketAddrV4::new(address, NEXT.fetch_add(1, Ordering::Relaxed));
        if std::net::TcpListener::bind(one).is_ok() {
            return one;
        }
    }
}
