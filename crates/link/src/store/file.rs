// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link file that this process owns: opened or created, checked, mapped, and cut into parts.
//!
//! ```text
//!   no file:  make an unnamed file ─▶ allocate all its bytes ─▶ write its first pages
//!             ─▶ give it the name, or open the file that another process has named first ──┐
//!   a file:   open it ─────────────────────────────────────────────────────────────────────┴──▶
//!     check user and mode ─▶ check the header ─▶ ensure that the previous owner is gone
//!     ─▶ check all pages (SPEC 13.6) ─▶ become the owner (owner.rs) ─▶ map ─▶ cut into parts
//! ```
//!
//! This file does not read the ring or the slab: the records describe themselves, and `retained/`
//! checks them.
//!
//! # Invariants
//!
//! - Before this process owns the file, it only reads the file.
//! - The file stays owned as long as any part of its memory is in use, because each part holds the
//!   ownership.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use partywall_layout::link::{CONSUMED_SLOT, Closing, ConsumedRecord, OwnerRecord};
use partywall_layout::link::{
    FileFault, Image, LINK_CONTROL_OFFSET, LinkGeometry, LinkHeader, OWNER_OFFSET, PARTS_OFFSET,
    STATE_OFFSET, Slot, StateImage,
};
use partywall_layout::seeded_fault;
use partywall_layout::segment::{ASLEEP_RECORDS, LINE_BYTES, PAGE_BYTES};
use partywall_ring::{OwnMem, Writable};
use partywall_sys::persistent_file::{FileStat, reopen_read_only};
use partywall_sys::{FileMap, Instance, UnnamedFile};
use zerocopy::IntoBytes;

use super::directory::{Directory, Listed};
use super::error::StorageError;
use super::evidence::Evidence;
use super::key::Key;
use super::owner::{self, Attempt, Ownership};
use super::reboot::{AfterReboot, cut, examine};
use super::slots::{ConsumedSlots, StateSlots};
use super::sync::SyncScope;
use partywall_sys::nonce;

/// The sizes of the parts of a new file; an existing file keeps its own sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size of the record ring in bytes.
    pub ring: u64,
    /// The number of entries of the release ring, which links do not use.
    pub entries: u64,
    /// The minimum size of the slab in bytes; the file rounds it up to whole pages.
    pub slab: u64,
}

/// A link file that this process owns, split into parts that are each given to one object.
#[derive(Debug)]
pub struct OwnFile {
    /// The number of owners of the link file so far, this process included.
    pub incarnation: u64,
    /// The header, owner record, state and consumed position of the link file when this process
    /// became the owner.
    pub image: Box<Image>,
    /// The pair of slots of the file for the state of the link: each new state replaces the earlier
    /// one as a whole.
    pub state: StateSlots,
    /// The pair of slots with the position up to which this end has acknowledged the received
    /// stream (`consumed` in SPEC 13.5).
    pub consumed: ConsumedSlots,
    /// The rest of the control page, from the word `asleep_records` on (SPEC 3.3). A peer reads in
    /// that word whether this end sleeps.
    pub control: OwnMem,
    /// The memory of the record ring.
    pub ring: OwnMem,
    /// The memory of the release ring.
    pub release_ring: OwnMem,
    /// The memory of the slab.
    pub slab: OwnMem,
    /// A handle by which further descriptors of the link file are opened. The handle does not keep
    /// the file owned.
    pub handle: FileHandle,
    /// Whether this owner or an earlier one adopted the file after another boot with only the
    /// messages that it proves whole, and no application has been notified of that yet.
    pub is_adopted: bool,
    /// Whether this process made the file, although the link had a file before in this boot.
    pub is_replaced: bool,
    /// The facts that the file proved when this owner adopted it after another boot; `None` if this
    /// owner did not have to adopt the file.
    pub evidence: Option<Box<Evidence>>,
}

