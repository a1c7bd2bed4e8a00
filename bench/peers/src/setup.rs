// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both ends know before they meet: where files may be, and how this measurement is called.

use std::path::PathBuf;

/// The meeting place of one measurement.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Setup {
    /// A private directory for socket files and the like; removed after the run.
    pub directory: PathBuf,
    /// A name that no other run on this machine has; everything outside the directory begins with it.
    pub run_name: String,
    /// The number of this measurement within the run: no address is used twice.
    pub number: u32,
}

impl Setup {
    /// A path in the private directory that no other measurement uses.
    pub fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{kind}-{}.sock", self.number))
    }
}
