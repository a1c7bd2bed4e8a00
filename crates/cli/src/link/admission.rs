// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules by which `partywall link recv` decides which sender may attach (`Admission`).
//!
//! ```text
//!   ATTACH ─▶ does it name the link of `recv`?
//!          ─▶ is the sender the admitted peer, or is no peer admitted yet?
//!          ─▶ does its login carry the secret, if --token-file is given?
//!          ─▶ over TCP without a secret: is --allow-anonymous given?
//!          ─▶ admitted; after any "no": refused
//! ```

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use partywall::Address;
use partywall_link::{Config, LoginAnswer, LoginRequest, Transport};

use super::options::is_same;

use crate::command::exit::usage;

/// The rules by which one `link recv` admits senders.
#[derive(Clone)]
pub struct Admission {
    link: String,
    /// Name of the only sender that is admitted: the value of --peer or, without that flag, the
    /// name of the first sender that attached.
    peer: Arc<OnceLock<String>>,
    secret: Option<Arc<[u8]>>,
    allows_anonymous: bool,
}

impl Admission {
    /// Makes the rules by which a receiver at `address` admits senders.
    pub fn new(
        address: &Address,
        link: &str,
        peer: Option<&String>,
        secret: Option<Vec<u8>>,
        allows_anonymous: bool,
    ) -> Result<Self> {
        let is_tcp = matches!(address, Address::Tcp { .. });
        if is_tcp && !allows_anonymous && secret.is_none() {
            return Err(usage(format!(
                "TCP does not authenticate a sender's name: any process that reaches {address} could claim to be the \
                 peer. Give --token-file FILE on both sides, with the same secret, or --allow-anonymous"
            )));
        }
        let known = OnceLock::new();
        if let Some(peer) = peer {
            // The `OnceLock` `known` was just made and is empty, so `set` cannot fail.
            let _ = known.set(peer.clone());
        }
        let secret = secret.map(Arc::from);
        Ok(Self { link: link.to_owned(), peer: Arc::new(known), secret, allows_anonymous })
    }

    /// Restricts the admission to senders with the name `peer` from now on.
    pub fn restrict_to(&self, peer: &str) {
        // An error of `set` is ignored: a name that is set already equals `peer`, because only
        // `peer` was admitted.
        let _ = self.peer.set(peer.to_owned());
    }

    /// Returns `config` with a callback that applies these rules to the login of each sender.
    pub fn apply(&self, config: Config) -> Config {
        let admission = self.clone();
        config.on_login(move |request| match admission.objection(request) {
            None => LoginAnswer::Accept(Vec::new()),
            Some(reason) => LoginAnswer::Reject(reason.to_owned()),
        })
    }

    fn objection(&self, request: &LoginRequest) -> Option<&'static str> {
        if request.key.link() != self.link {
            return Some(
                "the receiver has a link of another name: give the same --link on both sides",
            );
        }
        if self.peer.get().is_some_and(|peer| peer != request.key.remote()) {
            return Some(
                "the receiver admits another sender: its --peer must be the --name of the sender",
            );
        }
        match &self.secret {
            Some(secret) if is_same(&request.login, secret) => None,
            Some(_) => Some(
                "the secret is not that of the receiver: give the same --token-file on both sides",
            ),
            None if request.transport == Transport::Tcp && !self.allows_anonymous => {
                Some("the receiver admits no sender over TCP without a secret")
            }
            None => None,
        }
    }
}
