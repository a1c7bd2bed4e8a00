// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person can do about a link that stands: give up what this end sends, or accept what the other end has.
//!
//! ```text
//!            this end sends                         this end receives
//!  reset     another stream, from position 0;       as it is; in quarantine for it, the mark is forgotten
//!            the file as it was lies beside it
//!  adopt     as it is                               in quarantine for it: the mark is forgotten, so that the sender decides
//!                                                   at the next attach: from the start, or behind a gap, which is reported
//! ```
//!
//! Both end the quarantine of *this* end, which keeps to itself as long as it lasts; the other end needs one of the two,
//! too. Neither changes the protocol: if the two memories still contradict each other, both ends are in quarantine again, and
//! nothing is lost.
//!
//! # Forgetting a mark
//!
//! What was consumed is in three places: the state, the consumed slots, and the records that this end sent, of which a
//! reply commits what it answers (SPEC 12.5). A later owner believes whichever is ahead. So
//!
//! ```text
//!   1. state     the mark of the three that is ahead       killed before 3: as before, in quarantine
//!   2. slots     nothing
//!   3. state     no mark, no quarantine                    from here on: forgotten
//! ```
//!
//! and if a record that is kept speaks of that stream, `adopt` forgets nothing: after the next restart the record
//! would be believed, and messages of the sender would be skipped in silence. The quarantine ends all the same: once the
//! other end has been reset, its stream is another one, of which no record speaks.
//!
//! # Invariants
//!
//! - Nothing is changed in a file that a living process owns; of one that is, only the owner is another, unless `is_real`.
//! - What is given up lies in a copy before it is given up.

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

/// What [`reset`] did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The file.
    pub path: PathBuf,
    /// Where it lies as it was; `None` if nothing was done.
    pub copy: Option<PathBuf>,
    /// Positions from the first that the other end is not known to have consumed to the end of what was sent: given up. `None` if
    /// there are none.
    pub undelivered: Option<(u64, u64)>,
    /// Why it stood.
    pub quarantine: Option<QuarantineSnapshot>,
    /// Up to where what is received was consumed, if that is forgotten.
    pub forgotten: Option<u64>,
}

/// What [`adopt`] did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// The file.
    pub path: PathBuf,
    /// Why it stood.
    pub quarantine: QuarantineSnapshot,
    /// Up to where what is received was consumed, if that is forgotten: what the other end still has of it comes again.
    pub forgotten: Option<u64>,
    /// What was consumed is not forgotten, because a record that this end keeps speaks of it: the other end has to be reset.
    pub needs_reset: bool,
}

/// Why a link was not repaired. Nothing but its owner was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// It was not opened: it has a living owner, or is damaged.
    #[error(transparent)]
    File(#[from] StorageError),
    /// No such link has a file there.
    #[error("{} does not exist: look with `partywall link inspect` which links there are", path.display())]
    Missing {
        /// Where it would lie.
        path: PathBuf,
    },
    /// Its records contradict its state.
    #[error(
        "{} cannot be used: {words}. Move it away: a new one begins empty, and the peer reports that messages were lost",
        path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// How.
        words: String,
    },
    /// There is nothing to adopt.
    #[error("{} is not in quarantine: there is nothing to adopt; `reset` would give up what it sends", path.display())]
    NotQuarantined {
        /// Which file.
        path: PathBuf,
    },
    /// No copy of the file could be made, and so it was left as it is.
    #[error("{} was not copied, and so not reset: {cause}", path.display())]
    Copy {
        /// Where the copy would lie.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// Gives up what this end of a link sends: another stream begins, and the quarantine ends. The file as it was is kept beside it,
/// as `….link.reset-1` and so on. Unless `is_real`, only says what it would do.
///
/// What is given up is a report of the link, too. The other end will report that the former stream was lost.
///
/// # Errors
/// See [`RepairError`].
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

/// Ends the quarantine of this end of a link: for what it receives by forgetting what it had consumed, so that it takes what the
/// other end has. What it sends is kept. Unless `is_real`, only says what it would do.
///
/// # Errors
/// See [`RepairError`].
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

    /// Whether a record that is kept says how far this stream was consumed.
    fn is_acked_by_record(&self, stream: StreamId) -> bool {
        self.retained.as_ref().is_some_and(|retained| retained.prepared(stream).is_some())
    }

    /// What was sent and is not known to be consumed.
    fn undelivered(&self) -> Option<(Position, Position)> {
        let acked = self.durable.outgoing.as_ref()?.acked();
        let tail = self.retained.as_ref()?.tail();
        (acked < tail).then_some((acked, tail))
    }

    fn commit(&mut self) {
        self.state.commit(&self.durable.write());
    }

    /// Forgets what was consumed; in force with the next commit.
    fn unlearn(&mut self) {
        // What is ahead goes into the state first, so that nothing is forgotten before all is.
        self.commit();
        self.consumed.commit(0, 0, 0);
        self.durable.acked_offset = None;
        self.durable.forget_delivered();
    }

    /// Another stream, in one commit with the report of what is given up and the end of the quarantine.
    fn begin_another(&mut self, undelivered: Option<(Position, Position)>) {
        self.durable.quarantine = None;
        let Some(retained) = &mut self.retained else { return self.commit() };
        let stream = peer_stream_file(retained);
        if let Some((from, to)) = undelivered {
            // The receiver may have consumed more of it than this end has heard.
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

/// A stream whose records cannot be taken for those that are there.
fn peer_stream_file(retained: &Retained) -> StreamId {
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

/// A copy of the file beside it, under the first name that is free.
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
            // Half a copy is none, and would only take room.
            let _ = fs::remove_file(&copy);
            return Err(failed(source));
        }
        return Ok(copy);
    }
    let source = io::Error::other("there are a thousand copies already: move them away");
    Err(RepairError::Copy { path: path.to_owned(), cause: source })
}

/// As that of the file.
const COPY_MODE: u32 = 0o600;
/// Copies of one file.
const COPIES_MAX: u32 = 1000;
