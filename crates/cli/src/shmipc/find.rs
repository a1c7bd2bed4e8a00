// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the files with the shmipc regions of one connection, which have names in common (a
//! family), in the directory of a given file.
//!
//! ```text
//!   …_buffer  ─▶ itself, and …_queue_0, …_queue_1 next to it, or those of --queue
//!   …_queue_0 ─▶ …_buffer next to it, if it exists, and all its queues
//! ```

use super::memory::{Kind, Memory, family, is_named_like_a_region};
use super::process::{Identity, identity};
use anyhow::{Context, Result, bail};
use partywall_shmipc::regions::read_memory;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the file at `path` and the other files of its family, the regions of the same connection.
/// Also returns the identities of these files.
///
/// # Errors
///
/// If the file at `path` or one of `queues` cannot be read, or is no region.
pub fn of_file(path: &Path, queues: &[PathBuf]) -> Result<(Vec<Memory>, HashSet<Identity>)> {
    let (mut memories, mut files) = (Vec::new(), HashSet::new());
    let named = read(path, &mut files)?;
    if let Kind::Neither(why) = named.kind() {
        bail!(
            "{} is neither a region of buffers nor one of queues of shmipc. As buffers: {why}",
            path.display()
        );
    }
    memories.push(named);
    for queue in queues {
        let read = read(queue, &mut files)?;
        if read.kind() != Kind::Queues {
            bail!("--queue {} is no region of queues of shmipc", queue.display());
        }
        memories.push(read);
    }
    if queues.is_empty() {
        for kin in kin_of(path) {
            // Two kinds of file of the family are skipped: a file that was removed in the meantime,
            // and a file that only has the name of a region.
            let Ok(kin) = read(&kin, &mut files) else { continue };
            if !matches!(kin.kind(), Kind::Neither(_)) {
                memories.push(kin);
            }
        }
    }
    Ok((memories, files))
}

fn read(path: &Path, files: &mut HashSet<Identity>) -> Result<Memory> {
    let reading = || format!("reading {} failed", path.display());
    let metadata = fs::metadata(path).with_context(reading)?;
    if !metadata.is_file() {
        bail!("{} is no file", path.display());
    }
    let bytes = read_memory(path).with_context(reading)?;
    files.insert(identity(&metadata));
    let name = path.display().to_string();
    Ok(Memory { source: name.clone(), name, bytes })
}

/// Paths of other files in the directory of the file at `path`. By their names they are regions of
/// the same connection.
fn kin_of(path: &Path) -> Vec<PathBuf> {
    let Some(own) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    if !is_named_like_a_region(own) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_kin = |other: &PathBuf| {
        let other = other.file_name().and_then(|name| name.to_str()).unwrap_or("");
        other != own && is_named_like_a_region(other) && family(own) == family(other)
    };
    let kin = entries.flatten().map(|entry| entry.path()).filter(is_kin);
    let mut kin: Vec<PathBuf> = kin.take(KIN_MAX).collect();
    kin.sort();
    kin
}

/// Maximum number of further files that are read for one connection. A buffer region has one queue
/// file for each session of a pool, and a pool has fewer sessions.
const KIN_MAX: usize = 1024;
