// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Home`: a listener under test, which echoes each stream, and tells the test why each session
//! ended.

use super::{TIMEOUT, soon};
use partywall::blocking::{Listener, Session};
use partywall::{Config, SessionError};
use partywall_shmipc::{Shmipc, SizePercentPair};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A listener under test, which serves until it is dropped.
pub struct Home {
    pub directory: tempfile::TempDir,
    pub refused: mpsc::Receiver<String>,
    pub ended: mpsc::Receiver<SessionError>,
    is_over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Home {
    pub fn new() -> Self {
        Self::with(partywall_shmipc::Config::default(), Config::default())
    }

    /// Starts a listener with the given settings; it accepts files of clients in the directory of
    /// this `Home`.
    pub fn with(protocol: partywall_shmipc::Config, config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let protocol = Arc::new(Shmipc::new(protocol.directory(directory.path())).unwrap());
        let (tell, refused) = mpsc::channel();
        let config = config.on_refused(move |error| {
            let _ = tell.send(error.to_string());
        });
        let address = format!("unix:{}/s.sock", directory.path().display());
        let mut listener = Listener::bind_with(&*address, &config).unwrap().with_protocol(protocol);
        let (tell, ended) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let serving = std::thread::spawn(move || {
            let mut sessions = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let deadline = Instant::now() + Duration::from_millis(20);
                let Ok(session) = listener.accept_deadline(deadline) else { continue };
                let tell = tell.clone();
                sessions.retain(|session: &JoinHandle<()>| !session.is_finished());
                sessions.push(std::thread::spawn(move || {
                    let why = echo(&session);
                    // The session caches free slices of the shared memory. So the session is
                    // dropped, which returns the slices, before the test learns of its end and
                    // counts the free slices.
                    drop(session);
                    let _ = tell.send(why);
                }));
            }
            sessions.into_iter().for_each(|session| session.join().unwrap());
        });
        Self { directory, refused, ended, is_over, serving: Some(serving) }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("s.sock")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits for the next refused connection, and returns why it was refused.
    pub fn refusal(&self) -> String {
        self.refused.recv_timeout(TIMEOUT).expect("it was not refused")
    }

    /// Waits until the listener has refused one more connection, or one more session has ended.
    pub fn is_rid_of_one(&self) {
        super::until("a session ends", || {
            self.ended.try_recv().is_ok() || self.refused.try_recv().is_ok()
        });
    }

    /// Waits for the end of the next session, and returns why the session ended.
    pub fn end(&self) -> String {
        self.ended.recv_timeout(TIMEOUT).expect("it did not end").to_string()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(serving) = self.serving.take() {
            let served = serving.join();
            assert!(served.is_ok() || std::thread::panicking(), "serving failed");
        }
    }
}

/// Echoes all streams of a session until the session ends, and returns why it ended.
pub fn echo(session: &Session) -> SessionError {
    std::thread::scope(|scope| {
        loop {
            let mut stream = match session.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => return session.close_reason().expect("it has ended"),
                Err(error) => return error,
            };
            scope.spawn(move || {
                while let Ok(Some(message)) = stream.recv() {
                    if stream.send_deadline(&message, soon()).is_err() {
                        return;
                    }
                }
            });
        }
    })
}

/// Settings of a client with little shared memory.
pub fn small() -> partywall_shmipc::Config {
    let classes = [
        SizePercentPair { size: 4096, percent: 50 },
        SizePercentPair { size: 65_536, percent: 50 },
    ];
    partywall_shmipc::Config::default().share_memory_buffer_cap(1 << 20).buffer_slice_sizes(classes)
}

pub fn address(path: &Path) -> String {
    format!("unix:{}", path.display())
}