/// The memory of a link file, cut at the offsets that its geometry gives.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) state_page: OwnMem,
    /// The 128 bytes of the control page with the two slots of `consumed`, the acked offset.
    pub(crate) line: OwnMem,
    /// The rest of the control page, from the word `asleep_records` on, in which a peer reads
    /// whether this end sleeps.
    pub(crate) control: OwnMem,
    pub(crate) ring: OwnMem,
    pub(crate) release_ring: OwnMem,
    pub(crate) slab: OwnMem,
}

impl Cut {
    /// Cuts `memory`, which is the whole file, along a geometry that was already checked.
    pub(crate) fn new(memory: OwnMem, geometry: &LinkGeometry) -> Self {
        let (_header_and_owner, rest) = memory.split_at(size(STATE_OFFSET));
        let (state_page, rest) = rest.split_at(size(PAGE_BYTES));
        let (control_page, rest) = rest.split_at(size(PAGE_BYTES));
        let (line, control) = control_page.split_at(size(LINE_BYTES));
        let (_gap, rest) = rest.split_at(size(geometry.ring_offset - PARTS_OFFSET));
        let (ring, rest) = rest.split_at(size(geometry.ring.bytes()));
        let ring_end = geometry.ring_offset + geometry.ring.bytes();
        let (_gap, rest) = rest.split_at(size(geometry.release_offset - ring_end));
        let (release_ring, rest) = rest.split_at(size(geometry.peer_blocks_max * 8));
        let release_end = geometry.release_offset + geometry.peer_blocks_max * 8;
        let (_gap, rest) = rest.split_at(size(geometry.slab_offset - release_end));
        let (slab, _gap) = rest.split_at(size(geometry.slab_bytes));
        Self { state_page, line, control, ring, release_ring, slab }
    }
}

impl OwnFile {
    /// Opens the link file of `key`, or creates it, and makes this process its owner.
    ///
    /// # Errors
    ///
    /// See [`StorageError`]; no existing file was changed.
    pub fn open(directory: &Directory, key: &Key, sizes: Sizes) -> Result<Self, StorageError> {
        Self::open_after(directory, key, sizes, AfterReboot::Refuse)
    }

    /// Opens the link file of `key`, or creates it, and makes this process its owner. The policy
    /// says whether a file that was last owned before a reboot is refused or adopted.
    ///
    /// # Errors
    ///
    /// See [`StorageError`]; a file that is refused was not changed.
    pub fn open_after(
        directory: &Directory,
        key: &Key,
        sizes: Sizes,
        policy: AfterReboot,
    ) -> Result<Self, StorageError> {
        let path = directory.file_path(&key.file_name());
        let opening = Opening::new(directory, key, &path, policy)?;
        let (file, stat, is_replaced) = opening.found_or_made(sizes)?;
        Ok(Self { is_replaced, ..opening.open(file, stat)? })
    }

    /// Opens the link file of `key` and makes this process its owner, but creates no file: `None`
    /// if there is none. The policy says whether a file that was last owned before a reboot is
    /// refused or adopted.
    ///
    /// # Errors
    ///
    /// See [`StorageError`]; a file that is refused was not changed.
    pub fn open_existing(
        directory: &Directory,
        key: &Key,
        policy: AfterReboot,
    ) -> Result<Option<Self>, StorageError> {
        let path = directory.file_path(&key.file_name());
        let opening = Opening::new(directory, key, &path, policy)?;
        let found = directory.open_file(&key.file_name(), true)?;
        found.map(|(file, stat)| opening.open(file, stat)).transpose()
    }

    fn mapped(
        ownership: Ownership,
        image: Image,
        evidence: Option<Box<Evidence>>,
    ) -> io::Result<Self> {
        let (incarnation, is_adopted) = (ownership.incarnation(), ownership.is_adopted());
        let geometry = image.geometry;
        let map = FileMap::writable(ownership.file().as_fd(), size(geometry.file_bytes))?;
        let ownership = Arc::new(ownership);
        let handle = FileHandle(Arc::downgrade(&ownership));
        let memory = OwnMem::new(Box::new(Pages { map, _ownership: ownership }));
        let Cut { state_page, line, control, ring, release_ring, slab } =
            Cut::new(memory, &geometry);
        Ok(Self {
            incarnation,
            state: StateSlots::new(state_page, image.state),
            consumed: ConsumedSlots::new(line, image.consumed),
            control,
            ring,
            release_ring,
            slab,
            handle,
            is_adopted,
            is_replaced: false,
            evidence,
            image: Box::new(image),
        })
    }
}

