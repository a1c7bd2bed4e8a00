// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listens at an address and drives the handshakes of all new connections.
//!
//! ```text
//!   epoll set ◀── listening socket ─▶ a new Pending; at handshakes_max it replaces a silent one
//!             ◀── each Pending     ─▶ its progress ─▶ established, still pending, or refused
//!             ◀── timer            ─▶ handshakes whose deadline has passed are refused
//! ```
//!
//! The caller of `accept` drives all handshakes; the listener has no thread. A peer that stalls
//! delays no other peer. Neither do many peers that connect and send nothing. If as many handshakes
//! are under way as the configuration allows and a new connection waits, the oldest handshake whose
//! peer has sent nothing is refused (SPEC 2.7). A handshake whose peer has sent a byte is not
//! refused before its deadline.

use super::Established;
use super::pending::Pending;
use crate::address::{Address, AddressError};
use crate::channel::Channel;
use crate::config::Config;
use crate::error::{AcceptError, BindError, HandshakeError};
use crate::peer::Admission;
use crate::protocol::Protocol;
use crate::transport::has_passed;
use crate::transport::shm::SpareRegion;
use partywall_layout::Geometry;
use partywall_layout::hello::SERVICE_CHANNEL;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{EpollSet, ForkGuard, Ready, Socket, Timer};
use partywall_wait::deadline_after;
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LISTENING: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// Most connections that the listener accepts one after the other, before it drives the handshakes
/// under way. So a flood of connections does not delay these handshakes for ever.
const ADMITTED_MAX: usize = 64;
/// Time for which the listening socket is not polled after a shortage of descriptors or memory. A
/// waiting connection would otherwise make the listener fail again and again, without a pause.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections at an address.
///
/// Dropping the listener removes its socket file. A file that a dead process left does not stop the
/// next `bind`.
///
/// # Examples
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// let mut listener = partywall::Listener::bind(&address)?;
/// let client = std::thread::spawn(move || {
///     let mut channel = partywall::connect(&address).unwrap();
///     channel.send(b"hello").unwrap();
///     channel.recv().unwrap().unwrap().to_vec()
/// });
/// let mut channel = listener.accept()?;
/// let message = channel.recv()?.unwrap();
/// channel.send(&message)?;
/// assert_eq!(client.join().unwrap(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Listener {
    set: EpollSet,
    timer: Timer,
    /// The time at which the listener's timer fires. The listener then refuses handshakes whose
    /// deadline has passed. The timer may fire too early, because the handshake for which it was
    /// set may have ended.
    timer_set: Option<Instant>,
    socket: partywall_sys::Listener,
    guard: ForkGuard,
    address: Address,
    service: u32,
    config: Config,
    protocols: Vec<Arc<dyn Protocol>>,
    geometry: Geometry,
    spare: Arc<SpareRegion>,
    pending: Vec<Option<Underway>>,
    under_way: usize,
    ready: VecDeque<Established>,
    is_paused: bool,
    /// The listening socket is not polled before this time, because descriptors or memory were
    /// short at the last attempt to accept.
    short_until: Option<Instant>,
    refused: u64,
    events: Vec<Ready>,
}

/// Time that each peer has for its first byte, however many connections wait. The process of a
/// silent peer may just be waiting for a busy processor.
const SILENCE_MIN: Duration = Duration::from_millis(100);

/// A handshake under way, its deadline, and the time until which no waiting connection may replace
/// it.
struct Underway {
    pending: Pending,
    is_in_set: bool,
    deadline: Instant,
    spared_until: Instant,
}

