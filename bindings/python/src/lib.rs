// SPDX-License-Identifier: MIT OR Apache-2.0
//! The native module of the Python package `partywall`.
//!
//! ```text
//!   listener.rs channel.rs     calls that block, over the `try_` calls of the Rust crate
//!        └──▶ wait.rs          polls a descriptor without the GIL; a signal ends the wait
//!   message.rs reservation.rs  the memory of messages, by the buffer protocol
//!        └──▶ buffer.rs        exports of memory, and views of Python's buffers
//!   session.rs stream.rs       sessions and their streams  ┐
//!   link.rs                    links                       │ calls that block, over futures
//!   calls.rs                   requests and answers        ┘
//!        └──▶ runtime.rs       the thread that drives them; waits for futures without the GIL
//!   lossy.rs                   records that a full channel may drop
//!   event_loop.rs              sessions and streams for asyncio, by calls that never wait
//!   config.rs link_config.rs   settings, whose values setting_value.rs reads
//!   callback.rs                callables of Python that the Rust crates call
//!   shmipc.rs                  the protocol shmipc, for sessions in both roles
//!   accept_threads.rs          the threads for which the end of a listener waits
//!   peer.rs link_state.rs error.rs   plain values
//! ```
//!
//! Every class is frozen and keeps its state in a mutex, so that interpreters without a GIL may use
//! it. A call that finds the state in use raises `BusyError` instead of waiting for the lock.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod accept_threads;
mod buffer;
mod callback;
mod calls;
mod channel;
mod config;
mod error;
mod event_loop;
mod link;
mod link_config;
mod link_state;
mod listener;
mod lossy;
mod message;
mod peer;
mod reservation;
mod runtime;
mod session;
mod setting_value;
mod shmipc;
mod stream;
mod wait;

use pyo3::prelude::*;

/// The native part of the Python package `partywall`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_channels(module)?;
    add_sessions(module)?;
    add_links(module)?;
    let shut_down = wrap_pyfunction!(runtime::_shut_down, module)?;
    module.add_function(shut_down.clone())?;
    module.py().import("atexit")?.call_method1("register", (shut_down,))?;
    Ok(())
}

fn add_channels(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<channel::Channel>()?;
    module.add_class::<config::Config>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<lossy::LossyReceiver>()?;
    module.add_class::<lossy::LossySender>()?;
    module.add_class::<lossy::LossyStats>()?;
    module.add_class::<lossy::Record>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<peer::Credentials>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<peer::ReceiverStats>()?;
    module.add_class::<peer::SenderStats>()?;
    module.add_class::<reservation::Reservation>()?;
    module.add_function(wrap_pyfunction!(channel::connect, module)?)
}

fn add_sessions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<calls::CallsClient>()?;
    module.add_class::<calls::Request>()?;
    module.add_class::<event_loop::EventListener>()?;
    module.add_class::<event_loop::EventLoop>()?;
    module.add_class::<event_loop::EventSession>()?;
    module.add_class::<event_loop::EventStream>()?;
    module.add_class::<runtime::Pending>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::SessionListener>()?;
    module.add_class::<shmipc::Shmipc>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<event_loop::Connecting>()?;
    module.add_function(wrap_pyfunction!(calls::serve_calls, module)?)?;
    module.add_function(wrap_pyfunction!(session::connect_session, module)?)
}

fn add_links(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<link::Link>()?;
    module.add_class::<link::LinkClient>()?;
    module.add_class::<link::LinkMessage>()?;
    module.add_class::<link::LinkServer>()?;
    module.add_class::<link_config::LinkConfig>()?;
    module.add_class::<link_config::LinkGroup>()?;
    module.add_class::<link_state::LinkEvent>()?;
    module.add_class::<link_state::LinkPosition>()?;
    module.add_class::<link_state::LinkReport>()?;
    module.add_class::<link_state::LinkStats>()?;
    module.add_class::<link_state::LinkStatus>()?;
    module.add_class::<link_state::LoginRequest>()
}
