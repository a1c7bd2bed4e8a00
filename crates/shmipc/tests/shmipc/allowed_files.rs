// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that files and descriptors of a peer are opened only if they follow the rules for
//! directory, owner and size. A process that only opened a file does not remove it.

use partywall_shmipc::regions::{
    Backing, BackingError, Class, MemoryRules, PeerMemory, create_buffer, create_queue,
    open_buffer, open_queue,
};
use partywall_sys::SharedFileStat;
use partywall_sys::shared_file::create_memfd;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const CLASSES: [Class; 1] = [Class { size: 4096, percent: 100 }];

fn allowed(directory: &Path) -> MemoryRules {
    let owner = fs::metadata(directory).unwrap().uid();
    MemoryRules {
        size_max: 1 << 20,
        directory: directory.into(),
        owner: Some(owner),
        is_guarded: true,
    }
}

#[test]
fn a_file_is_made_for_its_user_alone_and_shared_by_identity() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shmipc_1_buffer");
    let (backing, map) = Backing::create_file(&path, 1 << 20).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let region = create_buffer(&backing, map, &CLASSES).unwrap();
    let hard_link = directory.path().join("another_name");
    fs::hard_link(&path, &hard_link).unwrap();
    for name in [&path, &hard_link] {
        let given = PeerMemory::path(name, &allowed(directory.path())).unwrap();
        assert!(!given.is_sealed());
        assert!(region.is_same_as(&open_buffer(&given).unwrap()));
    }
    let error = Backing::create_file(&path, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    drop((region, backing));
    assert!(!path.exists() && hard_link.exists());

    // A process that only opened a file does not remove the file. So the file stays when `given`,
    // the value of the process that opened it, is dropped.
    let given = PeerMemory::path(&hard_link, &allowed(directory.path())).unwrap();
    drop(open_buffer(&given).unwrap());
    drop(given);
    assert!(hard_link.exists());
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let outer = tempfile::tempdir().unwrap();
    let directory = outer.path().join("shm");
    fs::create_dir_all(directory.join("sub")).unwrap();
    let secret = outer.path().join("secret");
    fs::write(&secret, [0; 4096]).unwrap();
    fs::write(directory.join("sub/file"), [0; 4096]).unwrap();
    symlink(&secret, directory.join("link")).unwrap();
    symlink(outer.path(), directory.join("up")).unwrap();
    fs::write(directory.join("empty"), []).unwrap();
    fs::write(directory.join("large"), vec![0; (1 << 20) + 1]).unwrap();
    let allowed = allowed(&directory);

    assert!(PeerMemory::path(&directory.join("sub/file"), &allowed).is_ok());
    let open = |path: &Path| PeerMemory::path(path, &allowed).unwrap_err();
    let up = directory.join("../secret");
    for path in [&secret, &up, &directory, Path::new("sub/file")] {
        let error = open(path);
        assert!(error.to_string().contains("does not lie beneath"), "{error}");
    }
    for name in ["link", "up/secret", "missing"] {
        assert!(matches!(open(&directory.join(name)), BackingError::Open(_)), "{name}");
    }
    assert!(matches!(open(&directory.join("empty")), BackingError::Size { size: 0, .. }));
    assert!(matches!(open(&directory.join("large")), BackingError::Size { .. }));
    assert!(PeerMemory::path(&directory.join("sub"), &allowed).is_err());

    let another = MemoryRules { owner: allowed.owner.map(|owner| owner + 1), ..allowed.clone() };
    let error = PeerMemory::path(&directory.join("sub/file"), &another).unwrap_err();
    assert!(matches!(error, BackingError::Owner { .. }), "{error}");
    // Expected: the files at the refused paths were neither removed nor changed.
    assert_eq!(fs::read(&secret).unwrap(), [0; 4096]);
    assert!(directory.join("sub/file").exists());
}

