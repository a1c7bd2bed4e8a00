// SPDX-License-Identifier: MIT OR Apache-2.0
//! The small file beside that of a link which makes `--exactly-once` of it: where the input or output stands, written down before
//! each batch.
//!
//! ```text
//!  send   ….in                                            recv   ….out
//!   1. entry: tail, input before and after the batch       1. entry: consumed, length of the output
//!   2. publish the batch: the tail rises, at once          2. write the batch to the output
//!                                                          3. commit: consumed rises, at once
//!
//!  killed        found at the start    so                  killed        found at the start       so
//!  before 1      an older entry        (see there)         before 1      an older entry           (see there)
//!  between       tail = entry's        the batch never     before 3      consumed = entry's       what was written, whole or
//!                                      was: from *before*                                         not, is cut off: it comes again
//!  after 2       tail > entry's        from *after*        after 3       consumed > entry's       it is kept
//! ```
//!
//! The link's own file decides, by one store: the entry only says what that decision means for the other file. So there is no
//! instant at which a batch is in both or in neither. Nobody else may send, or consume, in between; while the
//! link is open nobody can, and `send` and `recv` open it first.
//!
//! ```text
//!  file (mode 600)      0 header: magic, version, kind, the other file's device and inode, crc of its beginning, seal
//!                     128 slot of the odd entries      sequence │ stream │ position │ first │ second │ seal
//!                     192 slot of the even ones        48 bytes, replaced whole or not at all (SPEC 13.2)
//! ```
//!
//! It survives kill -9, as the link's file does, and not that the machine loses power: nothing is flushed to the disk.
//!
//! # Invariants
//!
//! - An entry is in the file before what it is about happens.
//! - A damaged file, or one of other files, is refused, and not changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use partywall_layout::link::slot::{self, index_of};

/// Which of the two files it goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `send --in`.
    In,
    /// `recv --out`.
    Out,
}

/// What is written down before a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Of which stream; 0 if none was known.
    pub stream: u64,
    /// Its tail, or how far it was consumed.
    pub position: u64,
    /// `In`: where the batch begins in the input. `Out`: the length of the output.
    pub first: u64,
    /// `In`: where the batch ends in the input. `Out`: the epoch.
    pub second: u64,
}

/// Which file the input or output is, however it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// How many bytes of its beginning `crc` is of.
    prefix: u64,
    crc: u32,
}

/// The file, open, and the entry in force.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    sequence: u64,
    entry: Entry,
    epoch: u64,
}

impl Kind {
    const fn ending(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }

    const fn number(self) -> u64 {
        match self {
            Self::In => 1,
            Self::Out => 2,
        }
    }
}

impl Identity {
    /// That of an open file. With `has_prefix`, its first bytes belong to it.
    pub fn of(file: &File, has_prefix: bool) -> Result<Self> {
        let facts = file.metadata()?;
        ensure!(
            facts.is_file(),
            "--exactly-once needs a regular file: a pipe cannot be gone back in"
        );
        let prefix = if has_prefix { facts.len().min(PREFIX_MAX as u64) } else { 0 };
        let crc = crc_of(file, prefix)?;
        Ok(Self { device: facts.dev(), inode: facts.ino(), prefix, crc })
    }

    /// Whether `file` is this one, as far as can be told.
    fn is_of(&self, file: &File) -> Result<bool> {
        let facts = file.metadata()?;
        let is_same = facts.dev() == self.device && facts.ino() == self.inode;
        Ok(is_same && facts.len() >= self.prefix && crc_of(file, self.prefix)? == self.crc)
    }
}

impl Ledger {
    /// Where it lies, for a link with this file.
    pub fn path(link_file: &Path, kind: Kind) -> PathBuf {
        link_file.with_extension(kind.ending())
    }

