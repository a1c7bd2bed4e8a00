// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry: each plain socket that is accepted becomes a stream of the session with the other proxy.
//!
//! ```text
//!   place ─▶ accept ─▶ open a stream, within --connect-timeout ─▶ carry
//! ```
//! Without a free place nothing is accepted: whoever connects waits in the backlog.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{sleep, timeout};

use super::connection::carry;
use super::plain::{Plain, PlainListener};
use super::session::Link;
use super::shared::Shared;

/// Accepts until the proxy drains.
pub async fn serve(listener: PlainListener, link: Link, shared: Arc<Shared>) {
    select! {
        () = accept_all(&listener, &link, &shared) => {}
        () = shared.stages.draining() => {}
    }
}

async fn accept_all(listener: &PlainListener, link: &Link, shared: &Arc<Shared>) {
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&shared.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(plain) => {
                let (link, shared, open) = (link.clone(), Arc::clone(shared), shared.begin());
                tokio::spawn(async move {
                    connect(plain, &link, &shared).await;
                    drop(open);
                    // Also if the task panics, it is free again.
                    drop(place);
                });
            }
            Err(error) => pause(&error, shared).await,
        }
    }
}

/// One connection.
async fn connect(plain: Plain, link: &Link, shared: &Shared) {
    let opened = select! {
        opened = timeout(shared.connect_timeout, link.open()) => opened,
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

/// Of one connection, or of all: at the limit of descriptors the listener stays ready.
async fn pause(error: &io::Error, shared: &Shared) {
    shared.failed(&format!(
        "accepting failed: {error}; if there are too many open files, lower --connections or raise \
         `ulimit -n`"
    ));
    sleep(ACCEPT_PAUSE).await;
}

/// How long to let others close their descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
