// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits that both sides derive from their two HELLOs (SPEC 2.3, 2.4), as pure functions.

use crate::config::{Begin, Config, TransportPolicy};
use crate::transport::shm::Limits;
use partywall_layout::hello::{
    FEATURE_MOVE, FEATURE_SHM, FEATURE_SOCKET, Hello, SERVICE_CHANNEL, SERVICE_SESSION,
};
use partywall_layout::segment::{GRAIN_BYTES, RELEASE_ENTRIES_MAX, RELEASE_ENTRIES_MIN};
use partywall_layout::{FallbackReason, Violation};
use partywall_sys::nonce;
use partywall_sys::socket::Family;
use zerocopy::little_endian::{U32, U64};

/// Default bound of this side's blocks in flight. The tables about blocks are private memory,
/// allocated at the start of a connection, so the peer's offer alone must not determine their size.
const BLOCKS: u64 = 1024;
/// Upper bound of this side's blocks in flight, however many both sides offer. It bounds the
/// private tables about blocks.
const BLOCKS_MAX: u64 = 1 << 16;
/// Upper bound of shared memory in bytes, however much a peer offers to map, so that sums of such
/// sizes cannot overflow.
const BYTES_MAX: u64 = 1 << 46;

/// Features of a HELLO whose sender accepts shared memory as well as the socket.
const BOTH: u64 = FEATURE_SHM | FEATURE_SOCKET;

const _: () = assert!(BLOCKS_MAX <= RELEASE_ENTRIES_MAX);

/// Makes this side's HELLO. `fallback_reason` is `None` if this side can share memory.
pub(super) fn own_hello(
    config: &Config,
    service: u32,
    fallback_reason: Option<FallbackReason>,
) -> Hello {
    let mut features = 0;
    if fallback_reason.is_none() {
        features |= FEATURE_SHM;
    }
    if config.transport != TransportPolicy::SharedMemory {
        features |= FEATURE_SOCKET;
    }
    let has_streams = service == SERVICE_SESSION;
    Hello {
        features: U64::new(features),
        service: U32::new(service),
        fallback_reason: U32::new(fallback_reason.map_or(0, FallbackReason::number)),
        map_max: U64::new(config.map_max_effective()),
        message_max: U64::new(config.message_max_effective()),
        peer_blocks_max: U64::new(config.peer_blocks_max),
        segments_max: U32::new(config.segments_max),
        pid: U32::new(partywall_sys::fork::own_pid()),
        nonce: nonce(),
        stream_window: U64::new(if has_streams { config.stream_window } else { 0 }),
        streams_max: U32::new(if has_streams { config.streams_max_effective() } else { 0 }),
        ..Hello::new()
    }
}

/// Whether a connector with this HELLO asks the acceptor to begin on the socket (SPEC 2.9).
pub(super) const fn begins_on_socket(config: &Config, service: u32, family: Family) -> bool {
    let is_free = matches!(config.transport, TransportPolicy::Auto);
    let begins = match service {
        SERVICE_SESSION => matches!(config.begin, Begin::Socket | Begin::Auto),
        SERVICE_CHANNEL => matches!(config.begin, Begin::Socket),
        _ => false,
    };
    is_free && begins && matches!(family, Family::Unix)
}

/// Checks that the peer's HELLO may contain the feature MOVE, by which a side agrees to begin on
/// the socket (SPEC 2.9). `may_begin` is false for the second handshake of a connection.
pub(super) fn check_move(theirs: &Hello, may_begin: bool) -> Result<(), Violation> {
    let found = theirs.features.get();
    if may_begin && found & BOTH == BOTH {
        return Ok(());
    }
    Err(Violation::Frame { what: "HELLO with MOVE", found })
}

/// Checks that the values in the peer's HELLO are possible (SPEC 2.3).
pub(super) fn check(theirs: &Hello) -> Result<(), Violation> {
    let entries = theirs.peer_blocks_max.get();
    let can_share = theirs.features.get() & FEATURE_SHM != 0;
    let is_possible =
        entries.is_power_of_two() && (RELEASE_ENTRIES_MIN..=RELEASE_ENTRIES_MAX).contains(&entries);
    if can_share && !is_possible {
        return Err(Violation::Frame { what: "HELLO release entries", found: entries });
    }
    Ok(())
}

/// Returns why this side cannot share memory over a socket of the address family `family`, or
/// `None` if it can.
pub(super) fn own_obstacle(config: &Config, family: Family) -> Option<FallbackReason> {
    match (config.transport, family) {
        (TransportPolicy::Socket, _) => Some(FallbackReason::Policy),
        (_, Family::Tcp) => Some(FallbackReason::Remote),
        (_, Family::Unix) => None,
    }
}

