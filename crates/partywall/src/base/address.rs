// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of a listener: `unix:/path`, `unix:@abstract`, `tcp:host:port`.
//!
//! An address does not determine the transport. A connection to a Unix address uses shared memory
//! if both sides can share it, and the socket otherwise.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest path or abstract name that fits into a Unix socket address, in bytes.
const UNIX_NAME_MAX: usize = 107;

/// The address of a listener. As text it has one of three forms:
///
/// - `unix:/run/app.sock`: a socket file with this path;
/// - `unix:@app`: the name `app` in the abstract namespace;
/// - `tcp:localhost:4000`, `tcp:127.0.0.1:0`, `tcp:[::1]:4000`: host and port.
///
/// Functions that take an address accept text, a path or an `Address`. A connection to a Unix
/// address uses shared memory if both sides can share it. A TCP connection always uses the socket.
///
/// ```
/// use partywall::Address;
///
/// let address: Address = "unix:/run/app.sock".parse()?;
/// assert_eq!(address.to_string(), "unix:/run/app.sock");
/// assert!("tcp:[::1]:4000".parse::<Address>().is_ok());
/// assert!("/run/app.sock".parse::<Address>().is_err()); // the error says what is missing
/// # Ok::<(), partywall::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket with a file at this path.
    Path(PathBuf),
    /// A name in the abstract namespace of Unix sockets: no file, no permissions.
    Abstract(String),
    /// A TCP endpoint: host name or IP address, and port.
    Tcp {
        /// A host name, or an IPv4 or IPv6 address without brackets.
        host: String,
        /// The port of the TCP endpoint. For a listener with port 0, the system chooses the port.
        port: u16,
    },
}

impl Address {
    /// Returns the address as a `SocketAddr`, after looking up the host name. If the name has
    /// several addresses, the result is the first one. A listener binds that address; a connecting
    /// side tries all addresses of the name.
    ///
    /// The system's resolver looks names up within its own time limits; no deadline of the caller
    /// applies to the lookup.
    ///
    /// # Errors
    /// [`AddressError::Unresolved`] if the address is not a TCP address or the name is not known.
    pub fn resolve(&self) -> Result<SocketAddr, AddressError> {
        Ok(self.resolve_all()?[0])
    }

    /// Returns all addresses of the host name, at least one.
    ///
    /// # Errors
    /// Fails as [`resolve`](Self::resolve) does, for example if the host name is not known.
    pub fn resolve_all(&self) -> Result<Vec<SocketAddr>, AddressError> {
        let unresolved =
            |reason: String| AddressError::Unresolved { address: self.to_string(), reason };
        let Self::Tcp { host, port } = self else {
            return Err(unresolved("it is not a TCP address".into()));
        };
        let found: Vec<_> = (host.as_str(), *port)
            .to_socket_addrs()
            .map_err(|error| unresolved(error.to_string()))?
            .collect();
        if found.is_empty() {
            return Err(unresolved("the name has no address".into()));
        }
        Ok(found)
    }

    fn parse_unix(text: &str, rest: &str) -> Result<Self, AddressError> {
        let name = rest.strip_prefix('@');
        // In the text of an address, a relative path that begins with an @ has ./ before the @.
        let rest = rest.strip_prefix("./").filter(|path| path.starts_with('@')).unwrap_or(rest);
        let bytes = name.unwrap_or(rest).len();
        if bytes == 0 {
            return Err(AddressError::syntax(text, "the path or name after unix: is missing"));
        }
        if bytes > UNIX_NAME_MAX {
            return Err(AddressError::TooLong { address: text.into(), bytes, max: UNIX_NAME_MAX });
        }
        if rest.contains('\0') {
            return Err(AddressError::syntax(text, "it contains a zero byte"));
        }
        Ok(name.map_or_else(|| Self::Path(rest.into()), |name| Self::Abstract(name.into())))
    }

