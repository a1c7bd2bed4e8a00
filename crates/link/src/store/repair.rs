// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repairs by an operator, for a link in quarantine: give up what this end sends, or accept what
//! the peer has.
//!
//! ```text
//!            this end sends                       this end receives
//!  reset     another stream, from position 0;     as it is; if it is in quarantine,
//!            the file as it was becomes a copy    the acked offset is forgotten
//!  adopt     as it is                             if it is in quarantine, the acked offset is
//!                                                 forgotten: the sender resumes at the next attach
//!                                                 from the start, or behind a reported gap
//! ```
//!
//! Both end the quarantine of *this* end, which attaches to no peer while it lasts; the peer needs
//! one of the two, too. Neither changes the protocol: if the two stores still contradict each
//! other, both ends are in quarantine again, and nothing is lost.
//!
//! # Forgetting an acked offset
//!
//! It is in three places: the state, the consumed slots, and the records that this end sent, of
//! which a reply acknowledges its request (SPEC 12.5). A later owner believes the highest of the
//! three. Therefore:
//!
//! ```text
//!   1. state     the highest of the three            killed before 3: as before, in quarantine
//!   2. slots     nothing
//!   3. state     no acked offset, no quarantine      from here on: forgotten
//! ```
//!
//! If a record that is kept acknowledges that stream, `adopt` forgets nothing: a later owner would
//! believe the record, and silently skip messages of the sender. The quarantine ends all the same.
//! Once the peer has been reset, its stream is another one, which no record acknowledges.
//!
//! # Invariants
//!
//! - A file of a living process is not changed. In another one, only the owner changes, unless
//!   `is_real`.
//! - Whatever is given up is in a copy before it is given up.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use partywall_reconcile::{
    Cause, Direction, Outgoing, Position, RecordDigest, Report, Span, StreamId, recover,
};

use super::directory::Directory;
use super::durable::DurableState;
use super::error::StorageError;
use super::file::{OwnFile, Sizes};
use super::inspect::{QuarantineSnapshot, inspect_link};
use super::key::Key;
use super::slots::{ConsumedSlots, StateSlots};
use crate::retained::Retained;
use partywall_sys::nonce;

/// The effect of [`reset`], done or only computed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The path of the file.
    pub path: PathBuf,
    /// The path of the copy; `None` if nothing was done.
    pub copy: Option<PathBuf>,
    /// The range that is given up: from the first position that the peer is not known to have
    /// acknowledged, to the end of what was sent. `None` if it is empty.
    pub undelivered: Option<(u64, u64)>,
    /// Why the link was in quarantine.
    pub quarantine: Option<QuarantineSnapshot>,
    /// The acked offset of the received stream, if it is forgotten.
    pub forgotten: Option<u64>,
}

/// The effect of [`adopt`], done or only computed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// The path of the file.
    pub path: PathBuf,
    /// Why the link was in quarantine.
    pub quarantine: QuarantineSnapshot,
    /// The acked offset of the received stream, if it is forgotten: the peer sends again what it
    /// still has of it.
    pub forgotten: Option<u64>,
    /// The acked offset is not forgotten, because a record that this end keeps holds it: the peer
    /// has to be reset.
    pub needs_reset: bool,
}

/// Why a link was not repaired. Nothing but its owner was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The file was not opened: it has a living owner, or is damaged.
    #[error(transparent)]
    File(#[from] StorageError),
    /// The link has no file in this directory.
    #[error("{} does not exist: look with `partywall link inspect` which links there are", path.display())]
    Missing {
        /// The path of the missing file.
        path: PathBuf,
    },
    /// The records contradict the state.
    #[error(
        "{} cannot be used: {words}. Move it away: a new one begins empty, and the peer reports that messages were lost",
        path.display()
    )]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The contradiction.
        words: String,
    },
    /// The link is not in quarantine.
    #[error("{} is not in quarantine: there is nothing to adopt; `reset` would give up what it sends", path.display())]
    NotQuarantined {
        /// The path of the file.
        path: PathBuf,
    },
    /// No copy of the file could be made, so it was left as it is.
    #[error("{} was not copied, and so not reset: {cause}", path.display())]
    Copy {
        /// The path of the copy.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
}

