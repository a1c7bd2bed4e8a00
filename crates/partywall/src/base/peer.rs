// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers: their identity, admission, and how far they are trusted.
//!
//! The identity of a peer is that of the process which *sent* HELLO, as the kernel reports it
//! (`SCM_CREDENTIALS`). The credentials of the socket itself would name the process that called
//! `listen`, perhaps long ago and as another user. Over TCP there is no identity.

use crate::config::TrustPolicy;
use partywall_sys::peer as sys_peer;
use partywall_sys::{Credentials, PidFd};
use std::fmt;
use std::sync::Arc;

/// How far the peer's process is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Trusted as this side's own user. Received messages are views of its memory, which it could
    /// change while they are read, as it could with a debugger. It cannot write our memory.
    Trusted,
    /// Not trusted. Every message is copied to private memory before it is read, and doorbells go
    /// over the control socket.
    Untrusted,
}

/// The process at the other end of a channel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Process, user and group, as the kernel reports them; `None` over TCP.
    pub credentials: Option<Credentials>,
    /// How far the process is trusted.
    pub trust: Trust,
    /// Its address in words: `unix:/run/app.sock`, `client of unix:/run/app.sock`, `tcp:1.2.3.4:5`.
    pub label: String,
}

impl Peer {
    /// A peer with these credentials, trusted that far, at the address that `label` names.
    #[must_use]
    pub const fn new(credentials: Option<Credentials>, trust: Trust, label: String) -> Self {
        Self { credentials, trust, label }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.credentials {
            Some(Credentials { pid, uid, .. }) => {
                write!(f, "process {pid} of user {uid} ({})", self.label)
            }
            None => f.write_str(&self.label),
        }
    }
}

type AdmitCallback = Arc<dyn Fn(&Credentials) -> Result<(), String> + Send + Sync>;

/// A rule that says which peers are admitted.
///
/// ```
/// use partywall::{Admission, Config};
///
/// let ours = Config::default().admit(Admission::own_user());
/// let some = Config::default().admit(Admission::users([1000, 1001]).or_groups([20]));
/// let odd = Config::default().admit(Admission::callback(|who| match who.pid % 2 {
///     1 => Ok(()),
///     _ => Err("only odd processes are served".into()),
/// }));
/// # let _ = (ours, some, odd);
/// ```
#[derive(Clone)]
pub struct Admission {
    users: Vec<u32>,
    groups: Vec<u32>,
    callback: Option<AdmitCallback>,
}

impl Admission {
    /// Admits the effective user of this process only.
    #[must_use]
    pub fn own_user() -> Self {
        Self::users([sys_peer::own_euid()])
    }

    /// Admits these users.
    #[must_use]
    pub fn users(users: impl IntoIterator<Item = u32>) -> Self {
        Self { users: users.into_iter().collect(), groups: Vec::new(), callback: None }
    }

    /// Admits these primary groups.
    #[must_use]
    pub fn groups(groups: impl IntoIterator<Item = u32>) -> Self {
        Self { users: Vec::new(), groups: groups.into_iter().collect(), callback: None }
    }

    /// Admits these primary groups as well.
    #[must_use]
    pub fn or_groups(mut self, groups: impl IntoIterator<Item = u32>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Admits the peers for which the callback returns `Ok`. Its error text is sent to the others.
    #[must_use]
    pub fn callback(
        judge: impl Fn(&Credentials) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { users: Vec::new(), groups: Vec::new(), callback: Some(Arc::new(judge)) }
    }

    /// Whether a peer with these credentials is admitted.
    ///
    /// # Errors
    /// The reason in words, for the log and for the peer.
    pub fn judge(&self, who: Option<&Credentials>) -> Result<(), String> {
        let Some(who) = who else {
            return Err("the address carries no credentials, and an admission rule asks for them"
                .to_owned());
        };
        if let Some(judge) = &self.callback {
            return judge(who);
        }
        // In a user namespace, several foreign users may show as the overflow uid.
        let is_known = who.uid != sys_peer::overflow_uid();
        if is_known && (self.users.contains(&who.uid) || self.groups.contains(&who.gid)) {
            return Ok(());
        }
        Err(format!("user {} (group {}) is not on the list", who.uid, who.gid))
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("users", &self.users)
            .field("groups", &self.groups)
            .field("has_callback", &self.callback.is_some())
            .finish()
    }
}

/// Decides how far to trust the process that sent these credentials.
///
/// `pidfd` proves that the process still lives *after* its namespaces were checked by process id.
/// Without that proof the answer is `Untrusted`.
pub(crate) fn decide_trust(
    policy: TrustPolicy,
    credentials: Option<&Credentials>,
    pidfd: Option<&PidFd>,
) -> Trust {
    match policy {
        TrustPolicy::Peer => Trust::Trusted,
        TrustPolicy::Untrusted => Trust::Untrusted,
        TrustPolicy::Auto => {
            let is_ours = credentials.is_some_and(|who| {
                who.uid == sys_peer::own_euid()
                    && who.uid != sys_peer::overflow_uid()
                    && who.is_pid_visible()
                    && sys_peer::same_namespaces(who.pid)
            });
            let lives = pidfd.is_some_and(|process| !process.is_dead());
            if is_ours && lives { Trust::Trusted } else { Trust::Untrusted }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials_of(uid: u32, gid: u32) -> Credentials {
        Credentials { pid: 1, uid, gid }
    }

    #[test]
    fn admission_by_list_admits_user_or_group() {
        let rule = Admission::users([5]).or_groups([7]);
        assert!(rule.judge(Some(&credentials_of(5, 0))).is_ok());
        assert!(rule.judge(Some(&credentials_of(6, 7))).is_ok());
        assert!(rule.judge(Some(&credentials_of(6, 5))).is_err());
        assert!(rule.judge(None).is_err());
    }

    #[test]
    fn overflow_user_is_not_admitted() {
        let nobody = sys_peer::overflow_uid();
        assert!(Admission::users([nobody]).judge(Some(&credentials_of(nobody, 0))).is_err());
    }

    #[test]
    fn trust_of_other_user_or_remote_is_untrusted() {
        assert_eq!(decide_trust(TrustPolicy::Auto, None, None), Trust::Untrusted);
        let stranger = credentials_of(sys_peer::own_euid() + 1, 0);
        assert_eq!(decide_trust(TrustPolicy::Auto, Some(&stranger), None), Trust::Untrusted);
        let mut us = Credentials::of_self();
        let digest = PidFd::of_self().unwrap();
        assert_eq!(decide_trust(TrustPolicy::Auto, Some(&us), Some(&digest)), Trust::Trusted);
        assert_eq!(decide_trust(TrustPolicy::Auto, Some(&us), None), Trust::Untrusted);
        assert_eq!(
            decide_trust(TrustPolicy::Untrusted, Some(&us), Some(&digest)),
            Trust::Untrusted
        );
        us.pid = 0;
        assert_eq!(decide_trust(TrustPolicy::Auto, Some(&us), Some(&digest)), Trust::Untrusted);
    }
}
