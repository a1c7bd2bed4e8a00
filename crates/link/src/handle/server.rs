// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server of the public interface: it listens at addresses, and has the links that clients
//! attach to it.
//!
//! ```text
//!   address ◀─ listener ─▶ greetings ─ ATTACH ─▶ are name, sizes, peer, login fit?  ─ no ─▶ REFUSE
//!                                                  └ yes ─▶ the link of these names ─▶ Endpoint
//!   accept ◀── attached links without a handle        open ◀── any link, attached or not
//! ```
//!
//! `accept_loop.rs` handles connections until it is known to which link they belong.
//!
//! # Invariants
//!
//! - A link is opened once, by its client's ATTACH or by the application, whichever is first.
//! - No lock is held while the application decides about a login.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use partywall_layout::link::frame::LOGIN_BYTES_MAX;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{ForkGuard, Listener};

use crate::config::{Config, LoginAnswer, LoginRequest};
use crate::drive::{Before, Entered, Monitor};
use crate::end::{Endpoint, Home, Shutdown};
use crate::error::{AcceptError, BindError, OpenError, Stopped, WaitError};
use crate::group::Group;
use crate::handle::greeting::{Asked, Greeting};
use crate::handle::link::Link;
use crate::protocol::frame::{Attach, Refusal};
use crate::storage::{OpenStorage, Storage};
use crate::store::Key;
use partywall::{Address, AddressError};

/// Serves links at an address, to which clients connect. [`Client`](crate::Client) has an example
/// of both sides.
///
/// Over TCP, a server needs [`Config::on_login`] or [`Config::allow_anonymous_tcp`].
///
/// Connections are accepted and answered only while some thread waits in [`accept`](Self::accept)
/// or for any of the server's links, or polls the [`group`](Self::group).
///
/// Dropping the server closes all its links, even those with a handle, and removes its socket file.
/// It does not write to the disk, so the links' files are refused after a reboot: call
/// [`close`](Self::close) before the process ends.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerShared>,
}

pub(super) struct ServerShared {
    pub(super) me: Weak<ServerShared>,
    pub(super) group: Group,
    pub(super) storage: OpenStorage,
    pub(super) name: String,
    pub(super) config: Config,
    pub(super) address: Address,
    pub(super) guard: ForkGuard,
    pub(super) timer_token: u64,
    /// Locked while a thread looks up a link and opens it, so that two threads do not open the same
    /// link.
    pub(super) opening: Mutex<()>,
    pub(super) monitor: Arc<Monitor<ServerState>>,
}

pub(super) struct ServerState {
    /// The server's listeners, by their tokens in the reactor.
    pub(super) listeners: BTreeMap<u64, Listening>,
    pub(super) greetings: BTreeMap<u64, Greeting>,
    pub(super) links: HashMap<Key, Arc<Endpoint>>,
    pub(super) offered: VecDeque<Arc<Endpoint>>,
    pub(super) timer: Option<Instant>,
    /// Whether the listeners are paused, so that new connections wait in the backlog; `None` if
    /// some are paused and others not.
    pub(super) is_paused: Option<bool>,
    /// Time until which all listeners pause because `accept` failed: descriptors or memory were
    /// exhausted. `None` if they need not pause for that reason.
    pub(super) resting_until: Option<Instant>,
    pub(super) refused: u64,
    pub(super) last_refusal: Option<String>,
    /// Reason why the last link for which a client was admitted could not be opened.
    pub(super) open_error: Option<OpenError>,
    /// Whether the server is closed or dropped, so that no link may be opened any more.
    pub(super) is_stopped: bool,
}

impl Entered for ServerState {}

pub(super) struct Listening {
    pub(super) listener: Listener,
    pub(super) address: Address,
}

