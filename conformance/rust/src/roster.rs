// SPDX-License-Identifier: MIT OR Apache-2.0
//! The roster: the programs that take part in the conformance tests, and how each is built.
//!
//! | variable                 | a program to use instead of building one   |
//! |--------------------------|--------------------------------------------|
//! | `CONFORMANCE_GO_PEER`    | shmipc-go                                  |
//! | `CONFORMANCE_RUST_PEER`  | shmipc-rs                                  |
//! | `CONFORMANCE_OURS`       | ours                                       |
//! | `CONFORMANCE_C_PEER`     | a C program over ours                      |

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// An implementation of shmipc that takes part in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The published module `github.com/cloudwego/shmipc-go` v0.2.0.
    Go,
    /// The published crate `shmipc` 0.2.1.
    Rust,
    /// The implementation of this repository, `partywall-shmipc`.
    Ours,
    /// A C program over the C interface of this repository. It has only the traffic mode echo.
    C,
}

/// All implementations of shmipc that take part in every test. A new one needs only an entry in
/// this array. The C program is not among them: it has a test of its own.
const ROSTER: [Peer; 3] = [Peer::Go, Peer::Rust, Peer::Ours];

impl Peer {
    /// Name of the implementation in the messages of tests.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Go => "shmipc-go",
            Peer::Rust => "shmipc-rs",
            Peer::Ours => "ours",
            Peer::C => "C",
        }
    }

    /// Path of the implementation's program. Each test process builds the program once, unless the
    /// implementation's environment variable names an existing program.
    ///
    /// # Errors
    /// If the program cannot be built.
    pub fn program(self) -> Result<PathBuf> {
        let (built, variable) = match self {
            Peer::Go => (&GO, "CONFORMANCE_GO_PEER"),
            Peer::Rust => (&RUST, "CONFORMANCE_RUST_PEER"),
            Peer::Ours => (&RUST, "CONFORMANCE_OURS"),
            Peer::C => (&C, "CONFORMANCE_C_PEER"),
        };
        if let Some(program) = std::env::var_os(variable) {
            return Ok(program.into());
        }
        let build = match self {
            Peer::Go => build_go,
            Peer::Rust | Peer::Ours => build_rust,
            Peer::C => build_c,
        };
        let outcome = built.get_or_init(|| build().map_err(|error| format!("{error:#}")));
        outcome.clone().map_err(anyhow::Error::msg)?;
        Ok(target()?.join(match self {
            Peer::Go => GO_PROGRAM,
            Peer::Rust => "debug/conformance-peer",
            Peer::Ours => "debug/conformance-ours",
            Peer::C => C_PROGRAM,
        }))
    }
}

/// All implementations of shmipc whose programs can run on this machine. Without Go, shmipc-go is
/// left out, and a line on stderr says so.
pub fn present() -> Vec<Peer> {
    ROSTER.into_iter().filter(|&peer| peer != Peer::Go || has_go()).collect()
}

/// Pairs of a server and a client in all combinations. Pairs without `partywall-shmipc` are left
/// out unless `CONFORMANCE_ALL_PAIRS` is set: the published libraries do not change, and their
/// faults are known.
pub fn pairs() -> Vec<(Peer, Peer)> {
    let present = present();
    let ours = present.contains(&Peer::Ours) && std::env::var_os("CONFORMANCE_ALL_PAIRS").is_none();
    let wanted = |pair: &(Peer, Peer)| !ours || pair.0 == Peer::Ours || pair.1 == Peer::Ours;
    let clients = |server| present.iter().map(move |&client| (server, client));
    present.iter().flat_map(|&server| clients(server)).filter(wanted).collect()
}

/// Whether Go is available. If not, a line on stderr says so, even in tests that pass.
pub fn has_go() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let version = Command::new("go").arg("version").stdout(Stdio::null()).status();
        let has = std::env::var_os("CONFORMANCE_GO_PEER").is_some()
            || version.is_ok_and(|status| status.success());
        if !has {
            use std::io::Write as _;
            // The test harness hides what the printing macros write in a test that passes, so this
            // line is written without them.
            let _ = writeln!(std::io::stderr(), "skipped: no Go, so shmipc-go takes no part");
        }
        has
    })
}

/// Whether the system has a C compiler. If not, a line on stderr says so.
pub fn has_c_compiler() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let version = Command::new("cc").arg("--version").stdout(Stdio::null()).status();
        let has = version.is_ok_and(|status| status.success());
        if !has {
            use std::io::Write as _;
            // The test harness hides what the printing macros write in a test that passes, so this
            // line is written without them.
            let _ = writeln!(std::io::stderr(), "skipped: no `cc`, so no C program takes part");
        }
        has
    })
}

/// Builds the archive of the C interface, and the C program that uses it. The archive is built as
/// in the project's tests (`xtask/src/builds.rs`), as an example: this activates the development
/// dependencies, so that the features are those of the stage `test` and nothing is compiled again.
fn build_c() -> Result<()> {
    let root = workspace().join("../..");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--profile", "test", "--workspace", "--all-features"]);
    command.args(["--lib", "--example", "vectors", "--manifest-path"]).arg(root.join("Cargo.toml"));
    command.arg("--target-dir").arg(target()?);
    let status = command.status().context("starting cargo build")?;
    ensure!(status.success(), "building the C interface: {status}");
    let program = target()?.join(C_PROGRAM);
    let fresh = program.with_extension(std::process::id().to_string());
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    command.arg("-I").arg(root.join("bindings/c/include"));
    command.arg(workspace().join("../c/peer.c")).arg(target()?.join("debug/libpartywall_capi.a"));
    command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-o"]).arg(&fresh);
    let status = command.status().context("starting cc")?;
    ensure!(status.success(), "building the C peer: {status}");
    std::fs::rename(&fresh, &program).context("putting the C peer in its place")
}

fn build_go() -> Result<()> {
    let program = target()?.join(GO_PROGRAM);
    // Other tests may build or run the program at the same time, so the new executable is renamed
    // into place.
    let fresh = program.with_extension(std::process::id().to_string());
    let source = workspace().join("../go");
    let mut command = Command::new("go");
    command.args(["build", "-buildvcs=false", "-o"]).arg(&fresh).arg(".").current_dir(source);
    let status = command.status().context("starting go build")?;
    ensure!(status.success(), "building the Go peer: {status}");
    std::fs::rename(&fresh, &program).context("putting the Go peer in its place")
}

/// Builds all Rust programs of this workspace together, so that shared dependencies are built only
/// once.
fn build_rust() -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--quiet", "--workspace", "--bins", "--manifest-path"])
        .arg(workspace().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target()?);
    let status = command.status().context("starting cargo build")?;
    ensure!(status.success(), "building the programs: {status}");
    Ok(())
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The target directory in which this test was built; the test is `TARGET/debug/deps/test`.
fn target() -> Result<PathBuf> {
    let this = std::env::current_exe().context("where is this test?")?;
    let target = this.ancestors().nth(3).context("no target directory above this test")?;
    Ok(target.to_path_buf())
}

const GO_PROGRAM: &str = "conformance-peer-go";
const C_PROGRAM: &str = "conformance-peer-c";

static GO: OnceLock<Result<(), String>> = OnceLock::new();
static C: OnceLock<Result<(), String>> = OnceLock::new();
static RUST: OnceLock<Result<(), String>> = OnceLock::new();
