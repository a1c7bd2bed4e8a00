// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory in which the ends of links keep their files. The application names the directory,
//! and only the user of this process may write to it.
//!
//! The code of this file neither creates the directory nor removes anything from it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use partywall_sys::peer::own_euid;
use partywall_sys::persistent_file::FileStat;
use partywall_sys::{MakeError, PersistentDirectory, UnnamedFile};

use super::error::StorageError;
use super::key::{FILE_NAME_END, Key};
use super::list::{LIST_NAME, List};

/// A directory for link files that was checked: it belongs to this user, and no other user may
/// write to it.
#[derive(Debug)]
pub struct Directory {
    kept: PersistentDirectory,
    list: Mutex<List>,
}

/// The boot in which a link had a file, according to `links.list`, the list of the directory's link
/// files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Never,
    ThisBoot,
    OtherBoot,
}

impl Directory {
    /// Opens and checks an existing directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::NoDirectory`], [`StorageError::DirectoryNotOurs`],
    /// [`StorageError::DirectoryWritable`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        let missing = |source| StorageError::NoDirectory { path: path.to_owned(), cause: source };
        let kept = PersistentDirectory::open(path).map_err(missing)?;
        let stat = kept.stat().map_err(missing)?;
        let (owner, user, mode) = (stat.owner, own_euid(), stat.mode);
        if owner != user {
            return Err(StorageError::DirectoryNotOurs { path: path.to_owned(), owner, user });
        }
        if mode & WRITABLE_BY_OTHERS != 0 {
            return Err(StorageError::DirectoryWritable { path: path.to_owned(), mode });
        }
        Ok(Self { kept, list: Mutex::default() })
    }

    /// The path of the directory, as the caller of [`open`](Self::open) gave it.
    pub fn path(&self) -> &Path {
        self.kept.path()
    }

    /// The names in the directory that end like that of a link file (`.link`), in order. Files that
    /// belong to no link may have such a name.
    pub(crate) fn files(&self) -> Result<Vec<String>, StorageError> {
        let failed = |source| StorageError::System {
            path: self.path().to_owned(),
            what: "reading",
            cause: source,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path()).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.into_string().ok().filter(|name| name.ends_with(FILE_NAME_END)));
        }
        names.sort();
        Ok(names)
    }

    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Opens a link file and checks its type and owner; `None` if the directory has no such file.
    pub(crate) fn open_file(
        &self,
        name: &str,
        is_written: bool,
    ) -> Result<Option<(File, FileStat)>, StorageError> {
        let path = || self.file_path(name);
        let (file, stat) = match self.kept.open_file(name, is_written) {
            Ok(opened) => opened,
            Err(error) => {
                use std::io::ErrorKind as Kind;
                return match error.kind() {
                    Kind::NotFound => Ok(None),
                    // These are the errors of `open` if the link file's name belongs to a symbolic
                    // link, directory, socket or device.
                    Kind::IsADirectory => Err(StorageError::NotAFile { path: path() }),
                    _ if is_no_file(&error) => Err(StorageError::NotAFile { path: path() }),
                    _ => Err(StorageError::System { path: path(), what: "opening", cause: error }),
                };
            }
        };
        self.check_file(name, &stat)?;
        Ok(Some((file, stat)))
    }

    /// Checks that a file in the directory is a regular file of this user that no other user may
    /// read or write.
    fn check_file(&self, name: &str, stat: &FileStat) -> Result<(), StorageError> {
        let (path, user) = (|| self.file_path(name), own_euid());
        if !stat.is_regular {
            return Err(StorageError::NotAFile { path: path() });
        }
        if stat.owner != user {
            return Err(StorageError::NotOurs { path: path(), owner: stat.owner, user });
        }
        if stat.mode != FILE_MODE {
            return Err(StorageError::Mode { path: path(), mode: stat.mode });
        }
        Ok(())
    }

    /// Whether `links.list`, the list of the directory's link files, says that the link of `key`
    /// had a file, and whether in the boot `boot` or in another.
    pub(crate) fn listed(&self, key: &Key, boot: [u8; 16]) -> Result<Listed, StorageError> {
        let mut list = self.list();
        self.refresh(&mut list)?;
        Ok(match list.boot(key.hash()) {
            None => Listed::Never,
            Some(listed) if listed == u128::from_be_bytes(boot) => Listed::ThisBoot,
            Some(_) => Listed::OtherBoot,
        })
    }

    /// The names of the link files that `links.list` has, in order, whether the files exist or not.
    pub(crate) fn listed_names(&self) -> Result<Vec<String>, StorageError> {
        let mut list = self.list();
        self.refresh(&mut list)?;
        let mut names: Vec<_> =
            list.names().map(|hash| format!("{hash:016x}{FILE_NAME_END}")).collect();
        names.sort();
        Ok(names)
    }

    fn refresh(&self, list: &mut List) -> Result<(), StorageError> {
        let Some((file, _)) = self.open_file(LIST_NAME, false)? else { return Ok(()) };
        list.refresh(&file).map_err(|source| self.list_failed("reading", source))
    }

    /// Appends a line to `links.list`: the link of `key` has a file in the boot `boot`. When this
    /// function returns, the line and the file's name are on the disk.
    pub(crate) fn list_link(&self, key: &Key, boot: [u8; 16]) -> Result<(), StorageError> {
        let (boot, mut list) = (u128::from_be_bytes(boot), self.list());
        let (file, stat) =
            self.kept.append_to(LIST_NAME).map_err(|source| self.list_failed("opening", source))?;
        self.check_file(LIST_NAME, &stat)?;
        list.refresh(&file).map_err(|source| self.list_failed("reading", source))?;
        if list.boot(key.hash()) != Some(boot) {
            list.append(&file, key.hash(), boot)
                .map_err(|source| self.list_failed("writing", source))?;
        }
        self.kept.sync().map_err(|cause| StorageError::System {
            path: self.path().to_owned(),
            what: "syncing the directory",
            cause,
        })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // A poisoned lock is harmless: the thread that panicked has read only a part of
        // `links.list`, and the next call of `refresh` reads the rest.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list_failed(&self, what: &'static str, cause: std::io::Error) -> StorageError {
        StorageError::System { path: self.file_path(LIST_NAME), what, cause }
    }

    /// Creates a file of `size` zero bytes without a name, so that a crash leaves no incomplete
    /// link file.
    pub(crate) fn make(&self, size: u64) -> Result<UnnamedFile, StorageError> {
        let path = || self.path().to_owned();
        self.kept.make(usize::try_from(size).unwrap_or(usize::MAX)).map_err(|error| match error {
            MakeError::NoSpace { available, source } => {
                StorageError::NoSpace { path: path(), size, available, cause: source }
            }
            MakeError::Unsupported { what, source } => {
                StorageError::Unsupported { path: path(), what, cause: source }
            }
            MakeError::System { what, source } => {
                StorageError::System { path: path(), what, cause: source }
            }
        })
    }

    /// Gives the unnamed file the name `name` in the directory. Returns `false` if a file of that
    /// name exists.
    pub(crate) fn name(&self, file: &UnnamedFile, name: &str) -> Result<bool, StorageError> {
        match self.kept.name(file, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(StorageError::System {
                path: self.file_path(name),
                what: "linkat",
                cause: source,
            }),
        }
    }
}

/// Whether the system call `open` failed because the name belongs to a symbolic link, a socket or a
/// device: `ELOOP`, `ENXIO`, `ENODEV`.
fn is_no_file(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ELOOP | ENXIO | ENODEV))
}

/// Whether `name` may be that of a link's file: 16 hexadecimal digits and `.link`.
pub(crate) fn is_link_file(name: &str) -> bool {
    name.strip_suffix(FILE_NAME_END).is_some_and(|hash| {
        hash.len() == HASH_DIGITS
            && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

const HASH_DIGITS: usize = 16;
const FILE_MODE: u32 = 0o600;
const WRITABLE_BY_OTHERS: u32 = 0o022;

// The error numbers below are the same on every architecture of Linux.
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ELOOP: i32 = 40;
