// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `partywall inspect` with running and stopped processes, and with hostile copies of the
//! regions of their shared memory.

use crate::program;

use std::fs;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::Instant;

use partywall::{Begin, Channel, Config, Listener};
use partywall_sys::OwnMap;
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::fork::{_exit, fork};
use program::{Listening, Running, TIMEOUT, partywall, run, text, wait_until};
use serde_json::Value;

const SOUND: i32 = 0;
const UNSOUND: i32 = 1;
const UNREADABLE: i32 = 2;

fn inspect(arguments: &[&str]) -> (i32, String, String) {
    let output = run(&[&["inspect"], arguments].concat());
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn json(target: &str) -> (i32, Value) {
    let (code, printed, errors) = inspect(&[target, "--json"]);
    (code, serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{code}: {errors}")))
}

fn spec(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec").join(path)
}

/// `partywall listen` and `partywall connect`, joined by a channel over shared memory.
struct Joined {
    listening: Listening,
    connecting: Running,
    /// The stdin of the connecting process. The channel stays open as long as this pipe is open.
    _input: ChildStdin,
    address: String,
    _directory: tempfile::TempDir,
}

impl Joined {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/inspected.sock", directory.path().display());
        let listening = Listening::start(&[&address], Stdio::null());
        let mut connecting = Running::start(
            partywall(&["connect", &address, "--begin", "memory"]).stdin(Stdio::piped()),
        );
        let input = connecting.0.stdin.take().unwrap();
        let joined = Self { listening, connecting, _input: input, address, _directory: directory };
        for pid in joined.pids() {
            wait_until("the channel is open", || inspect(&[&pid]).1.contains(": open"));
        }
        joined
    }

    /// The two process ids as text: that of the listening and that of the connecting process.
    fn pids(&self) -> [String; 2] {
        [self.listening.process.0.id().to_string(), self.connecting.0.id().to_string()]
    }
}

#[test]
fn both_sides_are_named_by_either_process() {
    let joined = Joined::new();
    let [acceptor, connector] = joined.pids();
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_partywall")).unwrap();
    for (pid, role, other, other_role) in [
        (&acceptor, "acceptor", &connector, "connector"),
        (&connector, "connector", &acceptor, "acceptor"),
    ] {
        let (_, whole) = json(pid);
        assert_eq!(whole["pid"].to_string(), *pid);
        let connection = &whole["connections"][0];
        let own = &connection["own"];
        assert_eq!((&own["role"], &own["service"]), (&role.into(), &"channel".into()), "{whole}");
        assert_eq!(own["address"], *joined.address);
        assert_eq!(
            (&own["program"], &own["kind"]),
            (&program.to_str().into(), &"connection".into())
        );
        assert_eq!((own["pid"].to_string(), &own["state"]), (pid.clone(), &"open".into()));
        assert!(own["created_ns"].as_u64().unwrap() <= own["changed_ns"].as_u64().unwrap());
        // `inspect` reads the peer's region through the memory of the process `pid`, for which it
        // needs the permission to trace that process. Without the permission, the result has no
        // peer.
        if connection["peer"].is_null() {
            println!("SKIPPED: reading the memory of a process is not allowed here: {whole}");
            continue;
        }
        let peer = &connection["peer"];
        assert_eq!((&peer["role"], peer["pid"].to_string()), (&other_role.into(), other.clone()));
        assert_eq!(peer["program"], program.to_str().unwrap());
    }
}

#[test]
fn stopped_process_is_inspected() {
    let joined = Joined::new();
    let pid = joined.listening.process.0.id();
    stop(pid.cast_signed(), Instant::now() + TIMEOUT).unwrap();
    let (code, printed, errors) = inspect(&[&pid.to_string()]);
    // `inspect` may lack the permission to read the peer's region. The region of the process itself
    // is always readable.
    assert!(code == SOUND || code == UNREADABLE, "{errors}");
    assert!(printed.contains("acceptor of a channel at \"unix:/"), "{printed}");
    assert!(printed.contains(": open"), "{printed}");
    assert!(printed.contains("asleep until records come"), "{printed}");
}

/// Makes both ends of a channel over shared memory in this process: the accepting end, then the
/// connecting end.
fn pair(address: String) -> (Channel, Channel) {
    let mut listener = Listener::bind(&*address).unwrap();
    let config = Config::default().begin(Begin::SharedMemory);
    let connecting =
        std::thread::spawn(move || partywall::connect_with(&*address, &config).unwrap());
    (listener.accept().unwrap(), connecting.join().unwrap())
}

#[test]
fn memory_named_like_a_region_is_reported_and_the_rest_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/mixed.sock", directory.path().display());
    let (accepted, connected) = pair(address);
    let hostile = spec("hostile/identity-version.bin");
    let mut damaged = OwnMap::create("partywall-region", 64 << 10).unwrap();
    damaged.as_mut_slice()[..8192].copy_from_slice(&fs::read(hostile).unwrap());
    // Input: an empty region, as a listener makes it in advance for its next connection. Expected
    // result: `inspect` does not report it as damaged.
    let _empty = OwnMap::create("partywall-region", 64 << 10).unwrap();
    let (code, whole) = json(&std::process::id().to_string());
    assert_eq!(code, UNSOUND, "{whole}");
    assert_eq!(whole["damaged"].as_array().unwrap().len(), 1, "{whole}");
    assert!(whole["damaged"][0]["why"].as_str().unwrap().contains("version"), "{whole}");
    // Both ends of the channel are in this process, so each connection has both regions.
    let connections = whole["connections"].as_array().unwrap();
    let roles = |side: &str| connections.iter().map(|one| one[side]["role"].clone()).collect();
    let (own, peers): (Vec<Value>, Vec<Value>) = (roles("own"), roles("peer"));
    assert!(own.contains(&"acceptor".into()) && own.contains(&"connector".into()), "{whole}");
    assert!(peers.contains(&"acceptor".into()) && peers.contains(&"connector".into()), "{whole}");
    drop((accepted, connected));
}

