// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that a thousand idle sessions wake no thread and use no CPU time. Each end of a session
//! takes bounded memory and descriptors.
//!
//! ```text
//!   this process ── starts ──▶ acceptor process ◀── 1,000 sessions ──▶ connector process
//!        └── reads context switches, CPU time, memory and descriptors of both from /proc
//! ```
//!
//! The two processes raise their descriptor limit to the hard limit of this process. If that limit
//! is too low for 1,000 sessions, the test opens fewer.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::tokio::{Listener, connect_with};
use partywall_sys::limits;
use partywall_sys::process::{Process, open_descriptors};
use partywall_testkit::Kind;
use partywall_testkit::{TIMEOUT, variable};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const SESSIONS_MAX: u64 = 1000;
const SILENCE: Duration = Duration::from_secs(5);
const LONG_SILENCE: Duration = Duration::from_secs(60);

/// Maximum CPU time of both processes together, while no message is sent. `SWITCHES_MAX` limits
/// their wake-ups.
const CPU_TIME_MAX: Duration = Duration::from_millis(5);
const SWITCHES_MAX: u64 = 50;

/// Maximum number of descriptors of one end of a session. The constants that follow limit its
/// private and shared memory in bytes.
const DESCRIPTORS_PER_END_MAX: u64 = 12;
const PRIVATE_BYTES_PER_END_MAX: u64 = 48 << 10;
/// Maximum private memory in bytes of one end of a session on a socket, which has a receive buffer
/// of 64 KiB.
const PRIVATE_BYTES_PER_SOCKET_END_MAX: u64 = 96 << 10;
const SHARED_BYTES_PER_END_MAX: u64 = 48 << 10;

const KIND: &str = "PARTYWALL_SESSION_IDLE_KIND";
const ADDRESS: &str = "PARTYWALL_SESSION_IDLE_ADDRESS";
const SESSIONS: &str = "PARTYWALL_SESSION_IDLE_SESSIONS";

