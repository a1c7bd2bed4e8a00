// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpoint of `--exactly-once`: a small file next to the link's file. Before each batch of
//! messages, `send` or `recv` writes to it the offset of that batch in the input or output.
//!
//! ```text
//!  send   ….in                                       recv   ….out
//!   1. entry: tail, input before and after a batch    1. entry: acked position, length of output
//!   2. commit the batch: one store raises the tail    2. write the batch to the output
//!                                                     3. ack: one store raises the position
//!
//!  killed     found at the next start      consequence
//!  ---------- ---------------------------- ---------------------------------------------------
//!  send
//!   before 1  an older entry               the row below that fits the older entry applies
//!   before 2  tail = that of the entry     the batch was not sent: continue from *before*
//!   after 2   tail > that of the entry     the batch was sent: continue from *after*
//!  recv
//!   before 1  an older entry               the row below that fits the older entry applies
//!   before 3  position = that of the entry the output is truncated, and the batch comes again
//!   after 3   position > that of the entry the output is kept
//! ```
//!
//! One store in the link's own file decides whether a batch is sent or acknowledged. The entry only
//! says which offset of the input or output belongs to that decision, so at no instant is a batch
//! in both files or in neither. No other process may send or acknowledge in between: none can while
//! the link is open, and `send` and `recv` open it first.
//!
//! ```text
//!  file (mode 600)
//!    0 header: magic, version, kind, device, inode, prefix and crc of the other file, epoch, seal
//!  128 slot of the odd entries      sequence │ stream │ position │ first │ second │ seal
//!  192 slot of the even entries     48 bytes, replaced whole or not at all (SPEC 13.2)
//! ```
//!
//! Like the link's file, the checkpoint survives kill -9, and a loss of power only if the command
//! ended by itself: it then writes the checkpoint to the disk, before it closes the link's file.
//!
//! # Invariants
//!
//! - An entry is in the checkpoint file before the step that the entry describes.
//! - A damaged checkpoint file, or one that belongs to another input, output or link, is rejected
//!   and not changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use partywall_layout::link::slot::{self, index_of};

/// The file whose offset a checkpoint records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The checkpoint belongs to the input of `send --in`.
    In,
    /// The checkpoint belongs to the output of `recv --out`.
    Out,
}

/// An entry of a checkpoint. It is written before a batch of messages is sent or written to the
/// output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The id of the stream that the entry is about; 0 if no stream was known.
    pub stream: u64,
    /// In a checkpoint of the input, the tail of the link's stream; in one of the output, the
    /// stream's acknowledged position.
    pub position: u64,
    /// In a checkpoint of the input, the offset of the batch's first byte in the input; in one of
    /// the output, the length of the output in bytes.
    pub first: u64,
    /// In a checkpoint of the input, the offset after the batch's last byte in the input; in one of
    /// the output, the epoch of the link.
    pub second: u64,
}

/// The identity of the input or output file, independent of its name. A checkpoint stores it, so
/// that the checkpoint of another file is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// Number of bytes at the beginning of the file that `crc` covers.
    prefix: u64,
    crc: u32,
}

/// A checkpoint file that is open, with the newest of its two entries.
#[derive(Debug)]
pub struct Checkpoint {
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
    /// The identity of an open file. With `has_prefix`, the file's first bytes are part of the
    /// identity.
    pub fn of(file: &File, has_prefix: bool) -> Result<Self> {
        let metadata = file.metadata()?;
        ensure!(
            metadata.is_file(),
            "--exactly-once needs a regular file, because a pipe cannot seek"
        );
        let prefix = if has_prefix { metadata.len().min(PREFIX_MAX as u64) } else { 0 };
        let crc = crc_of(file, prefix)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), prefix, crc })
    }

    /// Whether `file` is the input or output file with this identity.
    fn is_of(&self, file: &File) -> Result<bool> {
        let metadata = file.metadata()?;
        let is_same = metadata.dev() == self.device && metadata.ino() == self.inode;
        Ok(is_same && metadata.len() >= self.prefix && crc_of(file, self.prefix)? == self.crc)
    }
}

impl Checkpoint {
    /// The path of the checkpoint that belongs to the link with the file `link_file`.
    pub fn path(link_file: &Path, kind: Kind) -> PathBuf {
        link_file.with_extension(kind.ending())
    }

