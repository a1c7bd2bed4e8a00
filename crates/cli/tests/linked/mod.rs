// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link send` and `recv` as processes, in a directory of their own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::program::{Running, partywall, run, text};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

/// A directory for links and the files beside them, in memory where there is some.
pub struct Ground {
    pub directory: tempfile::TempDir,
    /// Both ends are kept here.
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

    /// The arguments of alice, who sends to bob.
    pub fn alice<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let own = ["link", "send", "--name", "alice", "--peer", "bob", &self.address, "--quiet"];
        [&own[..], &["--dir", self.links.to_str().unwrap()], more].concat()
    }

    /// The arguments of bob, who receives.
    pub fn bob<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let own = ["link", "recv", "--name", "bob", "--peer", "alice", &self.address, "--quiet"];
        [&own[..], &["--dir", self.links.to_str().unwrap(), "--allow-anonymous"], more].concat()
    }

    /// What `partywall link inspect` tells of both; it changes nothing.
    pub fn inspected(&self) -> String {
        text(&run(&["link", "inspect", "--dir", self.links.to_str().unwrap()]).stdout)
    }

    /// Starts one of them, without anything on its standard streams.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(partywall(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// The file of one end, or of what lies beside it.
    pub fn beside(&self, local: &str, ending: &str) -> PathBuf {
        let remote = if local == "alice" { "bob" } else { "alice" };
        let key = partywall_link::Key::new(local, remote, "messages").unwrap();
        self.links.join(key.file_name()).with_extension(ending)
    }

    /// Sends what `input` holds to a receiver with these options; what it wrote.
    pub fn carry(&self, input: &str, sending: &[&str], receiving: &[&str]) -> Carried {
        let input = self.write("input", input);
        let receiver =
            Running::start(&mut partywall(&self.bob(&[receiving, &["--once"]].concat())));
        let sender =
            partywall(&self.alice(&[&["--in", &input], sending].concat())).spawn().unwrap();
        // A pipe that nobody reads would hold up both.
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

/// What became of a transfer.
#[derive(Debug)]
pub struct Carried {
    /// Of sender and receiver.
    pub codes: (Option<i32>, Option<i32>),
    pub output: String,
    pub sender: String,
    pub receiver: String,
}

/// One that nobody has, and that the kernel gives to no client: one that dials a port of its own range, where nobody
/// listens, may come to be connected to itself, and then nobody else can listen there. Each process has an address of
/// its own in the network of this host, so no other test can take the port between two owners.
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
