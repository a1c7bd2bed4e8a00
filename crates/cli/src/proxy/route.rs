// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which side of the proxy is plain, and which speaks Partywall.
//!
//! ```text
//!   --listen             --to                 plain side
//!   tcp:…                unix:…               --listen     the tcp: one, where the other is unix:
//!   unix:…               tcp:…                --to
//!   plain:unix:…         unix:… or tcp:…      --listen     the one that says so
//!   unix:…               unix:…               an error that asks for plain:
//! ```
//! Both plain, and nothing would cross a wall: an error, too.

use std::fmt;
use std::str::FromStr;

use partywall::{Address, AddressError};

/// An address as written: with `plain:` before it, or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Where.
    pub address: Address,
    /// Whether `plain:` was written.
    pub says_plain: bool,
}

/// What the proxy does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Plain sockets in, a session out.
    In {
        /// Where plain sockets are accepted.
        plain: Address,
        /// Where the other proxy listens.
        shm: Address,
    },
    /// Sessions in, plain sockets out.
    Out {
        /// Where sessions are accepted.
        shm: Address,
        /// Where plain sockets lead.
        plain: Address,
    },
}

impl Way {
    /// Decides which side is plain, or says how to.
    pub fn decide(listen: &Side, to: &Side) -> Result<Self, String> {
        let is_plain = match (listen.says_plain, to.says_plain) {
            (true, true) => {
                return Err(format!(
                    "both sides are plain, so that nothing would cross a wall: take plain: away from \
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

fn ambiguous(listen: &Side, to: &Side, are_tcp: bool) -> String {
    let scheme = if are_tcp { "tcp:" } else { "unix:" };
    format!(
        "which side is plain? Both are {scheme} addresses. Write plain: before the one where programs \
         without Partywall are: --listen plain:{listen} if they connect here, or --to plain:{to} if they \
         are connected to"
    )
}

const fn is_tcp(address: &Address) -> bool {
    matches!(address, Address::Tcp { .. })
}

impl FromStr for Side {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (rest, says_plain) = match text.strip_prefix(PLAIN) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        Ok(Self { address: rest.parse()?, says_plain })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.says_plain { PLAIN } else { "" };
        write!(f, "{prefix}{}", self.address)
    }
}

/// What stands before an address where Partywall is not spoken, as with `echo`.
const PLAIN: &str = "plain:";

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(listen: &str, to: &str) -> Result<Way, String> {
        Way::decide(&listen.parse().unwrap(), &to.parse().unwrap())
    }

    fn is_in(listen: &str, to: &str) -> bool {
        matches!(decide(listen, to).unwrap(), Way::In { .. })
    }

    #[test]
    fn tcp_beside_unix_is_plain() {
        assert!(is_in("tcp:127.0.0.1:1", "unix:/w"));
        assert!(!is_in("unix:/w", "tcp:127.0.0.1:1"));
    }

    #[test]
    fn what_says_plain_is_plain() {
        assert!(is_in("plain:unix:/a", "unix:/w"));
        assert!(is_in("plain:unix:/a", "tcp:127.0.0.1:1"));
        assert!(is_in("plain:tcp:[::1]:1", "tcp:[::1]:2"));
        assert!(!is_in("unix:/w", "plain:unix:@a"));
        assert!(!is_in("tcp:127.0.0.1:1", "plain:unix:/a"));
    }

    #[test]
    fn what_is_not_clear_is_asked() {
        let error = decide("unix:/a", "unix:/b").unwrap_err();
        assert!(error.contains("--listen plain:unix:/a") && error.contains("--to plain:unix:/b"));
        assert!(decide("tcp:127.0.0.1:1", "tcp:127.0.0.1:2").unwrap_err().contains("tcp:"));
        assert!(decide("plain:unix:/a", "plain:unix:/b").unwrap_err().contains("nothing"));
    }

    #[test]
    fn sides_survive_printing() {
        for text in ["unix:/a", "plain:unix:@b", "plain:tcp:[::1]:7"] {
            assert_eq!(text.parse::<Side>().unwrap().to_string(), text);
        }
        assert!("plain:/a".parse::<Side>().is_err());
    }
}