    /// Opens the checkpoint at `path`, which must belong to the file `other`; `None` if there is no
    /// checkpoint.
    pub fn open(path: &Path, kind: Kind, other: &File) -> Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
        };
        let (identity, epoch, sequence, entry) = read(&file, kind)
            .with_context(|| format!("{} cannot be used: {}", path.display(), advice(kind)))?;
        if !identity.is_of(other)? {
            let option = kind.ending();
            bail!(
                "{} was written for another file than this --{option}: give the former file, or, if it no longer exists, {}",
                path.display(),
                advice(kind)
            );
        }
        Ok(Some(Self { path: path.to_owned(), file, sequence, entry, epoch }))
    }

    /// Whether the file at `path` is a whole checkpoint of an epoch before `epoch`. Such a
    /// checkpoint is of no use any more, because its epoch has ended.
    pub fn is_of_older_epoch(path: &Path, kind: Kind, epoch: u64) -> bool {
        let found = File::open(path).ok().and_then(|file| read(&file, kind).ok());
        found.is_some_and(|(_, begun, ..)| begun < epoch)
    }

    /// Creates a checkpoint with one entry; a former checkpoint is replaced as a whole.
    pub fn begin(path: &Path, kind: Kind, of: &Identity, epoch: u64, entry: Entry) -> Result<Self> {
        let new = path.with_extension(format!("{}.new", kind.ending()));
        let made = || -> io::Result<File> {
            // A killed process may have left the temporary file. This process has the link open, so
            // no other process uses the file.
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

    /// The newest entry of this checkpoint.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// The epoch of the link in which the checkpoint was created.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes an entry to the checkpoint file. If the process is killed during the write, the
    /// former entry stays in force.
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

    /// Writes the checkpoint file and its name to the disk.
    pub fn sync(&self) -> Result<()> {
        let directory = self.path.parent().context("a checkpoint without a directory")?;
        let synced = self.file.sync_all().and_then(|()| File::open(directory)?.sync_all());
        synced.with_context(|| format!("writing {} to the disk", self.path.display()))
    }
}

/// Advice for the operator if the checkpoint of this kind cannot be used.
pub fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::In => "remove it to begin with the first message of the input",
        Kind::Out => "remove it to append to the output",
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
    ensure!(magic == MAGIC, "another program made it");
    ensure!(version == VERSION, "it has version {version}, not {VERSION}");
    let [seal] = words(&bytes[HEADER_BYTES - 8..]);
    let is_whole = seal == slot::seal(&bytes[..HEADER_BYTES - 8]) && prefix <= PREFIX_MAX as u64;
    let crc = u32::try_from(crc).ok().filter(|_| is_whole).context("its header is damaged")?;
    ensure!(number == kind.number(), "it belongs to the opposite direction");
    let mut slots = [[0; SLOT_BYTES]; 2];
    for (slot, offset) in slots.iter_mut().zip(SLOTS) {
        file.read_exact_at(slot, offset).context("it is too short")?;
    }
    let (sequence, entry) = in_force(&slots).context("its entries are damaged")?;
    Ok((Identity { device, inode, prefix, crc }, epoch, sequence, entry))
}

