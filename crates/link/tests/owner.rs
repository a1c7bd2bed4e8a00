// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the owner of a link file, the one process that has it open. A second opener gets an
//! error that names the owner. A process becomes the next owner only if the previous owner has left
//! or is certainly dead, whatever forked children it left behind. The decision never depends on
//! time.

mod support_link;

use partywall_link::{OwnerStatus, StorageError};
use partywall_sys::signal::{self, Signal};
use partywall_sys::{PidFd, byte_lock};
use partywall_testkit::{Random, Second, TIMEOUT, soon, variable};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use support_link::{DIRECTORY, directory, inspection_of, open};

const ROLE: &str = "PARTYWALL_LINK_ROLE";

/// Minimum number of owners in the race, in which several processes open one file again and again:
/// the test continues until the file has had more owners than this number.
const OWNERS: u64 = 100;

/// The role of the second process: it owns the link file until it is killed. An environment
/// variable says what it does until then, such as forking a child.
#[test]
fn owner() {
    let Some(role) = variable(ROLE) else { return };
    let directory = PathBuf::from(variable(DIRECTORY).unwrap());
    match role.as_str() {
        "stay" => {
            let _own = open(&directory).unwrap();
            say(&directory, "owns", std::process::id());
            std::thread::sleep(TIMEOUT);
        }
        "fork" => fork_and_stay(&directory),
        "race" => race(&directory),
        _ => panic!("{role}"),
    }
}

/// The role of the second process: it owns the link file and forks a child, which stays alive and
/// tries to write to the file. The second process then waits to be killed.
fn fork_and_stay(directory: &Path) {
    let mut own = open(directory).unwrap();
    let child = partywall_testkit::fork::fork();
    assert!(child >= 0);
    if child == 0 {
        // The forked child ends when the test removes the directory of the link file.
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until && directory.exists() {
            if directory.join("write").exists() {
                let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    // The pages of the link file are not inherited by a forked child. So the write
                    // ends in SIGSEGV, before a check in the library could panic.
                    own.consumed.commit(1, 64, 0);
                }));
                say(directory, "written", u32::from(attempt.is_ok()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        partywall_testkit::fork::_exit(0);
    }
    say(directory, "child", child.unsigned_abs());
    say(directory, "owns", std::process::id());
    std::thread::sleep(TIMEOUT);
}

/// The role of a racer, one of several processes that compete for the link file: it opens the file
/// repeatedly. Each owner replaces the former owner's number in the log by its own, and must find
/// its own number again.
fn race(directory: &Path) {
    let log = fs::File::options().read(true).write(true).open(directory.join("log")).unwrap();
    let until = Instant::now() + TIMEOUT;
    let own_number = u64::from(std::process::id());
    while Instant::now() < until {
        let own = match open(directory) {
            Ok(own) => own,
            Err(StorageError::Busy { .. } | StorageError::Opening { .. }) => continue,
            Err(error) => {
                fs::write(directory.join("refused"), error.to_string()).unwrap();
                panic!("{error}");
            }
        };
        let acked_offset = own_number << 32 | own.incarnation;
        log.write_all_at(&acked_offset.to_le_bytes(), 0).unwrap();
        log.write_all_at(&(word(&log, 8) + 1).to_le_bytes(), 8).unwrap();
        for _ in 0..50 {
            if word(&log, 0) != acked_offset {
                fs::write(directory.join("two-owners"), "").unwrap();
            }
        }
    }
}

fn word(log: &fs::File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    log.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

/// Tells the test a number by a file: writes `number` to a temporary file, and renames it to `name`
/// when it is complete.
fn say(directory: &Path, name: &str, number: u32) {
    let unfinished = directory.join(format!("{name}.unfinished"));
    let mut file = fs::File::create(&unfinished).unwrap();
    file.write_all(number.to_string().as_bytes()).unwrap();
    fs::rename(unfinished, directory.join(name)).unwrap();
}

fn hear(directory: &Path, name: &str) -> u32 {
    let until = soon();
    loop {
        if let Ok(text) = fs::read_to_string(directory.join(name)) {
            return text.parse().unwrap();
        }
        assert!(Instant::now() < until, "nobody says {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(role: &str, directory: &Path) -> Second {
    Second::start("owner", &[(ROLE, role), (DIRECTORY, directory.to_str().unwrap())])
}

/// Opens the link file and checks that the call is refused, because another process owns the file.
/// Returns the owner's process id and the time at which its ownership began, as the refusal names
/// them.
fn refused(directory: &Path) -> (u32, SystemTime) {
    match open(directory) {
        Err(StorageError::Busy { pid, since, .. }) => (pid, since),
        other => panic!("{:?}", other.map(|own| own.incarnation)),
    }
}

fn kill(second: &mut Second) {
    signal::kill(second.pid(), Signal::KILL).unwrap();
    second.wait();
}

#[test]
fn a_second_owner_in_the_same_process_is_refused() {
    let directory = directory();
    let before = SystemTime::now();
    let own = open(directory.path()).unwrap();
    assert_eq!(own.incarnation, 1);
    let (pid, since) = refused(directory.path());
    assert_eq!(pid, std::process::id());
    assert!(since >= before && since <= SystemTime::now());
    // Rule: the process that opened the link file stays its owner as long as it holds any part of
    // the file's memory, even the ring alone.
    let ring = own.ring;
    drop((own.state, own.consumed, own.control, own.release_ring, own.slab));
    refused(directory.path());
    drop(ring);
    assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Left);
    assert_eq!(open(directory.path()).unwrap().incarnation, 2);
}

#[test]
fn a_killed_owner_is_followed_at_once() {
    let directory = directory();
    for round in 1..20 {
        let mut second = start("stay", directory.path());
        assert_eq!(hear(directory.path(), "owns"), second.pid().unsigned_abs());
        let (pid, _) = refused(directory.path());
        assert_eq!(pid, second.pid().unsigned_abs());
        let inspection = inspection_of(directory.path());
        assert_eq!((inspection.owner.pid, inspection.owner.status), (pid, OwnerStatus::Alive));
        kill(&mut second);
        assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Dead);
        let own = open(directory.path()).unwrap();
        assert_eq!(own.incarnation, 2 * round);
        fs::remove_file(directory.path().join("owns")).unwrap();
    }
}

#[test]
fn a_stopped_owner_keeps_what_it_has() {
    let directory = directory();
    let mut second = start("stay", directory.path());
    hear(directory.path(), "owns");
    signal::stop(second.pid(), Instant::now() + Duration::from_secs(60)).unwrap();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(refused(directory.path()).0, second.pid().unsigned_abs());
        assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Alive);
    }
    kill(&mut second);
    assert_eq!(open(directory.path()).unwrap().incarnation, 2);
}

