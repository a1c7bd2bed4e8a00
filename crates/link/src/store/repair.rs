// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repairs by an operator. For a link in quarantine: give up what this end sends, or accept what
//! the peer has. For a link file of another boot that is refused: go on with what the file proves.
//!
//! ```text
//!            the stream that this end sends       the stream that this end receives
//!  reset     replaced by a new stream, from       kept; if it is in quarantine,
//!            position 0; a copy of the file is    its acked offset is forgotten
//!            kept
//!  adopt     kept                                 if it is in quarantine, its acked offset is
//!                                                 forgotten: the sender resumes at the next attach
//!                                                 from the start, or behind a reported gap
//!
//!  adopt, if the file is refused after a reboot (SPEC 13.8): its whole messages are kept, the rest
//!                                                 is given up, and the next owner is told
//! ```
//!
//! Reset and adopt end the quarantine of the local end, which attaches to no peer while its
//! quarantine lasts. The peer's end also needs a reset or adopt. If the two files still contradict
//! each other, both ends go into quarantine again at the next attach, and nothing is lost.
//!
//! # Forgetting an acked offset
//!
//! The acked offset is in three places: the state, the consumed slots, and the records that this
//! end sent, because a reply acknowledges its request (SPEC 12.5). A later owner takes the highest
//! of the three offsets. Therefore `unlearn` proceeds as follows:
//!
//! ```text
//!   1. store the state with the highest of the three offsets
//!   2. store slots without an acked offset
//!   3. store the state without acked offset and without quarantine
//!
//!   if killed before step 3: the link is in quarantine as before; after step 3: offset forgotten
//! ```
//!
//! If a kept record acknowledges the received stream, `adopt` does not forget the acked offset: a
//! later owner would take the offset of that record, and silently skip messages of the sender. The
//! quarantine ends all the same. Once the peer's end has been reset, the peer sends another stream,
//! which no kept record acknowledges.
//!
//! # Invariants
//!
//! - A file whose owner is alive is not changed. In any other file, only the owner record changes,
//!   unless the caller passes `is_real`.
//! - Messages are given up only after a copy of the file exists.

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
use super::evidence::Evidence;
use super::file::OwnFile;
use super::inspect::{QuarantineSnapshot, inspect_link};
use super::key::Key;
use super::reboot::AfterReboot;
use super::slots::{ConsumedSlots, StateSlots};
use crate::retained::Retained;
use partywall_sys::nonce;

/// The effect of [`reset`]. If `is_real` was false, nothing was changed, and this is the effect
/// that the call would have had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The path of the link file that was reset, or would be reset.
    pub path: PathBuf,
    /// The path of the copy that was made of the file before the reset. `None` if `is_real` was
    /// false, so that nothing was done.
    pub copy: Option<PathBuf>,
    /// The range of positions that is given up: from the first position that the peer is not known
    /// to have acknowledged, to the end of what was sent. `None` if the range is empty.
    pub undelivered: Option<(u64, u64)>,
    /// Reason why the link was in quarantine before the reset; `None` if the link was not in
    /// quarantine.
    pub quarantine: Option<QuarantineSnapshot>,
    /// The acked offset of the received stream, if it was forgotten because that stream was in
    /// quarantine; `None` if it was kept.
    pub forgotten: Option<u64>,
}

/// The effect of [`adopt`], which ends a quarantine or accepts a file that was refused after a
/// reboot. If `is_real` was false, nothing was changed, and this is the effect that the call would
/// have had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// The path of the link file that was adopted, or would be adopted.
    pub path: PathBuf,
    /// The facts that the file proved of its contents, if it was refused after a reboot; `None` if
    /// it was not refused.
    pub evidence: Option<Evidence>,
    /// Reason why the link was in quarantine before the repair; `None` if it was not in quarantine.
    pub quarantine: Option<QuarantineSnapshot>,
    /// The acked offset of the received stream that was forgotten, so that the peer sends again
    /// what it still has of the stream. `None` if the offset was kept.
    pub forgotten: Option<u64>,
    /// Whether the acked offset could not be forgotten, because a kept record of this end contains
    /// it. If so, the operator has to reset the peer's end.
    pub needs_reset: bool,
}

