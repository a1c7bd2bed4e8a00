// SPDX-License-Identifier: MIT OR Apache-2.0
//! Object files of the C and C++ test programs, which later runs of the tests use again.
//!
//! ```text
//!   target/…/c-objects/  KEY.o      the object; KEY is a hash of the command that makes it
//!                        KEY.d      the files that the compiler has read
//!                        KEY.stamp  made before the compiler began
//! ```
//! An object is used again if each file that the compiler has read is older than the stamp.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Returns the object file that `command`, a compiler with a source file, makes. If no earlier run
/// has made it, `run` runs the command.
///
/// # Panics
/// The directory of the objects cannot be written, or `run` panics.
pub fn object(mut command: Command, run: impl FnOnce(&mut Command)) -> PathBuf {
    let directory = directory();
    fs::create_dir_all(&directory).expect("a directory of objects");
    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    let kept = directory.join(format!("{:016x}", hasher.finish()));
    let [object, read, stamp] = ["o", "d", "stamp"].map(|name| kept.with_extension(name));
    if is_of_now(&object, &read, &stamp) {
        return object;
    }
    // Another test may make the same object file at the same time, so each writes files of its own
    // and renames them.
    let own = tempfile::tempdir_in(&directory).expect("a directory");
    let [own_object, own_read, own_stamp] = ["o", "d", "stamp"].map(|name| own.path().join(name));
    fs::write(&own_stamp, "").expect("a file");
    run(command.arg("-c").arg("-MD").arg("-MF").arg(&own_read).arg("-o").arg(&own_object));
    for (from, to) in [(own_read, read), (own_object, object.clone()), (own_stamp, stamp)] {
        fs::rename(from, to).expect("a file that can be renamed");
    }
    object
}

/// Whether the object file exists, and each file that the compiler read for it is older than the
/// file `stamp`, which was made before the compiler began.
fn is_of_now(object: &Path, read: &Path, stamp: &Path) -> bool {
    let (Some(begun), Ok(rule)) = (modified(stamp), fs::read_to_string(read)) else { return false };
    let Some((_, files)) = rule.split_once(": ") else { return false };
    // In the compiler's list of files, a space in a path is written with a backslash. Such a path
    // is split into names of no file, so the object is made again.
    let mut files = files.split_whitespace().filter(|word| *word != "\\");
    object.exists() && files.all(|file| modified(file.as_ref()).is_some_and(|it| it < begun))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|it| it.modified()).ok()
}

/// Returns the directory of the object files, next to the directory of this executable.
fn directory() -> PathBuf {
    let executable = env::current_exe().expect("a path of this executable");
    executable.ancestors().nth(2).expect("a directory above this executable").join("c-objects")
}
