// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of link files after a power loss, which takes any pages and sectors that were not synced.
//! The file is refused, or adopted with two events, and no message behind a hole (a part that was
//! lost) is delivered (SPEC 13.8).
//!
//! ```text
//!   disk      contents at the last sync of the file   ┐ image: each sector from one of the two;
//!   current   contents now, in the page cache         ┘ its owner counts as from another boot
//! ```

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use partywall_layout::link::owner;
use partywall_layout::link::{
    LINK_CONTROL_OFFSET, OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, STATE_OFFSET, Slot,
};
use tempfile::TempDir;
use zerocopy::{FromBytes, IntoBytes};

use super::{CLIENT, Pair, SERVER, TestStore, below};
use crate::link_state::simulation::memory::INLINE_MAX;
use crate::link_state::{Event, LinkState};
use crate::store::sync::observed;
use crate::store::{AfterReboot, Directory, Key, OwnFile, Sizes, StorageError, StoreParts};

const SIZES: Sizes = Sizes { ring: 16 << 10, entries: 8, slab: 0 };
const RING_AT: usize = 16384;

/// A directory that contains one link file. In these tests it stands for a disk.
struct Disk {
    directory: TempDir,
    key: Key,
}

impl Disk {
    fn new() -> Self {
        // The directory is in memory if possible. No real disk is needed: the module `observed` of
        // `sync.rs` records each sync, and so the contents that a disk would have.
        let memory = tempfile::tempdir_in("/dev/shm");
        let directory = memory.or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { directory, key: Key::new("alice", "bob", "orders").unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(self.key.file_name())
    }

    fn open(&self, policy: AfterReboot) -> Result<StoreParts, StorageError> {
        let directory = Directory::open(self.directory.path())?;
        let file = OwnFile::open_after(&directory, &self.key, SIZES, policy)?;
        Ok(StoreParts::of_file(file, INLINE_MAX))
    }

    fn link(&self, policy: AfterReboot) -> Result<LinkState, StorageError> {
        Ok(LinkState::open(self.open(policy)?).unwrap())
    }

    fn contents(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// Replaces the contents of the link file by `image`, and changes the owner records in it, so
    /// that the file seems last owned in another boot.
    fn put(&self, image: &[u8]) {
        let mut image = image.to_vec();
        set_other_boot(&mut image);
        fs::write(self.path(), image).unwrap();
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Opens the link file with `policy`. Returns the numbers of the messages that a new peer
    /// receives from this file, and the events that the file's new owner gets.
    fn received(&self, policy: AfterReboot) -> Result<(Vec<u64>, Vec<Event>), StorageError> {
        let mut pair = Pair::of([self.open(policy)?, TestStore::new(2).open()]);
        pair.attach(false);
        let mut received = Vec::new();
        while let Some(bytes) = pair.recv(SERVER) {
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, message(number), "a wrong byte");
            received.push(number);
        }
        let events = std::iter::from_fn(|| pair.sides[CLIENT].core.take_event()).collect();
        Ok((received, events))
    }
}

/// Changes the owner records in `image`, the contents of a link file, as if their owners were from
/// another boot.
fn set_other_boot(image: &mut [u8]) {
    for slot in [0, 1] {
        let at = usize::try_from(OWNER_OFFSET + slot * PAGE_SLOT_STRIDE).unwrap();
        let bytes = &mut image[at..at + size_of::<OwnerRecord>()];
        let record = OwnerRecord::read_from_bytes(bytes).unwrap();
        if record.incarnation.get() > 0 && record.sealed() == record {
            let other = OwnerRecord { boot_id: [7; 16], ..record }.sealed();
            bytes.copy_from_slice(other.as_bytes());
        }
    }
}

fn message(number: u64) -> Vec<u8> {
    let len = 8 + usize::try_from(number * 37 % 150).unwrap();
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(len, number.to_le_bytes()[0]);
    bytes
}

fn is_announced(events: &[Event]) -> bool {
    events.contains(&Event::LossPossible) && events.contains(&Event::RepeatPossible)
}

fn is_silent(events: &[Event]) -> bool {
    !events.contains(&Event::LossPossible) && !events.contains(&Event::RepeatPossible)
}

/// The way in which the last owner of the link file ended in these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Closed,
    Dropped,
    Killed,
}

/// Returns a disk and the contents of its link file, which keeps 100 unacknowledged messages and
/// whose ring is nearly full. The owner of the file has ended in the way that `ended` says.
fn kept(ended: Ended) -> (Disk, Vec<u8>) {
    let disk = Disk::new();
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    for number in 0..MESSAGES {
        link.send(&[&message(number)]).unwrap();
    }
    match ended {
        Ended::Closed => LinkState::close_all(vec![link]).unwrap(),
        Ended::Dropped => drop(link),
        Ended::Killed => {
            let contents = disk.contents();
            return (disk, contents);
        }
    }
    let contents = disk.contents();
    (disk, contents)
}

const MESSAGES: u64 = 100;

#[test]
fn file_of_another_boot_is_believed_only_if_it_was_closed_and_is_whole() {
    type Lose = fn(&mut Vec<u8>);
    let cases: [(&str, Lose); 5] = [
        ("nothing", |_| {}),
        ("a page in the middle", |image| image[RING_AT + 4096..RING_AT + 8192].fill(0)),
        ("the first page", |image| image[RING_AT..RING_AT + 4096].fill(0)),
        ("a sector", |image| image[RING_AT + 5120..RING_AT + 5632].fill(0)),
        ("a page with older records", |image| {
            let (first, rest) = image[RING_AT..].split_at_mut(4096);
            rest[..4096].copy_from_slice(first);
        }),
    ];
    for ended in [Ended::Closed, Ended::Dropped, Ended::Killed] {
        for (what, lose) in cases {
            let (_, mut image) = kept(ended);
            lose(&mut image);
            let disk = Disk::new();
            disk.put(&image);
            let before = disk.contents();
            let about = format!("{ended:?}, {what}");
            let refused = disk.received(AfterReboot::Refuse);
            if ended == Ended::Closed && what == "nothing" {
                let (received, events) = refused.unwrap();
                assert!(received.iter().copied().eq(0..MESSAGES) && is_silent(&events), "{about}");
                continue;
            }
            let error = refused.unwrap_err();
            let StorageError::OtherBoot { evidence, .. } = &error else {
                panic!("{about}: {error}")
            };
            assert_eq!(evidence.is_closed, ended == Ended::Closed, "{about}");
            assert!(error.to_string().contains(&disk.key.file_name()), "{error}");
            assert_eq!(disk.contents(), before, "{about}: a refused file was changed");
            let (received, events) = disk.received(AfterReboot::AdoptProven).unwrap();
            let count = u64::try_from(received.len()).unwrap();
            assert_eq!(evidence.messages, count, "{about}");
            assert!(received.iter().copied().eq(0..count), "{about}: {received:?}");
            assert!(is_announced(&events), "{about}: {events:?}");
            assert_eq!(count == MESSAGES, what == "nothing", "{about}: {count}");
            // The owner that adopted the file has cut off the messages behind the damaged place, so
            // they are lost. The adopter is of this boot, so the next owner opens the file without
            // events.
            let mut link = disk.link(AfterReboot::Refuse).unwrap();
            assert!(std::iter::from_fn(|| link.take_event()).next().is_none(), "{about}");
            link.send(&[&message(count)]).unwrap();
            drop(link);
            let (received, events) = disk.received(AfterReboot::Refuse).unwrap();
            let behind = received.last() == Some(&count) && is_silent(&events);
            assert!(behind, "{about}: {received:?}");
        }
    }
}

#[test]
fn torn_state_is_refused_whatever_the_policy() {
    let (_, mut image) = kept(Ended::Closed);
    let newer = usize::try_from(STATE_OFFSET).unwrap();
    for slot in [0, 2048] {
        // Input: the first of the four sectors of each state slot (a stored copy of the state) is
        // damaged. The slot's seal, its checksum, is in another sector. Expected: the file is
        // refused, whatever the policy.
        image[newer + slot..newer + slot + 512].fill(0x55);
    }
    let disk = Disk::new();
    disk.put(&image);
    for policy in [AfterReboot::Refuse, AfterReboot::AdoptProven] {
        let refused = disk.received(policy).unwrap_err();
        assert!(matches!(refused, StorageError::File { .. }), "{refused}");
    }
}

/// Rule: a closed file is refused after a power loss if its page with the consumed position is
/// older than its other pages. If the file is adopted, its owner gets the event that messages may
/// come again.
#[test]
fn receiver_with_an_older_position_says_that_messages_come_again() {
    let disk = Disk::new();
    let mut pair = Pair::of([TestStore::new(1).open(), disk.open(AfterReboot::Refuse).unwrap()]);
    pair.attach(false);
    let mut older = Vec::new();
    for number in 0..20 {
        pair.sides[CLIENT].core.send(&[&message(number)]).unwrap();
        assert_eq!(pair.recv(SERVER).unwrap(), message(number));
        if number == 9 {
            older = disk.contents();
        }
    }
    let [_, server] = pair.sides;
    let acked = server.core.acked_offset().unwrap().position.0;
    LinkState::close_all(vec![server.core]).unwrap();
    let whole = disk.contents();
    disk.put(&whole);
    let link = disk.link(AfterReboot::Refuse).unwrap();
    assert_eq!(link.acked_offset().unwrap().position.0, acked);
    drop(link);
    let page = usize::try_from(LINK_CONTROL_OFFSET).unwrap();
    let mut image = whole;
    image[page..page + 4096].copy_from_slice(&older[page..page + 4096]);
    // The state page also contains the consumed position, as it was when the file was closed. So
    // the test replaces the state page, too.
    let state = usize::try_from(STATE_OFFSET).unwrap();
    image[state..state + 4096].copy_from_slice(&older[state..state + 4096]);
    disk.put(&image);
    let refused = disk.link(AfterReboot::Refuse).unwrap_err();
    assert!(matches!(refused, StorageError::OtherBoot { .. }), "{refused}");
    let mut link = disk.link(AfterReboot::AdoptProven).unwrap();
    assert!(link.acked_offset().unwrap().position.0 < acked);
    assert!(is_announced(&std::iter::from_fn(|| link.take_event()).collect::<Vec<_>>()));
}

#[test]
fn file_that_was_there_before_the_boot_is_missed() {
    let (disk, _) = kept(Ended::Dropped);
    fs::remove_file(disk.path()).unwrap();
    // Input: the file was removed in the same boot, so an operator may have removed it. Expected:
    // the next owner begins a new, empty file.
    drop(disk.link(AfterReboot::Refuse).unwrap());
    fs::remove_file(disk.path()).unwrap();
    let list = disk.directory.path().join("links.list");
    let lines = fs::read_to_string(&list).unwrap();
    let hash = disk.key.file_name().replace(".link", "");
    assert_eq!(lines.lines().next().unwrap().split(' ').next(), Some(&*hash));
    fs::write(&list, format!("{hash} {}\n", "7".repeat(32))).unwrap();
    let refused = disk.link(AfterReboot::Refuse).unwrap_err();
    assert!(matches!(refused, StorageError::Missing { .. }), "{refused}");
    assert!(!disk.path().exists());
    let (received, events) = disk.received(AfterReboot::AdoptProven).unwrap();
    assert!(received.is_empty() && is_announced(&events));
    // The list `links.list` now says that the file was made in this boot, so a missing file counts
    // as removed by an operator.
    fs::remove_file(disk.path()).unwrap();
    drop(disk.link(AfterReboot::Refuse).unwrap());
}

fn events_of(link: &mut LinkState) -> Vec<Event> {
    std::iter::from_fn(|| link.take_event()).collect()
}

#[test]
fn adopted_file_is_announced_until_an_owner_that_knows_has_left() {
    let (disk, image) = kept(Ended::Dropped);
    disk.put(&image);
    // Input: the first owner is killed before its application takes the events about the adoption.
    // The second owner gives the file up without taking these events. Expected: the third owner
    // still gets them. It is then killed, too.
    let killed = disk.link(AfterReboot::AdoptProven).unwrap();
    let contents = disk.contents();
    drop(killed);
    fs::write(disk.path(), &contents).unwrap();
    drop(disk.link(AfterReboot::Refuse).unwrap());
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    assert!(is_announced(&events_of(&mut link)));
    let contents = disk.contents();
    drop(link);
    fs::write(disk.path(), &contents).unwrap();
    // Input: the next owner takes the events that the file was adopted, but closes the file with
    // the mark that its application has not received them. Expected: the owner after that one gets
    // these events, too.
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    assert!(is_announced(&events_of(&mut link)));
    link.set_notified(false);
    LinkState::close_all(vec![link]).unwrap();
    // A closed file is trusted after another boot, and still records that it was adopted. So the
    // next owner gets the events about the adoption.
    disk.put(&disk.contents());
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    assert!(is_announced(&events_of(&mut link)));
    LinkState::close_all(vec![link]).unwrap();
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    assert!(is_silent(&events_of(&mut link)));
}

#[test]
fn file_made_for_a_missing_one_is_announced_even_if_its_maker_never_owned_it() {
    let (disk, _) = kept(Ended::Dropped);
    fs::remove_file(disk.path()).unwrap();
    let list = disk.directory.path().join("links.list");
    let hash = disk.key.file_name().replace(".link", "");
    fs::write(&list, format!("{hash} {}\n", "7".repeat(32))).unwrap();
    let mut link = disk.link(AfterReboot::AdoptProven).unwrap();
    // Input: the process that made the file was killed after it had given the file its name, and
    // before it became the owner. Then of the two slots for owner records the first has the record
    // of a file without an owner, and the second is empty. Expected: the next owner still gets the
    // events that messages may be lost or come again.
    let mut contents = disk.contents();
    let second = usize::try_from(OWNER_OFFSET + PAGE_SLOT_STRIDE).unwrap();
    contents[second..second + size_of::<OwnerRecord>()].fill(0);
    assert!(is_announced(&events_of(&mut link)));
    drop(link);
    fs::write(disk.path(), &contents).unwrap();
    let mut link = disk.link(AfterReboot::Refuse).unwrap();
    assert!(is_announced(&events_of(&mut link)));
}

/// Rule: a record of a batch that was dropped, or whose owner was killed before it published the
/// batch, never passes for a published one.
#[test]
fn record_of_a_dropped_batch_is_not_adopted() {
    for is_killed in [false, true] {
        let disk = Disk::new();
        let mut link = disk.link(AfterReboot::Refuse).unwrap();
        // The record of a message of eight bytes takes one slot of 64 bytes of the ring. So after
        // 63 messages and the batch's first record, the batch's second record begins at the next
        // page.
        for number in 0..63_u64 {
            link.send(&[&number.to_le_bytes()]).unwrap();
        }
        let end = link.append_to_batch(&[b"a batch "]).unwrap();
        assert_eq!(end.0, 4096);
        link.append_to_batch(&[b"dropped "]).unwrap();
        let dropped = disk.contents();
        link.abort();
        drop(link);
        if is_killed {
            fs::write(disk.path(), &dropped).unwrap();
        }
        let mut link = disk.link(AfterReboot::Refuse).unwrap();
        link.send(&[b"the last"]).unwrap();
        // Input: after the power loss, the page behind the published message has its contents from
        // the time of the dropped batch. Expected: only the published messages arrive.
        let mut image = disk.contents();
        drop(link);
        let page = RING_AT + 4096..RING_AT + 8192;
        image[page.clone()].copy_from_slice(&dropped[page]);
        disk.put(&image);
        let mut pair =
            Pair::of([disk.open(AfterReboot::AdoptProven).unwrap(), TestStore::new(2).open()]);
        pair.attach(false);
        let received: Vec<_> = std::iter::from_fn(|| pair.recv(SERVER)).collect();
        assert_eq!(received.len(), 64, "killed: {is_killed}");
        assert_eq!(received[63], b"the last"[..], "killed: {is_killed}");
    }
}

/// A link file with its history: the numbers of messages that were sent and acknowledged, and the
/// contents that the disk has of it.
struct History {
    disk: Disk,
    pair: Option<Pair>,
    synced: Vec<u8>,
    sent: u64,
    acked: u64,
}

impl History {
    fn new() -> Self {
        observed::begin();
        let mut history =
            Self { disk: Disk::new(), pair: None, synced: Vec::new(), sent: 0, acked: 0 };
        history.reopen();
        history
    }