    /// The one that is there; `None` if there is none. It has to be of `other`.
    pub fn open(path: &Path, kind: Kind, other: &File) -> Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
        };
        let (identity, epoch, sequence, entry) = read(&file, kind).with_context(|| {
            format!("{} is not to be believed: {}", path.display(), advice(kind))
        })?;
        if !identity.is_of(other)? {
            let option = kind.ending();
            bail!(
                "{} was written for another file than this --{option}: give the one of the last time, or, if it is \
                 gone for good, {}",
                path.display(),
                advice(kind)
            );
        }
        Ok(Some(Self { path: path.to_owned(), file, sequence, entry, epoch }))
    }

    /// Whether one is there, whole, that was begun in an epoch before this one: it is of no use any more.
    pub fn is_of_older_epoch(path: &Path, kind: Kind, epoch: u64) -> bool {
        let found = File::open(path).ok().and_then(|file| read(&file, kind).ok());
        found.is_some_and(|(_, begun, ..)| begun < epoch)
    }

    /// A new one in the place of any other, whole or not at all.
    pub fn begin(path: &Path, kind: Kind, of: &Identity, epoch: u64, entry: Entry) -> Result<Self> {
        let new = path.with_extension(format!("{}.new", kind.ending()));
        let made = || -> io::Result<File> {
            // One that was killed here left it; the link is open, so nobody else is at it.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file =
                OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(&new)?;
            file.write_all_at(&header(kind, of, epoch), 0)?;
            file.write_all_at(&slot_of(1, &entry), SLOTS[index_of(1)])?;
            file.write_all_at(&[0; SLOT_BYTES], SLOTS[index_of(2)])?;
            fs::rename(&new, path)?;
            Ok(file)
        };
        let file = made().with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, sequence: 1, entry, epoch })
    }

    /// The entry in force.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// In which epoch it was begun.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes an entry down. Killed within, the one before is in force.
    pub fn write(&mut self, entry: Entry) -> Result<()> {
        let sequence = self.sequence + 1;
        let bytes = slot_of(sequence, &entry);
        let (body, seal) = bytes.split_at(SLOT_BYTES - slot::SEAL_BYTES);
        let offset = SLOTS[index_of(sequence)];
        let written = self.file.write_all_at(body, offset);
        let written =
            written.and_then(|()| self.file.write_all_at(seal, offset + body.len() as u64));
        written.with_context(|| format!("writing {}", self.path.display()))?;
        (self.sequence, self.entry) = (sequence, entry);
        Ok(())
    }
}

/// What to do about one that cannot be used.
pub fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::In => "remove it to begin with the input's first message",
        Kind::Out => "remove it to go on behind what the output holds",
    }
}

fn slot_of(sequence: u64, entry: &Entry) -> [u8; SLOT_BYTES] {
    let Entry { stream, position, first, second } = *entry;
    let mut bytes = [0; SLOT_BYTES];
    put(&mut bytes, &[sequence, stream, position, first, second]);
    let seal = slot::seal(&bytes[..SLOT_BYTES - slot::SEAL_BYTES]);
    bytes[SLOT_BYTES - slot::SEAL_BYTES..].copy_from_slice(&seal.to_le_bytes());
    bytes
}

fn header(kind: Kind, of: &Identity, epoch: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let Identity { device, inode, prefix, crc } = *of;
    put(&mut bytes, &[MAGIC, VERSION, kind.number(), device, inode, prefix, u64::from(crc), epoch]);
    let body = HEADER_BYTES - 8;
    let seal = slot::seal(&bytes[..body]);
    bytes[body..].copy_from_slice(&seal.to_le_bytes());
    bytes
}

fn put(bytes: &mut [u8], words: &[u64]) {
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut array = [0; 8];
        array.copy_from_slice(place);
        *word = u64::from_le_bytes(array);
    }
    words
}

fn read(file: &File, kind: Kind) -> Result<(Identity, u64, u64, Entry)> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0).context("it is too short")?;
    let [magic, version, number, device, inode, prefix, crc, epoch] = words(&bytes);
    ensure!(magic == MAGIC, "it is of another program");
    ensure!(version == VERSION, "it is of version {version}, not {VERSION}");
    let [seal] = words(&bytes[HEADER_BYTES - 8..]);
    let is_whole = seal == slot::seal(&bytes[..HEADER_BYTES - 8]) && prefix <= PREFIX_MAX as u64;
    let crc = u32::try_from(crc).ok().filter(|_| is_whole).context("its header is damaged")?;
    ensure!(number == kind.number(), "it is of the other direction");
    let mut slots = [[0; SLOT_BYTES]; 2];
    for (slot, offset) in slots.iter_mut().zip(SLOTS) {
        file.read_exact_at(slot, offset).context("it is too short")?;
    }
    let (sequence, entry) = in_force(&slots).context("its entries are damaged")?;
    Ok((Identity { device, inode, prefix, crc }, epoch, sequence, entry))
}

