// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of the peer, its admission, and how far it is trusted.
//!
//! The kernel attests the process that *sent* HELLO (`SCM_CREDENTIALS`); that process is the peer's
//! identity. The socket's own credentials are not used: they name the process that called `listen`,
//! perhaps long ago and as another user. A TCP peer has no identity.

use crate::config::TrustPolicy;
use partywall_sys::peer::{self as sys_peer, Namespaces};
use partywall_sys::{Credentials, PidFd};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// How far this side trusts the process of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// This side trusts the peer like another process of the same user: received messages are views
    /// of the peer's memory. The peer cannot write this side's memory. The peer could change a
    /// message while this side reads it, as it could with a debugger.
    Trusted,
    /// This side does not trust the peer. It copies every message to private memory before it
    /// checks and returns the message. The two sides wake each other by bytes on the control
    /// socket.
    Untrusted,
}

/// The reason why a peer is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// The configuration trusts no peer: [`TrustPolicy::Untrusted`].
    Policy,
    /// The connection has no credentials, because it runs over TCP or uses another protocol.
    NoCredentials,
    /// The peer runs as another user, or as a user without a number in this user namespace.
    OtherUser,
    /// The peer lives in another pid namespace, as in a container. The policy
    /// [`TrustPolicy::OwnUser`] trusts such a peer.
    OtherPidNamespace,
    /// The peer lives in another user namespace. The policy [`TrustPolicy::OwnUser`] trusts such a
    /// peer.
    OtherUserNamespace,
    /// The peer's namespaces cannot be read: `/proc` is not mounted, or denies the access.
    UnknownNamespaces,
    /// The kernel gave no descriptor of the peer's process (Linux before 6.5 without `/proc`), or
    /// the peer's process has died.
    NoProcess,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "the configuration says so",
            Self::NoCredentials => "the connection carries no credentials",
            Self::OtherUser => "it runs as another user",
            Self::OtherPidNamespace => {
                "it lives in another pid namespace (TrustPolicy::OwnUser would trust it)"
            }
            Self::OtherUserNamespace => {
                "it lives in another user namespace (TrustPolicy::OwnUser would trust it)"
            }
            Self::UnknownNamespaces => "its namespaces cannot be read: is our own /proc mounted?",
            Self::NoProcess => {
                "there is no descriptor of its process (it takes Linux 6.5, or 5.3 with /proc)"
            }
        })
    }
}

/// The identity of a channel's peer, and how far the peer is trusted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Process, user and group of the peer, as the kernel attests them; `None` over TCP.
    pub credentials: Option<Credentials>,
    /// How far the peer is trusted.
    pub trust: Trust,
    /// The reason why the peer is not trusted; `None` if the peer is trusted.
    pub distrust: Option<Distrust>,
    /// The peer's address, for people: `unix:/run/app.sock`, `client of unix:/run/app.sock` or
    /// `tcp:1.2.3.4:5`.
    pub label: String,
}

impl Peer {
    /// Makes the description of a peer with the given credentials and trust, at the address
    /// `label`.
    #[must_use]
    pub const fn new(credentials: Option<Credentials>, trust: Trust, label: String) -> Self {
        let distrust = match trust {
            Trust::Trusted => None,
            Trust::Untrusted => Some(Distrust::Policy),
        };
        Self { credentials, trust, distrust, label }
    }

    /// Makes the description of a peer. The peer is trusted if `judged` is `Ok`; otherwise it is
    /// not trusted, for the reason in the `Err`.
    pub(crate) const fn judged(
        credentials: Option<Credentials>,
        judged: Result<(), Distrust>,
        label: String,
    ) -> Self {
        let (trust, distrust) = match judged {
            Ok(()) => (Trust::Trusted, None),
            Err(distrust) => (Trust::Untrusted, Some(distrust)),
        };
        Self { credentials, trust, distrust, label }
    }
}

/// The identity of a peer. How far the peer is trusted is decided when that is first needed,
/// because the decision takes several reads of `/proc`.
#[derive(Clone, Debug)]
pub(crate) struct PeerIdentity {
    credentials: Option<Credentials>,
    label: String,
    policy: TrustPolicy,
    /// The pidfd of the peer's process, which exists as long as the connection lives.
    process: Weak<PidFd>,
    judged: Arc<OnceLock<Peer>>,
}

impl PeerIdentity {
    /// Makes the identity of the process that sent `credentials`. `process` is its pidfd, if the
    /// kernel delivered one.
    pub(crate) fn new(
        credentials: Option<Credentials>,
        label: String,
        policy: TrustPolicy,
        process: Option<&Arc<PidFd>>,
    ) -> Self {
        let process = process.map_or_else(Weak::new, Arc::downgrade);
        Self { credentials, label, policy, process, judged: Arc::default() }
    }

    /// Returns the peer. The first call decides how far this side trusts the peer; later calls
    /// return the same decision.
    pub(crate) fn get(&self) -> &Peer {
        self.judged.get_or_init(|| {
            let process = self.process.upgrade();
            let judged = decide_trust(self.policy, self.credentials.as_ref(), process.as_deref());
            Peer::judged(self.credentials, judged, self.label.clone())
        })
    }

