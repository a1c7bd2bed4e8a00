// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom `recv` lets in: the one peer, on the one link, with the secret where there is one.
//!
//! ```text
//!   ATTACH ─▶ the link's name? ─▶ the peer's, or nobody yet? ─▶ the secret, if there is one ─▶ TCP without one? --allow-anonymous
//! ```

use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};
use partywall::Address;
use partywall_link::{Config, LoginAnswer, LoginRequest, Transport};

use super::options::is_same;

/// See the module.
#[derive(Clone)]
pub struct Gate {
    link: String,
    /// Set once it is known: from the beginning with --peer, else with the first that attaches.
    peer: Arc<OnceLock<String>>,
    secret: Option<Arc<[u8]>>,
    allows_anonymous: bool,
}

impl Gate {
    /// The gate of a receiver at `address`.
    pub fn new(
        address: &Address,
        link: &str,
        peer: Option<&String>,
        secret: Option<Vec<u8>>,
        allows_anonymous: bool,
    ) -> Result<Self> {
        let is_tcp = matches!(address, Address::Tcp { .. });
        ensure!(
            !is_tcp || allows_anonymous || secret.is_some(),
            "over TCP nobody vouches for a sender's name: whoever reaches {address} could say that it is the peer. Give \
             --token-file FILE on both sides, with the same secret; or say --allow-anonymous"
        );
        let known = OnceLock::new();
        if let Some(peer) = peer {
            // It was just made.
            let _ = known.set(peer.clone());
        }
        let secret = secret.map(Arc::from);
        Ok(Self { link: link.to_owned(), peer: Arc::new(known), secret, allows_anonymous })
    }

    /// From now on only this peer.
    pub fn close_behind(&self, peer: &str) {
        // Set before: then it was this one, since no other came through.
        let _ = self.peer.set(peer.to_owned());
    }

    /// Asks it about each connection.
    pub fn guard(&self, config: Config) -> Config {
        let gate = self.clone();
        config.on_login(move |request| match gate.objection(request) {
            None => LoginAnswer::Accept(Vec::new()),
            Some(reason) => LoginAnswer::Reject(reason.to_owned()),
        })
    }

    fn objection(&self, request: &LoginRequest) -> Option<&'static str> {
        if request.key.link() != self.link {
            return Some(
                "this receiver has a link of another name: give the same --link on both sides",
            );
        }
        if self.peer.get().is_some_and(|peer| peer != request.key.remote()) {
            return Some("this receiver takes another sender: --peer there is --name here");
        }
        match &self.secret {
            Some(secret) if is_same(&request.login, secret) => None,
            Some(_) => Some(
                "the secret is not that of the receiver: give the same --token-file on both sides",
            ),
            None if request.transport == Transport::Tcp && !self.allows_anonymous => {
                Some("the receiver takes nobody over TCP without a secret")
            }
            None => None,
        }
    }
}