    fn reopen(&mut self) {
        let parts = self.disk.open(AfterReboot::Refuse).unwrap();
        let mut pair = Pair::of([parts, TestStore::new(2).open()]);
        pair.attach(false);
        // The peer's end has a new, empty store, so the client sends again every message that its
        // file still keeps.
        self.acked = self.sent - self.count_kept(&mut pair);
        self.pair = Some(pair);
        self.note();
    }

    /// Returns the number of messages that the file still keeps. The server of `pair` receives
    /// them, and does not acknowledge them.
    fn count_kept(&self, pair: &mut Pair) -> u64 {
        pair.pump();
        let mut count = 0;
        while pair.sides[SERVER].core.next().is_some() {
            count += 1;
        }
        pair.sides[SERVER].core.rewind();
        count
    }

    /// Stores in `synced` the contents that the last sync has put on the disk, if there was a sync
    /// since the last call.
    fn note(&mut self) {
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(self.disk.path()).unwrap());
        let synced = observed::take();
        if let Some((_, bytes)) = synced.into_iter().rfind(|(of, _)| *of == inode) {
            self.synced = bytes;
        }
    }

    fn step(&mut self, random: &mut u64) {
        let pair = self.pair.as_mut().unwrap();
        match below(random, 40) {
            0 => {
                let [client, _] = self.pair.take().unwrap().sides;
                LinkState::close_all(vec![client.core]).unwrap();
                self.note();
            }
            1 => drop(self.pair.take()),
            2..14 => {
                if pair.recv(SERVER).is_some() {
                    self.acked += 1;
                    pair.pump();
                }
            }
            _ => {
                if pair.sides[CLIENT].core.send(&[&message(self.sent)]).is_ok() {
                    self.sent += 1;
                }
            }
        }
    }

