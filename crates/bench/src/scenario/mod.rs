// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scenarios of the benchmark, one per file. Each file has the code of the parent process and
//! that of the child process.
//!
//! ```text
//! Runner::channels::<T>   ping throughput duplex rate   one connection
//!                         oversubscribe connect idle    several
//! Runner::ping::<T>       ping                          endpoints that are not Send
//! Runner::streams::<T>    parallel                      many streams on tokio
//! Runner::frameworks::<T> grpc http                     ../framework/, if it is built
//! ```
//! A `Runner` consists of function pointers, made from functions generic over one transport. So
//! the table of transports holds runners as data, while no call within a scenario is virtual.

mod connect;
pub mod duplex;
mod idle;
mod oversubscribe;
mod parallel;
mod ping;
mod rate;
mod stream_side;
mod throughput;
mod unread;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::harness::cell::{Cell, Scenario};
use crate::harness::control::{Connected, Control, Reply};
use crate::harness::pair::Pair;
use crate::harness::round::Round;
use crate::harness::workspace::Setup;
use crate::transport::{Acceptor, ChannelTransport, StreamTransport};

/// The functions that measure on one transport, in the parent, the child and a further process.
#[derive(Clone, Copy)]
pub struct Runner {
    /// The function that the parent process calls. It measures a cell once, for about the given
    /// duration.
    pub measure: fn(Cell, &Setup, Duration, &mut Pair) -> Result<Round>,
    /// The function that the child process calls. It serves the parent's requests until the parent
    /// sends `Request::Close`.
    pub serve: fn(Cell, &Setup, &Control) -> Result<()>,
    /// The function that a further process calls, to be the client of one connection; `None` if the
    /// transport does not run `connect`.
    pub connect: Option<ConnectOnce>,
}

/// Opens one connection to the child process at the given address, exchanges the messages of the
/// given cell over it, and returns the measurements.
pub type ConnectOnce = fn(Cell, &Setup, &str) -> Result<Connected>;

impl Runner {
    /// Returns the functions that measure the scenarios of blocking channels on the transport `T`.
    pub const fn channels<T: ChannelTransport<Endpoint: Send + 'static>>() -> Self {
        Self { measure: measure::<T>, serve: serve::<T>, connect: Some(connect_once::<T>) }
    }

    /// Returns the functions that measure `ping`, for a transport `T` whose endpoints stay in one
    /// thread and so run no other scenario.
    pub const fn ping<T: ChannelTransport>() -> Self {
        Self { measure: measure_ping::<T>, serve: serve_ping::<T>, connect: None }
    }

    /// Returns the functions that measure `parallel` on asynchronous streams of the transport `T`.
    pub const fn streams<T: StreamTransport>() -> Self {
        Self { measure: parallel::measure::<T>, serve: parallel::serve::<T>, connect: None }
    }

    /// Returns the functions that measure `grpc` and `http` on byte streams of the transport `T`.
    #[cfg(feature = "frameworks")]
    pub const fn frameworks<T: crate::framework::ByteTransport>() -> Self {
        use crate::framework;
        Self { measure: framework::measure::<T>, serve: framework::serve::<T>, connect: None }
    }
}

fn measure<T: ChannelTransport<Endpoint: Send + 'static>>(
    cell: Cell,
    setup: &Setup,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let address = pair.child.open(cell, setup)?;
    let connect = || T::connect(setup, &address);
    let round = match cell.scenario {
        Scenario::Ping => ping::measure(cell, connect()?, duration, pair),
        Scenario::Throughput => throughput::measure(cell, connect()?, duration, pair),
        Scenario::Duplex => duplex::measure(cell, connect()?, duration, pair),
        Scenario::Rate => rate::measure(cell, connect()?, duration, pair),
        Scenario::Oversubscribe => oversubscribe::measure(cell, connect, duration, pair),
        Scenario::Connect if cell.is_fresh => {
            connect::measure_fresh(cell, setup, &address, duration, pair)
        }
        Scenario::Connect => connect::measure(cell, connect, duration, pair),
        Scenario::Idle => idle::measure(cell, connect, duration, pair),
        other => bail!("{} needs streams", other.name()),
    }?;
    pair.child.close()?;
    Ok(round)
}

fn serve<T: ChannelTransport<Endpoint: Send + 'static>>(
    cell: Cell,
    setup: &Setup,
    control: &Control,
) -> Result<()> {
    let mut acceptor = T::bind(setup)?;
    control.reply(&Reply::Bound { address: acceptor.address() })?;
    match cell.scenario {
        Scenario::Ping => ping::serve(cell, acceptor.accept()?, control),
        Scenario::Throughput => throughput::serve(cell, acceptor.accept()?, control),
        Scenario::Duplex => duplex::serve(cell, acceptor.accept()?, control),
        Scenario::Rate => rate::serve(cell, acceptor.accept()?, control),
        Scenario::Oversubscribe => oversubscribe::serve(cell, &mut acceptor, control),
        Scenario::Connect => connect::serve(cell, &mut acceptor, control),
        Scenario::Idle => idle::serve(cell, &mut acceptor, control),
        other => bail!("{} needs streams", other.name()),
    }
}

fn connect_once<T: ChannelTransport>(
    cell: Cell,
    setup: &Setup,
    address: &str,
) -> Result<Connected> {
    connect::connect_once(cell, || T::connect(setup, address))
}

fn measure_ping<T: ChannelTransport>(
    cell: Cell,
    setup: &Setup,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let address = pair.child.open(cell, setup)?;
    let round = ping::measure(cell, T::connect(setup, &address)?, duration, pair)?;
    pair.child.close()?;
    Ok(round)
}

fn serve_ping<T: ChannelTransport>(cell: Cell, setup: &Setup, control: &Control) -> Result<()> {
    let mut acceptor = T::bind(setup)?;
    control.reply(&Reply::Bound { address: acceptor.address() })?;
    ping::serve(cell, acceptor.accept()?, control)
}
