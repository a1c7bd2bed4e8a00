// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses any text as an address. The result is an address that survives printing and parsing, or
//! an error with the reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::{Address, AddressError};

fuzz_target!(|text: &str| {
    match text.parse::<Address>() {
        Ok(address) => {
            let printed = address.to_string();
            assert_eq!(printed.parse::<Address>().as_ref(), Ok(&address), "{text:?}");
            match &address {
                Address::Path(_) | Address::Abstract(_) => assert_eq!(printed, text),
                Address::Tcp { host, .. } => assert!(!host.is_empty()),
                other => panic!("a kind of address unknown here: {other:?}"),
            }
        }
        Err(AddressError::TooLong { bytes, max, .. }) => assert!(bytes > max),
        Err(AddressError::Syntax { address, reason }) => {
            assert_eq!(address, text);
            assert!(!reason.is_empty());
        }
        Err(other) => panic!("reading a text looks nothing up: {other}"),
    }
});