/// Gives up what this end of a link sends: another stream begins, and the quarantine ends.
///
/// The file as it was is kept in the same directory, as `….link.reset-1` and so on. The link
/// reports what is given up, and the peer will report that the former stream was lost. Unless
/// `is_real`, nothing is done but computing the effect.
///
/// # Errors
/// [`RepairError`]; nothing but the owner was changed.
pub fn reset(directory: &Path, key: &Key, is_real: bool) -> Result<Reset, RepairError> {
    let mut taken = Taken::over(directory, key)?;
    let quarantine = taken.quarantine();
    let is_incoming = taken.is_quarantined(Direction::Incoming);
    let undelivered = taken.undelivered();
    let mut result = Reset {
        path: taken.path.clone(),
        copy: None,
        undelivered: undelivered.map(|(from, to)| (from.0, to.0)),
        quarantine,
        forgotten: taken
            .durable
            .acked_offset
            .filter(|_| is_incoming)
            .map(|acked_offset| acked_offset.position.0),
    };
    if is_real {
        result.copy = Some(copied(&taken.path)?);
        if is_incoming {
            taken.unlearn();
        }
        taken.begin_another(undelivered);
    }
    Ok(result)
}

/// Ends the quarantine of this end of a link.
///
/// If the received stream is in quarantine, its acked offset is forgotten, so that this end takes
/// what the peer has. Its own stream is kept. Unless `is_real`, nothing is done but computing the
/// effect.
///
/// # Errors
/// [`RepairError`]; nothing but the owner was changed.
pub fn adopt(directory: &Path, key: &Key, is_real: bool) -> Result<Adopted, RepairError> {
    let mut taken = Taken::over(directory, key)?;
    let Some(quarantine) = taken.quarantine() else {
        return Err(RepairError::NotQuarantined { path: taken.path });
    };
    let acked_offset =
        taken.durable.acked_offset.filter(|_| taken.is_quarantined(Direction::Incoming));
    let needs_reset =
        acked_offset.is_some_and(|acked_offset| taken.is_acked_by_record(acked_offset.stream));
    let forgotten = acked_offset.filter(|_| !needs_reset);
    if is_real {
        if forgotten.is_some() {
            taken.unlearn();
        }
        taken.durable.quarantine = None;
        taken.commit();
    }
    Ok(Adopted {
        path: taken.path,
        quarantine,
        forgotten: forgotten.map(|acked_offset| acked_offset.position.0),
        needs_reset,
    })
}

/// A file that this process owns, to be repaired.
struct Taken {
    path: PathBuf,
    state: StateSlots,
    consumed: ConsumedSlots,
    durable: DurableState,
    retained: Option<Retained>,
}

impl Taken {
    fn over(directory: &Path, key: &Key) -> Result<Self, RepairError> {
        let found = inspect_link(directory, key)?;
        let found =
            found.ok_or_else(|| RepairError::Missing { path: directory.join(key.file_name()) })?;
        let path = found.path;
        let of = found.inspection?.sizes;
        let sizes = Sizes { ring: of.ring, entries: of.release_ring / 8, slab: of.slab };
        let file = OwnFile::open(&Directory::open(directory)?, key, sizes)?;
        let state = *file.state.state();
        let damaged = |words: String| RepairError::Damaged { path: path.clone(), words };
        let retained = match StreamId::new(state.sending_stream.get()) {
            None => None,
            Some(stream) => {
                let base = Position(state.sending_base.get());
                let digest = RecordDigest(state.sending_digest.get());
                let size = file.image.geometry.ring;
                let found = Retained::found(file.ring, size, file.slab, stream, base, digest);
                Some(found.map_err(|fault| damaged(fault.to_string()))?)
            }
        };
        let tail = retained.as_ref().map_or(Position::START, Retained::tail);
        let mut durable =
            DurableState::read(&state, tail).map_err(|fault| damaged(fault.to_string()))?;
        durable.catch_up(file.consumed.found());
        let prepared = durable.acked_offset.zip(retained.as_ref());
        let prepared =
            prepared.and_then(|(acked_offset, retained)| retained.prepared(acked_offset.stream));
        durable.acked_offset = recover(durable.acked_offset, prepared, |_| {
            prepared.map(|prepared| prepared.acked_offset.position)
        });
        Ok(Self { path, state: file.state, consumed: file.consumed, durable, retained })
    }

