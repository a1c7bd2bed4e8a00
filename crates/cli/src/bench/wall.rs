// SPDX-License-Identifier: MIT OR Apache-2.0
//! placeholder
use anyhow::{Result, bail};
use super::lane::{Door, Lane, Setup, Transport};
pub struct Wall;
pub struct WallDoor;
pub struct WallLane;
impl Transport for Wall {
    type Lane = WallLane;
    type Door = WallDoor;
    fn bind(_: &Setup) -> Result<WallDoor> { bail!("wall is not built") }
    fn connect(_: &Setup, _: &str) -> Result<WallLane> { bail!("wall is not built") }
}
impl Door for WallDoor {
    type Lane = WallLane;
    fn address(&self) -> String { String::new() }
    fn accept(&mut self) -> Result<WallLane> { bail!("wall is not built") }
}
impl Lane for WallLane {
    fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<()> { bail!("wall is not built") }
    fn receive<R>(&mut self, _: usize, _: impl FnOnce(&[u8]) -> R) -> Result<R> { bail!("wall is not built") }
}