const _: () = {
    assert!(STATE_OFFSET + PAGE_BYTES == LINK_CONTROL_OFFSET);
    assert!(LINK_CONTROL_OFFSET + PAGE_BYTES == PARTS_OFFSET);
    assert!(ASLEEP_RECORDS == LINE_BYTES);
};

/// A weak reference to an owned file, through which further descriptors of the file are opened. The
/// reference does not keep the file owned.
#[derive(Debug)]
pub struct FileHandle(Weak<Ownership>);

impl FileHandle {
    /// Opens a read-only descriptor of the file, to be sent to a peer.
    ///
    /// # Errors
    ///
    /// The error of the system call; [`io::ErrorKind::NotFound`] once every part of the file's
    /// memory is dropped.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        let ownership = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
        reopen_read_only(ownership.file().as_fd())
    }

    /// Writes to the disk: the contents of the link file, or everything that was changed in its
    /// file system, as `scope` says.
    pub(crate) fn sync(&self, scope: SyncScope) -> io::Result<()> {
        scope.sync(self.0.upgrade().ok_or(io::ErrorKind::NotFound)?.file())
    }

    /// The device number of the file system that holds the link file, by which files of one file
    /// system are synced together.
    pub(crate) fn device(&self) -> io::Result<u64> {
        let ownership = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
        Ok(ownership.file().metadata()?.dev())
    }

    /// Records whether the application has taken the events that the file was adopted after a
    /// reboot.
    pub(crate) fn set_notified(&self, is_notified: bool) {
        self.0.upgrade().into_iter().for_each(|ownership| ownership.set_notified(is_notified));
    }

    /// Writes into the owner record that this owner has left the file, together with `closing`,
    /// which describes the file's last contents. The caller must have synced those contents before.
    pub(crate) fn close(&self, closing: Closing) -> io::Result<()> {
        self.0.upgrade().ok_or(io::ErrorKind::NotFound)?.close(closing)
    }
}

/// Keeps the memory of a link file mapped and the file owned. The fields are dropped in order: the
/// mapping first, so that this process can write nothing into the file once it is no longer the
/// owner.
struct Pages {
    map: FileMap,
    _ownership: Arc<Ownership>,
}

impl Writable for Pages {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_mut_slice()
    }
}

/// A link file that is being opened, with the key, the path and the policy for it.
struct Opening<'a> {
    directory: &'a Directory,
    key: &'a Key,
    path: &'a Path,
    own: Instance,
    policy: AfterReboot,
}

impl<'a> Opening<'a> {
    fn new(
        directory: &'a Directory,
        key: &'a Key,
        path: &'a Path,
        policy: AfterReboot,
    ) -> Result<Self, StorageError> {
        let own = Instance::of_self().map_err(|source| system(path, "/proc", source))?;
        Ok(Self { directory, key, path, own, policy })
    }

    /// Makes this process the owner of the open file, and maps it.
    fn open(&self, file: File, stat: FileStat) -> Result<OwnFile, StorageError> {
        let (ownership, image, evidence) = self.own(file, stat)?;
        let mapped = OwnFile::mapped(ownership, image, evidence);
        mapped.map_err(|source| system(self.path, "mapping", source))
    }

    /// Opens the link file, or creates it if the directory has none. If `links.list` names a file
    /// of an earlier boot that is now missing, the new file counts as adopted. Also returns whether
    /// a file of this boot is missing, in whose place this process has made the new one.
    fn found_or_made(&self, sizes: Sizes) -> Result<(File, FileStat, bool), StorageError> {
        let name = self.key.file_name();
        let mut is_replaced = false;
        for _ in 0..ATTEMPTS_MAX {
            if let Some((file, stat)) = self.directory.open_file(&name, true)? {
                return Ok((file, stat, is_replaced));
            }
            let listed = self.directory.listed(self.key, self.own.boot_id)?;
            let is_missing = listed == Listed::OtherBoot;
            if is_missing && self.policy == AfterReboot::Refuse {
                return Err(StorageError::Missing { path: self.path.to_owned() });
            }
            // If another process names its link file first, the next pass of the loop opens that
            // file.
            let made = made(self.directory, self.key, sizes, is_missing)?;
            is_replaced = self.directory.name(&made, &name)? && listed == Listed::ThisBoot;
        }
        Err(system(self.path, "opening", io::Error::other("it comes and goes")))
    }

