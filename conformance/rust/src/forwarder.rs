// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP forwarder for tests of hot restart: clients connect to its one address, and it connects
//! them to the old server or to the successor.
//!
//! ```text
//!   client ──▶ forwarder ──▶ old server          before `turn_to`
//!                       └──▶ new server          connections made after it
//! ```
//!
//! On a Unix socket the successor takes over the path. Two servers cannot share a TCP port, since
//! the published shmipc libraries have no setting for that. So each server has its own port behind
//! this forwarder, as behind a load balancer.
//!
//! Invariant: bytes pass unchanged. If one side's stream ends, the forwarder also ends its
//! connection to the other side.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

/// A TCP forwarder between clients and servers, which runs until the process ends.
#[derive(Clone, Debug)]
pub struct Forwarder {
    target: Arc<Mutex<SocketAddr>>,
    address: SocketAddr,
}

impl Forwarder {
    /// Starts a forwarder to the server at the address `target`.
    ///
    /// # Errors
    /// If `target` is not an address, or binding fails.
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

    /// The address of the forwarder, to which clients connect.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sends later connections to the successor at the address `target`.
    ///
    /// # Errors
    /// If `target` is not an address.
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
                // An error of the copy is ignored: both directions of `to` are shut down afterwards
                // in any case, so the process behind `to` learns that `from` has ended.
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }
}
