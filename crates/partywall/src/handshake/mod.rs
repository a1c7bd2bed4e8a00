// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the connection of a channel or a session: listeners, connecting, and the handshake in
//! which both sides negotiate.
//!
//! ```text
//!   listener.rs  accepts, drives many handshakes     pending.rs      one handshake over its socket
//!   connect.rs   reaches a listener, drives one      machine.rs      order of its frames
//!   foreign.rs   a handshake of another protocol     terms.rs        limits of two HELLOs
//!   descriptors.rs  descriptors that frames list     established.rs  result of a handshake
//!   second_handshake.rs  moves a connection that began on the socket
//! ```

mod connect;
mod descriptors;
mod established;
mod foreign;
mod listener;
mod machine;
mod pending;
mod second_handshake;
mod terms;

pub(crate) use connect::establish;
pub use connect::{connect, connect_with};
pub(crate) use established::{Established, StreamTerms};
pub use listener::Listener;
pub(crate) use listener::passed_socket;
