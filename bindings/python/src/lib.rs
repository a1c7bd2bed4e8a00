// SPDX-License-Identifier: MIT OR Apache-2.0
//! The native module of the Python package `partywall`.
//!
//! ```text
//!   listener.rs channel.rs     calls that block, over the `try_` calls of the Rust crate
//!        └──▶ wait.rs          polls a descriptor without the GIL; a signal ends the wait
//!   message.rs reservation.rs  the memory of messages, by the buffer protocol
//!        └──▶ buffer.rs        exports of memory, and views of Python's buffers
//!   event_loop.rs              sessions and streams for asyncio, by calls that never wait
//!   config.rs peer.rs error.rs settings, identities, exceptions
//! ```
//!
//! Every class is frozen and keeps its state in a mutex, so that interpreters without a GIL may use
//! it. A call that finds the state in use raises `BusyError` instead of waiting for the lock.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod buffer;
mod channel;
mod config;
mod error;
mod event_loop;
mod listener;
mod message;
mod peer;
mod reservation;
mod wait;

use pyo3::prelude::*;

/// Native part of the package `partywall`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<channel::Channel>()?;
    module.add_class::<config::Config>()?;
    module.add_class::<event_loop::EventListener>()?;
    module.add_class::<event_loop::EventLoop>()?;
    module.add_class::<event_loop::EventSession>()?;
    module.add_class::<event_loop::EventStream>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<peer::Credentials>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<peer::ReceiverStats>()?;
    module.add_class::<peer::SenderStats>()?;
    module.add_class::<reservation::Reservation>()?;
    module.add_function(wrap_pyfunction!(channel::connect, module)?)
}