/// Returns the newer of the entries in the two slots of a checkpoint; `None` if damage makes it
/// uncertain which entry is newer (SPEC 13.2).
fn in_force(slots: &[[u8; SLOT_BYTES]; 2]) -> Option<(u64, Entry)> {
    let checked = [0, 1].map(|index| {
        let [sequence, stream, position, first, second, stored] = words(&slots[index]);
        let seal = slot::seal(&slots[index][..SLOT_BYTES - slot::SEAL_BYTES]);
        let is_whole = stored == seal && sequence != 0 && index_of(sequence) == index;
        let entry = is_whole.then_some((sequence, Entry { stream, position, first, second }));
        (entry, stored & LOW, stored >> 32 == seal >> 32)
    });
    // Whether slot `index` is damaged only by an interrupted write, and held the entry before entry
    // `sequence`. Such a write leaves the seal of the slot's former entry.
    let was_before = |index: usize, sequence: u64| {
        let (_, sealed, is_body_sealed) = checked[index];
        sealed == (sequence - 1) & LOW && !is_body_sealed
    };
    match (checked[0].0, checked[1].0) {
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

/// The first eight bytes of every checkpoint file, by which other files are rejected.
const MAGIC: u64 = u64::from_le_bytes(*b"PWLEDGER");
const VERSION: u64 = 1;
const MODE: u32 = 0o600;
/// Maximum number of bytes at the beginning of the input whose checksum is part of the input's
/// identity. The checksum reveals that other content was written into the same file.
const PREFIX_MAX: usize = 4096;
const HEADER_BYTES: usize = 128;
const SLOT_BYTES: usize = 48;
/// Offsets of the two slots in the checkpoint file, in bytes; neither slot crosses a page.
const SLOTS: [u64; 2] = [128, 192];
const LOW: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry { stream: 7, position: number, first: number * 2, second: number * 3 }
    }

    fn begun(directory: &Path) -> (PathBuf, File, Checkpoint) {
        let other = directory.join("input");
        fs::write(&other, "some lines\n").unwrap();
        let other = File::open(other).unwrap();
        let path = Checkpoint::path(&directory.join("00.link"), Kind::In);
        assert!(Checkpoint::open(&path, Kind::In, &other).unwrap().is_none());
        let identity = Identity::of(&other, true).unwrap();
        let checkpoint = Checkpoint::begin(&path, Kind::In, &identity, 3, entry(1)).unwrap();
        (path, other, checkpoint)
    }

    #[test]
    fn last_entry_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut checkpoint) = begun(directory.path());
        for number in 1..=5 {
            if number > 1 {
                checkpoint.write(entry(number)).unwrap();
            }
            let found = Checkpoint::open(&path, Kind::In, &other).unwrap().unwrap();
            assert_eq!((found.entry(), found.epoch()), (entry(number), 3));
        }
        let identity = Identity::of(&other, true).unwrap();
        Checkpoint::begin(&path, Kind::In, &identity, 4, entry(9)).unwrap();
        let found = Checkpoint::open(&path, Kind::In, &other).unwrap().unwrap();
        assert_eq!((found.entry(), found.epoch()), (entry(9), 4));
        assert!(path.metadata().unwrap().mode() & 0o777 == MODE);
    }

    #[test]
    fn partly_written_entry_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut checkpoint) = begun(directory.path());
        checkpoint.write(entry(2)).unwrap();
        checkpoint.write(entry(3)).unwrap();
        let part = &slot_of(4, &entry(4))[..40];
        for len in 1..=part.len() {
            checkpoint.file.write_all_at(&part[..len], SLOTS[1]).unwrap();
            let found = Checkpoint::open(&path, Kind::In, &other).unwrap().unwrap();
            assert_eq!(found.entry(), entry(3), "{len} bytes");
        }
    }

    #[test]
    fn damaged_checkpoint_or_other_file_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other, mut checkpoint) = begun(directory.path());
        checkpoint.write(entry(2)).unwrap();
        let whole = fs::read(&path).unwrap();
        for index in (0..whole.len()).filter(|index| !(176..192).contains(index)) {
            let mut bytes = whole.clone();
            bytes[index] ^= 4;
            fs::write(&path, &bytes).unwrap();
            // Expected result: damage of the older entry changes nothing, and damage of the newer
            // entry or of the header is an error.
            match Checkpoint::open(&path, Kind::In, &other) {
                Ok(found) => assert_eq!(found.unwrap().entry(), entry(2), "byte {index}"),
                Err(error) => assert!(format!("{error:#}").contains("remove it"), "{error:#}"),
            }
        }
        fs::write(&path, &whole).unwrap();
        assert!(Checkpoint::open(&path, Kind::Out, &other).is_err());
        let another = directory.path().join("another");
        fs::write(&another, "other lines\n").unwrap();
        let error = Checkpoint::open(&path, Kind::In, &File::open(another).unwrap()).unwrap_err();
        assert!(error.to_string().contains("another file than this --in"), "{error}");
        fs::write(directory.path().join("input"), "other lines\n").unwrap();
        assert!(Checkpoint::open(&path, Kind::In, &other).is_err());
    }
}
