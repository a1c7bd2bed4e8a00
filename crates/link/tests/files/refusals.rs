// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link file that is foreign, truncated, of another version, damaged or of another user is
//! refused. Each case has an error of its own, and leaves the file unchanged. A new file is not
//! created if the file system lacks room.

use crate::support_link;

use partywall_link::store::{OwnFile, Sizes};
use partywall_link::{Directory, Key, OwnerStatus, StorageError, inspect};
use partywall_testkit::variable;
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support_link::{
    DIRECTORY, SIZES, directory, file, inspection_of, key, open, place, set_this_boot,
};

/// One row of the table `spec/links/INDEX.md`: the image of a link file, and whether an opener must
/// accept or refuse the file.
struct Row {
    name: String,
    size: u64,
    expected: String,
    bytes: Vec<u8>,
}

fn rows() -> Vec<Row> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/links");
    let text = fs::read_to_string(directory.join("INDEX.md")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    let rows = lines.map(|line| {
        let cells: Vec<&str> =
            line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let name = cells[0].to_owned();
        let bytes = fs::read(directory.join(&name)).unwrap();
        Row { name, size: cells[2].parse().unwrap(), expected: cells[3].to_owned(), bytes }
    });
    rows.collect()
}

fn used() -> Row {
    rows().into_iter().find(|row| row.name == "link-used.bin").unwrap()
}

fn is_in_force(own: &OwnFile, expected: &str) -> bool {
    let state = own.state.state();
    let (consumed, digest) = own.image.consumed_to();
    let line = format!(
        "epoch={} base={} acked={} consumed={consumed}/{digest} peer={} previous={} reports={}",
        state.epoch,
        state.sending_base,
        state.sending_acked,
        state.peer_incarnation,
        state.previous.flags,
        state.report_count,
    );
    expected.contains(&line)
}

#[test]
fn each_file_of_the_specification_is_opened_or_refused_as_its_row_says() {
    let mut refused = 0;
    for row in rows() {
        let directory = directory();
        let path = place(directory.path(), &row.bytes, row.size);
        set_this_boot(&path);
        let before = fs::read(&path).unwrap();
        match open(directory.path()) {
            Ok(own) => assert!(is_in_force(&own, &row.expected), "{}", row.name),
            Err(StorageError::File { fault, .. }) => {
                assert_eq!(fault.code().to_string(), row.expected, "{}: {fault}", row.name);
                assert!(fs::read(&path).unwrap() == before, "{} was changed", row.name);
                let found = inspect(directory.path()).unwrap();
                assert!(
                    matches!(&found[0].inspection, Err(StorageError::File { .. })),
                    "{}",
                    row.name
                );
                refused += 1;
            }
            Err(error) => panic!("{}: {error}", row.name),
        }
    }
    assert!(refused > 40);
}

#[test]
fn only_regular_files_of_ours_for_us_alone_are_opened() {
    let directory = directory();
    let path = file(directory.path());
    let target = directory.path().join("target");
    fs::write(&target, "").unwrap();
    symlink(&target, &path).unwrap();
    assert!(matches!(open(directory.path()), Err(StorageError::NotAFile { .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(open(directory.path()), Err(StorageError::NotAFile { .. })));
    fs::remove_dir(&path).unwrap();
    assert!(Command::new("mkfifo").arg("-m600").arg(&path).status().unwrap().success());
    assert!(matches!(open(directory.path()), Err(StorageError::NotAFile { .. })));
    fs::remove_file(&path).unwrap();
    drop(open(directory.path()).unwrap());
    let before = fs::read(&path).unwrap();
    for mode in [0o640, 0o602, 0o700, 0o400] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        match open(directory.path()) {
            Err(StorageError::Mode { mode: found, .. }) => assert_eq!(found, mode),
            // Only root may open a file of mode 0o400 for writing; any other user gets the system's
            // error.
            Err(StorageError::System { .. }) if mode == 0o400 => {}
            other => panic!("{mode:o}: {:?}", other.map(|own| own.incarnation)),
        }
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(open(directory.path()).unwrap().incarnation, 2);
}

#[test]
fn a_directory_that_others_could_write_is_refused() {
    let directory = directory();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o720)).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, StorageError::DirectoryWritable { mode: 0o720, .. }), "{error}");
    let missing = directory.path().join("missing");
    assert!(matches!(open(&missing), Err(StorageError::NoDirectory { .. })));
    if partywall_sys::peer::own_euid() != 0 {
        assert!(matches!(open(Path::new("/")), Err(StorageError::DirectoryNotOurs { .. })));
    }
}