#[test]
fn descriptors_of_other_kinds_are_refused() {
    let allowed = MemoryRules::new(1 << 20, None);
    let (read, _write) = std::io::pipe().unwrap();
    let error = PeerMemory::descriptor(OwnedFd::from(read), &allowed).unwrap_err();
    assert!(matches!(error, BackingError::NoFile));
    let zero = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
    assert!(matches!(PeerMemory::descriptor(zero.into(), &allowed), Err(BackingError::NoFile)));
    let large = create_memfd("large", (1 << 20) + 4096).unwrap();
    assert!(matches!(PeerMemory::descriptor(large, &allowed), Err(BackingError::Size { .. })));
    // A descriptor of a file on a disk is refused. The file system might be one that a process of
    // the peer implements. Then every access to the mapping would wait for that process.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let opened = file.reopen().unwrap();
    assert!(matches!(PeerMemory::descriptor(opened.into(), &allowed), Err(BackingError::NoMemory)));
    // Input: a descriptor that refers to memory, but was opened only for reading. Expected: this
    // process cannot map the memory as a buffer region.
    let memory = create_memfd("memory", 1 << 20).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
    let given = PeerMemory::descriptor(read_only.into(), &allowed).unwrap();
    assert!(matches!(
        open_buffer(&given).unwrap_err(),
        partywall_shmipc::regions::RegionError::Backing(_)
    ));
}

#[test]
fn own_memfd_is_sealed_and_stays_writable() {
    let name = format!("/dev/shm/{}", "n".repeat(400));
    let (backing, map) = Backing::create_memfd(&name, 1 << 20).unwrap();
    let region = create_buffer(&backing, map, &CLASSES).unwrap();
    assert!(SharedFileStat::of(backing.fd()).unwrap().is_sealed);
    let file = File::from(backing.fd().try_clone_to_owned().unwrap());
    assert!(file.set_len(0).is_err() && file.set_len(2 << 20).is_err());
    let other = partywall_sys::SharedMap::map(file.as_fd(), 1 << 20).unwrap();
    other.store(0, other.load(0));
    drop(region);

    let size = partywall_shmipc::regions::Queue::size_bytes(8192).unwrap();
    let (backing, map) = Backing::create_memfd("/queue", size).unwrap();
    create_queue(&backing, map, 8192).unwrap();
    let fd = backing.fd().try_clone_to_owned().unwrap();
    let given = PeerMemory::descriptor(fd, &MemoryRules::new(1 << 20, None)).unwrap();
    assert_eq!(open_queue(&given).unwrap().capacity(), 8192);
}

#[test]
fn memory_that_one_session_does_not_guard_is_guarded_for_the_next() {
    let (backing, map) = Backing::create_memfd("/guarded", 1 << 20).unwrap();
    drop(create_buffer(&backing, map, &CLASSES).unwrap());
    // Input: the same memory of the peer, but in a memfd without seals, as shmipc-go and shmipc-rs
    // make it.
    let unsealed = create_memfd("unsealed", 1 << 20).unwrap();
    let mut content = Vec::new();
    File::from(backing.fd().try_clone_to_owned().unwrap()).read_to_end(&mut content).unwrap();
    File::from(unsealed.try_clone().unwrap()).write_all_at(&content, 0).unwrap();
    let open = |is_guarded| {
        let allowed = MemoryRules { is_guarded, ..MemoryRules::new(1 << 20, None) };
        let given = PeerMemory::descriptor(unsealed.try_clone().unwrap(), &allowed).unwrap();
        open_buffer(&given).unwrap()
    };
    let careless = open(false);
    assert!(!careless.is_guarded());
    let careful = open(true);
    assert!(careful.is_same_as(&careless) && careful.is_guarded());
    File::from(unsealed.try_clone().unwrap()).set_len(0).unwrap();
    assert_eq!(careful.free_counts(), [0]);
    assert!(careful.is_damaged() && careless.is_damaged());
}

#[test]
fn files_of_what_is_mounted_beneath_the_directory_are_refused() {
    let comm = format!("/proc/{}/comm", std::process::id());
    let allowed = MemoryRules { directory: "/".into(), ..MemoryRules::new(1 << 20, None) };
    let error = PeerMemory::path(Path::new(&comm), &allowed).unwrap_err().to_string();
    assert!(error.contains("in another mount than /, ") && error.contains("choose"), "{error}");
}
