// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the contents of both link files while the worker process is single-stepped: all bytes
//! before the first instruction, and the bytes that each later instruction changed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The bytes of the worker's link file and of its peer's; empty while a file does not exist.
pub type Image = [Vec<u8>; 2];

/// The images of both link files at each boundary between two instructions of the single-stepped
/// worker. They are stored as the first image and the changes to it.
pub struct Images {
    paths: [PathBuf; 2],
    files: [Option<File>; 2],
    first: Image,
    now: Image,
    scratch: Vec<u8>,
    changes: Vec<Change>,
}

/// The bytes of both link files that one step (instruction) of the worker changed.
pub struct Change {
    /// The number of the worker's instruction that changed these bytes, counted from the beginning
    /// of the single-stepping.
    pub step: u64,
    patches: Vec<Patch>,
}

struct Patch {
    which: usize,
    at: usize,
    bytes: Vec<u8>,
}

impl Images {
    /// Starts recording: the present contents of both link files become the first image.
    pub fn new(paths: [PathBuf; 2]) -> io::Result<Self> {
        let mut images = Self {
            paths,
            files: [None, None],
            first: Image::default(),
            now: Image::default(),
            scratch: Vec::new(),
            changes: Vec::new(),
        };
        images.check(0, true)?;
        images.changes.clear();
        images.first = images.now.clone();
        Ok(images)
    }

    /// Reads the worker's link file, and the peer's if that may have changed (`peer_too`). Records
    /// the bytes that changed since the last call as a change by instruction `step`. Returns
    /// whether any byte changed.
    pub fn check(&mut self, step: u64, peer_too: bool) -> io::Result<bool> {
        let mut patches = Vec::new();
        for which in 0..if peer_too { 2 } else { 1 } {
            if self.files[which].is_none() {
                match File::open(&self.paths[which]) {
                    Ok(file) => self.files[which] = Some(file),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
            }
            let Some(file) = &self.files[which] else { continue };
            if self.now[which].is_empty() {
                let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, 0)?;
                patches.push(Patch { which, at: 0, bytes: bytes.clone() });
                self.now[which] = bytes;
                continue;
            }
            let now = &mut self.now[which];
            self.scratch.resize(now.len(), 0);
            file.read_exact_at(&mut self.scratch, 0)?;
            if *now != self.scratch {
                patches.extend(difference(which, now, &self.scratch));
                std::mem::swap(now, &mut self.scratch);
            }
        }
        let has_changed = !patches.is_empty();
        if has_changed {
            self.changes.push(Change { step, patches });
        }
        Ok(has_changed)
    }

    /// The number of images of the link files that differ from the image before them, the first
    /// image included.
    pub fn count(&self) -> usize {
        1 + self.changes.len()
    }

    /// For each image of the link files, the number of the first boundary between two instructions
    /// at which the files had these contents.
    pub fn steps(&self) -> Vec<u64> {
        let changed = self.changes.iter().map(|change| change.step);
        std::iter::once(0).chain(changed).collect()
    }

    /// Calls `judge` with the images of the link files whose indices are in `chosen`, which must be
    /// in ascending order. Each image is rebuilt from the first image and the recorded changes.
    pub fn each(
        &self,
        chosen: &[usize],
        mut judge: impl FnMut(usize, &Image) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut image = self.first.clone();
        let mut chosen = chosen.iter().peekable();
        for index in 0..self.count() {
            if index > 0 {
                for patch in &self.changes[index - 1].patches {
                    let bytes = &mut image[patch.which];
                    bytes.resize(bytes.len().max(patch.at + patch.bytes.len()), 0);
                    bytes[patch.at..patch.at + patch.bytes.len()].copy_from_slice(&patch.bytes);
                }
            }
            if chosen.next_if(|wanted| **wanted == index).is_some() {
                judge(index, &image)?;
            }
        }
        Ok(())
    }
}

fn difference(which: usize, old: &[u8], new: &[u8]) -> Vec<Patch> {
    let blocks = old.chunks(BLOCK_BYTES).zip(new.chunks(BLOCK_BYTES)).enumerate();
    let changed = blocks.filter(|(_, (old, new))| old != new);
    changed
        .map(|(index, (_, new))| Patch { which, at: index * BLOCK_BYTES, bytes: new.to_vec() })
        .collect()
}

const BLOCK_BYTES: usize = 64;