/// Returns a reason why the two sides cannot share memory, as far as their HELLOs show, or `None`.
pub(super) fn obstacle(own: &Hello, theirs: &Hello, region_bytes: u64) -> Option<FallbackReason> {
    let said = |hello: &Hello| {
        if hello.features.get() & FEATURE_SHM != 0 {
            return None;
        }
        Some(
            FallbackReason::from_number(hello.fallback_reason.get())
                .unwrap_or(FallbackReason::Policy),
        )
    };
    let limits = (region_bytes > theirs.map_max.get()).then_some(FallbackReason::Limits);
    said(own).or_else(|| said(theirs)).or(limits)
}

/// Whether this side's HELLO and the peer's HELLO allow that the connection begins on the socket
/// and moves to shared memory.
pub(super) fn can_move(own: &Hello, theirs: &Hello) -> bool {
    let both = own.features.get() & theirs.features.get();
    both & BOTH == BOTH && theirs.features.get() & FEATURE_MOVE != 0
}

/// Whether the HELLOs of both sides allow the socket as the transport.
pub(super) fn socket_suits(own: &Hello, theirs: &Hello) -> bool {
    own.features.get() & theirs.features.get() & FEATURE_SOCKET != 0
}

/// Returns the limits that both sides agreed on for the connection: memory, segments, message
/// length and blocks in flight.
pub(super) fn limits(config: &Config, theirs: &Hello, region_bytes: u64) -> Limits {
    let own = config.memory_max.min(BYTES_MAX);
    let mapped = if theirs.segments_max.get() == 0 { 0 } else { theirs.map_max.get() };
    let mapped = mapped.min(BYTES_MAX).saturating_sub(region_bytes);
    let whole_grains = |bytes: u64| bytes / GRAIN_BYTES * GRAIN_BYTES;
    // The configured limit of memory need not be a multiple of 64 KiB (`GRAIN_BYTES`), as every
    // segment's size is. Rounding it up lets a message of exactly that length fit.
    let own_memory = own.next_multiple_of(GRAIN_BYTES).min(whole_grains(mapped));
    let blocks_max = config.peer_blocks_max.clamp(BLOCKS, BLOCKS_MAX);
    #[expect(clippy::cast_possible_truncation, reason = "at most BLOCKS_MAX")]
    let peer_releases = theirs.peer_blocks_max.get().min(blocks_max) as u32;
    Limits {
        own_memory,
        own_memory_is_peers: mapped < own,
        own_segments: theirs.segments_max.get(),
        peer_message: theirs.message_max.get(),
        peer_releases,
        message: config.message_max_effective(),
        map: config.map_max_effective(),
        segments: config.segments_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(policy: TransportPolicy, family: Family) -> Hello {
        let config = Config::default().transport(policy);
        own_hello(&config, 1, own_obstacle(&config, family))
    }

    #[test]
    fn both_must_be_able_to_share_memory() {
        let shm = hello(TransportPolicy::Auto, Family::Unix);
        let plain = hello(TransportPolicy::Socket, Family::Unix);
        let remote = hello(TransportPolicy::Auto, Family::Tcp);
        let only = hello(TransportPolicy::SharedMemory, Family::Unix);
        assert_eq!(obstacle(&shm, &shm, 1 << 16), None);
        assert_eq!(obstacle(&shm, &plain, 1 << 16), Some(FallbackReason::Policy));
        assert_eq!(obstacle(&plain, &shm, 1 << 16), Some(FallbackReason::Policy));
        assert_eq!(obstacle(&shm, &remote, 1 << 16), Some(FallbackReason::Remote));
        assert_eq!(obstacle(&shm, &shm, 1 << 40), Some(FallbackReason::Limits));
        assert!(socket_suits(&shm, &plain));
        assert!(!socket_suits(&only, &plain));
    }

    #[test]
    fn the_smaller_limit_counts() {
        let config = Config::default().memory_max(100 << 20);
        let mut theirs = hello(TransportPolicy::Auto, Family::Unix);
        assert!(limits(&config, &theirs, 192 << 10).own_memory_is_peers);
        theirs.map_max = U64::new(u64::MAX);
        theirs.peer_blocks_max = U64::new(u64::MAX);
        let agreed = limits(&config, &theirs, 192 << 10);
        assert_eq!(agreed.own_memory, 100 << 20);
        assert_eq!(u64::from(agreed.peer_releases), BLOCKS);
        let generous = config.clone().peer_blocks_max(1 << 20);
        let agreed = limits(&generous, &theirs, 192 << 10);
        assert_eq!(u64::from(agreed.peer_releases), BLOCKS_MAX);
        theirs.map_max = U64::new(0);
        assert_eq!(limits(&config, &theirs, 192 << 10).own_memory, 0);
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce(), nonce());
    }
}
