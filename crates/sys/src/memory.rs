// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates and maps sealed shared memory as `OwnMem` and `PeerMem`, the types through which the
//! crate partywall-ring writes and reads memory.
//!
//! ```text
//!  create_memory   memfd, allocated and sealed ─▶ OwnMem, and the descriptor to send
//!  map_memory      descriptor of the peer, checked ─▶ PeerMem, mapped read-only
//! ```

use crate::{MapError, MemfdError, OwnMap, PeerMap};
use partywall_ring::{OwnMem, PeerMem, Readable, Writable};
use std::cell::UnsafeCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Creates sealed memory of `bytes` bytes, which this process writes. Returns the memory, and its
/// descriptor, which the caller sends to the peer. The descriptor stays open as long as the memory
/// lives.
///
/// # Errors
/// Fails for one of the reasons in [`MemfdError`]: the size is refused, or memory or descriptors
/// are exhausted.
pub fn create_memory(name: &str, bytes: u64) -> Result<(OwnMem, Arc<OwnedFd>), MemfdError> {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let map = OwnMap::create(name, size)?;
    let descriptor = map.shared_fd();
    Ok((OwnMem::new(Box::new(OwnPages(map))), descriptor))
}

/// Maps the peer's memory read-only, after checking that it cannot shrink. `announced` is the size
/// in bytes that the peer states, `limit` the largest size accepted.
///
/// # Errors
/// Fails for one of the reasons in [`MapError`]: the descriptor is not sealed memory of that size,
/// or mapping it fails.
pub fn map_memory(
    descriptor: BorrowedFd<'_>,
    announced: u64,
    limit: u64,
) -> Result<PeerMem, MapError> {
    Ok(PeerMem::new(Arc::new(PeerPages(PeerMap::map(descriptor, announced, limit)?))))
}

struct OwnPages(OwnMap);

impl Writable for OwnPages {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

#[derive(Debug)]
struct PeerPages(PeerMap);

impl Readable for PeerPages {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}
