// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, which is the same for each program: `serve` or `run`, with options.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A program that takes part in the conformance tests.
#[derive(Debug, Parser)]
pub struct Program {
    /// The command that the program performs.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of a program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print "ready" and the address, and serve until stdin ends or SIGTERM comes
    Serve(Options),
    /// Connect, drive the traffic, and check every byte
    Run(Options),
}

/// The options of `serve` and `run`: how to connect, how to share memory, and which traffic to
/// exchange.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The kind of socket that connects client and server
    #[arg(long, default_value = "unix")]
    pub network: Network,
    /// Path of the Unix socket, or host:port for TCP
    #[arg(long)]
    pub address: String,
    /// How client and server share memory: by named files, or by descriptors of memfds
    #[arg(long, default_value = "memfd")]
    pub map: Mapping,
    /// Prefix of the names of the shared memory that this program creates
    #[arg(long, default_value_t = default_prefix(), overrides_with = "prefix")]
    pub prefix: String,
    /// Size of the buffer region in shared memory, in bytes
    #[arg(long, default_value_t = 32 << 20)]
    pub buffer_cap: u32,
    /// Number of elements of each queue in shared memory
    #[arg(long, default_value_t = 8192)]
    pub queue_cap: u32,
    /// Sizes of the region's slices in bytes, each with its share of the region, as size:percent,…
    #[arg(long, value_delimiter = ',', value_parser = size_and_percent)]
    pub slices: Vec<(u32, u32)>,
    /// Sizes of the requests in bytes; request i has size i modulo their number
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub sizes: Vec<usize>,
    /// Which side sends the requests
    #[arg(long, default_value = "echo")]
    pub mode: ModeName,
    /// Number of streams in use at the same time
    #[arg(long, default_value_t = 1)]
    pub streams: usize,
    /// Number of sessions that the client opens
    #[arg(long, default_value_t = 1)]
    pub sessions: usize,
    /// Maximum number of requests of a stream that are sent and not yet answered
    #[arg(long, default_value_t = 1)]
    pub pipeline: usize,
    /// Number of requests in each stream
    #[arg(long, default_value_t = 1)]
    pub count: u64,
    /// Number of requests after which a stream goes back to the pool; 0 stands for all requests
    #[arg(long, default_value_t = 0)]
    pub lease: u64,
    /// Seed from which client and server compute the bytes of all requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Read answers in pieces of odd sizes, which do not end where requests end
    #[arg(long)]
    pub ignore_boundaries: bool,
    /// Take streams from the library's pool, and put them back after use
    #[arg(long)]
    pub put_back: bool,
    /// Use a region of 1 MiB, so small that many messages go over the socket
    #[arg(long)]
    pub small_region: bool,
    /// Repeat the traffic until stdin ends; --count is then the number of requests of one
    /// repetition
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// Number of seconds after which the program gives up and fails
    #[arg(long, default_value_t = 120)]
    pub deadline: u64,
}

impl Options {
    /// Number of requests after which the client puts a stream back into the pool of its shmipc
    /// library.
    pub fn lease(&self) -> u64 {
        if self.lease == 0 { self.count } else { self.lease }
    }

    /// Size of the buffer region in bytes.
    pub fn region_bytes(&self) -> u32 {
        if self.small_region { 1 << 20 } else { self.buffer_cap }
    }
}

/// The kind of socket that connects client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// A Unix stream socket.
    Unix,
    /// A TCP socket.
    Tcp,
}

/// How client and server share memory in the tests: by files or by memfds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mapping {
    /// The client creates files and sends their names to the server.
    File,
    /// The client creates memfds and passes their descriptors to the server.
    Memfd,
}

/// The direction in which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// The client sends requests, and the server answers each with the same bytes.
    Echo,
    /// The client sends all requests and closes the stream at once.
    Upload,
    /// The server sends all requests and closes the stream at once.
    Download,
}

fn size_and_percent(text: &str) -> Result<(u32, u32), String> {
    let (size, percent) = text.split_once(':').ok_or("write size:percent")?;
    let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    Ok((number(size)?, number(percent)?))
}

fn default_prefix() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/dev/shm/conformance-rust-{}-{}", std::process::id(), since.as_nanos())
}
