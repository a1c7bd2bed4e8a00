// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor of `link send` and `link recv`: it drives the link while the command waits, prints
//! the link's events, and applies the time limits.
//!
//! ```text
//!   poll: descriptor of the group │ input or signals │ nearest timer
//!     ├─ events ─▶ stderr, unless --quiet; lost messages, and what a reboot took ─▶ stderr always
//!     ├─ refused by the peer for REFUSED_MAX   ─▶ the command ends: no connection
//!     └─ no progress for --timeout             ─▶ the command ends: no connection, or no peer
//! ```
//!
//! The group is an object of the library whose descriptor reports the events of the link. A monitor
//! waits only for descriptors, so one thread serves a file, a terminal and a link.

use std::io;
use std::time::{Duration, Instant};

use partywall_link::{Event, Group, Link, OpenError, Status, Stopped, StorageError};
use partywall_sys::poll::{self, PollFd, PollFlags};

use crate::command::exit::Exit;

/// The reason why `link send` or `link recv` ends before its work is done.
#[derive(Debug)]
pub struct Ended {
    /// The exit code with which the command ends.
    pub exit: Exit,
    /// The text of the error that the command prints.
    pub reason: String,
}

/// The state of the connections of one `link send` or `link recv`, and its time limits.
pub struct Monitor {
    group: Group,
    is_quiet: bool,
    timeout: Option<Duration>,
    last_progress: Instant,
    was_attached: bool,
    /// Since when the peer has refused each attempt to connect, and the reason that it gave last;
    /// `None` if the last attempt was not refused.
    refused: Option<(Instant, String)>,
    last_reason: String,
    /// Whether the peer closed its end in good order and has not attached since then.
    has_left: bool,
    /// Whether the link's file was adopted after a reboot, so that messages may be lost or come
    /// again.
    is_adopted: bool,
    has_lost: bool,
    /// A moment that the command sets, at which the wait for events ([`wait`](Self::wait)) ends
    /// even if nothing has happened.
    wake_at: Option<Instant>,
}

impl Ended {
    /// Makes the reason for which a command ends if this process failed, and not the peer: the exit
    /// code is `Failure`.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { exit: Exit::Failure, reason: reason.into() }
    }

    /// Prints the reason for the command's end on stderr, and returns the exit code.
    pub fn print(self) -> Exit {
        eprintln!("partywall: {}", self.reason);
        self.exit
    }
}

impl From<anyhow::Error> for Ended {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::failed(format!("waiting failed: {error}"))
    }
}

impl From<OpenError> for Ended {
    /// The reason for which a command ends if its link could not be opened. The text names the flag
    /// of the command instead of the setting of the library.
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Config(error) => {
                let flag = if error.setting == "slab_bytes" { "--slab" } else { "--ring" };
                let reason = format!("{flag} is {}, but must be {}", error.found, error.wanted);
                Self { exit: Exit::Usage, reason }
            }
            OpenError::File(
                error @ (StorageError::OtherBoot { .. } | StorageError::Missing { .. }),
            ) => Self { exit: Exit::OtherBoot, reason: error.to_string() },
            other => anyhow::Error::from(other).into(),
        }
    }
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        let (exit, advice) = match stopped {
            Stopped::Fenced => (Exit::Fenced, ""),
            Stopped::Quarantined => (Exit::Protocol, "; see `partywall link adopt --help`"),
            _ => (Exit::Failure, ""),
        };
        Self { exit, reason: format!("{stopped}{advice}") }
    }
}

impl Monitor {
    /// Makes a monitor for a link that has not connected so far.
    pub fn new(group: Group, is_quiet: bool, timeout: Option<Duration>) -> Self {
        Self {
            group,
            is_quiet,
            timeout,
            last_progress: Instant::now(),
            was_attached: false,
            refused: None,
            last_reason: String::new(),
            has_left: false,
            is_adopted: false,
            has_lost: false,
            wake_at: None,
        }
    }

    /// Records progress of the link, such as a sent batch or an acknowledgement, which restarts
    /// --timeout.
    pub fn record_progress(&mut self) {
        self.last_progress = Instant::now();
    }

    /// Whether the peer has attached to the link at least once since the monitor was made.
    pub fn was_attached(&self) -> bool {
        self.was_attached
    }

    /// Whether the peer closed its end in good order and has not attached since then.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// The exit code of a command that has delivered all messages. `adopted` is the code for the
    /// case that the file of the link was adopted after a reboot.
    pub fn exit(&self, adopted: Exit) -> Exit {
        match (self.has_lost, self.is_adopted) {
            (true, _) => Exit::LossPossible,
            (false, true) => adopted,
            (false, false) => Exit::Done,
        }
    }

    /// Sets a moment at which the wait for events ([`wait`](Self::wait)) ends even if nothing has
    /// happened; `None` removes that moment.
    pub fn wake_at(&mut self, moment: Option<Instant>) {
        self.wake_at = moment;
    }