    /// Checks the file and makes this process its owner. Also returns the facts that an adopted
    /// file proved, which were found while no other process could become the owner.
    fn own(&self, mut file: File, stat: FileStat) -> Result<Owned, StorageError> {
        let deadline = Instant::now() + OPENING_MAX;
        loop {
            let image = last_image(&file, stat, self.key, self.path)?;
            let mut evidence = None;
            let prepare = |file: &File| {
                evidence = self.prepare(file, &image)?;
                Ok(evidence.is_some())
            };
            file = match owner::follow(file, &image.owner, &self.own, self.path, prepare)? {
                Attempt::Taken(ownership) => return Ok((ownership, image, evidence)),
                Attempt::Again(file) => file,
                Attempt::Opening(file) => {
                    std::thread::sleep(OPENING_PAUSE);
                    file
                }
            };
            if Instant::now() >= deadline {
                return Err(StorageError::Opening { path: self.path.to_owned() });
            }
        }
    }

    /// Prepares a file before this process becomes its owner, while no other process can become its
    /// owner. Applies the policy if the file was last owned before a reboot, and adds the file to
    /// `links.list`. Returns the facts that the file proves, if it is adopted.
    fn prepare(&self, file: &File, image: &Image) -> Result<Option<Box<Evidence>>, StorageError> {
        let failed = |what| move |source| system(self.path, what, source);
        let is_new = image.owner.incarnation.get() == 0;
        if !is_new && image.owner.boot_id == self.own.boot_id {
            return Ok(None);
        }
        let mut adopted = None;
        if !is_new && !seeded_fault("link_other_boot_believed") {
            let evidence = examine(file, image).map_err(failed("mapping"))?;
            let must_refuse = self.policy == AfterReboot::Refuse || evidence.damage.is_some();
            if !evidence.is_whole && must_refuse {
                let path = self.path.to_owned();
                return Err(StorageError::OtherBoot { path, evidence: Box::new(evidence) });
            }
            if !evidence.is_whole {
                cut(file, &evidence).map_err(failed("writing"))?;
                adopted = Some(Box::new(evidence));
            }
        }
        self.directory.list_link(self.key, self.own.boot_id)?;
        Ok(adopted)
    }
}

/// The ownership of a link file, its last contents, and the facts that the file proved of its
/// messages if it was adopted.
type Owned = (Ownership, Image, Option<Box<Evidence>>);

/// Makes a link file without a name. If `is_adopted`, its first owner tells the application that
/// messages may be lost.
fn made(
    directory: &Directory,
    key: &Key,
    sizes: Sizes,
    is_adopted: bool,
) -> Result<UnnamedFile, StorageError> {
    let Sizes { ring, entries, slab } = sizes;
    let impossible = StorageError::Sizes { ring, entries, slab };
    let Some(geometry) = LinkGeometry::new(ring, entries, slab) else { return Err(impossible) };
    let header = LinkHeader::new(&geometry, key.names(), nonce(), owner::now_ns());
    let Some(header) = header else { return Err(impossible) };
    let file = directory.make(geometry.file_bytes)?;
    let nobody =
        OwnerRecord { adopted: u32::from(is_adopted).into(), ..OwnerRecord::nobody() }.sealed();
    let state = StateImage::new();
    let consumed = ConsumedRecord::new(1, 0, 0, 0);
    let pages: [(u64, &[u8]); 4] = [
        (0, header.as_bytes()),
        (OWNER_OFFSET, nobody.as_bytes()),
        (STATE_OFFSET, state.as_bytes()),
        (LINK_CONTROL_OFFSET + CONSUMED_SLOT, consumed.as_bytes()),
    ];
    for (offset, bytes) in pages {
        let written = file.file().write_all_at(bytes, offset);
        written.map_err(|source| system(directory.path(), "writing a new file", source))?;
    }
    // The file's pages are synced before the file gets a name: the name may reach the disk at any
    // time after that, and must not be there before the pages.
    SyncScope::File
        .sync(file.file())
        .map_err(|source| system(directory.path(), "syncing a new file", source))?;
    Ok(file)
}

