// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of this system, each probed by using it once.
//!
//! A kernel version would not suffice: sandboxes remove features, and distributions backport them.
//! Everything a probe creates is freed before it returns.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::eventfd::Doorbell;
use crate::memfd::{OwnMap, SIZE_GRANULE, check_file_size};
use crate::peer::{Credentials, PidFd};
use crate::socket::Socket;

/// A feature of the system that shared memory requires, or uses if the system has the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Memfds that can be sealed; required.
    SealableMemfd,
    /// Memfds that can never become executable; optional, from Linux 6.3.
    NoExecSeal,
    /// Memory that only its creator can write; required, from Linux 5.1.
    FutureWriteSeal,
    /// A complete region, created by the steps that a connection takes; required.
    Region,
    /// Pidfds (descriptors of processes), which report the death of a process; from Linux 5.3.
    /// Without pidfds a forked child can hide the death of its parent, and no peer is trusted by
    /// default.
    PidFd,
    /// Doorbells, which are required except for untrusted peers.
    EventFd,
    /// Credentials of the sender of a message; required.
    Credentials,
}

impl Feature {
    /// All features that a probe can check, in the order of their declaration.
    pub const ALL: [Feature; 7] = [
        Feature::SealableMemfd,
        Feature::NoExecSeal,
        Feature::FutureWriteSeal,
        Feature::Region,
        Feature::PidFd,
        Feature::EventFd,
        Feature::Credentials,
    ];

    /// The feature's name in the words that an operator reads.
    pub fn name(self) -> &'static str {
        match self {
            Feature::SealableMemfd => "memfd with seals",
            Feature::NoExecSeal => "MFD_NOEXEC_SEAL",
            Feature::FutureWriteSeal => "F_SEAL_FUTURE_WRITE",
            Feature::Region => "a region of 64 KiB",
            Feature::PidFd => "pidfd",
            Feature::EventFd => "eventfd",
            Feature::Credentials => "SCM_CREDENTIALS",
        }
    }

    /// Whether shared memory cannot work without the feature.
    pub fn is_required(self) -> bool {
        !matches!(self, Feature::NoExecSeal | Feature::PidFd)
    }
}

/// Uses `feature` once, in order to find out whether the system has it.
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
