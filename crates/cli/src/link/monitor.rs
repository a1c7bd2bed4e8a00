// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driving a link while there is nothing else to do: tells what becomes of it, and when to give up.
//!
//! ```text
//!   poll: the group's descriptor │ the input or the signals │ the nearest timer
//!     ├─ events ─▶ stderr, unless --quiet; reports of what was lost ─▶ stderr in any case
//!     ├─ refused by the peer, and again and again ─▶ no connection
//!     └─ nothing moved for --timeout              ─▶ no connection, or the peer is gone
//! ```
//!
//! It waits by descriptors only, so that a file, a terminal and a link are served by one thread.

use std::io;
use std::time::{Duration, Instant};

use partywall_link::{Event, Group, Link, Status, Stopped};
use partywall_sys::poll::{self, PollFd, PollFlags};

use crate::command::exit::Exit;

/// Why a command does not go on.
#[derive(Debug)]
pub struct Ended {
    /// For scripts.
    pub exit: Exit,
    /// For people.
    pub reason: String,
}

/// See the module.
pub struct Watch {
    group: Group,
    is_quiet: bool,
    timeout: Option<Duration>,
    /// When something moved last.
    moved: Instant,
    was_attached: bool,
    /// Since when the peer says no, and in which words.
    refused: Option<(Instant, String)>,
    last_reason: String,
    /// The peer closed its end in good order, and did not come back.
    has_left: bool,
}

impl Ended {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { exit: Exit::Failure, reason: reason.into() }
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

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        let exit = match stopped {
            Stopped::Fenced | Stopped::Quarantined => Exit::Protocol,
            _ => Exit::Failure,
        };
        let advice = match stopped {
            Stopped::Quarantined => "; see `partywall link adopt --help`",
            _ => "",
        };
        Self { exit, reason: format!("{stopped}{advice}") }
    }
}

impl Watch {
    pub fn new(group: Group, is_quiet: bool, timeout: Option<Duration>) -> Self {
        Self {
            group,
            is_quiet,
            timeout,
            moved: Instant::now(),
            was_attached: false,
            refused: None,
            last_reason: String::new(),
            has_left: false,
        }
    }

    /// Something moved: the silence begins anew.
    pub fn moved(&mut self) {
        self.moved = Instant::now();
    }

    /// Whether there was ever a connection.
    pub fn was_attached(&self) -> bool {
        self.was_attached
    }

    /// Whether the peer has closed its end, and not attached since.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Drives the group, and waits until there is news of a link in it, or one of `also` is ready, or it is time to
    /// [`look`](Self::look). Whether one of `also` is.
    pub fn wait(&self, also: &[PollFd<'_>]) -> Result<bool, Ended> {
        // What came with that is in the link by now, and no descriptor tells of it.
        let has_news = self.group.try_poll()? > 0;
        let deadline = if has_news { Some(Instant::now()) } else { self.deadline() };
        let group = PollFd::new(&self.group, PollFlags::IN);
        let mut all: Vec<PollFd<'_>> = also.iter().cloned().chain([group]).collect();
        poll::wait(&mut all, deadline)?;
        self.group.try_poll()?;
        // Told: whoever waits again has looked.
        let _ = self.group.ready();
        Ok(all[..also.len()].iter().any(|polled| !polled.revents().is_empty()))
    }

    /// Tells what happened to the link, and whether it is to be given up. `is_silence`: what is waited for is the peer.
    pub fn look(&mut self, link: &Link, is_silence: bool) -> Result<(), Ended> {
        while let Some(event) = link.try_event() {
            self.hear(link, &event);
        }
        let reports = link.reports()?;
        for report in &reports {
            eprintln!("partywall: {report}");
        }
        link.acknowledge_reports(&reports)?;
        match link.status() {
            Status::Fenced => return Err(Stopped::Fenced.into()),
            Status::Quarantined => return Err(Stopped::Quarantined.into()),
            _ => {}
        }
        self.judge(is_silence)
    }

    /// The same before there is a link.
    pub fn judge(&mut self, is_silence: bool) -> Result<(), Ended> {
        if !is_silence {
            self.moved();
        }
        if let Some((since, words)) = &self.refused
            && since.elapsed() >= REFUSED_MAX
        {
            let reason = words.clone();
            return Err(Ended { exit: Exit::NoConnection, reason });
        }
        match self.timeout {
            Some(timeout) if self.moved.elapsed() >= timeout => Err(self.timed_out(timeout)),
            _ => Ok(()),
        }
    }

    fn timed_out(&self, timeout: Duration) -> Ended {
        let exit = if self.was_attached { Exit::PeerDied } else { Exit::NoConnection };
        let last = match &*self.last_reason {
            "" => String::new(),
            last => format!("; the last attempt to attach: {last}"),
        };
        let what = if self.was_attached { "nothing has moved" } else { "no peer was there" };
        let reason = format!(
            "{what} for {timeout:?}{last}; a link in --dir keeps everything for the next time"
        );
        Ended { exit, reason }
    }

    fn hear(&mut self, link: &Link, event: &Event) {
        match event {
            Event::Attached { .. } => {
                (self.refused, self.was_attached, self.has_left) = (None, true, false);
                self.last_reason.clear();
                self.say(&link.status().to_string());
            }
            Event::Detached { reason } => {
                self.has_left = event.is_farewell();
                self.say(&format!("detached: {reason}"));
            }
            Event::Refused { reason } => {
                self.last_reason.clone_from(reason);
                if reason.starts_with(REFUSED) {
                    let since = self.refused.take().map_or_else(Instant::now, |(since, _)| since);
                    self.refused = Some((since, reason.clone()));
                } else {
                    self.refused = None;
                }
                self.say(&format!("not attached: {reason}"));
            }
            Event::Epoch { epoch } => self.say(&format!("epoch {epoch} begins")),
            _ => {}
        }
    }

    fn say(&self, what: &str) {
        if !self.is_quiet {
            eprintln!("{what}");
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let silence = self.timeout.map(|timeout| self.moved + timeout);
        let refused = self.refused.as_ref().map(|(since, _)| *since + REFUSED_MAX);
        [self.group.next_timer(), silence, refused].into_iter().flatten().min()
    }
}

/// How a refusal begins that came from the peer: nobody being there is another matter.
const REFUSED: &str = "the peer refused";
/// So long a peer may say no: an owner that was killed is soon gone, a wrong name or secret stays.
const REFUSED_MAX: Duration = Duration::from_secs(2);