    /// Stores the trust in the peer that a second handshake of the same connection decided.
    pub(crate) fn set(&self, peer: Peer) {
        // If the trust was decided before, the earlier decision stays, because the application may
        // have read it already.
        let _ = self.judged.set(peer);
    }

    /// Returns the peer for error texts, without deciding how far this side trusts it.
    pub(crate) fn unjudged(&self) -> Peer {
        Peer::new(self.credentials, Trust::Untrusted, self.label.clone())
    }
}

impl From<Peer> for PeerIdentity {
    fn from(peer: Peer) -> Self {
        let (credentials, label) = (peer.credentials, peer.label.clone());
        let identity = Self::new(credentials, label, TrustPolicy::Untrusted, None);
        identity.set(peer);
        identity
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
    /// Admits only processes whose effective user is that of the calling process.
    #[must_use]
    pub fn own_user() -> Self {
        Self::users([sys_peer::own_euid()])
    }

    /// Admits processes whose effective user is one of `users`.
    #[must_use]
    pub fn users(users: impl IntoIterator<Item = u32>) -> Self {
        Self { users: users.into_iter().collect(), groups: Vec::new(), callback: None }
    }

    /// Admits processes whose primary group is one of `groups`.
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

/// Decides whether to trust the process that sent the credentials. Returns the reason if the
/// process is not trusted.
///
/// The namespaces are read by process id, which the kernel could reuse. `pidfd` proves that the
/// process still lives *after* the reading; without this proof the peer is not trusted.
pub(crate) fn decide_trust(
    policy: TrustPolicy,
    credentials: Option<&Credentials>,
    pidfd: Option<&PidFd>,
) -> Result<(), Distrust> {
    let may_live_elsewhere = match policy {
        TrustPolicy::Trusted => return Ok(()),
        TrustPolicy::Untrusted => return Err(Distrust::Policy),
        TrustPolicy::Auto => false,
        TrustPolicy::OwnUser => true,
    };
    let who = credentials.ok_or(Distrust::NoCredentials)?;
    if who.uid != sys_peer::own_euid() || who.uid == sys_peer::overflow_uid() {
        return Err(Distrust::OtherUser);
    }
    let process = pidfd.ok_or(Distrust::NoProcess);
    if !may_live_elsewhere {
        match sys_peer::namespaces(who.pid) {
            Namespaces::Same => {}
            Namespaces::OtherPid => return Err(Distrust::OtherPidNamespace),
            Namespaces::OtherUser => return Err(Distrust::OtherUserNamespace),
            Namespaces::Unknown => return Err(Distrust::UnknownNamespaces),
        }
    }
    if process?.is_dead() { Err(Distrust::NoProcess) } else { Ok(()) }
}

/// For a connector, guesses whether the acceptor will trust this process. `listener` has the
/// credentials of the process that called `listen`, and `policy` is the trust policy of this side.
///
/// The guess only decides how the handshake begins. It saves a connector the round trip in which an
/// acceptor that runs as another user declines to move the connection to shared memory.
pub(crate) fn may_be_trusted(policy: TrustPolicy, listener: Option<&Credentials>) -> bool {
    if policy == TrustPolicy::Trusted {
        return true;
    }
    let is_near = |who: &Credentials| policy == TrustPolicy::OwnUser || who.is_pid_visible();
    listener.is_some_and(|who| who.uid == sys_peer::own_euid() && is_near(who))
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
    fn acceptor_of_another_user_or_namespace_is_expected_to_trust_only_by_policy() {
        let own = sys_peer::own_euid();
        let here = somebody(own, 0);
        let elsewhere = Credentials { pid: 0, ..here };
        let stranger = somebody(own + 1, 0);
        for (policy, expected) in [
            (TrustPolicy::Auto, [true, false, false, false]),
            (TrustPolicy::Untrusted, [true, false, false, false]),
            (TrustPolicy::OwnUser, [true, true, false, false]),
            (TrustPolicy::Trusted, [true, true, true, true]),
        ] {
            let found = [Some(&here), Some(&elsewhere), Some(&stranger), None];
            assert_eq!(found.map(|who| may_be_trusted(policy, who)), expected, "{policy:?}");
        }
    }

    #[test]
    fn strangers_and_remotes_are_untrusted() {
        let (auto, own_user) = (TrustPolicy::Auto, TrustPolicy::OwnUser);
        assert_eq!(decide_trust(auto, None, None), Err(Distrust::NoCredentials));
        let mut us = Credentials::of_self();
        let process = PidFd::of_self().unwrap();
        for policy in [auto, own_user] {
            let stranger = somebody(sys_peer::own_euid() + 1, 0);
            let judged = decide_trust(policy, Some(&stranger), Some(&process));
            assert_eq!(judged, Err(Distrust::OtherUser));
            assert_eq!(decide_trust(policy, Some(&us), Some(&process)), Ok(()));
            assert_eq!(decide_trust(policy, Some(&us), None), Err(Distrust::NoProcess));
        }
        let judged = decide_trust(TrustPolicy::Untrusted, Some(&us), Some(&process));
        assert_eq!(judged, Err(Distrust::Policy));
        us.pid = 0;
        let judged = decide_trust(auto, Some(&us), Some(&process));
        assert_eq!(judged, Err(Distrust::OtherPidNamespace));
        assert_eq!(decide_trust(own_user, Some(&us), Some(&process)), Ok(()));
    }
}
