// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application of a server is asked about each connection, and answers.

use std::fmt;
use std::sync::Arc;

use super::status::Transport;
use super::store::Key;
use partywall::Peer;

/// A client that wants to attach. Its names are what it says; `peer` is what the system vouches for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoginRequest {
    /// The server's end of the link: `local` is the server, `remote` the client.
    pub key: Key,
    /// What the client's application says: [`Config::login`](super::Config::login).
    pub login: Vec<u8>,
    /// Over what it has come.
    pub transport: Transport,
    /// Who it is: with credentials on Unix sockets, with the address only over TCP.
    pub peer: Peer,
}

/// Whether a client may attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// It may, and its application is told these bytes, at most 4 KiB.
    Accept(Vec<u8>),
    /// It may not, and is told why, for people. It goes on trying.
    Reject(String),
}

/// Decides.
#[derive(Clone)]
pub(super) struct OnLogin(pub(super) Arc<dyn Fn(&LoginRequest) -> LoginAnswer + Send + Sync>);

impl fmt::Debug for OnLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLogin")
    }
}
