// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a channel that `listen`, `connect` and `echo` have in common.

use std::time::Duration;

use partywall::{Config, TransportPolicy, Wait};

use crate::advice::InFlags;
use crate::quantity::{parse_mode, parse_size, parse_time, parse_wait};

/// How a channel is to be set up.
#[derive(Clone, Debug, clap::Args)]
pub struct ChannelOptions {
    /// Which transport to use: shared memory where it can be had, only it, or only the socket
    #[arg(long, value_enum, default_value_t = TransportName::Auto)]
    pub transport: TransportName,
    /// How to wait: spin (a whole core), adaptive, park (sleep at once) or timed:1ms (look at intervals)
    #[arg(long, value_name = "WAIT", default_value = "adaptive", value_parser = parse_wait)]
    pub wait: Wait,
    /// The most shared memory that each side creates for large messages
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_size)]
    pub memory: u64,
    /// How long setting up one connection may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub handshake_timeout: Duration,
}

/// What only a listening side can choose.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenOptions {
    /// Permissions of the socket file
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub mode: u32,
    /// Let other hosts connect to a tcp: address; nothing is encrypted or authenticated
    #[arg(long)]
    pub allow_remote: bool,
}

/// Which transport to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TransportName {
    /// Shared memory where both sides can share it, the socket otherwise
    Auto,
    /// Shared memory, or an error that says why not
    SharedMemory,
    /// The socket, even where memory could be shared
    Socket,
}

impl ChannelOptions {
    /// The library's configuration.
    pub fn config(&self) -> Config {
        let policy = match self.transport {
            TransportName::Auto => TransportPolicy::Auto,
            TransportName::SharedMemory => TransportPolicy::SharedMemory,
            TransportName::Socket => TransportPolicy::Socket,
        };
        Config::default()
            .transport(policy)
            .wait(self.wait)
            .memory_max(self.memory)
            .handshake_timeout(self.handshake_timeout)
    }
}

impl ListenOptions {
    /// Adds what only a listening side can choose, and tells on stderr who was refused.
    pub fn apply(&self, config: Config) -> Config {
        config
            .socket_mode(self.mode)
            .allow_remote(self.allow_remote)
            .on_refused(|error| eprintln!("partywall: refused: {}", error.in_flags()))
    }
}
