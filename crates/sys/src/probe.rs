// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this system can do, found out by doing it once on something small.
//!
//! A version number says too little: sandboxes take features away and distributions carry them back.
//! Everything made here is gone when the question is answered.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::eventfd::Doorbell;
use crate::memfd::{OwnMap, SIZE_GRANULE, check_file_size};
use crate::peer::{Credentials, PidFd};
use crate::socket::Socket;

/// Something the wall needs, or would like to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Memory with a descriptor and seals. Needed.
    SealableMemfd,
    /// Memfds that nobody can make executable. Linux 6.3; nice to have.
    NoExecSeal,
    /// Memory that only its maker can write. Linux 5.1; needed.
    FutureWriteSeal,
    /// A whole half, made as a session makes it. Needed.
    Region,
    /// Descriptors of processes, which tell of their death. Linux 5.3; without them a forked child can
    /// hide it, and nobody is trusted by default.
    PidFd,
    /// Bells. Needed, except for isolated peers.
    EventFd,
    /// Identity of who sends. Needed.
    Credentials,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 7] = [
        Feature::SealableMemfd,
        Feature::NoExecSeal,
        Feature::FutureWriteSeal,
        Feature::Region,
        Feature::PidFd,
        Feature::EventFd,
        Feature::Credentials,
    ];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Feature::SealableMemfd => "memfd with seals",
            Feature::NoExecSeal => "MFD_NOEXEC_SEAL",
            Feature::FutureWriteSeal => "F_SEAL_FUTURE_WRITE",
            Feature::Region => "a half of 64 KiB",
            Feature::PidFd => "pidfd",
            Feature::EventFd => "eventfd",
            Feature::Credentials => "SCM_CREDENTIALS",
        }
    }

    /// True if the wall cannot do without.
    pub fn is_required(self) -> bool {
        !matches!(self, Feature::NoExecSeal | Feature::PidFd)
    }
}

/// Tries `feature`.
///
/// # Errors
///
/// What the system said against it.
pub fn probe(feature: Feature) -> io::Result<()> {
    match feature {
        Feature::SealableMemfd => {
            let fd = memfd(MemfdFlags::empty())?;
            Ok(fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?)
        }
        Feature::NoExecSeal => memfd(MemfdFlags::NOEXEC_SEAL).map(drop),
        Feature::FutureWriteSeal => {
            let fd = memfd(MemfdFlags::empty())?;
            Ok(fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE)?)
        }
        Feature::Region => {
            OwnMap::create(PROBE_NAME, SIZE_GRANULE).map(drop).map_err(io::Error::other)
        }
        Feature::PidFd => PidFd::of_self().map(drop),
        Feature::EventFd => Doorbell::new().map(drop),
        Feature::Credentials => probe_credentials(),
    }
}

fn memfd(flags: MemfdFlags) -> io::Result<OwnedFd> {
    let fd = memfd_create(PROBE_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)?;
    check_file_size(SIZE_GRANULE)?;
    ftruncate(&fd, SIZE_GRANULE as u64)?;
    Ok(fd)
}

fn probe_credentials() -> io::Result<()> {
    let (near, far) = Socket::pair()?;
    near.send(&[IoSlice::new(b"?")], &[], true, true)?;
    let received = far.receive(&mut [0], true)?;
    if received.credentials == Some(Credentials::of_self()) {
        Ok(())
    } else {
        Err(io::Error::other(format!("arrived as {:?}", received.credentials)))
    }
}

const PROBE_NAME: &str = "partywall-probe";
