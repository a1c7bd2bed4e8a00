// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that are values: serde's (feature `serde`), or plain structs (feature `zerocopy`).
//!
//! ```text
//!   values.rs    send_value, recv_value     postcard: any serde type, compact, decoded
//!   plain.rs     send_plain, recv_plain     the bytes of the struct itself, borrowed in place
//!   places.rs    bytes at an address that suits the struct
//!   methods.rs   these methods, on channels and streams
//! ```
//!
//! Nothing changes on the wire: a value is the payload of one message, so limits on its size are
//! the limits on messages.

mod methods;
#[cfg(feature = "zerocopy")]
mod places;
#[cfg(feature = "zerocopy")]
mod plain;
#[cfg(feature = "serde")]
mod values;

#[cfg(feature = "zerocopy")]
pub use plain::{NotPlain, Plain, RecvPlainError};
#[cfg(feature = "serde")]
pub use values::{DecodeError, EncodeError, RecvValueError, SendValueError};
