// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket addresses and directories for the programs of one run, which no other run uses at the
//! same time.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A directory that holds the sockets and the links of one run. Dropping the value removes the
/// directory.
pub struct Place {
    root: PathBuf,
    /// The loopback address, in 127.0.0.0/8, of this run's TCP listeners; derived from this
    /// process's id.
    host: String,
    count: Mutex<u16>,
}

impl Place {
    /// Makes the directory for the sockets and links of one run.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new() -> Result<Self, String> {
        let id = std::process::id();
        let root = std::env::temp_dir().join(format!("partywall-matrix-{id}"));
        let host = format!("127.{}.{}.{}", 1 + (id >> 16) % 250, (id >> 8) % 256, id % 256);
        let place = Self { root, host, count: Mutex::new(0) };
        make(&place.root)?;
        Ok(place)
    }

    /// Returns an address that no program has listened at.
    pub fn address(&self, transport: &str) -> String {
        let number = self.number();
        match transport {
            // The ports from 10,000 on are below the range from which the kernel chooses a port for
            // a socket that binds none.
            "tcp" => format!("tcp:{}:{}", self.host, 10_000 + number),
            _ => format!("unix:{}", self.root.join(format!("{number}.sock")).display()),
        }
    }

    /// Returns the address of a listener that has ended, so that connecting to the address fails.
    ///
    /// # Errors
    /// If no listener can be bound.
    pub fn left_address(&self, transport: &str) -> Result<String, String> {
        let address = self.address(transport);
        if let Some(path) = address.strip_prefix("unix:") {
            // Dropping the listener closes the socket, but leaves the socket file.
            let bound = UnixListener::bind(path);
            bound.map_err(|error| format!("cannot listen at {address}: {error}"))?;
        }
        Ok(address)
    }

    /// Makes a directory that only this user may open, for the files of links.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn directory(&self) -> Result<PathBuf, String> {
        let number = self.number();
        let path = self.root.join(format!("{number}.links"));
        make(&path)?;
        Ok(path)
    }
}

impl Place {
    /// Returns another number in each call.
    fn number(&self) -> u16 {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        *count
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn make(path: &PathBuf) -> Result<(), String> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| format!("cannot make {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_the_directory_is_removed() {
        let place = Place::new().unwrap();
        assert_ne!(place.address("unix"), place.address("unix"));
        assert_ne!(place.address("tcp"), place.address("tcp"));
        let left = place.left_address("shared").unwrap();
        assert!(fs::exists(left.trim_start_matches("unix:")).unwrap());
        assert!(place.directory().unwrap().is_dir());
        let root = place.root.clone();
        drop(place);
        assert!(!root.exists());
    }
}
