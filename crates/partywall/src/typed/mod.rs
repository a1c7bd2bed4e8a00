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

/// Makes samples of typed errors for the test of error numbers, because the fields of these errors
/// are private.
#[cfg(all(test, not(shuttle)))]
pub(crate) mod samples {
    #[cfg(feature = "zerocopy")]
    pub(crate) fn not_plain() -> super::NotPlain {
        super::plain::into_plain::<u64>(crate::Message::copied(b"short"), None).unwrap_err()
    }

    #[cfg(feature = "serde")]
    pub(crate) fn encode_error() -> super::EncodeError {
        let value = std::cell::RefCell::new(0_u8);
        let _writer = value.borrow_mut();
        super::values::encode(&value).err().unwrap()
    }

    #[cfg(feature = "serde")]
    pub(crate) fn decode_error() -> super::DecodeError {
        let message = crate::Message::copied(b"");
        let decoded = super::values::decode::<u64, crate::RecvError>(message, 0);
        let Err(super::RecvValueError::Decode(error)) = decoded else { unreachable!() };
        error
    }
}
