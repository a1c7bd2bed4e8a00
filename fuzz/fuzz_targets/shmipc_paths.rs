// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any two names in a shmipc handshake, and the files that these names lead to if they are paths.
//! Only a file of an allowed size within the one directory, reached without a symbolic link, is
//! opened.
//!
//! ```text
//!  input:   a byte: paths or descriptors, version, size of the pieces |
//!           a byte: the pairs of names to begin with |
//!           words of the first name | 0xff | words of the second name
//!  word:    0 to 31 a part of a path | 32 to 126 the character itself | 127 to 254 the next byte
//!
//!  Files that the names can lead to:
//!  target/paths/  outside        never opened
//!    shm/         the allowed directory, with
//!                 file  sub/file  empty  large  directory  d/d/…/file
//!                 and the symbolic links   link ▶ ../outside   up ▶ ..   loop ▶ loop
//! ```
//!
//! The target writes no files while it runs, so the files are the same for every input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_shmipc::regions::{MemoryRules, PeerMemory};
use partywall_shmipc::wire::{
    HandshakeLimits, Header, Kind, PATH_BYTES_MAX, ServerHandshake, Step, encode,
};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

fuzz_target!(|input: &[u8]| {
    let [choice, seed, words @ ..] = input else { return };
    let end = words.iter().position(|word| *word == 0xff);
    let (first, second) = words.split_at(end.unwrap_or(words.len()));
    let begin = SEEDS[usize::from(*seed) % SEEDS.len()];
    let queue = name(begin.0, first);
    let buffer = name(begin.1, second.get(1..).unwrap_or_default());
    let is_by_path = choice & 1 == 0;
    match serve(&queue, &buffer, *choice) {
        Some(names) => {
            assert!(may_be_names(&queue, &buffer), "{queue:?} and {buffer:?} were accepted");
            assert_eq!((names.0.as_bytes(), names.1.as_bytes()), (&queue[..], &buffer[..]));
            if is_by_path {
                open(&names.0);
                open(&names.1);
            }
        }
        None => assert!(!may_be_names(&queue, &buffer), "{queue:?} and {buffer:?} were refused"),
    }
});

/// Pairs of names with which inputs may begin, of a queue's and of a buffer's shared memory: valid
/// ones, and known attacks.
const SEEDS: [(&[u8], &[u8]); 8] = [
    (b"", b""),
    (&[DIRECTORY, FILE], &[DIRECTORY, SUB, FILE]),
    (&[DIRECTORY, UP, OUTSIDE], &[OUTER, OUTSIDE]),
    (&[DIRECTORY, LINK], &[DIRECTORY, LINK_UP, OUTSIDE]),
    (&[DIRECTORY, DEEP, FILE], &[DIRECTORY, LOOP]),
    (&[DIRECTORY, HERE, EMPTY], &[DIRECTORY, LARGE]),
    (&[DIRECTORY, FILE, ZERO], &[DIRECTORY, NO_TEXT]),
    (&[LONG], &[DIRECTORY, LONG, LONG]),
];

const DIRECTORY: u8 = 0;
const OUTER: u8 = 1;
const FILE: u8 = 2;
const SUB: u8 = 3;
const LINK: u8 = 4;
const LINK_UP: u8 = 5;
const LOOP: u8 = 6;
const EMPTY: u8 = 7;
const LARGE: u8 = 8;
const FOLDER: u8 = 9;
const DEEP: u8 = 10;
const OUTSIDE: u8 = 11;
const UP: u8 = 12;
const HERE: u8 = 13;
const SLASH: u8 = 14;
const ZERO: u8 = 15;
const NO_TEXT: u8 = 16;
const LONG: u8 = 17;

fn name(begin: &[u8], words: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    for word in begin.iter().chain(words) {
        match *word {
            DIRECTORY => name.extend_from_slice(HOME.as_os_str().as_encoded_bytes()),
            OUTER => name.extend_from_slice(OUTSIDE_HOME.as_bytes()),
            FILE => name.extend_from_slice(b"/file"),
            SUB => name.extend_from_slice(b"/sub"),
            LINK => name.extend_from_slice(b"/link"),
            LINK_UP => name.extend_from_slice(b"/up"),
            LOOP => name.extend_from_slice(b"/loop"),
            EMPTY => name.extend_from_slice(b"/empty"),
            LARGE => name.extend_from_slice(b"/large"),
            FOLDER => name.extend_from_slice(b"/directory"),
            DEEP => name.extend_from_slice(DEEP_PATH.as_bytes()),
            OUTSIDE => name.extend_from_slice(b"/outside"),
            UP => name.extend_from_slice(b"/.."),
            HERE => name.extend_from_slice(b"/."),
            SLASH => name.push(b'/'),
            ZERO => name.push(0),
            NO_TEXT => name.push(0xff),
            LONG => name.resize(name.len() + usize::from(PATH_BYTES_MAX) / 2, b'l'),
            other => name.push(other.wrapping_add(u8::from(other > 126))),
        }
    }
    name.truncate(usize::from(u16::MAX));
    name
}

