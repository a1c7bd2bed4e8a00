// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts for errors of the library that name a setting: the command prints them with the name of
//! its flag instead.
//!
//! ```text
//!   Config::memory_max  --memory     Config::allow_remote       --allow-remote
//!   TransportPolicy     --transport  Config::handshake_timeout  --handshake-timeout
//! ```
//! Only errors that name a setting get a text in this file. All others keep the library's text.

use partywall::{BindError, ConnectError, HandshakeError, Limit, Refusal, SendError, TooLarge};

/// An error of the library that the command prints with the name of a flag in place of a library
/// setting.
pub trait InFlags {
    /// Returns the text of the error; the text names the flag that would help.
    fn in_flags(&self) -> String;
}

impl InFlags for HandshakeError {
    fn in_flags(&self) -> String {
        match self {
            Self::TimedOut { peer, .. } => format!(
                "{peer} did not finish the handshake in time: it may not be a Partywall listener, or it \
                 may be stopped; --handshake-timeout sets the time"
            ),
            Self::HungUp { peer, .. } => {
                format!("{peer} hung up during the handshake: its own log may give the reason")
            }
            Self::NotPartywall { peer, found, .. } => format!(
                "{peer} is no Partywall listener (it began with {found}): is this the right address?"
            ),
            Self::NotAdmitted { peer, reason } => format!(
                "{peer} is not admitted: {reason}; to admit other users, listen with a wider --mode"
            ),
            Self::NoTransport { reason } => format!(
                "no transport suits both sides: shared memory is unavailable because {reason}, and one \
                 side does not allow the socket: give both --transport auto, or remove the cause"
            ),
            Self::Refused { refusal: Refusal::Transport, .. } => {
                format!("{self}; --transport auto on both sides allows the socket")
            }
            Self::Refused { refusal: Refusal::Service, peer, .. } => format!(
                "{peer} serves something else: listen, connect and echo make channels to each other, proxy \
                 makes a session with another proxy. Use the command that fits"
            ),
            other => other.to_string(),
        }
    }
}

/// Returns the text about a connection that a listener has refused: the peer connects, and is not
/// itself the listener that [`InFlags`] names.
pub fn refusal_in_flags(error: &HandshakeError) -> String {
    match error {
        HandshakeError::TimedOut { peer, .. } => format!(
            "{peer} did not finish the handshake in time: it may not speak Partywall, or it may be \
             stopped; --handshake-timeout sets the time"
        ),
        HandshakeError::NotPartywall { .. } => error.to_string(),
        other => other.in_flags(),
    }
}

impl InFlags for ConnectError {
    fn in_flags(&self) -> String {
        match self {
            Self::Handshake(error) => error.in_flags(),
            other => other.to_string(),
        }
    }
}

impl InFlags for BindError {
    fn in_flags(&self) -> String {
        match self {
            Self::NotLoopback { address } => format!(
                "{address} can be reached from other hosts, and TCP is neither authenticated nor \
                 encrypted: bind a loopback address, or say --allow-remote"
            ),
            other => other.to_string(),
        }
    }
}

impl InFlags for SendError {
    fn in_flags(&self) -> String {
        match self {
            Self::TooLarge(too_large) => too_large.in_flags(),
            other => other.to_string(),
        }
    }
}

impl InFlags for TooLarge {
    fn in_flags(&self) -> String {
        let advice = match self.limit {
            Limit::OwnMemory => "raise --memory on this side, and at the peer",
            Limit::PeerMap | Limit::PeerMessage => {
                "raise --memory at the peer, and on this side if it is no greater"
            }
            _ => return self.to_string(),
        };
        let Self { len, max, limit } = self;
        format!("a message of {len} bytes exceeds {max}, {}: {advice}", limit.of())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall::FallbackReason;

    #[test]
    fn refused_peer_is_called_no_listener() {
        let peer = || "unix:/a".to_owned();
        for error in [
            HandshakeError::TimedOut { peer: peer(), hint: "" },
            HandshakeError::NotPartywall { peer: peer(), found: String::new(), advice: "a link" },
        ] {
            let (refused, connecting) = (refusal_in_flags(&error), error.in_flags());
            assert!(!refused.contains("Partywall listener"), "{refused}");
            assert!(connecting.contains("Partywall listener"), "{connecting}");
        }
    }

    #[test]
    fn error_in_flags_names_no_setting_of_the_library() {
        let peer = || "unix:/a".to_owned();
        let too_large = |limit| SendError::TooLarge(TooLarge { len: 2, max: 1, limit });
        let refused = HandshakeError::NotAdmitted { peer: peer(), reason: "another user".into() };
        let texts = [
            (
                HandshakeError::TimedOut { peer: peer(), hint: "; connect_with" }.in_flags(),
                "--handshake-timeout",
            ),
            (
                HandshakeError::HungUp { peer: peer(), hint: "; connect_with" }.in_flags(),
                "its own log",
            ),
            (
                HandshakeError::NotPartywall {
                    peer: peer(),
                    found: String::new(),
                    advice: "with_protocol",
                }
                .in_flags(),
                "the right address",
            ),
            (refused.in_flags(), "--mode"),
            (
                ConnectError::from(HandshakeError::NoTransport { reason: FallbackReason::Remote })
                    .in_flags(),
                "--transport auto",
            ),
            (
                HandshakeError::Refused {
                    peer: peer(),
                    refusal: Refusal::Service,
                    text: String::new(),
                }
                .in_flags(),
                "another proxy",
            ),
            (BindError::NotLoopback { address: peer() }.in_flags(), "--allow-remote"),
            (too_large(Limit::OwnMemory).in_flags(), "--memory"),
            (too_large(Limit::PeerMap).in_flags(), "--memory"),
            (too_large(Limit::PeerMessage).in_flags(), "--memory"),
        ];
        for (text, flag) in &texts {
            assert!(text.contains(flag), "{text}");
            for setting in ["Config::", "Policy", "BackPressure", "_max"] {
                assert!(!text.contains(setting), "{text}");
            }
        }
    }
}
