// SPDX-License-Identifier: MIT OR Apache-2.0
//! One address of TCP for a server and its successor.
//!
//! ```text
//!   client ──▶ forwarder ──▶ old server          before `turn_to`
//!                       └──▶ new server          connections made after it
//! ```
//! A Unix socket is taken over by its path. Of a port, two servers would have to share it, for which a published
//! peer has no setting; so each has its own, and this stands in front, as a load balancer would.
//!
//! Invariant: bytes pass as they are; whoever ends, ends for the other side.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

/// It goes on until the process ends.
#[derive(Clone, Debug)]
pub struct Forwarder {
    target: Arc<Mutex<SocketAddr>>,
    address: SocketAddr,
}

impl Forwarder {
    /// Stands in front of a server.
    ///
    /// # Errors
    /// It is no address, or none is left.
    pub fn start(target: &str) -> Result<Self> {
        let target = target.parse().with_context(|| format!("{target} as an address"))?;
        let listener = TcpListener::bind("127.0.0.1:0").context("binding the forwarder")?;
        let address = listener.local_addr()?;
        let forwarder = Self { target: Arc::new(Mutex::new(target)), address };
        let accepting = forwarder.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Err(error) = accepting.connect(&client) {
                    eprintln!("forwarder: {error:#}");
                }
            }
        });
        Ok(forwarder)
    }

    /// Where clients connect to.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whoever connects from now on is the successor's.
    ///
    /// # Errors
    /// It is no address.
    pub fn turn_to(&self, target: &str) -> Result<()> {
        let target = target.parse().with_context(|| format!("{target} as an address"))?;
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        Ok(())
    }

    fn connect(&self, client: &TcpStream) -> Result<()> {
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TcpStream::connect(target).context("connecting to the server")?;
        for (from, to) in [(client, &server), (&server, client)] {
            from.set_nodelay(true)?;
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            std::thread::spawn(move || {
                // Closing reaches the peer, however this direction ended.
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }
}
