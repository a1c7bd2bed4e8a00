// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages as typed values: serde values (feature `serde`), or plain structs (feature `zerocopy`).
//!
//! ```text
//!   values.rs    send_value, recv_value     postcard: any serde type, compact, decoded
//!   plain.rs     send_plain, recv_plain     the bytes of the struct itself, borrowed in place
//!   places.rs    bytes at an address that suits the struct
//!   methods.rs   the methods above, on channels and streams
//! ```
//!
//! The wire format has no types: a value is the payload of one message, so the limits on messages
//! also limit the size of values.

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
