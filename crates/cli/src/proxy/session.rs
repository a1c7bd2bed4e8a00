// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session with the other proxy, which is reconnected whenever it ends.
//!
//! ```text
//!   connect ──▶ up ── session ends, or the peer drains ──────┐
//!      ▲  └─ fails ─────────▶ back-off: 10 ms, 20 ms, … 1 s ◀─┘
//!      └──────────────────────────┘
//! ```
//! While there is no session, new connections wait for the next session. If the other proxy drains,
//! its session keeps the open connections, and new connections use the next session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use partywall::tokio::{Session, Stream, connect_with};
use partywall::{Address, Config, OpenError};
use tokio::select;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::command::advice::InFlags;

use super::ENDING;
use super::shared::Shared;

/// A handle that opens streams on the current session with the other proxy.
#[derive(Clone, Debug)]
pub struct SharedSession(watch::Receiver<Option<Session>>);

/// Connects the session with the other proxy, and connects it again whenever it ends.
#[derive(Debug)]
pub struct Supervisor {
    target: Address,
    config: Config,
    current: watch::Sender<Option<Session>>,
}

impl SharedSession {
    /// Makes a supervisor of the session with the other proxy, and a handle of the session, which
    /// the supervisor connects once it runs ([`Supervisor::run`]).
    pub fn new(target: Address, config: Config) -> (Supervisor, Self) {
        let (current, session) = watch::channel(None);
        (Supervisor { target, config, current }, Self(session))
    }

    /// Opens a stream on the current session. While there is no session, waits for the next one;
    /// the caller limits the time.
    pub async fn open(&self) -> Result<Stream, String> {
        let gone = |_| "the proxy is ending".to_owned();
        let mut current = self.0.clone();
        loop {
            let session = current.wait_for(Option::is_some).await.map_err(gone)?.clone();
            let Some(session) = session else { continue };
            match session.open(b"").await {
                Ok(stream) => return Ok(stream),
                Err(OpenError::Session(_) | OpenError::GoingAway { .. }) => {
                    drop(session);
                    current.changed().await.map_err(gone)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Supervisor {
    /// Connects a session with the other proxy, and a new one whenever it has ended, until this
    /// proxy ends.
    pub async fn run(self, shared: Arc<Shared>) {
        select! {
            () = self.reconnect(&shared) => {}
            () = shared.stages.ending() => {}
        }
        if let Some(session) = self.current.send_replace(None) {
            session.close(0, "");
        }
    }

    async fn reconnect(&self, shared: &Shared) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            match connect_with(&self.target, &self.config).await {
                Ok(session) => {
                    shared.counters.lock().sessions += 1;
                    shared.print(&format!(
                        "connected to {} over {}",
                        self.target,
                        session.transport()
                    ));
                    self.current.send_replace(Some(session.clone()));
                    let why = ended(&session).await;
                    self.current.send_replace(None);
                    shared.print(&format!("the session with {} has ended: {why}", self.target));
                }
                Err(error) => shared.print(&format!("{}; trying again", error.in_flags())),
            }
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Waits until the session opens no more streams; returns the reason.
async fn ended(session: &Session) -> String {
    select! {
        why = session.closed() => why.to_string(),
        code = session.going_away() => match code {
            Ok(ENDING) => "the other proxy is ending".to_owned(),
            Ok(code) => format!("it accepts no more connections (code {code:#x})"),
            Err(why) => why.to_string(),
        },
    }
}

/// Shortest pause between two attempts to connect to the other proxy; it doubles after each
/// failure.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Longest pause between two attempts to connect to the other proxy. After a session that lasted
/// longer than this, the next pause is the shortest again.
const PAUSE_MAX: Duration = Duration::from_secs(1);