/// The names of the queue's and the buffer's shared memory as a shmipc server decoded them; `None`
/// if the server refused them.
fn serve(queue: &[u8], buffer: &[u8], choice: u8) -> Option<(String, String)> {
    let (kind, version) = match choice & 3 {
        0 => (Kind::ShmByPath, 2),
        2 => (Kind::ShmByPath, 3),
        _ => (Kind::ShmByMemfd, 3),
    };
    let length = (8 + 4 + queue.len() + buffer.len()) as u32;
    let mut stream = if version == 3 { encode::exchange(3).to_vec() } else { Vec::new() };
    stream.extend_from_slice(&Header { length, version, kind }.to_bytes());
    for name in [queue, buffer] {
        stream.extend_from_slice(&(name.len() as u16).to_be_bytes());
        stream.extend_from_slice(name);
    }
    if kind == Kind::ShmByMemfd {
        stream.push(0);
    }
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    let mut rest = &stream[..];
    let mut names = None;
    while server.missing() > 0 && !rest.is_empty() {
        let piece = rest.len().min(server.missing()).min(1 << (choice >> 2 & 15));
        let (now, after) = rest.split_at(piece);
        rest = after;
        let descriptors = if server.wants_descriptors() { 2 } else { 0 };
        if let Err(error) = server.feed(now, descriptors) {
            assert!(!error.to_string().is_empty());
            return None;
        }
        while let Some(step) = server.next() {
            match step {
                Step::MapPaths { queue, buffer } => names = Some((queue, buffer)),
                Step::MapDescriptors { queue_name, buffer_name } => {
                    names = Some((queue_name, buffer_name));
                }
                _ => {}
            }
        }
    }
    names
}

/// Whether the rules for names allow these names of a queue's and a buffer's shared memory. This is
/// a second implementation of the rules; the fuzz target compares its result with that of the
/// server.
fn may_be_names(queue: &[u8], buffer: &[u8]) -> bool {
    let may_be_name = |name: &[u8]| {
        !name.is_empty()
            && name.len() <= usize::from(PATH_BYTES_MAX)
            && !name.contains(&0)
            && std::str::from_utf8(name).is_ok()
    };
    may_be_name(queue) && may_be_name(buffer) && queue != buffer
}

fn open(path: &str) {
    let allowed = MemoryRules { directory: HOME.clone(), ..MemoryRules::new(BYTES_MAX, None) };
    let given = PeerMemory::path(Path::new(path), &allowed);
    match &given {
        Ok(_) => assert!(may_be_opened(Path::new(path)), "{path:?} was opened"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!may_be_opened(Path::new(path)), "{path:?}: {error}");
        }
    }
}

/// Whether the rules allow a shmipc server to open `path`. The check uses other system calls than
/// the server does.
fn may_be_opened(path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(&*HOME) else { return false };
    let is_down = rest.components().all(|part| matches!(part, Component::Normal(_)));
    let plain: PathBuf = path.components().collect();
    let leads_there = plain.canonicalize().is_ok_and(|found| found == plain);
    let size = plain.metadata().ok().filter(fs::Metadata::is_file).map_or(0, |file| file.len());
    is_down && leads_there && (1..=BYTES_MAX).contains(&size) && rest.components().count() <= 16
}

/// The directory whose files may be opened; its own path contains no symbolic link.
static HOME: LazyLock<PathBuf> = LazyLock::new(|| {
    let home = Path::new(OUTSIDE_HOME).join("shm");
    let deep = home.join(&DEEP_PATH[1..]);
    for directory in [&home.join("sub"), &home.join("directory"), &deep] {
        fs::create_dir_all(directory).unwrap();
    }
    for file in ["file", "sub/file", "d/d/file", "../outside", "sub/outside"] {
        fs::write(home.join(file), [0; 4096]).unwrap();
    }
    fs::write(deep.join("file"), [0; 4096]).unwrap();
    fs::write(home.join("empty"), []).unwrap();
    File::create(home.join("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
    for (link, to) in [("link", "../outside"), ("up", ".."), ("loop", "loop")] {
        // Creating the link may fail, because an earlier run has created it.
        let _ = symlink(to, home.join(link));
    }
    home.canonicalize().unwrap()
});

const OUTSIDE_HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/paths");
/// A path below the allowed directory with more parts than a server accepts.
const DEEP_PATH: &str = "/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d";
/// Maximum size in bytes of a file that a shmipc server may map as shared memory.
const BYTES_MAX: u64 = 1 << 20;