/// The newer of two slots; `None` if one of them is damaged so that nobody can tell (SPEC 13.2).
fn in_force(slots: &[[u8; SLOT_BYTES]; 2]) -> Option<(u64, Entry)> {
    let looks = [0, 1].map(|index| {
        let [sequence, stream, position, first, second, stored] = words(&slots[index]);
        let seal = slot::seal(&slots[index][..SLOT_BYTES - slot::SEAL_BYTES]);
        let is_whole = stored == seal && sequence != 0 && index_of(sequence) == index;
        let entry = is_whole.then_some((sequence, Entry { stream, position, first, second }));
        (entry, stored & LOW, stored >> 32 == seal >> 32)
    });
    // One that was being written has the seal of the entry before the one in force.
    let was_before = |index: usize, sequence: u64| {
        let (_, sealed, is_body_sealed) = looks[index];
        sealed == (sequence - 1) & LOW && !is_body_sealed
    };
    match (looks[0].0, looks[1].0) {
        (Some(a), Some(b)) if a.0.checked_add(1) == Some(b.0) => Some(b),
        (Some(a), Some(b)) if b.0.checked_add(1) == Some(a.0) => Some(a),
        (Some(a), None) if was_before(1, a.0) => Some(a),
        (None, Some(b)) if was_before(0, b.0) => Some(b),
        _ => None,
    }
}

fn crc_of(file: &File, len: u64) -> Result<u32> {
    let mut bytes = [0; PREFIX_MAX];
    let bytes = bytes.get_mut(..usize::try_from(len)?).context("longer than any prefix")?;
    file.read_exact_at(bytes, 0).context("reading the beginning of the file")?;
    Ok(partywall_layout::link::record::blob_crc(bytes))
}

/// "PWLEDGER", as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"PWLEDGER");
const VERSION: u64 = 1;
const MODE: u32 = 0o600;
/// The most of a file's beginning that belongs to its identity.
const PREFIX_MAX: usize = 4096;
const HEADER_BYTES: usize = 128;
const SLOT_BYTES: usize = 48;
/// Where the slots lie; none crosses a page.
const SLOTS: [u64; 2] = [128, 192];
const LOW: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry { stream: 7, position: number, first: number * 2, second: number * 3 }
    }

    fn begun(directory: &Path) -> (PathBuf, File, Ledger) {
        let other = directory.join("input");
        fs::write(&other, "some lines\n").unwrap();
        let other = File::open(other).unwrap();
        let path = Ledger::path(&directory.join("00.link"), Kind::In);
        assert!(Ledger::open(&path, Kind::In, &other).unwrap().is_none());
        let identity = Identity::of(&other, true).unwrap();
        let ledger = Ledger::begin(&path, Kind::In, &identity, 3, entry(1)).unwrap();
        (path, other, ledger)
    }

    #[test]
    fn the_last_entry_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut ledger) = begun(directory.path());
        for number in 1..=5 {
            if number > 1 {
                ledger.write(entry(number)).unwrap();
            }
            let found = Ledger::open(&path, Kind::In, &other).unwrap().unwrap();
            assert_eq!((found.entry(), found.epoch()), (entry(number), 3));
        }
        let identity = Identity::of(&other, true).unwrap();
        Ledger::begin(&path, Kind::In, &identity, 4, entry(9)).unwrap();
        let found = Ledger::open(&path, Kind::In, &other).unwrap().unwrap();
        assert_eq!((found.entry(), found.epoch()), (entry(9), 4));
        assert!(path.metadata().unwrap().mode() & 0o777 == MODE);
    }

    #[test]
    fn an_entry_that_was_being_written_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut ledger) = begun(directory.path());
        ledger.write(entry(2)).unwrap();
        ledger.write(entry(3)).unwrap();
        let half = &slot_of(4, &entry(4))[..40];
        for len in 1..=half.len() {
            ledger.file.write_all_at(&half[..len], SLOTS[1]).unwrap();
            let found = Ledger::open(&path, Kind::In, &other).unwrap().unwrap();
            assert_eq!(found.entry(), entry(3), "{len} bytes");
        }
    }

    #[test]
    fn damage_and_other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut ledger) = begun(directory.path());
        ledger.write(entry(2)).unwrap();
        let whole = fs::read(&path).unwrap();
        for index in (0..whole.len()).filter(|index| !(176..192).contains(index)) {
            let mut bytes = whole.clone();
            bytes[index] ^= 4;
            fs::write(&path, &bytes).unwrap();
            // Damage of the older entry harms nobody.
            match Ledger::open(&path, Kind::In, &other) {
                Ok(found) => assert_eq!(found.unwrap().entry(), entry(2), "byte {index}"),
                Err(error) => assert!(format!("{error:#}").contains("remove it"), "{error:#}"),
            }
        }
        fs::write(&path, &whole).unwrap();
        assert!(Ledger::open(&path, Kind::Out, &other).is_err());
        let another = directory.path().join("another");
        fs::write(&another, "other lines\n").unwrap();
        let error = Ledger::open(&path, Kind::In, &File::open(another).unwrap()).unwrap_err();
        assert!(error.to_string().contains("another file than this --in"), "{error}");
        fs::write(directory.path().join("input"), "other lines\n").unwrap();
        assert!(Ledger::open(&path, Kind::In, &other).is_err());
    }
}
