// SPDX-License-Identifier: MIT OR Apache-2.0
//! The route of a proxy: which of its two addresses is for plain sockets, and which for a Partywall
//! session.
//!
//! ```text
//!   --listen             --to                 plain side
//!   tcp:…                unix:…               --listen     of tcp: and unix:, tcp: is plain
//!   unix:…               tcp:…                --to         of unix: and tcp:, tcp: is plain
//!   plain:unix:…         unix:… or tcp:…      --listen     the address after plain: is plain
//!   unix:…               unix:…               error: one address needs plain: before it
//! ```
//! Two plain sides are an error as well, because nothing would use shared memory.

use std::fmt;
use std::str::FromStr;

use partywall::{Address, AddressError};

/// An address, which may have `plain:` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address without the prefix `plain:`.
    pub address: Address,
    /// Whether the address had the prefix `plain:`.
    pub is_plain: bool,
}

/// Which address of a proxy is for plain sockets, and thus the direction of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The proxy accepts plain sockets, and carries them over a session.
    In {
        /// The address at which this proxy accepts plain sockets.
        plain: Address,
        /// The address at which the other proxy accepts sessions.
        shm: Address,
    },
    /// The proxy accepts sessions, and carries their streams to plain sockets.
    Out {
        /// The address at which this proxy accepts sessions.
        shm: Address,
        /// The address to which plain sockets are connected.
        plain: Address,
    },
}

impl Route {
    /// Decides which address is for plain sockets. If the addresses leave that open, the text of
    /// the error says where to write `plain:`.
    pub fn decide(listen: &Endpoint, to: &Endpoint) -> Result<Self, String> {
        let is_plain = match (listen.is_plain, to.is_plain) {
            (true, true) => {
                return Err(format!(
                    "both sides are plain, so nothing would use shared memory: remove plain: from \
                     --listen {listen} or from --to {to}, whichever leads to the other proxy"
                ));
            }
            (false, false) => match (is_tcp(&listen.address), is_tcp(&to.address)) {
                (true, false) => true,
                (false, true) => false,
                (both, _) => return Err(ambiguous(listen, to, both)),
            },
            (listen_is_plain, _) => listen_is_plain,
        };
        let (listen, to) = (listen.address.clone(), to.address.clone());
        Ok(if is_plain {
            Self::In { plain: listen, shm: to }
        } else {
            Self::Out { shm: listen, plain: to }
        })
    }
}

fn ambiguous(listen: &Endpoint, to: &Endpoint, are_tcp: bool) -> String {
    let scheme = if are_tcp { "tcp:" } else { "unix:" };
    format!(
        "which side is plain? Both are {scheme} addresses. Write plain: before the one for programs \
         without Partywall: --listen plain:{listen} if they connect here, or --to plain:{to} if the \
         proxy connects to them"
    )
}

const fn is_tcp(address: &Address) -> bool {
    matches!(address, Address::Tcp { .. })
}

impl FromStr for Endpoint {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (rest, is_plain) = match text.strip_prefix(PLAIN) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        Ok(Self { address: rest.parse()?, is_plain })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_plain { PLAIN } else { "" };
        write!(f, "{prefix}{}", self.address)
    }
}

/// The prefix that marks an address at which programs without Partywall connect. The command `echo`
/// uses the same prefix.
const PLAIN: &str = "plain:";

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(listen: &str, to: &str) -> Result<Route, String> {
        Route::decide(&listen.parse().unwrap(), &to.parse().unwrap())
    }

    fn is_in(listen: &str, to: &str) -> bool {
        matches!(decide(listen, to).unwrap(), Route::In { .. })
    }

    #[test]
    fn tcp_side_of_tcp_and_unix_is_plain() {
        assert!(is_in("tcp:127.0.0.1:1", "unix:/w"));
        assert!(!is_in("unix:/w", "tcp:127.0.0.1:1"));
    }

    #[test]
    fn side_with_plain_prefix_is_plain() {
        assert!(is_in("plain:unix:/a", "unix:/w"));
        assert!(is_in("plain:unix:/a", "tcp:127.0.0.1:1"));
        assert!(is_in("plain:tcp:[::1]:1", "tcp:[::1]:2"));
        assert!(!is_in("unix:/w", "plain:unix:@a"));
        assert!(!is_in("tcp:127.0.0.1:1", "plain:unix:/a"));
    }

    #[test]
    fn ambiguous_sides_are_an_error_with_advice() {
        let error = decide("unix:/a", "unix:/b").unwrap_err();
        assert!(error.contains("--listen plain:unix:/a") && error.contains("--to plain:unix:/b"));
        assert!(decide("tcp:127.0.0.1:1", "tcp:127.0.0.1:2").unwrap_err().contains("tcp:"));
        assert!(decide("plain:unix:/a", "plain:unix:/b").unwrap_err().contains("nothing"));
    }

    #[test]
    fn endpoint_printed_and_parsed_is_equal() {
        for text in ["unix:/a", "plain:unix:@b", "plain:tcp:[::1]:7"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert!("plain:/a".parse::<Endpoint>().is_err());
    }
}
