// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit proxy: it accepts the streams that the other proxy opens, and connects a plain socket
//! to the target for each of them.
//!
//! ```text
//!   accept sessions ─▶ accept streams of each ─▶ per stream: permit, connect in time ─▶ carry
//! ```
//! A connection carries bytes only while it holds a permit, of which there are as many as
//! `--connections` says. The wait for a permit and the connect together may take
//! `--connect-timeout`.

use std::sync::Arc;
use std::time::Duration;

use partywall::tokio::{Listener, Session, Stream};
use partywall::{AcceptError, Address};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::connection::carry;
use super::plain::Plain;
use super::shared::Shared;
use super::{ENDING, LATE, UNREACHABLE};

/// Runs the exit proxy: accepts sessions until the proxy drains.
pub async fn serve(mut listener: Listener, target: Address, shared: Arc<Shared>) {
    let target = Arc::new(target);
    select! {
        () = accept_all(&mut listener, &target, &shared) => {}
        () = shared.stages.draining() => {}
    }
}

async fn accept_all(listener: &mut Listener, target: &Arc<Address>, shared: &Arc<Shared>) {
    let sessions = Arc::new(Semaphore::new(SESSIONS_MAX));
    loop {
        // Acquiring a permit fails only if the semaphore of permits is closed, which no code does.
        let Ok(permit) = Arc::clone(&sessions).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(session) => {
                shared.counters.lock().sessions += 1;
                shared.print(&format!(
                    "connected: {} over {}",
                    session.peer(),
                    session.transport()
                ));
                let (target, shared) = (Arc::clone(target), Arc::clone(shared));
                tokio::spawn(async move {
                    serve_session(session, &target, &shared).await;
                    drop(permit);
                });
            }
            Err(error) => {
                shared.print(&format!("accepting failed: {error}"));
                if matches!(error, AcceptError::Forked) {
                    return;
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_session(session: Session, target: &Arc<Address>, shared: &Arc<Shared>) {
    loop {
        let accepted = select! {
            biased;
            accepted = session.accept() => accepted,
            () = shared.stages.draining() => break,
        };
        match accepted {
            Ok(Some(stream)) => {
                let (target, shared) = (Arc::clone(target), Arc::clone(shared));
                let open = shared.begin();
                tokio::spawn(async move {
                    connect(stream, &target, &shared).await;
                    drop(open);
                });
            }
            Ok(None) => {
                let why = session.close_reason().map_or_else(String::new, |why| why.to_string());
                return shared
                    .print(&format!("the session with {} has ended: {why}", session.peer()));
            }
            Err(why) => {
                let peer = session.peer();
                return shared.print(&format!("the session with {peer} has ended: {why}"));
            }
        }
    }
    session.go_away(ENDING);
    select! {
        _ = session.drained() => {}
        () = shared.stages.ending() => {}
    }
}

async fn connect(mut stream: Stream, target: &Address, shared: &Shared) {
    let reached = select! {
        reached = timeout(shared.connect_timeout, reach(target, shared)) => reached,
        () = shared.stages.ending() => return stream.reset(ENDING),
    };
    let code = match reached {
        Ok(Ok((plain, _permit))) => {
            return carry(plain, stream, shared).await;
        }
        Ok(Err(error)) => {
            shared.failed(&format!("connecting to {target} failed: {error}"));
            UNREACHABLE
        }
        Err(_) => {
            shared.failed(&format!(
                "connecting to {target} took longer than --connect-timeout {:?}: raise --connections if as \
                 many are open, or check whether the server is busy",
                shared.connect_timeout
            ));
            LATE
        }
    };
    stream.reset(code);
}

/// Waits for a permit, of which there is one for each connection of --connections, and then
/// connects a plain socket to the target.
async fn reach<'a>(
    target: &Address,
    shared: &'a Shared,
) -> std::io::Result<(Plain, Option<tokio::sync::SemaphorePermit<'a>>)> {
    // Acquiring a permit fails only if the semaphore of permits is closed, which no code does.
    let permit = shared.places.acquire().await.ok();
    Ok((Plain::connect(target).await?, permit))
}

/// Maximum number of sessions at the same time; further sessions wait in the backlog of the
/// listener.
const SESSIONS_MAX: usize = 256;

/// Pause after a failed accept, in which the end of a session may free a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