/// Reason why a link was not repaired. At most the owner record of the file was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The link file was not opened: it has a living owner, or is damaged.
    #[error(transparent)]
    File(#[from] StorageError),
    /// The directory has no file of this link.
    #[error("{} does not exist: look with `partywall link inspect` which links there are", path.display())]
    Missing {
        /// The path where the link file would be.
        path: PathBuf,
    },
    /// The records in the file's ring contradict the file's state.
    #[error(
        "{} cannot be used: {words}. Move it away: a new one begins empty, and the peer reports that messages were lost",
        path.display()
    )]
    Damaged {
        /// The path of the damaged file.
        path: PathBuf,
        /// The contradiction between the records and the state, as text.
        words: String,
    },
    /// There is nothing to repair: the link is not in quarantine, and its file is accepted.
    #[error(
        "{} is not in quarantine, and not refused after a reboot: there is nothing to adopt; `reset` would give up \
         what it sends",
        path.display()
    )]
    NotQuarantined {
        /// The path of the link's file.
        path: PathBuf,
    },
    /// No copy of the file could be made, so the repair changed nothing.
    #[error("{} was not copied, and so not reset: {cause}", path.display())]
    Copy {
        /// The path of the copy that could not be made.
        path: PathBuf,
        /// The error of the system call that failed.
        cause: io::Error,
    },
}

/// Gives up everything that this end of a link sent: a new stream begins, and the quarantine ends.
///
/// The unchanged file is copied into the same directory first, as `….link.reset-1` and so on. The
/// link reports what is given up, and the peer will report that the former stream was lost. Unless
/// `is_real`, this function only computes the effect.
///
/// # Errors
/// [`RepairError`] says why the repair failed; nothing but the owner record was changed.
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

/// Ends the quarantine of this end of a link. If its file is refused after a reboot, adopts the
/// file with what it proves, as [`AfterReboot::AdoptProven`] does.
///
/// If the received stream is in quarantine, its acked offset is forgotten, so that this end accepts
/// what the peer has. The stream that this end sends is kept. The next owner of an adopted file
/// gets the events of a possible loss and a possible repeat. Unless `is_real`, this function only
/// computes the effect.
///
/// # Errors
/// [`RepairError`] says why the repair failed; nothing but the owner record was changed.
pub fn adopt(directory: &Path, key: &Key, is_real: bool) -> Result<Adopted, RepairError> {
    // A real adoption examines the file and takes it over in one step. Between two separate steps,
    // another process could adopt and change the file.
    let policy = if is_real { AfterReboot::AdoptProven } else { AfterReboot::Refuse };
    let mut taken = match Taken::over_after(directory, key, policy) {
        Err(RepairError::File(StorageError::OtherBoot { path, evidence }))
            if evidence.damage.is_none() && !is_real =>
        {
            let quarantine =
                inspect_link(directory, key)?.and_then(|found| found.inspection.ok()?.quarantine);
            let (evidence, forgotten) = (Some(*evidence), None);
            return Ok(Adopted { path, evidence, quarantine, forgotten, needs_reset: false });
        }
        taken => taken?,
    };
    let evidence = taken.evidence.take().map(|evidence| *evidence);
    let quarantine = taken.quarantine();
    if quarantine.is_none() && evidence.is_none() {
        return Err(RepairError::NotQuarantined { path: taken.path });
    }
    let acked_offset =
        taken.durable.acked_offset.filter(|_| taken.is_quarantined(Direction::Incoming));
    let needs_reset =
        acked_offset.is_some_and(|acked_offset| taken.is_acked_by_record(acked_offset.stream));
    let forgotten = acked_offset.filter(|_| !needs_reset);
    if is_real && quarantine.is_some() {
        if forgotten.is_some() {
            taken.unlearn();
        }
        taken.durable.quarantine = None;
        taken.commit();
    }
    Ok(Adopted {
        path: taken.path,
        evidence,
        quarantine,
        forgotten: forgotten.map(|acked_offset| acked_offset.position.0),
        needs_reset,
    })
}

