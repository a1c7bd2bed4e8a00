// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client and a server of calls on one stream, for unit tests. The window of the stream is so
//! small that a few messages use up the credit.

use super::super::{CallError, CallsConfig};
use super::{Call, Client, Request, Server};
use partywall::blocking::{Listener, Session, connect_with};
use partywall::{Begin, Config};
use std::thread;
use std::time::Instant;

pub(super) struct Ends {
    pub(super) client: Client,
    pub(super) server: Server,
    _sessions: (Session, Session),
    _directory: tempfile::TempDir,
}

impl Ends {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/c.sock", directory.path().display());
        let config = Config::default().begin(Begin::SharedMemory).stream_window(4096);
        let mut listener = Listener::bind_with(&*address, &config).unwrap();
        let connecting = thread::spawn(move || connect_with(&*address, &config).unwrap());
        let there = listener.accept().unwrap();
        let here = connecting.join().unwrap();
        let client = Client::new(here.open(b"calls").unwrap(), CallsConfig::default());
        let stream = there.accept().unwrap().unwrap();
        let server = Server::new(stream, CallsConfig::default());
        Self { client, server, _sessions: (here, there), _directory: directory }
    }

    /// Sends a call, and returns it with the request that the server received.
    pub(super) fn begin(&self) -> (Call, Request) {
        let call = self.client.begin(b"call", None).unwrap();
        (call, self.server.recv(None).unwrap().unwrap())
    }

    /// Sends one-way calls until the stream has no room, not even for the short message that
    /// cancels a call.
    pub(super) fn fill(&self) {
        let full = loop {
            if let Err(error) = self.client.call_one_way(b"", Some(Instant::now())) {
                break error;
            }
        };
        assert!(matches!(full, CallError::DeadlineExceeded), "{full}");
    }
}
