// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of a channel, shared by `listen`, `connect` and `echo`.

use std::time::{Duration, Instant};

use clap::builder::{EnumValueParser, TypedValueParser};
use partywall::{Address, AddressError, Begin, Config, TransportPolicy, Wait};
use partywall_bench::former_names::{FormerNames, Place, present_name};

use super::refusals::Refusals;
use partywall_bench::figure::quantity::{parse_size, parse_time};

/// The flags that configure a channel.
#[derive(Clone, Debug, clap::Args)]
pub struct ChannelOptions {
    /// The transport: shared memory if available, shared memory only, or the socket only
    #[arg(long, default_value = "auto", value_parser = transport_parser())]
    pub transport: TransportName,
    /// What carries the first messages, if memory can be shared; the connecting side decides.
    /// Without this flag, memory
    #[arg(long, value_name = "FIRST")]
    pub begin: Option<BeginName>,
    /// How to wait: spin (uses a whole core), adaptive, park (sleep at once) or poll:1ms (sleep 1
    /// ms between polls)
    #[arg(long, value_name = "WAIT", default_value = "adaptive", value_parser = parse_wait)]
    pub wait: Wait,
    /// Maximum size of the shared memory that each side allocates for large messages
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_size)]
    pub memory: u64,
    /// Longest time that the handshake of one connection may take; after it, the connection fails
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub handshake_timeout: Duration,
}

/// The flags that only a listening command has.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenOptions {
    /// Permissions of the socket file
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub mode: u32,
    /// Allow other hosts to connect to a tcp: address; nothing is encrypted or authenticated
    #[arg(long)]
    pub allow_remote: bool,
}

/// The transport of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TransportName {
    /// Shared memory if both sides can share it, the socket otherwise
    Auto,
    /// Shared memory, or an error with the reason
    Shm,
    /// The socket, even if memory could be shared
    Socket,
}

/// What carries the first messages of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum BeginName {
    /// Shared memory, which takes longer to open
    Memory,
    /// The socket, until sharing memory pays
    Socket,
}

impl ChannelOptions {
    /// The configuration of the library that these flags stand for.
    pub fn config(&self) -> Config {
        let policy = match self.transport {
            TransportName::Auto => TransportPolicy::Auto,
            TransportName::Shm => TransportPolicy::SharedMemory,
            TransportName::Socket => TransportPolicy::Socket,
        };
        let begin = match self.begin.unwrap_or(BeginName::Memory) {
            BeginName::Memory => Begin::SharedMemory,
            BeginName::Socket => Begin::Socket,
        };
        Config::default()
            .transport(policy)
            .begin(begin)
            .wait(self.wait)
            .memory_max(self.memory)
            .handshake_timeout(self.handshake_timeout)
    }
}

impl ListenOptions {
    /// Returns `config` with the settings of these flags, and with a callback that prints refused
    /// connections on stderr.
    pub fn apply(&self, config: Config) -> Config {
        let refusals = Refusals::default();
        config.socket_mode(self.mode).allow_remote(self.allow_remote).on_refused(move |error| {
            if let Some(line) = refusals.line(error, Instant::now()) {
                eprintln!("{line}");
            }
        })
    }
}

fn transport_parser() -> impl TypedValueParser<Value = TransportName> {
    FormerNames::new(Place::ChannelTransport, EnumValueParser::<TransportName>::new())
}

/// Parses `spin`, `adaptive`, `park` or `poll:PERIOD`.
fn parse_wait(text: &str) -> Result<Wait, String> {
    let (name, period) = match text.split_once(':') {
        Some((name, period)) => (name, Some(period)),
        None => (text, None),
    };
    if let Some(present) = present_name(Place::ChannelWait, name) {
        let period = period.unwrap_or("1ms");
        return Err(format!("'{name}' is now called '{present}': write {present}:{period}"));
    }
    match (name, period) {
        ("spin", None) => Ok(Wait::Spin),
        ("adaptive", None) => Ok(Wait::Adaptive),
        ("park", None) => Ok(Wait::Park),
        ("poll", Some(period)) => Ok(Wait::Poll(parse_time(period)?)),
        _ => Err("write spin, adaptive, park or poll:1ms".to_owned()),
    }
}

/// Parses the address of a channel. The prefix of plain sockets, which other commands take, is an
/// error that names these commands.
pub fn parse_channel_address(text: &str) -> Result<Address, String> {
    if text.starts_with("plain:") {
        return Err(
            "this command makes a channel; only echo and proxy take plain: addresses".to_owned()
        );
    }
    text.parse().map_err(|error: AddressError| error.to_string())
}

/// Parses permission bits in octal, such as 0600.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode; write three octal digits, such as 0660")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_parsed_has_its_period() {
        assert_eq!(parse_wait("park"), Ok(Wait::Park));
        assert_eq!(parse_wait("poll:1ms"), Ok(Wait::Poll(Duration::from_millis(1))));
        assert!(parse_wait("poll").is_err() && parse_wait("sleep").is_err());
        assert!(parse_wait("spin:1ms").is_err());
    }

    #[test]
    fn mode_parsed_is_octal() {
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert!(parse_mode("999").is_err() && parse_mode("7777").is_err());
    }
}