    /// Drives the connections of the link until the link has an event, a descriptor of `also` is
    /// ready, or a time limit of the monitor has passed, so that [`update`](Self::update) must be
    /// called. Returns whether one of `also` is ready.
    pub fn wait(&self, also: &[PollFd<'_>]) -> Result<bool, Ended> {
        // The link may have read the bytes of an event from its descriptor already. The descriptor
        // does not become readable for these bytes again, so `wait` must not block.
        let has_events = self.group.try_poll()? > 0;
        let deadline = if has_events { Some(Instant::now()) } else { self.deadline() };
        let group = PollFd::new(&self.group, PollFlags::IN);
        let mut all: Vec<PollFd<'_>> = also.iter().cloned().chain([group]).collect();
        poll::wait(&mut all, deadline)?;
        self.group.try_poll()?;
        // The list of ready links is discarded: the caller handles all its links before it waits
        // again, also those that the list does not name.
        let _ = self.group.ready();
        Ok(all[..also.len()].iter().any(|polled| !polled.revents().is_empty()))
    }

    /// Handles the events of the link; returns an error if the command has to end. The time of
    /// --timeout runs only if `waits_for_peer` is true.
    pub fn update(&mut self, link: &Link, waits_for_peer: bool) -> Result<(), Ended> {
        while let Some(event) = link.try_event() {
            self.handle(link, &event);
        }
        let reports = link.reports()?;
        for report in &reports {
            eprintln!("partywall: {report}");
            self.has_lost |= matches!(report.kind, "gap" | "lost");
        }
        link.acknowledge_reports(&reports)?;
        match link.status() {
            Status::Fenced => return Err(Stopped::Fenced.into()),
            Status::Quarantined => return Err(Stopped::Quarantined.into()),
            _ => {}
        }
        self.check_limits(waits_for_peer)
    }

    /// Returns an error if the peer has refused for too long, or if --timeout has passed.
    pub fn check_limits(&mut self, waits_for_peer: bool) -> Result<(), Ended> {
        if !waits_for_peer {
            self.record_progress();
        }
        if let Some((since, reason)) = &self.refused
            && since.elapsed() >= REFUSED_MAX
        {
            return Err(Ended { exit: Exit::NoConnection, reason: reason.clone() });
        }
        match self.timeout {
            Some(timeout) if self.last_progress.elapsed() >= timeout => {
                Err(self.timed_out(timeout))
            }
            _ => Ok(()),
        }
    }

    fn timed_out(&self, timeout: Duration) -> Ended {
        let exit = if self.was_attached { Exit::PeerDied } else { Exit::NoConnection };
        let last = match &*self.last_reason {
            // Without --quiet, the monitor has already printed on stderr why connecting failed, so
            // the error does not repeat the reason.
            _ if !self.is_quiet => String::new(),
            "" => String::new(),
            last => format!("; the last attempt to attach: {last}"),
        };
        let what = if self.was_attached { "no progress" } else { "no peer attached" };
        Ended { exit, reason: format!("{what} within {timeout:?}{last}") }
    }

    fn handle(&mut self, link: &Link, event: &Event) {
        match event {
            Event::Attached { .. } => {
                (self.refused, self.was_attached, self.has_left) = (None, true, false);
                self.last_reason.clear();
                self.print(&link.status().to_string());
            }
            Event::Detached { reason } => {
                self.has_left = event.is_farewell();
                self.print(&format!("detached: {reason}"));
            }
            Event::Refused { reason } => {
                self.last_reason.clone_from(reason);
                if reason.starts_with(REFUSED) {
                    let since = self.refused.take().map_or_else(Instant::now, |(since, _)| since);
                    self.refused = Some((since, reason.clone()));
                } else {
                    self.refused = None;
                }
                self.print(&format!("not attached: {reason}"));
            }
            Event::LossPossible | Event::RepeatPossible => {
                self.is_adopted = true;
                eprintln!("partywall: {event}");
            }
            Event::FileReplaced => eprintln!("partywall: {event}"),
            Event::Epoch { epoch } => self.print(&format!("epoch {epoch} begins")),
            _ => {}
        }
    }

    fn print(&self, line: &str) {
        if !self.is_quiet {
            eprintln!("{line}");
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let timeout = self.timeout.map(|timeout| self.last_progress + timeout);
        let refused = self.refused.as_ref().map(|(since, _)| *since + REFUSED_MAX);
        [self.group.next_timer(), timeout, refused, self.wake_at].into_iter().flatten().min()
    }
}

/// The first words of the library's text for a connection that the peer refused. They distinguish a
/// refusal from a peer that cannot be reached.
const REFUSED: &str = "the peer refused";
/// How long the peer may refuse connections before the command ends. A refusal because the link's
/// former owner was just killed soon ends; one because of a wrong name or secret does not.
const REFUSED_MAX: Duration = Duration::from_secs(2);