impl Server {
    /// Makes a server for links of the end called `name` at `address`, which keeps them in
    /// `storage`.
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
    pub fn bind<A>(
        address: A,
        storage: Storage,
        name: &str,
        config: Config,
    ) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        config.sizes()?;
        Key::new(name, "client", "link")?;
        let storage = OpenStorage::open(&storage)?;
        let listener = listen(&address, &config)?;
        let group = match &config.group {
            Some(group) => group.clone(),
            None => Group::with_wait(config.wait)?,
        };
        let bound = listener.local_addr().ok().flatten().map(Address::from);
        let reactor = Arc::clone(&group.inner.reactor);
        let shared = Arc::new_cyclic(|me: &Weak<ServerShared>| ServerShared {
            me: me.clone(),
            timer_token: reactor.enter(me.clone()),
            monitor: Monitor::new(Arc::clone(&reactor), ServerState::new()),
            group,
            storage,
            name: name.to_owned(),
            config,
            address: bound.unwrap_or(address),
            guard: ForkGuard::current(),
            opening: Mutex::new(()),
        });
        shared.listen(listener, shared.address.clone())?;
        Ok(Self { shared })
    }

    /// Serves the same links at one more address, and returns that address. If port 0 was
    /// requested, the returned address has the port that the system chose. Clients connect to any
    /// of the addresses, and may [switch](Link::switch_to) between them.
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
    pub fn listen_also<A>(&self, address: A) -> Result<Address, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let shared = &self.shared;
        if shared.guard.is_child() {
            return Err(BindError::Forked);
        }
        let address = address.try_into().map_err(AddressError::from)?;
        let listener = listen(&address, &shared.config)?;
        let bound = listener.local_addr().ok().flatten().map(Address::from).unwrap_or(address);
        shared.listen(listener, bound.clone())?;
        Ok(bound)
    }

    /// The address to which the server was bound first. If port 0 was requested, it contains the
    /// port that the system chose.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        &self.shared.address
    }

    /// The group to which all links of the server belong: a thread that polls it, or blocks on one
    /// of its links, handles all of them.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Returns the next link that a client has attached and that has no handle yet. Waits if there
    /// is no such link. A client that attaches again uses its existing link, which `accept` returns
    /// only once while it has a handle.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons.
    pub fn accept(&self) -> Result<Link, AcceptError> {
        self.shared.accept(None)
    }

    /// Returns the next attached link like [`accept`](Self::accept), but waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons.
    pub fn accept_deadline(&self, deadline: Instant) -> Result<Link, AcceptError> {
        self.shared.accept(Some(deadline))
    }

    /// Returns the next attached link without a handle, if there is one now. The call also accepts
    /// and answers connections that have arrived, and never waits.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons; [`AcceptError::TimedOut`] if no link is ready.
    pub fn try_accept(&self) -> Result<Link, AcceptError> {
        self.shared.group.inner.reactor.try_turn(Before::Polling)?;
        self.shared.accept(Some(Instant::now()))
    }

    /// Opens the link called `link` of the client called `client`, whether that client has attached
    /// or not. Messages that the server sends before the client attaches are kept for the client.
    ///
    /// A handle that is opened again continues after the last message that the former handle
    /// received. [`rewind`](Link::rewind) delivers again those messages that were not acknowledged.
    ///
    /// # Errors
    /// [`OpenError::AlreadyOpen`] if the link already has a handle; [`OpenError`] lists the other
    /// reasons.
    pub fn open(&self, client: &str, link: &str) -> Result<Link, OpenError> {
        let key = Key::new(&self.shared.name, client, link)?;
        let end = self.shared.link(key)?;
        if end.claim() { Ok(Link::new(end, true)) } else { Err(OpenError::AlreadyOpen) }
    }

    /// Stops accepting connections, and closes all links of the server like [`Link::close`], even
    /// those with a handle. The link files are then written to the disk together, which may last
    /// beyond `deadline`: many files cost hardly more than one.
    ///
    /// # Errors
    /// The first error of [`Link::close`]. All links are closed even then.
    pub fn close(self, deadline: Instant) -> Result<(), WaitError> {
        if self.shared.guard.is_child() {
            return Err(Stopped::Forked.into());
        }
        Shutdown::close_all(&self.shared.stop(), Some(deadline))
    }

    /// Number of connections that the server refused, or that ended before ATTACH, the client's
    /// first frame, arrived.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.monitor.lock().refused
    }

    /// Reason of the server's last refusal; `None` if it has refused no connection.
    #[must_use]
    pub fn last_refusal(&self) -> Option<String> {
        self.shared.monitor.lock().last_refusal.clone()
    }

    /// Takes the reason why the last link for which a client was admitted could not be opened, such
    /// as a file of another boot. The client was refused. `None` if all links were opened, or the
    /// reason was taken.
    #[must_use]
    pub fn take_open_error(&self) -> Option<OpenError> {
        self.shared.monitor.lock().open_error.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.shared.guard.is_child() {
            self.shared.stop().iter().for_each(|link| link.shutdown().abandon());
        }
    }
}

