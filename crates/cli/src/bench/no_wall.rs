// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands in for our own transport in a build without it: nothing can be measured, and the tables say so.

use anyhow::{Result, bail};

use super::lane::{Door, Lane, Setup, Transport};

/// Whether this build can measure it.
pub const IS_BUILT: bool = false;

/// The transport `wall`.
pub struct Wall;

/// A listener at a socket file.
pub struct WallDoor;

/// A channel, split.
pub struct WallLane;

impl Transport for Wall {
    type Lane = WallLane;
    type Door = WallDoor;

    fn bind(_: &Setup) -> Result<WallDoor> {
        bail!(NOT_BUILT)
    }

    fn connect(_: &Setup, _: &str) -> Result<WallLane> {
        bail!(NOT_BUILT)
    }
}

impl Door for WallDoor {
    type Lane = WallLane;

    fn address(&self) -> String {
        String::new()
    }

    fn accept(&mut self) -> Result<WallLane> {
        bail!(NOT_BUILT)
    }
}

impl Lane for WallLane {
    fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<()> {
        bail!(NOT_BUILT)
    }

    fn receive<R>(&mut self, _: usize, _: impl FnOnce(&[u8]) -> R) -> Result<R> {
        bail!(NOT_BUILT)
    }
}

const NOT_BUILT: &str = "this build has no wall transport";