    fn quarantine(&self) -> Option<QuarantineSnapshot> {
        QuarantineSnapshot::in_force(self.state.state())
    }

    fn is_quarantined(&self, direction: Direction) -> bool {
        self.durable.quarantine.is_some_and(|quarantine| quarantine.direction == direction)
    }

    /// Whether a record that is kept acknowledges this stream.
    fn is_acked_by_record(&self, stream: StreamId) -> bool {
        self.retained.as_ref().is_some_and(|retained| retained.prepared(stream).is_some())
    }

    /// The range that was sent and is not known to be acknowledged.
    fn undelivered(&self) -> Option<(Position, Position)> {
        let acked = self.durable.outgoing.as_ref()?.acked();
        let tail = self.retained.as_ref()?.tail();
        (acked < tail).then_some((acked, tail))
    }

    fn commit(&mut self) {
        self.state.commit(&self.durable.write());
    }

    /// Forgets the acked offset, with the next commit.
    fn unlearn(&mut self) {
        // The highest offset goes into the state first, so that the others can be forgotten one by
        // one.
        self.commit();
        self.consumed.commit(0, 0, 0);
        self.durable.acked_offset = None;
        self.durable.forget_delivered();
    }

    /// Begins another stream, in one commit with the report of what is given up and the end of the
    /// quarantine.
    fn begin_another(&mut self, undelivered: Option<(Position, Position)>) {
        self.durable.quarantine = None;
        let Some(retained) = &mut self.retained else { return self.commit() };
        let stream = other_stream(retained);
        if let Some((from, to)) = undelivered {
            // The receiver may have consumed more than this end knows.
            let span = Span { from, to: Some(to), known_to: to, exact: false };
            let (direction, cause) = (Direction::Outgoing, Cause::Undelivered);
            let (epoch, stream) = (self.durable.epoch, Some(retained.stream()));
            self.durable.report(Report { direction, cause, epoch, stream, span });
        }
        self.durable.outgoing = Some(Outgoing::new(stream));
        self.durable.base_digest = RecordDigest::START;
        retained.end(stream);
        self.state.commit(&self.durable.write());
        retained.begin(stream);
    }
}

/// A stream whose records are distinct from those in the ring.
fn other_stream(retained: &Retained) -> StreamId {
    loop {
        let bytes = nonce();
        let (half, _) = bytes.split_at(8);
        let number = half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if let Some(stream) =
            StreamId::new(number).filter(|stream| retained.is_distinct_from(*stream))
        {
            return stream;
        }
    }
}

/// Copies the file into its directory, under the first name that is free.
fn copied(path: &Path) -> Result<PathBuf, RepairError> {
    for number in 1..=COPIES_MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".reset-{number}"));
        let copy = PathBuf::from(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(COPY_MODE).open(&copy);
        let failed = |source| RepairError::Copy { path: copy.clone(), cause: source };
        let mut made = match made {
            Ok(made) => made,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(source) => return Err(failed(source)),
        };
        let written = File::open(path).and_then(|mut file| io::copy(&mut file, &mut made));
        if let Err(source) = written {
            // An incomplete copy is useless, and takes room.
            let _ = fs::remove_file(&copy);
            return Err(failed(source));
        }
        return Ok(copy);
    }
    let source = io::Error::other("there are a thousand copies already: move them away");
    Err(RepairError::Copy { path: path.to_owned(), cause: source })
}

/// The permissions of the file.
const COPY_MODE: u32 = 0o600;
/// The most copies of one file.
const COPIES_MAX: u32 = 1000;
