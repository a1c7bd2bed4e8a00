// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session with the other proxy: made, and made again whenever it ends.
//!
//! ```text
//!   connect ──▶ up ── it ends, or the other side takes no more ──┐
//!      ▲  └─ fails ─────────▶ back-off: 10 ms, 20 ms, … 1 s ◀─────┘
//!      └──────────────────────────┘
//! ```
//! Connections that come meanwhile wait for the next session. Those of a session whose other side is draining
//! stay with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use partywall::tokio::{Session, Stream, connect_with};
use partywall::{Address, Config, OpenError};
use tokio::select;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::command::advice::InFlags;

use super::codes;
use super::shared::Shared;

/// Where streams are opened.
#[derive(Clone, Debug)]
pub struct Link(watch::Receiver<Option<Session>>);

/// Makes the session, and makes it again.
#[derive(Debug)]
pub struct Keeper {
    target: Address,
    config: Config,
    current: watch::Sender<Option<Session>>,
}

impl Link {
    /// A link that is kept up once [`Keeper::keep`] runs.
    pub fn new(target: Address, config: Config) -> (Keeper, Self) {
        let (current, link) = watch::channel(None);
        (Keeper { target, config, current }, Self(link))
    }

    /// Opens a stream over the session, or over the next one. The caller bounds the time.
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

impl Keeper {
    /// Runs until the proxy ends.
    pub async fn keep(self, shared: Arc<Shared>) {
        select! {
            () = self.keep_on(&shared) => {}
            () = shared.stages.ending() => {}
        }
        if let Some(session) = self.current.send_replace(None) {
            session.close(0, "");
        }
    }

    async fn keep_on(&self, shared: &Shared) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            match connect_with(&self.target, &self.config).await {
                Ok(session) => {
                    shared.counts.lock().sessions += 1;
                    shared.say(&format!(
                        "connected to {} over {}",
                        self.target,
                        session.transport()
                    ));
                    self.current.send_replace(Some(session.clone()));
                    let why = over(&session).await;
                    self.current.send_replace(None);
                    shared.say(&format!("the session with {} is over: {why}", self.target));
                }
                Err(error) => shared.say(&format!("{}; trying again", error.in_flags())),
            }
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Waits until no more streams can be opened; why.
async fn over(session: &Session) -> String {
    select! {
        why = session.closed() => why.to_string(),
        code = session.going_away() => match code {
            Ok(codes::ENDING) => "the proxy there is ending".to_owned(),
            Ok(code) => format!("it takes no more connections (code {code:#x})"),
            Err(why) => why.to_string(),
        },
    }
}

/// The first pause before trying again; it doubles each time, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause. A session that held for longer begins with the shortest one again.
const PAUSE_MAX: Duration = Duration::from_secs(1);