#[test]
fn sizes_that_cannot_be_make_no_file() {
    let directory = directory();
    let links = Directory::open(directory.path()).unwrap();
    for sizes in [
        Sizes { ring: 5000, ..SIZES },
        Sizes { ring: 1 << 31, ..SIZES },
        Sizes { entries: 9, ..SIZES },
        Sizes { slab: 1 << 41, ..SIZES },
    ] {
        assert!(matches!(OwnFile::open(&links, &key(), sizes), Err(StorageError::Sizes { .. })));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Rule: a link file is not created if its file system lacks room. The requested slab is 1 TiB,
/// more than any machine has, so the file system refuses it before it allocates a page.
#[test]
fn a_file_for_which_there_is_no_room_is_not_made() {
    let directory = directory();
    let links = Directory::open(directory.path()).unwrap();
    let error = OwnFile::open(&links, &key(), Sizes { slab: 1 << 40, ..SIZES }).unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { size, .. } if size > 1 << 40), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The role of the child process of `a_full_tmpfs_is_an_error_and_never_a_signal`: it fills a small
/// tmpfs in a mount namespace of its own, and then writes every page of its link file.
#[test]
fn in_a_small_file_system() {
    let Some(directory) = variable(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let links = Directory::open(directory).unwrap();
    let large = Sizes { slab: 2 << 20, ..SIZES };
    let error = OwnFile::open(&links, &key(), large).unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { available: Some(_), .. }), "{error}");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
    let mut own = open(directory).unwrap();
    // Another file fills the rest of the file system. The link file still works, because all its
    // pages were allocated when it was created.
    let filler = fs::write(directory.join("filler"), vec![1; 4 << 20]);
    assert!(filler.is_err(), "the file system is not small");
    let len = own.ring.len();
    own.ring.write(0, &vec![7; len]);
    let len = own.slab.len();
    own.slab.write(0, &vec![7; len]);
    own.consumed.commit(7, 64, 1);
    let other = Key::new("carol", "bob", "orders").unwrap();
    let error = OwnFile::open(&links, &other, SIZES).unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 3, "alice's file, the list, the filler");
    println!("every page was there");
}

#[test]
fn a_full_tmpfs_is_an_error_and_never_a_signal() {
    let directory = directory();
    let script = "mount -t tmpfs -o size=1m,mode=700 none \"$1\" || exit 77; shift; exec \"$@\"";
    let run = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "refusals::in_a_small_file_system", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory.path())
        .output();
    let Ok(output) = run else {
        println!("skipped: there is no unshare here");
        return;
    };
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.contains("unshare failed") {
        println!("skipped: no file system can be mounted here: {errors}");
        return;
    }
    assert!(
        output.status.success() && printed.contains("every page was there"),
        "{printed}{errors}"
    );
}

#[test]
fn a_file_that_was_never_owned_says_so() {
    let directory = directory();
    let row = rows().into_iter().find(|row| row.name == "link-new.bin").unwrap();
    place(directory.path(), &row.bytes, row.size);
    assert_eq!(inspection_of(directory.path()).owner.status, OwnerStatus::Never);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Rule: a link file with one changed byte, in any page, is either refused or opened with the
    /// same state. A refused file stays unchanged, and an opened file changes only in its owner
    /// page.
    #[test]
    fn a_changed_byte_is_refused_or_means_nothing(index in 0_usize..16_384, change in 1_u8..) {
        let directory = directory();
        let row = used();
        let path = place(directory.path(), &row.bytes, row.size);
        set_this_boot(&path);
        let mut bytes = fs::read(&path).unwrap();
        bytes[index] ^= change;
        fs::write(&path, &bytes).unwrap();
        match open(directory.path()) {
            Ok(own) => {
                prop_assert!(is_in_force(&own, &row.expected), "byte {index}");
                prop_assert_eq!(own.incarnation, 2);
                drop(own);
                let after = fs::read(&path).unwrap();
                prop_assert!(after[..4096] == bytes[..4096] && after[8192..] == bytes[8192..]);
            }
            Err(StorageError::File { .. }) => prop_assert!(fs::read(&path).unwrap() == bytes),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}