    /// Returns contents of the file as a power loss may leave them: random sectors or pages are
    /// those of the last sync, the others are current.
    fn image(&self, random: &mut u64) -> Vec<u8> {
        let current = self.disk.contents();
        let mut image = current.clone();
        let (unit, mode) = ([512, 4096][below(random, 2)], below(random, 4));
        for at in (0..image.len()).step_by(unit) {
            let unit = at..at + unit;
            if self.synced[unit.clone()] == current[unit.clone()] {
                continue;
            }
            let is_old = match mode {
                0 => below(random, 8) == 0,
                1 => below(random, 8) != 0,
                _ => below(random, 2) == 0,
            };
            if is_old {
                image[unit.clone()].copy_from_slice(&self.synced[unit]);
            }
        }
        image
    }
}

/// Rule: after a power loss, a link whose file is trusted delivers all messages that it kept. A
/// link whose file an owner adopted with only its whole messages delivers these without gaps, and
/// reports that messages may be lost.
#[test]
fn power_loss_at_any_moment_loses_nothing_in_silence() {
    let images = IMAGES / HISTORIES;
    let (mut believed, mut adopted, mut refused, mut cut) = (0, 0, 0, 0);
    for seed in 1..=HISTORIES {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut history = History::new();
        let target = Disk::new();
        for _ in 0..images {
            if history.pair.is_none() {
                history.reopen();
            }
            for _ in 0..=below(&mut random, 3) {
                if history.pair.is_some() {
                    history.step(&mut random);
                }
            }
            target.put(&history.image(&mut random));
            let policy = [AfterReboot::Refuse, AfterReboot::AdoptProven][below(&mut random, 2)];
            observed::pause(true);
            let found = target.received(policy);
            observed::pause(false);
            match found {
                Ok((received, events)) => {
                    let first = received.first().copied().unwrap_or(history.sent);
                    let count = u64::try_from(received.len()).unwrap();
                    let is_gapless = received.iter().copied().eq(first..first + count);
                    assert!(is_gapless && first + count <= history.sent, "seed {seed}");
                    let is_complete = first <= history.acked && first + count == history.sent;
                    if is_announced(&events) {
                        adopted += 1;
                        cut += u64::from(!is_complete);
                    } else {
                        assert!(is_silent(&events) && is_complete, "seed {seed}: {received:?}");
                        believed += 1;
                    }
                }
                Err(StorageError::OtherBoot { .. } | StorageError::File { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    let about = format!("{believed} believed, {adopted} adopted, {cut} cut, {refused} refused");
    assert!(believed > 500 && adopted > 10_000 && cut > 1000 && refused > 10_000, "{about}");
}

const IMAGES: u64 = 100_000;
const HISTORIES: u64 = 100;

#[test]
fn owner_record_is_on_the_disk_before_anything_changes() {
    observed::begin();
    let (disk, _) = kept(Ended::Closed);
    observed::take();
    let link = disk.link(AfterReboot::Refuse).unwrap();
    let synced = observed::take();
    let (_, contents) = synced.last().expect("a sync at opening");
    let page = usize::try_from(OWNER_OFFSET).unwrap();
    let record = owner::check(&contents[page..page + 4096]).unwrap();
    assert!(record.left.get() == 0 && !record.closing.is_closed(), "{record:?}");
    drop(link);
    let file = fs::File::open(disk.path()).unwrap();
    let mut after = vec![0; 4096];
    file.read_exact_at(&mut after, OWNER_OFFSET).unwrap();
    assert!(!owner::check(&after).unwrap().closing.is_closed(), "drop does not sync");
    assert!(observed::take().is_empty());
}