impl Listener {
    /// Listens at `address`, with the default [`Config`].
    ///
    /// # Errors
    /// Returns [`BindError`] if the address cannot be bound.
    pub fn bind<A>(address: A) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        Self::bind_with(address, &Config::default())
    }

    /// Listens at `address`. `config` applies to every accepted channel.
    ///
    /// # Errors
    /// Returns [`BindError`] if `config` is impossible or the address cannot be bound.
    pub fn bind_with<A>(address: A, config: &Config) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        Self::bind_service(address.try_into().map_err(AddressError::from)?, config, SERVICE_CHANNEL)
    }

    /// Listens on a socket that another process made: a service manager, or the parent of several
    /// processes that accept from it. `config` applies to every accepted channel.
    ///
    /// Dropping the listener leaves the socket file in place. Peers are identified by their own
    /// messages, so the other process need not set any option.
    ///
    /// # Errors
    /// Returns [`BindError`] if `config` is impossible or the descriptor is no listening socket.
    ///
    /// # Examples
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.sock");
    /// use std::os::unix::net::UnixListener;
    ///
    /// let made_elsewhere = UnixListener::bind(&path)?;
    /// let config = partywall::Config::default();
    /// let listener = partywall::Listener::from_descriptor(made_elsewhere.into(), &config)?;
    /// # drop(listener);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_descriptor(descriptor: OwnedFd, config: &Config) -> Result<Self, BindError> {
        Self::adopt_service(descriptor, config, SERVICE_CHANNEL)
    }

    /// Listens on the socket that a service manager passed to this process under `name`
    /// (`LISTEN_FDS`; `FileDescriptorName=` of systemd), like
    /// [`from_descriptor`](Self::from_descriptor).
    ///
    /// # Errors
    /// [`BindError::System`] if no such socket was passed, and as `from_descriptor`.
    pub fn activated(name: &str, config: &Config) -> Result<Self, BindError> {
        Self::from_descriptor(passed_socket(name)?, config)
    }

    /// Listens on a socket that another process made, for peers that ask for the service with the
    /// number `service`.
    pub(crate) fn adopt_service(
        descriptor: OwnedFd,
        config: &Config,
        service: u32,
    ) -> Result<Self, BindError> {
        let socket = partywall_sys::Listener::adopt(descriptor)?;
        let address: Address = socket.label().as_str().try_into()?;
        let mut config = config.clone();
        if let Address::Abstract(_) = &address {
            // An abstract name has no permissions, so any process could connect: only the own user
            // is admitted by default.
            config.admission.get_or_insert_with(Admission::own_user);
        }
        let is_remote = socket
            .local_addr()
            .is_ok_and(|local| local.is_some_and(|local| !local.ip().is_loopback()));
        if is_remote && !config.allow_remote {
            return Err(BindError::NotLoopback { address: address.to_string() });
        }
        Self::over(socket, address, config, service)
    }

    pub(crate) fn bind_service(
        address: Address,
        config: &Config,
        service: u32,
    ) -> Result<Self, BindError> {
        config.geometry()?;
        let mut config = config.clone();
        let socket = match &address {
            Address::Path(path) => {
                partywall_sys::Listener::listen_unix_path(path, config.socket_mode, config.backlog)?
            }
            Address::Abstract(name) => {
                // An abstract name has no permissions, so any process could connect: only the own
                // user is admitted by default.
                config.admission.get_or_insert_with(Admission::own_user);
                partywall_sys::Listener::listen_unix_abstract(name, config.backlog)?
            }
            Address::Tcp { .. } => {
                let resolved = address.resolve()?;
                if !resolved.ip().is_loopback() && !config.allow_remote {
                    return Err(BindError::NotLoopback { address: address.to_string() });
                }
                partywall_sys::Listener::listen_tcp(resolved, config.backlog)?
            }
        };
        Self::over(socket, address, config, service)
    }

    fn over(
        socket: partywall_sys::Listener,
        address: Address,
        config: Config,
        service: u32,
    ) -> Result<Self, BindError> {
        let geometry = config.geometry()?;
        let (set, timer) =
            (EpollSet::new().map_err(BindError::Setup)?, Timer::new().map_err(BindError::Setup)?);
        set.add(&socket, EventFlags::IN, LISTENING).map_err(BindError::Setup)?;
        set.add(&timer, EventFlags::IN, TIMER).map_err(BindError::Setup)?;
        let bound = socket.local_addr().ok().flatten().map(Address::from);
        Ok(Self {
            set,
            timer,
            timer_set: None,
            socket,
            guard: ForkGuard::current(),
            address: bound.unwrap_or(address),
            service,
            config,
            protocols: Vec::new(),
            geometry,
            spare: Arc::default(),
            pending: Vec::new(),
            under_way: 0,
            ready: VecDeque::new(),
            is_paused: false,
            short_until: None,
            refused: 0,
            events: Vec::new(),
        })
    }

    /// Makes the listener also serve peers that speak `protocol`. Only listeners of sessions may
    /// serve other protocols.
    pub(crate) fn add_protocol(&mut self, protocol: Arc<dyn Protocol>) {
        self.protocols.push(protocol);
    }

    /// Returns the bound address. If the port was given as 0, the address contains the port that
    /// the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        &self.address
    }

    /// Blocks until the next channel is established, and returns it.
    ///
    /// A peer whose handshake fails causes no error of `accept`: it is refused, counted
    /// ([`refused`](Self::refused)), and reported to [`Config::on_refused`].
    ///
    /// # Errors
    /// Returns [`AcceptError`] if accepting fails. The listener stays usable after each error. At
    /// the descriptor limit, wait until some descriptors are closed before accepting again.
    pub fn accept(&mut self) -> Result<Channel, AcceptError> {
        self.accept_channel(None)
    }

    /// Blocks until the next channel is established, like [`accept`](Self::accept), but only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if the deadline passed; others as [`accept`](Self::accept).
    pub fn accept_deadline(&mut self, deadline: Instant) -> Result<Channel, AcceptError> {
        self.accept_channel(Some(deadline))
    }

    /// Returns the next channel if one is established now. Also drives the handshakes under way,
    /// and never blocks.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if no channel is established now; others as
    /// [`accept`](Self::accept).
    pub fn try_accept(&mut self) -> Result<Channel, AcceptError> {
        self.accept_channel(Some(Instant::now()))
    }

    /// Returns the number of connections that this listener refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn accept_channel(&mut self, deadline: Option<Instant>) -> Result<Channel, AcceptError> {
        let established = self.accept_until(deadline)?;
        Ok(established.into_channel(&self.config))
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn accept_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Established, AcceptError> {
        loop {
            if self.guard.is_child() {
                return Err(AcceptError::Forked);
            }
            if let Some(established) = self.ready.pop_front() {
                return Ok(established);
            }
            self.spare.replenish(self.geometry);
            let mut events = std::mem::take(&mut self.events);
            let waited = self.set.wait(&mut events, deadline);
            let served = waited.map_err(AcceptError::Wait).and_then(|_| self.serve(&events));
            let was_empty = events.is_empty();
            self.events = events;
            served?;
            // Events of other peers could keep the loop of a waiting `accept` busy for ever. So
            // each pass of that loop checks the deadline, not only a pass without an event.
            if self.ready.is_empty() && (was_empty || has_passed(deadline)) {
                return Err(AcceptError::TimedOut);
            }
        }
    }

    fn serve(&mut self, events: &[Ready]) -> Result<(), AcceptError> {
        let mut result = Ok(());
        for event in events {
            match event.token {
                LISTENING => result = self.admit(),
                TIMER => {
                    self.timer.drain().map_err(AcceptError::Wait)?;
                    self.timer_set = None;
                }
                #[expect(clippy::cast_possible_truncation, reason = "an index we gave out")]
                token => self.drive(token as usize),
            }
        }
        self.expire();
        self.pause_or_resume().map_err(AcceptError::Wait)?;
        self.set_timer().map_err(AcceptError::Wait)?;
        result
    }

    /// Accepts waiting connections, up to the limit of handshakes. The number per call is bounded
    /// too, because connections whose handshakes fail immediately never reach that limit.
    fn admit(&mut self) -> Result<(), AcceptError> {
        for _ in 0..ADMITTED_MAX {
            let silent = if self.is_full() { self.oldest_silent() } else { None };
            if self.is_full() && silent.is_none() {
                break;
            }
            let Some(socket) = self.accept_socket()? else { break };
            if self.is_full() {
                silent.into_iter().for_each(|index| self.give_up(index, "others were waiting"));
            }
            let deadline = deadline_after(self.config.handshake_timeout);
            let protocols = self.protocols.clone();
            let pending = Pending::accepting(
                socket,
                &self.address,
                &self.config,
                self.geometry,
                self.service,
                protocols,
                Arc::clone(&self.spare),
            );
            let index = self.pending.iter().position(Option::is_none).unwrap_or_else(|| {
                self.pending.push(None);
                self.pending.len() - 1
            });
            let spared_until = Instant::now() + SILENCE_MIN;
            let is_in_set = false;
            self.pending[index] = Some(Underway { pending, is_in_set, deadline, spared_until });
            self.under_way += 1;
            // The first frames of a fast peer have arrived already. If the connection then begins
            // on the socket, the handshake is complete, and the socket never joins the epoll set.
            self.drive(index);
            let Some(Some(underway)) = self.pending.get_mut(index) else { continue };
            let events = EventFlags::IN | EventFlags::RDHUP;
            underway.is_in_set = true;
            if let Err(error) = self.set.add(&underway.pending, events, index as u64) {
                self.finish(index);
                return Err(AcceptError::Wait(error));
            }
        }
        Ok(())
    }

    /// Accepts a waiting connection. At a limit of descriptors or memory, the listener first frees
    /// the region that it made in advance. If the connection still cannot be accepted, the
    /// listening socket is not polled for [`SHORTAGE_PAUSE`].
    fn accept_socket(&mut self) -> Result<Option<Socket>, partywall_sys::AcceptError> {
        use partywall_sys::AcceptError::{DescriptorLimit, OutOfMemory};
        let is_short = |accepted: &Result<_, _>| {
            matches!(accepted, Err(DescriptorLimit { .. } | OutOfMemory { .. }))
        };
        let mut accepted = self.socket.accept();
        if is_short(&accepted) && self.spare.give_up() {
            accepted = self.socket.accept();
        }
        if is_short(&accepted) {
            self.short_until = Some(Instant::now() + SHORTAGE_PAUSE);
        }
        accepted
    }

    fn drive(&mut self, index: usize) {
        let Some(Some(underway)) = self.pending.get_mut(index) else { return };
        match underway.pending.progress() {
            Ok(None) => {}
            Ok(Some(established)) => {
                self.finish(index);
                self.ready.push_back(established);
            }
            Err(error) => {
                let was_untouched = underway.pending.is_untouched();
                self.finish(index);
                // A peer that connects and leaves without a byte only checked whether the listener
                // lives, so it is not counted as refused.
                if !(was_untouched && matches!(error, HandshakeError::HungUp { .. })) {
                    self.tell(&error);
                }
            }
        }
    }

    fn finish(&mut self, index: usize) {
        if let Some(underway) = self.pending.get_mut(index).and_then(Option::take) {
            // The channel holds a duplicate of the socket's descriptor, so closing the descriptor
            // of `pending` would not remove the socket from the listener's epoll set. So the socket
            // is removed explicitly.
            if underway.is_in_set {
                let _ = self.set.remove(&underway.pending);
            }
            self.under_way -= 1;
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        for index in 0..self.pending.len() {
            let Some(Some(underway)) = self.pending.get(index) else { continue };
            if underway.deadline <= now {
                self.give_up(index, "the handshake took too long");
            }
        }
    }

    /// Refuses the handshake at `index`, which did not finish in time. Its peer gets `text` as the
    /// reason.
    fn give_up(&mut self, index: usize, text: &str) {
        let Some(Some(underway)) = self.pending.get(index) else { return };
        let error = underway.pending.time_out(text);
        self.finish(index);
        self.tell(&error);
    }

    /// Returns the index of the handshake whose peer has been silent for longest, if that peer has
    /// been silent for `SILENCE_MIN`.
    fn oldest_silent(&mut self) -> Option<usize> {
        let now = Instant::now();
        loop {
            let (spared_until, index) = self.silent().min()?;
            if spared_until > now {
                return None;
            }
            // The peer may have sent bytes since the last event: the listener reads them before it
            // counts the peer as silent.
            self.drive(index);
            if self.silent().any(|(_, other)| other == index) {
                return Some(index);
            }
        }
    }

    /// Returns, for each handshake whose peer has sent no byte, the earliest time at which the
    /// handshake may be refused in favour of another connection, and the handshake's index.
    fn silent(&self) -> impl Iterator<Item = (Instant, usize)> {
        let under_way = self.pending.iter().enumerate();
        under_way.filter_map(|(index, underway)| {
            let underway = underway.as_ref().filter(|underway| underway.pending.is_untouched())?;
            Some((underway.spared_until, index))
        })
    }

    const fn is_full(&self) -> bool {
        self.under_way >= self.config.handshakes_max
    }

    /// Sets the timer if it would fire after the earliest deadline. A timer that fires too early
    /// costs one wake-up; setting it for each handshake would cost a system call.
    fn set_timer(&mut self) -> std::io::Result<()> {
        let deadlines = self.pending.iter().flatten().map(|underway| underway.deadline);
        // While the listener has paused because as many handshakes are under way as the
        // configuration allows, the timer also fires when a silent handshake may be refused. A
        // pause after a shortage of descriptors ends at `short_until`.
        let is_full = self.is_paused && self.short_until.is_none();
        let next_place = if is_full { self.silent().min() } else { None };
        let next_place = next_place.map(|(spared_until, _)| spared_until);
        let due = deadlines.chain(next_place).chain(self.short_until).min();
        let Some(due) = due.filter(|due| self.timer_set.is_none_or(|set| *due < set)) else {
            return Ok(());
        };
        self.timer.set(Some(due))?;
        self.timer_set = Some(due);
        Ok(())
    }

    /// Stops polling the listening socket while the limit of handshakes is reached and none can be
    /// refused, and after a shortage of descriptors or memory. New connections then wait in the
    /// backlog. Resumes polling afterwards.
    fn pause_or_resume(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        self.short_until = self.short_until.filter(|until| *until > now);
        let is_full = self.is_full() && self.silent().all(|(until, _)| until > now);
        let must_pause = is_full || self.short_until.is_some();
        if must_pause != self.is_paused {
            let interest = if must_pause { EventFlags::empty() } else { EventFlags::IN };
            self.set.modify(&self.socket, interest, LISTENING)?;
            self.is_paused = must_pause;
        }
        Ok(())
    }

    fn tell(&mut self, error: &HandshakeError) {
        self.refused += 1;
        if let Some(callback) = &self.config.on_refused {
            callback(error);
        }
    }
}

/// Returns a duplicate of the socket that a service manager passed under `name`.
pub(crate) fn passed_socket(name: &str) -> Result<OwnedFd, BindError> {
    partywall_sys::activation::passed_descriptor(name).map_err(|source| {
        let to = format!("the passed socket {name}");
        BindError::System(partywall_sys::BindError::Other { to, source })
    })
}

impl AsFd for Listener {
    /// Returns a descriptor that becomes readable when the caller should call
    /// [`try_accept`](Self::try_accept).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Returns the bound address as a `SocketAddr`, or `None` if it is a Unix address.
    #[must_use]
    pub fn local_socket_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().flatten()
    }
}