/// Prints a line for the parent process, after a line break that separates it from the test
/// harness's output.
fn tell(word: &str) {
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

fn await_word() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Runs a future on a runtime until the parent kills this process after its measurements. The
/// runtime's spare threads end after 1 ms, because their end would count as a wake-up.
fn hold(future: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_keep_alive(Duration::from_millis(1));
    runtime.enable_all().build().unwrap().block_on(future);
}

/// Code of the acceptor process: accepts sessions, answers one message on each, and keeps them open
/// until the parent kills it.
#[test]
fn acceptor() {
    let Some(address) = variable(ADDRESS) else { return };
    let config = Kind::from_name(&variable(KIND).unwrap()).config();
    let count: u64 = variable(SESSIONS).unwrap().parse().unwrap();
    hold(async {
        let listener = Listener::bind_with(address, &config).unwrap();
        tell("begun");
        await_word();
        let mut held = Vec::new();
        for _ in 0..count {
            let session = listener.accept().await.unwrap();
            let mut stream = session.accept().await.unwrap().unwrap();
            let message = stream.recv().await.unwrap().unwrap();
            stream.send(&message).await.unwrap();
            held.push((session, stream));
        }
        tell("ready");
        await_word();
    });
}

#[test]
fn connector() {
    let Some(address) = variable(ADDRESS) else { return };
    let config = Kind::from_name(&variable(KIND).unwrap()).config();
    let count: u64 = variable(SESSIONS).unwrap().parse().unwrap();
    hold(async {
        // The runtime allocates its own resources before the first measurement.
        tokio::task::yield_now().await;
        tell("begun");
        await_word();
        let mut held = Vec::new();
        for _ in 0..count {
            let session = connect_with(&address[..], &config).await.unwrap();
            let mut stream = session.open(b"idle").await.unwrap();
            stream.send(&[7; 300]).await.unwrap();
            assert_eq!(stream.recv().await.unwrap().unwrap(), [7; 300]);
            session.ping().await.unwrap();
            held.push((session, stream));
        }
        tell("ready");
        await_word();
    });
}

/// One of the two processes that hold the ends of all sessions; it is killed when this value is
/// dropped.
struct End {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl End {
    fn start(name: &str, kind: Kind, address: &str, sessions: u64) -> Self {
        let mut command = Command::new("sh");
        let raise = "ulimit -S -n \"$(ulimit -H -n)\"; exec \"$0\" \"$@\"";
        command.args(["-c", raise]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("sessions::{name}"), "--nocapture", "--test-threads=1"]);
        command.env(KIND, kind.name()).env(ADDRESS, address).env(SESSIONS, sessions.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut end = Self { child, input, output: BufReader::new(output) };
        end.hear("begun");
        end
    }

    fn say(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended before {word}");
        }
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    fn activity(&self) -> Activity {
        // If a thread ends while its counters are read, all threads are read again.
        std::iter::repeat_with(|| self.activity_unless_one_ends()).flatten().next().unwrap()
    }

    fn activity_unless_one_ends(&self) -> Option<Activity> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut sum = Activity { is_asleep: true, ..Activity::default() };
        for task in tasks {
            let task = task.unwrap().path();
            let status = std::fs::read_to_string(task.join("status")).ok()?;
            sum.switches += number(&status, "voluntary_ctxt_switches")
                + number(&status, "nonvoluntary_ctxt_switches");
            sum.is_asleep &= status.lines().any(|line| line.starts_with("State:\tS"));
            let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
            let time_ns = times.split_whitespace().next()?.parse().unwrap();
            sum.cpu_time += Duration::from_nanos(time_ns);
            sum.threads += 1;
        }
        Some(sum)
    }

    fn holdings(&self) -> Footprint {
        let status = self.read("status");
        let pid = i32::try_from(self.child.id()).unwrap();
        Footprint {
            descriptors: open_descriptors(Process::Pid(pid)).unwrap().len() as u64,
            private_bytes: number(&status, "RssAnon") * 1024,
            shared_bytes: number(&status, "RssShmem") * 1024,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // An error of the kill is ignored, because the process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number in the line `name:` of a file in /proc with the content `text`.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    threads: u32,
    /// Whether all threads of the process are asleep when this value is read.
    is_asleep: bool,
    switches: u64,
    cpu_time: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Footprint {
    descriptors: u64,
    private_bytes: u64,
    shared_bytes: u64,
}

impl Footprint {
    /// Returns by how much each resource has grown since `before`, per session and rounded up.
    fn per_session(self, before: Self, sessions: u64) -> Self {
        let each = |after: u64, before: u64| after.saturating_sub(before).div_ceil(sessions);
        Self {
            descriptors: each(self.descriptors, before.descriptors),
            private_bytes: each(self.private_bytes, before.private_bytes),
            shared_bytes: each(self.shared_bytes, before.shared_bytes),
        }
    }
}

/// Waits until both processes are idle: at two checks in a row, all their threads are asleep with
/// the same number of context switches.
fn until_quiet(ends: &[End; 2]) {
    let until = Instant::now() + TIMEOUT;
    let mut last = ends.each_ref().map(End::activity);
    loop {
        // Between two checks the cores are left to the threads that are going to sleep.
        std::thread::park_timeout(Duration::from_millis(200));
        let now = ends.each_ref().map(End::activity);
        // Equal counters alone prove nothing: a thread that got no CPU time has not switched
        // either.
        if now == last && now.iter().all(|activity| activity.is_asleep) {
            return;
        }
        last = now;
        assert!(Instant::now() < until, "they never become quiet: {last:?}");
    }
}

/// Returns the number of sessions that the test opens: as many as a process's descriptor limit
/// allows, up to [`SESSIONS_MAX`].
fn sessions() -> u64 {
    let allowed = limits::descriptors().hard.unwrap_or(u64::MAX);
    SESSIONS_MAX.min(allowed.saturating_sub(100) / DESCRIPTORS_PER_END_MAX)
}

fn are_silent(kind: Kind, silence: Duration) {
    let (address, count) = (kind.address(), sessions());
    let names = ["acceptor", "connector"];
    let mut ends = names.map(|name| End::start(name, kind, &address, count));
    let before = ends.each_ref().map(End::holdings);
    ends.iter_mut().for_each(End::say);
    ends.iter_mut().for_each(|end| end.hear("ready"));
    until_quiet(&ends);
    let start = ends.each_ref().map(End::activity);
    // The pause has a fixed time, because the test checks that nothing happens.
    std::thread::park_timeout(silence);
    let mut sum = Activity::default();
    for (end, start) in ends.iter().zip(start) {
        let now = end.activity();
        sum.switches += now.switches - start.switches;
        sum.cpu_time += now.cpu_time - start.cpu_time;
    }
    println!("{} {count} sessions, {silence:?}: {sum:?}", kind.name());
    let private_bytes_max = if kind.is_shared_memory() {
        PRIVATE_BYTES_PER_END_MAX
    } else {
        PRIVATE_BYTES_PER_SOCKET_END_MAX
    };
    for ((end, before), name) in ends.iter().zip(before).zip(names) {
        let each = end.holdings().per_session(before, count);
        println!("{} {name}, per session: {each:?}", kind.name());
        assert!(each.descriptors <= DESCRIPTORS_PER_END_MAX, "{each:?}");
        assert!(each.private_bytes <= private_bytes_max, "{each:?}");
        assert!(each.shared_bytes <= SHARED_BYTES_PER_END_MAX, "{each:?}");
    }
    assert!(sum.switches < SWITCHES_MAX, "{}: they woke: {sum:?}", kind.name());
    assert!(sum.cpu_time < CPU_TIME_MAX, "{}: they worked: {sum:?}", kind.name());
    ends.iter_mut().for_each(End::say);
    for end in &mut ends {
        assert!(end.child.wait().unwrap().success());
    }
}

fn each_is_silent(silence: Duration) {
    if variable(ADDRESS).is_none() {
        are_silent(Kind::SharedMemory, silence);
        are_silent(Kind::Unix, silence);
    }
}

#[test]
fn a_thousand_idle_sessions_wake_nobody() {
    each_is_silent(SILENCE);
}

#[test]
#[ignore = "takes two minutes"]
fn a_thousand_sessions_stay_idle_for_a_minute() {
    each_is_silent(LONG_SILENCE);
}