    fn parse_tcp(text: &str, rest: &str) -> Result<Self, AddressError> {
        let Some((host, port)) = rest.rsplit_once(':') else {
            return Err(AddressError::syntax(
                text,
                "the port is missing, as in tcp:127.0.0.1:4000",
            ));
        };
        let Ok(port) = port.parse() else {
            return Err(AddressError::syntax(text, "the port is not a number from 0 to 65535"));
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(|| {
                AddressError::syntax(text, "the bracket before the IPv6 address is not closed")
            })?,
            None if host.contains(':') => {
                return Err(AddressError::syntax(text, "put an IPv6 address in brackets"));
            }
            None => host,
        };
        if host.contains(['[', ']']) {
            return Err(AddressError::syntax(text, "brackets stand around an IPv6 address only"));
        }
        if host.is_empty() {
            return Err(AddressError::syntax(
                text,
                "the host is missing, as in tcp:127.0.0.1:4000",
            ));
        }
        Ok(Self::Tcp { host: host.into(), port })
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            return Self::parse_unix(text, rest);
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            return Self::parse_tcp(text, rest);
        }
        Err(AddressError::syntax(text, "it must begin with unix: or tcp:"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => {
                // Without ./ before it, a path that begins with @ would be parsed as an abstract
                // name.
                let begins_like_a_name = path.as_os_str().as_encoded_bytes().starts_with(b"@");
                let dot = if begins_like_a_name { "./" } else { "" };
                write!(f, "unix:{dot}{}", path.display())
            }
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<&String> for Address {
    type Error = AddressError;

    fn try_from(text: &String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<&Address> for Address {
    type Error = AddressError;

    fn try_from(address: &Address) -> Result<Self, AddressError> {
        Ok(address.clone())
    }
}

impl TryFrom<&Path> for Address {
    type Error = AddressError;

    fn try_from(path: &Path) -> Result<Self, AddressError> {
        let bytes = path.as_os_str().len();
        if bytes == 0 || bytes > UNIX_NAME_MAX {
            let address = path.display().to_string();
            return Err(AddressError::TooLong { address, bytes, max: UNIX_NAME_MAX });
        }
        Ok(Self::Path(path.into()))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

/// The reason why a text is not a usable address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text does not have the form of an address.
    #[error("`{address}` is no address: {reason}; write unix:/path, unix:@name or tcp:host:port")]
    Syntax {
        /// The text that was given as an address.
        address: String,
        /// The reason why the text is no address.
        reason: &'static str,
    },
    /// The path or name is longer than the 107 bytes that a Unix socket address can hold.
    #[error("`{address}` has {bytes} bytes of path, {max} are possible: choose a shorter one")]
    TooLong {
        /// The text that was given as an address.
        address: String,
        /// Length of the path or name in bytes.
        bytes: usize,
        /// The longest possible path or name in bytes.
        max: usize,
    },
    /// The resolver found no address for the host name, or the address is not a TCP address.
    #[error("`{address}` cannot be looked up: {reason}; check the name, or write the IP address")]
    Unresolved {
        /// The text that was given as an address.
        address: String,
        /// The error text of the resolver.
        reason: String,
    },
}

impl AddressError {
    fn syntax(address: &str, reason: &'static str) -> Self {
        Self::Syntax { address: address.into(), reason }
    }
}

impl From<std::convert::Infallible> for AddressError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_printing() {
        for text in [
            "unix:/run/app.sock",
            "unix:relative.sock",
            "unix:@name",
            "unix:./@file",
            "unix:./file",
            "tcp:127.0.0.1:80",
            "tcp:[::1]:80",
            "tcp:localhost:0",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_path_that_begins_like_a_name_remains_a_path() {
        let address = Address::try_from(Path::new("@file")).unwrap();
        assert_eq!(address, Address::Path("@file".into()));
        assert_eq!(address.to_string(), "unix:./@file");
        assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn every_mistake_has_its_reason() {
        for (text, reason) in [
            ("", "must begin"),
            ("/run/x", "must begin"),
            ("udp:1:2", "must begin"),
            ("unix:", "missing"),
            ("unix:@", "missing"),
            ("unix:/a\0b", "zero byte"),
            ("tcp:localhost", "port is missing"),
            ("tcp:localhost:", "not a number"),
            ("tcp:localhost:65536", "not a number"),
            ("tcp::80", "host is missing"),
            ("tcp:::1:80", "brackets"),
            ("tcp:[::1:80", "not closed"),
            ("tcp:[[]:80", "around an IPv6 address"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(matches!(long.parse::<Address>(), Err(AddressError::TooLong { bytes: 108, .. })));
    }
}
