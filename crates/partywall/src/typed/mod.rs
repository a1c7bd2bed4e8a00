// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that are values: serde's (feature `serde`), or plain structs (feature `zerocopy`).
//!
//! ```text
//!   values.rs    send_value, recv_value     postcard: any serde type, compact, decoded
//!   plain.rs     send_plain, recv_plain     the bytes of the struct itself, read in place
//!   places.rs    bytes at an address with the alignment of the struct
//!   methods.rs   these methods, on channels and streams
//! ```
//!
//! Neither changes the wire format: a value is the payload of one message, so the limits of
//! messages apply.

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
