// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address on the command line of `echo` (`Endpoint`), and whether its protocol is Partywall or
//! lines over a plain socket.

use std::fmt;
use std::str::FromStr;

use partywall::{Address, AddressError};

/// An address that the command `echo` uses, and what carries the messages there: a Partywall
/// channel, or lines over a plain socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address to which a client connects, or at which a server listens.
    pub address: Address,
    /// Whether the address uses lines over a plain socket, instead of Partywall.
    pub is_plain: bool,
}

impl Endpoint {
    /// Returns a copy of this endpoint. The copy's protocol is plain lines if this endpoint's
    /// protocol is, or if `all` (the flag --plain) is true.
    pub fn plain_if(&self, all: bool) -> Self {
        Self { address: self.address.clone(), is_plain: self.is_plain || all }
    }
}

impl FromStr for Endpoint {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (rest, is_plain) = match text.strip_prefix("plain:") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        Ok(Self { address: rest.parse()?, is_plain })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_plain { "plain:" } else { "" };
        write!(f, "{prefix}{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_printed_and_parsed_is_equal() {
        for text in ["unix:/a", "plain:unix:@b", "plain:tcp:[::1]:7"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert!("plain:/a".parse::<Endpoint>().is_err());
        assert!("unix:/a".parse::<Endpoint>().unwrap().plain_if(true).is_plain);
    }
}