/// A link file that this process has taken over, to be repaired.
struct Taken {
    path: PathBuf,
    state: StateSlots,
    consumed: ConsumedSlots,
    durable: DurableState,
    retained: Option<Retained>,
    /// The facts that the file proved of its contents, if it had to be adopted after another boot.
    evidence: Option<Box<Evidence>>,
}

impl Taken {
    fn over(directory: &Path, key: &Key) -> Result<Self, RepairError> {
        Self::over_after(directory, key, AfterReboot::Refuse)
    }

    /// Takes over the file of `key`. The policy says what to do if it was last owned in another
    /// boot.
    fn over_after(directory: &Path, key: &Key, policy: AfterReboot) -> Result<Self, RepairError> {
        let missing = || RepairError::Missing { path: directory.join(key.file_name()) };
        let found = inspect_link(directory, key)?.ok_or_else(missing)?;
        let path = found.path;
        found.inspection?;
        let file = OwnFile::open_existing(&Directory::open(directory)?, key, policy)?;
        let file = file.ok_or_else(missing)?;
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
        let (state, consumed, evidence) = (file.state, file.consumed, file.evidence);
        Ok(Self { path, state, consumed, durable, retained, evidence })
    }

    fn quarantine(&self) -> Option<QuarantineSnapshot> {
        QuarantineSnapshot::in_force(self.state.state())
    }

    fn is_quarantined(&self, direction: Direction) -> bool {
        self.durable.quarantine.is_some_and(|quarantine| quarantine.direction == direction)
    }

    /// Whether a record that this end still keeps, such as a reply, acknowledges `stream`.
    fn is_acked_by_record(&self, stream: StreamId) -> bool {
        self.retained.as_ref().is_some_and(|retained| retained.prepared(stream).is_some())
    }

    /// The range of positions that this end sent and that the peer is not known to have
    /// acknowledged; `None` if the range is empty.
    fn undelivered(&self) -> Option<(Position, Position)> {
        let acked = self.durable.outgoing.as_ref()?.acked();
        let tail = self.retained.as_ref()?.tail();
        (acked < tail).then_some((acked, tail))
    }

    fn commit(&mut self) {
        self.state.commit(&self.durable.write());
    }

    /// Forgets the acked offset of the received stream, so that the peer sends again what it still
    /// has. The caller's next update of the file stores the change.
    fn unlearn(&mut self) {
        // The first update of the file stores in the state the highest of the acked offsets that
        // the file may have: in its state, in its control page, and in the record of a reply. So a
        // kill between the following steps leaves the quarantine as it was.
        self.commit();
        self.consumed.commit(0, 0, 0);
        self.durable.acked_offset = None;
        self.durable.forget_delivered();
    }

    /// Begins a new outgoing stream. One update of the file names the stream, reports the messages
    /// that are given up, and ends the quarantine.
    fn begin_another(&mut self, undelivered: Option<(Position, Position)>) {
        self.durable.quarantine = None;
        let Some(retained) = &mut self.retained else { return self.commit() };
        let stream = other_stream(retained);
        if let Some((from, to)) = undelivered {
            // The receiver may have consumed more than this end knows, so the report says that its
            // range is not exact.
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

/// Draws a random id for a new stream. The tag made from it differs from the tag of the records in
/// the ring, so that none of these passes for a record of the new stream.
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

/// Copies the link file at `path` into the same directory, under the first free name of the form
/// `….link.reset-N`.
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
            // An incomplete copy is useless and takes room on the disk, so it is removed.
            let _ = fs::remove_file(&copy);
            return Err(failed(source));
        }
        return Ok(copy);
    }
    let source = io::Error::other("there are a thousand copies already: move them away");
    Err(RepairError::Copy { path: path.to_owned(), cause: source })
}

/// The permissions of a copy of a link file: only its owner may read and write it.
const COPY_MODE: u32 = 0o600;
/// The maximum number of copies of one link file that `reset` makes; further resets fail until an
/// operator removes copies.
const COPIES_MAX: u32 = 1000;
