// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of the peer, its admission, and how far it is trusted.
//!
//! The kernel attests the process that *sent* HELLO (`SCM_CREDENTIALS`); that process is the peer's
//! identity. The socket's own credentials lost: they name the process that called `listen`, perhaps
//! long ago and as another user. A TCP peer has no identity.

use crate::config::TrustPolicy;
use partywall_sys::peer as sys_peer;
use partywall_sys::{Credentials, PidFd};
use std::fmt;
use std::sync::Arc;

/// How far this side trusts the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Trusted like the own user: received messages are views of the peer's memory. The peer cannot
    /// write this side's memory. The peer could change a message during reading, as it could with a
    /// debugger.
    Trusted,
    /// Not trusted: every message is copied to private memory before it is checked and returned,
    /// and sides notify each other over the socket.
    Untrusted,
}

/// The peer of a channel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Process, user and group as the kernel attests them; `None` over TCP.
    pub credentials: Option<Credentials>,
    /// How far the peer is trusted.
    pub trust: Trust,
    /// The peer's address, for people: `unix:/run/app.sock`, `client of unix:/run/app.sock` or
    /// `tcp:1.2.3.4:5`.
    pub label: String,
}

impl Peer {
    /// Makes a peer at the address `label`.
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

/// The rule that decides which processes may be the peer.
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
    /// Admits processes of the own effective user only.
    #[must_use]
    pub fn own_user() -> Self {
        Self::users([sys_peer::own_euid()])
    }

    /// Admits processes whose effective user is one of `users`.
    #[must_use]
    pub fn users(users: impl IntoIterator<Item = u32>) -> Self {
        Self { users: users.into_iter().collect(), groups: Vec::new(), callback: None }
    }

    /// Admits processes with these primary groups.
    #[must_use]
    pub fn groups(groups: impl IntoIterator<Item = u32>) -> Self {
        Self { users: Vec::new(), groups: groups.into_iter().collect(), callback: None }
    }

    /// Also admits processes whose primary group is one of `groups`.
    #[must_use]
    pub fn or_groups(mut self, groups: impl IntoIterator<Item = u32>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Admits the peers that the callback accepts. A refused peer gets the callback's error text.
    #[must_use]
    pub fn callback(
        judge: impl Fn(&Credentials) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { users: Vec::new(), groups: Vec::new(), callback: Some(Arc::new(judge)) }
    }

    /// Whether a peer with these credentials is admitted.
    ///
    /// # Errors
    /// Returns the reason of the refusal, as text for the log and for the peer.
    pub fn judge(&self, who: Option<&Credentials>) -> Result<(), String> {
        let Some(who) = who else {
            return Err("the address carries no credentials, and an admission rule asks for them"
                .to_owned());
        };
        if let Some(judge) = &self.callback {
            return judge(who);
        }
        // In a user namespace, every user without a mapping appears as the overflow uid, so that
        // uid identifies nobody.
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
/// The namespaces are read by process id, which the kernel could reuse. `pidfd` proves that the
/// process still lives *after* the reading; without this proof the result is `Untrusted`.
pub(crate) fn decide_trust(
    policy: TrustPolicy,
    credentials: Option<&Credentials>,
    pidfd: Option<&PidFd>,
) -> Trust {
    match policy {
        TrustPolicy::Trusted => Trust::Trusted,
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

    fn somebody(uid: u32, gid: u32) -> Credentials {
        Credentials { pid: 1, uid, gid }
    }

    #[test]
    fn lists_admit_by_user_or_group() {
        let rule = Admission::users([5]).or_groups([7]);
        assert!(rule.judge(Some(&somebody(5, 0))).is_ok());
        assert!(rule.judge(Some(&somebody(6, 7))).is_ok());
        assert!(rule.judge(Some(&somebody(6, 5))).is_err());
        assert!(rule.judge(None).is_err());
    }

    #[test]
    fn the_overflow_user_is_nobody() {
        let nobody = sys_peer::overflow_uid();
        assert!(Admission::users([nobody]).judge(Some(&somebody(nobody, 0))).is_err());
    }

    #[test]
    fn strangers_and_remotes_are_untrusted() {
        assert_eq!(decide_trust(TrustPolicy::Auto, None, None), Trust::Untrusted);
        let stranger = somebody(sys_peer::own_euid() + 1, 0);
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
