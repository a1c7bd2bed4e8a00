// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets up one act, a tested operation of the worker process: a directory for each end of the link,
//! and the worker's peer. The peer lives in this process, and runs only while the test polls its
//! group.

use super::act::{Act, Line, Liveness, length};
use super::stepper::Stepper;
use super::worker;
use crate::support_ends::message;
use partywall::Wait;
use partywall_link::{Client, Config, Group, Key, Link, Server, Storage};
use partywall_testkit::{Second, TIMEOUT};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A temporary directory with one subdirectory for the link file of the worker and one for the
/// peer's.
pub struct Ground(tempfile::TempDir);

/// The indices of the worker, the process that is killed, and of its peer on the link, in every
/// array with one element for each.
pub const WORKER: usize = 0;
pub const PEER: usize = 1;

/// One end of the link, with the server that opened the end, if the end is a server's.
pub struct End {
    pub link: Link,
    _server: Option<Server>,
}

/// The set-up of one tested operation: the peer of the worker process, the group that the peer
/// belongs to, and the directory in which worker and peer keep their link files.
pub struct Stage {
    pub ground: Ground,
    pub act: Act,
    pub group: Group,
    pub peer: End,
}

impl Ground {
    pub fn new() -> Self {
        Self(crate::support_ends::directory::with(&NAMES))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The subdirectory in which `which`, the worker (`WORKER`) or its peer (`PEER`), keeps its link
/// file.
pub fn place(ground: &Path, which: usize) -> PathBuf {
    ground.join(NAMES[which])
}

/// The path of the link file of `which`: the worker (`WORKER`) or its peer (`PEER`). The names in
/// the path depend on whether `which` is the server.
pub fn file(ground: &Path, act: Act, which: usize) -> PathBuf {
    let [local, remote] = if is_server(act, which) { ["bob", "alice"] } else { ["alice", "bob"] };
    let key = Key::new(local, remote, "orders").unwrap();
    place(ground, which).join(key.file_name())
}

/// Opens the link on which the tested operation is made, as `which`: the worker (`WORKER`) or its
/// peer (`PEER`).
pub fn open(ground: &Path, act: Act, which: usize, group: &Group) -> Result<End, String> {
    let config = Config::default()
        .ring_bytes(4096)
        .slab_bytes(16384)
        .wait(Wait::Park)
        .retry(Duration::from_millis(1), Duration::from_millis(1))
        // A worker that runs in single steps is slow, so the handshake gets a long timeout.
        .handshake_timeout(TIMEOUT)
        .group(group);
    let place = Storage::directory(place(ground, which));
    let address = format!("unix:{}/links.sock", ground.display());
    if is_server(act, which) {
        let server = Server::bind(address.as_str(), place, "bob", config);
        let server = server.map_err(|error| format!("bind: {error}"))?;
        let link = server.open("alice", "orders").map_err(|error| format!("open: {error}"))?;
        return Ok(End { link, _server: Some(server) });
    }
    let client = Client::new(place, "alice", config);
    let link = client.and_then(|client| client.connect(address.as_str(), "bob", "orders"));
    let link = link.map_err(|error| format!("open: {error}"))?;
    Ok(End { link, _server: None })
}

fn is_server(act: Act, which: usize) -> bool {
    act.is_served() == (which == WORKER)
}

impl Stage {
    /// Starts the worker process. Both ends exchange the messages that precede the tested
    /// operation. Returns when the worker has stopped at the beginning of that operation.
    pub fn set(act: Act) -> Result<(Self, Stepper), String> {
        let ground = Ground::new();
        let group = Group::with_wait(Wait::Park).map_err(|error| error.to_string())?;
        let peer = open(ground.path(), act, PEER, &group)?;
        let stage = Self { ground, act, group, peer };
        if act.has_past() {
            let past = worker::start(&stage, "past");
            stage.play()?;
            stage.until("the past is over", || stage.ground.path().join(worker::READY).exists())?;
            drop(past);
        }
        let worker = worker::start(&stage, "act");
        if !act.opens() {
            stage.play()?;
        }
        let drive = || if act.opens() { Ok(()) } else { stage.drive(POLL_TIME) };
        let stepper = Stepper::meet(worker, stage.ground.path(), drive)?;
        Ok((stage, stepper))
    }

    pub fn files(&self) -> [PathBuf; 2] {
        [WORKER, PEER].map(|which| file(self.ground.path(), self.act, which))
    }

    /// Starts a new process that opens the link file of the killed worker, as its next owner.
    pub fn successor(&self) -> Second {
        worker::start(self, "next")
    }

    /// Lets the worker's peer, which is in this process, run: polls its group for `time`.
    pub fn drive(&self, time: Duration) -> Result<(), String> {
        let polled = self.group.poll(Some(Instant::now() + time));
        polled.map_err(|error| error.to_string())?;
        let _ = self.group.ready();
        Ok(())
    }

    /// Polls the peer's group without waiting if the tested operation opens the link, because the
    /// worker then waits for the peer's part of the handshake. In other operations the peer must
    /// not run, so that only the worker changes the link files.
    pub fn answer(&self) {
        if self.act.opens() {
            let _ = self.group.try_poll();
        }
    }

    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so() {
            self.drive(POLL_TIME)?;
            if Instant::now() > deadline {
                return Err(format!("{what}: not in time; {}", self.peer.link.status()));
            }
        }
        Ok(())
    }

    /// Sends, receives and acknowledges the peer's messages that precede the tested operation.
    fn play(&self) -> Result<(), String> {
        let link = &self.peer.link;
        for line in self.act.script() {
            match line {
                Line::Peer(number, liveness) => {
                    let sent = link.send(&message(number, length(number)));
                    sent.map_err(|error| error.to_string())?;
                    if liveness == Liveness::Consumed {
                        let is_consumed = || matches!(link.unacked_bytes(), Ok(0));
                        self.until("the worker consumes", is_consumed)?;
                    }
                }
                Line::Worker(number, Liveness::Consumed | Liveness::Unheard) => {
                    let mut came = None;
                    self.until("the worker sends", || {
                        came = came.take().or_else(|| link.try_recv().ok().flatten());
                        came.is_some()
                    })?;
                    let came = came.ok_or("nothing came")?;
                    if came != message(number, length(number)) {
                        return Err(format!("{number} did not come first"));
                    }
                    came.ack().map_err(|error| error.to_string())?;
                    self.drive(POLL_TIME)?;
                }
                Line::Worker(..) => {}
            }
        }
        Ok(())
    }
}

const NAMES: [&str; 2] = ["worker", "peer"];
const POLL_TIME: Duration = Duration::from_millis(1);