#[test]
fn a_forked_child_keeps_the_lock_and_nothing_else() {
    let directory = directory();
    let mut second = start("fork", directory.path());
    hear(directory.path(), "owns");
    let child_pid = hear(directory.path(), "child").cast_signed();
    let child = PidFd::of_pid(child_pid).unwrap();
    refused(directory.path());
    kill(&mut second);
    assert!(!child.is_dead(), "the child lives on");
    let own = open(directory.path()).unwrap();
    assert_eq!(own.incarnation, 2);
    refused(directory.path());
    let before = fs::read(support_link::file(directory.path())).unwrap();
    say(directory.path(), "write", 1);
    // The forked child either gets an error when it writes and then creates the file `written`, or
    // dies because it does not have the link file's pages.
    let until = soon();
    while !child.is_dead() && !directory.path().join("written").exists() {
        assert!(Instant::now() < until, "the child does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    let written = fs::read_to_string(directory.path().join("written")).unwrap_or_default();
    assert_ne!(written, "1", "the child committed");
    assert!(fs::read(support_link::file(directory.path())).unwrap() == before);
    if !child.is_dead() {
        signal::kill(child_pid, Signal::KILL).unwrap();
    }
}

#[test]
fn an_owner_that_cannot_be_seen_from_here_keeps_its_lock() {
    let directory = directory();
    // Input: a link file of the specification's test vectors. Its owner 1 is process 4242 of an
    // earlier boot.
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/links/link-used.bin");
    let path = support_link::place(directory.path(), &fs::read(image).unwrap(), 65_536);
    let elsewhere = fs::File::options().write(true).open(&path).unwrap();
    assert!(byte_lock::try_lock(&elsewhere, 1).unwrap());
    assert_eq!(refused(directory.path()).0, 4242);
    assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Unknown);
    // The byte lock, which marks owner 1 as alive, is released explicitly. Closing the descriptor
    // might not release it: a process that another test starts holds a copy of the descriptor until
    // its `exec`.
    byte_lock::unlock(&elsewhere, 1).unwrap();
    assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Dead);
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, StorageError::OtherBoot { .. }), "{refused}");
    support_link::set_this_boot(&path);
    assert_eq!(open(directory.path()).unwrap().incarnation, 2);
}

#[test]
fn a_lock_without_a_record_is_never_skipped() {
    let directory = directory();
    drop(open(directory.path()).unwrap());
    let path = support_link::file(directory.path());
    let opener = fs::File::options().write(true).open(&path).unwrap();
    assert!(byte_lock::try_lock(&opener, 2).unwrap());
    let before = fs::read(&path).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, StorageError::Opening { .. }), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    // The lock of byte 2, for which there is no owner record, is released explicitly. Closing the
    // descriptor might not release it, because a process that another test starts may hold a copy
    // of the descriptor until its `exec`.
    byte_lock::unlock(&opener, 2).unwrap();
    assert_eq!(open(directory.path()).unwrap().incarnation, 2);
}

#[test]
fn of_many_that_race_for_a_dead_owners_file_one_wins() {
    let directory = directory();
    fs::write(directory.path().join("log"), [0; 16]).unwrap();
    let mut chance = Random::new(u64::from(std::process::id()));
    let mut racers: Vec<Second> = (0..3).map(|_| start("race", directory.path())).collect();
    let mut kills = 0;
    let log = fs::File::open(directory.path().join("log")).unwrap();
    let (until, latest) = (Instant::now() + Duration::from_secs(4), soon());
    // On a busy machine a racer may be killed before it starts. So the race continues until the
    // file has had enough owners.
    while Instant::now() < until || (word(&log, 8) <= OWNERS && Instant::now() < latest) {
        let index = usize::try_from(chance.below(3)).unwrap();
        let next = Instant::now() + Duration::from_micros(chance.size(30_000) as u64);
        while Instant::now() < next {
            std::thread::yield_now();
        }
        kill(&mut racers[index]);
        kills += 1;
        racers[index] = start("race", directory.path());
        assert!(!directory.path().join("two-owners").exists());
    }
    racers.iter_mut().for_each(kill);
    let taken = word(&log, 8);
    let own = open(directory.path()).unwrap();
    assert!(!directory.path().join("two-owners").exists());
    let refused = fs::read_to_string(directory.path().join("refused"));
    assert!(refused.is_err(), "a racer found the file {refused:?}");
    assert!(own.incarnation > taken, "{} of {taken}", own.incarnation);
    assert!(taken > OWNERS, "{taken} owners in {kills} kills");
}
