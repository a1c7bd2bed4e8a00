// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program for `partywall-shmipc` in the conformance tests, with the same two subcommands as
//! the programs for shmipc-go and shmipc-rs.

mod conversation;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use conformance_traffic::{Command, Mapping, Network, Options};
use conversation::{Accepting, Pool};
use partywall::tokio::Listener;
use partywall_shmipc::{Config, MemMapType, SessionManager, Shmipc, SizePercentPair};

fn main() -> ExitCode {
    conformance_traffic::start(perform)
}

async fn perform(command: &Command) -> Result<u8> {
    match command {
        Command::Serve(options) => {
            let protocol = Arc::new(Shmipc::new(config(options)).context("settings")?);
            if options.network == Network::Unix {
                // In a hot restart this server may be the successor: it then removes the old
                // server's socket file, so that it can bind the path.
                let _ = std::fs::remove_file(&options.address);
            }
            let listener = Listener::bind(&*address(options)).context("binding")?;
            let listener = listener.with_protocol(protocol.clone());
            let bound = listener.local_address().to_string();
            let (_, address) = bound.split_once(':').unwrap_or(("", &bound));
            conformance_traffic::serve(options, PEER, address, Accepting::new(listener, protocol))
                .await
        }
        Command::Run(options) => {
            let config = config(options).session_num(options.sessions.max(1));
            let manager =
                SessionManager::new(&*address(options), config, partywall::Config::default()).await;
            let pool = Pool::new(manager.context("connecting")?, options.put_back);
            Ok(conformance_traffic::run(options, PEER, pool).await)
        }
    }
}

fn address(options: &Options) -> String {
    match options.network {
        Network::Unix => format!("unix:{}", options.address),
        Network::Tcp => format!("tcp:{}", options.address),
    }
}

/// Returns the default settings of `partywall-shmipc`, with the values that the command line's
/// options set.
fn config(options: &Options) -> Config {
    let mut config = Config::default()
        .share_memory_path_prefix(&options.prefix)
        .share_memory_buffer_cap(options.region_bytes())
        .queue_cap(options.queue_cap)
        .files_without_credentials(options.network == Network::Tcp)
        .mem_map_type(match options.map {
            Mapping::File => MemMapType::DevShmFile,
            Mapping::Memfd => MemMapType::MemFd,
        });
    if !options.slices.is_empty() {
        let pairs = options.slices.iter();
        let pairs: Vec<_> =
            pairs.map(|&(size, percent)| SizePercentPair { size, percent }).collect();
        config = config.buffer_slice_sizes(pairs);
    } else if options.small_region {
        // The option for a small region sets two small sizes of slices: with the default sizes a
        // region of 1 MiB would have one slice of the largest size, and the last free slice of a
        // size is never allocated.
        let pairs =
            [(8172, 50), (32_748, 50)].map(|(size, percent)| SizePercentPair { size, percent });
        config = config.buffer_slice_sizes(pairs);
    }
    config
}

const PEER: &str = "partywall-shmipc";
