// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry proxy: it accepts plain sockets, and opens a stream for each of them on the session
//! with the other proxy.
//!
//! ```text
//!   permit ─▶ accept ─▶ open a stream, within --connect-timeout ─▶ carry
//! ```
//! Each open connection holds a permit. While no permit is free, the proxy accepts no socket, and
//! clients wait in the backlog of the listener.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{sleep, timeout};

use super::connection::carry;
use super::plain::{Plain, PlainListener};
use super::session::SharedSession;
use super::shared::Shared;

/// Runs the entry proxy: accepts plain sockets until the proxy drains.
pub async fn serve(listener: PlainListener, session: SharedSession, shared: Arc<Shared>) {
    select! {
        () = accept_all(&listener, &session, &shared) => {}
        () = shared.stages.draining() => {}
    }
}

async fn accept_all(listener: &PlainListener, session: &SharedSession, shared: &Arc<Shared>) {
    loop {
        // Acquiring a permit fails only if the semaphore of permits is closed, which no code does.
        let Ok(permit) = Arc::clone(&shared.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(plain) => {
                let (session, shared, open) = (session.clone(), Arc::clone(shared), shared.begin());
                tokio::spawn(async move {
                    connect(plain, &session, &shared).await;
                    drop(open);
                    // The permit of the connection is moved into its task, so that the permit is
                    // released even if the task panics.
                    drop(permit);
                });
            }
            Err(error) => pause(&error, shared).await,
        }
    }
}

async fn connect(plain: Plain, session: &SharedSession, shared: &Shared) {
    let opened = select! {
        opened = timeout(shared.connect_timeout, session.open()) => opened,
        () = shared.stages.ending() => Ok(Err("the proxy is ending".to_owned())),
    };
    match opened {
        Ok(Ok(stream)) => return carry(plain, stream, shared).await,
        Ok(Err(why)) => shared.failed(&format!("a connection was closed: {why}")),
        Err(_) => shared.failed(&format!(
            "a connection was closed: the other proxy could not be reached within --connect-timeout {:?}",
            shared.connect_timeout
        )),
    }
    plain.reset_on_close();
}

/// Counts a failed accept, and pauses. Without the pause the task would retry all the time, because
/// a listener stays readable while the process has no free descriptor.
async fn pause(error: &io::Error, shared: &Shared) {
    shared.failed(&format!(
        "accepting failed: {error}; if too many files are open, lower --connections or raise \
         `ulimit -n`"
    ));
    sleep(ACCEPT_PAUSE).await;
}

/// Pause after a failed accept, in which the end of a connection may free a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
