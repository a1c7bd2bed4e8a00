// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: TCP over loopback, blocking, `TCP_NODELAY` on both sides.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use super::bytes::ByteLane;
use super::lane::{Door, Setup, Transport};

/// The transport `tcp`.
pub struct Tcp;

/// A listener on a free port of 127.0.0.1.
pub struct TcpDoor {
    listener: TcpListener,
    address: SocketAddr,
    size: usize,
}

impl Transport for Tcp {
    type Lane = ByteLane<TcpStream>;
    type Door = TcpDoor;

    fn bind(setup: &Setup) -> Result<TcpDoor> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("binding a port of 127.0.0.1")?;
        let address = listener.local_addr().context("asking for the port that was bound")?;
        Ok(TcpDoor { listener, address, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Lane> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("connecting {address}"))?;
        lane(stream, setup.size)
    }
}

impl Door for TcpDoor {
    type Lane = ByteLane<TcpStream>;

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().context("accepting on TCP")?;
        lane(stream, self.size)
    }
}

fn lane(stream: TcpStream, size: usize) -> Result<ByteLane<TcpStream>> {
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    Ok(ByteLane::new(stream, size))
}