impl ServerShared {
    /// Ends all listeners and handshakes, and returns the links, which stay open.
    fn stop(&self) -> Vec<Arc<Endpoint>> {
        let (listeners, greetings, links) = {
            // If another thread is opening a link at the moment, this call waits for that thread.
            // That thread's new link is then closed with the others.
            let _none_opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.monitor.lock();
            state.is_stopped = true;
            let greetings = std::mem::take(&mut state.greetings);
            let listeners = std::mem::take(&mut state.listeners);
            (listeners, greetings, std::mem::take(&mut state.links))
        };
        let reactor = &self.group.inner.reactor;
        listeners.iter().for_each(|(token, found)| reactor.unwatch(&found.listener, *token));
        greetings.iter().for_each(|(token, greeting)| reactor.unwatch(&greeting.socket, *token));
        reactor.set_timer(self.timer_token, self.monitor.lock().timer.take(), None);
        reactor.forget(self.timer_token);
        links.into_values().collect()
    }
}

impl Home for ServerShared {
    fn attached(&self, link: Arc<Endpoint>) {
        let mut state = self.monitor.lock();
        state.offered.push_back(link);
        state.changed();
    }

    fn closed(&self, link: &Endpoint) {
        let mut state = self.monitor.lock();
        if state.links.get(link.key()).is_some_and(|known| std::ptr::eq(&raw const **known, link)) {
            state.links.remove(link.key());
        }
    }
}

impl ServerShared {
    fn listen(&self, listener: Listener, address: Address) -> Result<(), BindError> {
        let reactor = &self.group.inner.reactor;
        let token = reactor.enter(self.me.clone());
        if let Err(error) = reactor.watch(&listener, EventFlags::IN, token) {
            reactor.forget(token);
            return Err(error.into());
        }
        {
            let mut state = self.monitor.lock();
            // The new listener is not paused, though others may be. `None` says so, and makes the
            // next call of `arrange` pause or resume every listener.
            state.is_paused = None;
            state.listeners.insert(token, Listening { listener, address });
        }
        self.arrange();
        Ok(())
    }

    fn accept(&self, deadline: Option<Instant>) -> Result<Link, AcceptError> {
        if self.guard.is_child() {
            return Err(AcceptError::Forked);
        }
        let found = self.monitor.wait_for(deadline, |state| {
            // The queue `offered` has attached links without a handle. The application may have
            // opened one of them by `Server::open` meanwhile, so only a link that can be claimed is
            // returned.
            std::iter::from_fn(|| state.offered.pop_front()).find(|link| link.claim())
        })?;
        Ok(Link::new(found.ok_or(AcceptError::TimedOut)?, true))
    }

