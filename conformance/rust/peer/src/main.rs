// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust peer of the conformance tests: the published crate `shmipc`, in a program with two
//! subcommands.
//!
//! ```text
//! conformance-peer serve --network unix --address A --map memfd
//! conformance-peer run   --network unix --address A --map memfd --sizes … --streams … --count …
//! ```
//!
//! The program does *not* change the library's behaviour, with one exception. It has a listener for
//! TCP of its own, because the library registers a blocking listener, which tokio rejects.

mod conversation;

use std::net::SocketAddr;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conformance_traffic::{Command, Mapping, Network, Options};
use shmipc::Listener;
use shmipc::config::{Config, SizePercentPair};
use shmipc::consts::MemMapType;
use shmipc::session::{SessionManager, SessionManagerConfig};
use shmipc::transport::{
    DefaultTcpConnect, DefaultUnixConnect, DefaultUnixListen, TransportListen,
};
use tokio::net::TcpListener;

use conversation::{Accepting, Pool};

fn main() -> ExitCode {
    if std::env::var_os("CONFORMANCE_LOG").is_some() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    }
    conformance_traffic::start(perform)
}

async fn perform(command: &Command) -> Result<u8> {
    match command {
        Command::Serve(options) => serve(options).await,
        Command::Run(options) => run(options).await,
    }
}

async fn serve(options: &Options) -> Result<u8> {
    let config = config(options);
    let (listener, address) = match options.network {
        Network::Unix => {
            let address = UnixAddress::from_pathname(&options.address)?;
            let listener = Listener::new(DefaultUnixListen, address, config).await;
            (listener.context("listening")?, options.address.clone())
        }
        Network::Tcp => {
            let bound = TcpListener::bind(&options.address).await.context("binding")?;
            let address = bound.local_addr()?.to_string();
            (Listener::new(Bound, bound, config).await.context("listening")?, address)
        }
    };
    conformance_traffic::serve(options, PEER, &address, Accepting::new(listener)).await
}

async fn run(options: &Options) -> Result<u8> {
    let config =
        SessionManagerConfig::new().with_config(config(options)).with_session_num(options.sessions);
    Ok(match options.network {
        Network::Unix => {
            let address = UnixAddress::from_pathname(&options.address)?;
            let sessions = SessionManager::new(config, DefaultUnixConnect, address).await;
            let pool = Pool::new(sessions.context("connecting")?);
            conformance_traffic::run(options, PEER, pool).await
        }
        Network::Tcp => {
            let Ok(address) = options.address.parse::<SocketAddr>() else {
                bail!("{} is not an address of TCP", options.address);
            };
            let sessions = SessionManager::new(config, DefaultTcpConnect, address).await;
            let pool = Pool::new(sessions.context("connecting")?);
            conformance_traffic::run(options, PEER, pool).await
        }
    })
}

/// Returns the default settings of the published crate, with the values that the command line's
/// options set.
fn config(options: &Options) -> Config {
    let mut config = Config {
        share_memory_path_prefix: options.prefix.clone(),
        queue_path: format!("{}_queue", options.prefix),
        share_memory_buffer_cap: options.region_bytes(),
        queue_cap: options.queue_cap,
        initialize_timeout: Duration::from_secs(10),
        mem_map_type: match options.map {
            Mapping::File => MemMapType::MemMapTypeDevShmFile,
            Mapping::Memfd => MemMapType::MemMapTypeMemFd,
        },
        ..Config::default()
    };
    if !options.slices.is_empty() {
        let pairs = options.slices.iter();
        config.buffer_slice_sizes =
            pairs.map(|&(size, percent)| SizePercentPair { size, percent }).collect();
    }
    config
}

/// A listener that accepts from a bound socket; it replaces the crate's own listener for TCP,
/// which blocks.
struct Bound;

impl TransportListen for Bound {
    type Listener = TcpListener;
    type Address = TcpListener;

    async fn listen(&self, bound: TcpListener) -> std::io::Result<TcpListener> {
        Ok(bound)
    }
}

const PEER: &str = "shmipc-rs 0.2.1";