/// Reads and checks the contents that the previous owner left in the file. Fails unless the
/// previous owner is gone.
fn last_image(file: &File, stat: FileStat, key: &Key, path: &Path) -> Result<Image, StorageError> {
    let read = || read_pages(file, stat.size).map_err(|e| system(path, "reading", e));
    let mut pages = read()?;
    for _ in 0..ATTEMPTS_MAX {
        let judged = judge_owner(&pages, stat.size, key).and_then(|record| {
            owner::ensure_gone(file, &record, path).map_err(Refusal::Error)?;
            // The pages of the file are read again: the previous owner may have changed them after
            // the first read and before its own end.
            pages = read().map_err(Refusal::Error)?;
            let image = Image::check(&pages, stat.size, Some(key.names()));
            image.map(|image| (record, image)).map_err(Refusal::Fault)
        });
        match judged {
            Ok((record, image)) if image.owner == record => return Ok(image),
            Ok(_) => {} // another owner took the file and ended
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Fault(fault)) => {
                // The pages of the file are read a third time. If they differ from the pages of the
                // second read, another process has become the owner and written meanwhile. So they
                // are checked again.
                let again = read()?;
                if again == pages {
                    return Err(StorageError::File { path: path.to_owned(), fault });
                }
                pages = again;
            }
        }
    }
    Err(StorageError::Opening { path: path.to_owned() })
}

enum Refusal {
    Fault(FileFault),
    Error(StorageError),
}

/// Reads the owner record of a file whose header is valid. The other pages are not checked, because
/// a living owner may be writing them.
fn judge_owner(pages: &[u8], file_bytes: u64, key: &Key) -> Result<OwnerRecord, Refusal> {
    use partywall_layout::link::{header, owner};
    header::check(pages, file_bytes, Some(key.names())).map_err(Refusal::Fault)?;
    let short = FileFault::Truncated { expected: PARTS_OFFSET, actual: file_bytes };
    let page = pages.get(size(OWNER_OFFSET)..size(OWNER_OFFSET + PAGE_BYTES));
    owner::check(page.ok_or(Refusal::Fault(short))?).map_err(Refusal::Fault)
}

/// Reads the pages before the rings and the slab (header, owner, state and control page); a shorter
/// file yields fewer pages.
pub(crate) fn read_pages(file: &File, file_bytes: u64) -> io::Result<Vec<u8>> {
    let mut pages = vec![0; size(file_bytes.min(PARTS_OFFSET))];
    let mut done = 0;
    while done < pages.len() {
        match file.read_at(&mut pages[done..], done as u64) {
            Ok(0) => break, // the file was truncated after its size was read
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    pages.truncate(done);
    Ok(pages)
}

fn system(path: &Path, what: &'static str, source: io::Error) -> StorageError {
    StorageError::System { path: path.to_owned(), what, cause: source }
}

/// Converts a size in bytes to `usize`. Either the size was checked before, or `mmap` later refuses
/// a mapping of that size.
#[expect(clippy::cast_possible_truncation, reason = "64-bit machines")]
const fn size(bytes: u64) -> usize {
    bytes as usize
}

/// Maximum number of times that opening a link file is tried again because the file appears,
/// vanishes or changes. Each retry means that another process made progress.
const ATTEMPTS_MAX: u32 = 16;

/// The longest time that another opener may take between locking the file and writing its owner
/// record: three system calls. After that, opening fails with [`StorageError::Opening`].
const OPENING_MAX: Duration = Duration::from_secs(1);

/// The pause between two checks whether another opener, which holds the lock, has written its owner
/// record.
const OPENING_PAUSE: Duration = Duration::from_millis(1);