    /// Decides whether a client may attach, whose first frame, ATTACH, is `asked`. If so, returns
    /// the client's link, the frame's contents and the login reply of the application.
    pub(super) fn judge(
        &self,
        greeting: &Greeting,
        asked: Asked,
    ) -> Result<(Arc<Endpoint>, Attach, Vec<u8>), Refusal> {
        let Asked { attach, names, login } = asked;
        if names.server != self.name {
            let text = format!("this server is called {:?}, not {:?}", self.name, names.server);
            return Err(Refusal::Unknown(text));
        }
        self.config.judge_window(attach.window)?;
        let key = Key::new(&self.name, &names.client, &names.link);
        let key = key.map_err(|error| Refusal::Unknown(error.to_string()))?;
        let (peer, transport) = (greeting.peer(), greeting.transport());
        if let Some(rule) = self.config.admission(greeting.is_abstract) {
            let judged = rule.judge(peer.credentials.as_ref());
            judged.map_err(|reason| Refusal::Rejected(format!("not admitted: {reason}")))?;
        }
        let request = LoginRequest { key, login, transport, peer };
        let said = self.login(&request)?;
        let link = self.link(request.key).map_err(|error| {
            let refusal = Refusal::Busy(error.to_string());
            self.monitor.lock().open_error = Some(error);
            refusal
        })?;
        Ok((link, attach, said))
    }

    fn login(&self, request: &LoginRequest) -> Result<Vec<u8>, Refusal> {
        let Some(on_login) = &self.config.on_login else {
            // A server without the callback `on_login` accepts the login of every client. It does
            // so over TCP, too, because such a server listens at a TCP address only if anonymous
            // clients are allowed.
            return Ok(Vec::new());
        };
        match (on_login.0)(request) {
            LoginAnswer::Accept(said) if said.len() <= LOGIN_BYTES_MAX => Ok(said),
            LoginAnswer::Accept(said) => Err(Refusal::Rejected(format!(
                "the server's application answers with {} bytes, of {LOGIN_BYTES_MAX} at most",
                said.len()
            ))),
            LoginAnswer::Reject(reason) => Err(Refusal::Rejected(reason)),
        }
    }

    /// Returns the link with this `key`, and opens it if it is not open yet.
    fn link(&self, key: Key) -> Result<Arc<Endpoint>, OpenError> {
        if self.guard.is_child() {
            return Err(OpenError::Forked);
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = self.monitor.lock();
            if state.is_stopped {
                return Err(OpenError::Closed);
            }
            if let Some(link) = state.links.get(&key) {
                return Ok(Arc::clone(link));
            }
            if state.links.len() >= self.config.links_max {
                return Err(OpenError::TooMany(state.links.len()));
            }
        }
        let shares = {
            let state = self.monitor.lock();
            state.listeners.values().any(|found| self.config.shares(&found.address))
        };
        let core =
            self.storage.core(&key, self.config.sizes()?, self.config.after_reboot, shares)?;
        let (group, config) = (Arc::clone(&self.group.inner), self.config.clone());
        let link = Endpoint::served(core, key.clone(), group, config, self.me.clone());
        self.monitor.lock().links.insert(key, Arc::clone(&link));
        Ok(link)
    }
}

impl ServerState {
    fn new() -> Self {
        Self {
            listeners: BTreeMap::new(),
            greetings: BTreeMap::new(),
            links: HashMap::new(),
            offered: VecDeque::new(),
            timer: None,
            is_paused: Some(false),
            resting_until: None,
            refused: 0,
            last_refusal: None,
            open_error: None,
            is_stopped: false,
        }
    }
}

impl fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn listen(address: &Address, config: &Config) -> Result<Listener, BindError> {
    Ok(match address {
        Address::Path(path) => {
            Listener::listen_unix_path(path, config.socket_mode, config.backlog)?
        }
        Address::Abstract(name) => Listener::listen_unix_abstract(name, config.backlog)?,
        Address::Tcp { .. } => {
            if config.on_login.is_none() && !config.allow_anonymous_tcp {
                return Err(BindError::Anonymous { address: address.to_string() });
            }
            let resolved = address.resolve()?;
            if !resolved.ip().is_loopback() && !config.allow_remote {
                return Err(BindError::NotLoopback { address: address.to_string() });
            }
            Listener::listen_tcp(resolved, config.backlog)?
        }
        other => {
            let reason = "a link server cannot listen on this kind of address".to_owned();
            return Err(AddressError::Unresolved { address: other.to_string(), reason }.into());
        }
    })
}
