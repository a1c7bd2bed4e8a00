// SPDX-License-Identifier: MIT OR Apache-2.0
//! placeholder
use anyhow::{Result, bail};
use super::lane::{Door, Lane, Setup, Transport};
pub struct FloorSpin;
pub struct FloorDoor;
pub struct FloorLane;
impl Transport for FloorSpin {
    type Lane = FloorLane;
    type Door = FloorDoor;
    fn bind(_: &Setup) -> Result<FloorDoor> { bail!("floor-spin is not built") }
    fn connect(_: &Setup, _: &str) -> Result<FloorLane> { bail!("floor-spin is not built") }
}
impl Door for FloorDoor {
    type Lane = FloorLane;
    fn address(&self) -> String { String::new() }
    fn accept(&mut self) -> Result<FloorLane> { bail!("floor-spin is not built") }
}
impl Lane for FloorLane {
    fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<()> { bail!("floor-spin is not built") }
    fn receive<R>(&mut self, _: usize, _: impl FnOnce(&[u8]) -> R) -> Result<R> { bail!("floor-spin is not built") }
}