#[test]
fn forked_child_lists_the_connections_of_its_parent_as_inherited() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/forked.sock", directory.path().display());
    let (accepted, connected) = pair(address);
    let child = fork();
    assert!(child >= 0);
    if child == 0 {
        std::thread::sleep(TIMEOUT); // the forked child waits here until its parent kills it
        _exit(0);
    }
    let (code, whole) = json(&child.to_string());
    let (_, printed, _) = inspect(&[&child.to_string()]);
    kill(child, Signal::KILL).unwrap();
    assert_eq!(code, SOUND, "{whole}");
    assert_eq!(whole["connections"].as_array().unwrap().len(), 0, "{whole}");
    assert!(whole["inherited"].as_array().unwrap().len() >= 2, "{whole}");
    assert!(printed.contains("inherited: \"/proc/"), "{printed}");
    drop((accepted, connected));
}

#[test]
fn target_without_a_connection_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |target: &str, says: &str| {
        let (code, printed, errors) = inspect(&[target]);
        assert_eq!((code, &*printed), (UNREADABLE, ""), "{target}");
        assert!(errors.contains(says), "{target}: {errors:?} does not say {says:?}");
    };
    refused("4294967295", "there is no process 4294967295");
    let (code, whole) = json("4294967295");
    assert_eq!(code, UNREADABLE);
    assert!(whole["error"].as_str().unwrap().contains("no process 4294967295"), "{whole}");
    let output = run(&["inspect", "--json"]);
    assert_eq!(output.status.code(), Some(UNREADABLE), "wrong usage");
    let whole: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(whole["error"].as_str().unwrap().contains("required"), "{whole}");
    refused("/no/such/file", "No such file");
    refused(directory.path().to_str().unwrap(), "is no file");
    refused(env!("CARGO_BIN_EXE_partywall"), "is no region");
    let link = directory.path().join("copy.link");
    fs::write(&link, [&b"PWLINK\x00\x01"[..], &[0; 8192]].concat()).unwrap();
    refused(link.to_str().unwrap(), "link inspect --dir");
    let address = format!("unix:{}/l.sock", directory.path().display());
    let listening = Listening::start(&[&address], Stdio::null());
    let pid = listening.process.0.id().to_string();
    refused(&pid, &format!("process {pid} has no connection over shared memory and no link"));
}

#[test]
fn copies_of_regions_are_printed_or_refused_as_the_specification_says() {
    let mut seen = 0;
    for (folder, expected) in [("vectors", SOUND), ("hostile", UNREADABLE)] {
        for entry in fs::read_dir(spec(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !name.starts_with("identity-") {
                continue;
            }
            let (code, printed, errors) = inspect(&[path.to_str().unwrap()]);
            assert_eq!(code, expected, "{name}: {errors}");
            assert!(!printed.replace('\n', "").contains(char::is_control), "{name}: {printed:?}");
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen} images");
    let (_, whole) = json(spec("vectors/identity-trusted.bin").to_str().unwrap());
    let own = &whole["connections"][0]["own"];
    assert_eq!((&own["state"], &own["error"]), (&"broken".into(), &102.into()));
    assert_eq!((&own["service"], &own["program"]), (&"session".into(), &"/usr/bin/app".into()));
    let (_, whole) = json(spec("vectors/identity-unknown.bin").to_str().unwrap());
    let own = &whole["connections"][0]["own"];
    assert_eq!((&own["role"], &own["service"]), (&"role 7".into(), &"service 4".into()));
    assert_eq!((&own["state"], &own["kind"]), (&"state 8".into(), &"kind 9".into()));
}
