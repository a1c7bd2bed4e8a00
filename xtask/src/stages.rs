// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: the stages, in order, and the table of their times.
//!
//! A stage passes, fails, or is skipped with a reason that is printed. Only a missing *optional
//! tool* is a reason to skip; a missing *test* is a failure, because silence would read as success.

use std::io::{IsTerminal, stdout};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::command::{Step, plain_output};
use crate::{builds, executables, faults, go, install, jdk, matrix, netty, python, tidy, vectors};

/// The outcome of a stage that did not fail.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    /// The stage passed: everything that it checks holds.
    Passed,
    /// The stage passed, but left out a part, for the reason given here.
    Partly(String),
    /// The stage checked nothing, for the reason given here.
    Skipped(String),
}

/// Runs the stages that the arguments choose.
///
/// # Errors
/// If the arguments are wrong, or a stage failed; the message says how to repeat it.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let Choice { stages, required } = choose(arguments)?;
    let start = Times::now();
    let mut table = Vec::new();
    let mut passed = Vec::new();
    let mut failure = None;
    for stage in stages {
        headline(&format!("== {} (at {})", stage.name, seconds(start.elapsed().0)));
        let stage_start = Times::now();
        let outcome = (stage.run)(&passed).and_then(|done| checked(stage.name, done, &required));
        let elapsed = stage_start.elapsed();
        let verdict = match &outcome {
            Ok(Done::Passed) => {
                passed.push(stage.name);
                "ok".to_owned()
            }
            Ok(Done::Partly(reason)) => {
                println!("skipped in this stage: {reason}");
                passed.push(stage.name);
                "partly".to_owned()
            }
            Ok(Done::Skipped(reason)) => {
                println!("skipped: {reason}");
                "skipped".to_owned()
            }
            Err(_) => "FAILED".to_owned(),
        };
        table.push((stage.name, verdict, elapsed));
        if let Err(message) = outcome {
            failure = Some(format!(
                "stage `{}` failed: {message}\n  or: cargo xtask test --only {}",
                stage.name, stage.name
            ));
            break;
        }
    }
    print_table(&table, start.elapsed());
    failure.map_or(Ok(()), Err)
}

/// Returns the outcome of a stage. The result is an error if the stage is required, but it or a
/// part of it was skipped.
fn checked(stage: &str, done: Done, required: &[String]) -> Result<Done, String> {
    if !required.iter().any(|name| name == stage) {
        return Ok(done);
    }
    match done {
        Done::Passed => Ok(Done::Passed),
        Done::Partly(reason) => {
            Err(format!("a part of it was skipped, and --require names it: {reason}"))
        }
        Done::Skipped(reason) => Err(format!("it was skipped, and --require names it: {reason}")),
    }
}

/// The names of all stages; if `quick_only`, the names of the quick stages only.
pub fn names(quick_only: bool) -> Vec<&'static str> {
    STAGES.iter().filter(|stage| stage.quick || !quick_only).map(|stage| stage.name).collect()
}

struct Stage {
    name: &'static str,
    quick: bool,
    /// The function that runs the stage. Its argument lists the stages that have already passed in
    /// this run of `cargo xtask test`.
    run: fn(&[&str]) -> Result<Done, String>,
}

/// The stages of a run, and those that must not be skipped.
struct Choice {
    stages: Vec<&'static Stage>,
    required: Vec<String>,
}

fn choose(arguments: &[String]) -> Result<Choice, String> {
    let mut quick = false;
    let mut only = None;
    let mut required = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--only" => {
                let name = rest.next().ok_or("`--only` needs the name of a stage")?;
                only = Some(stage_of(name)?);
            }
            "--require" => {
                let list = rest.next().ok_or("`--require` needs names of stages, as `go,c`")?;
                for name in list.split(',') {
                    required.push(stage_of(name)?.name.to_owned());
                }
            }
            other => return Err(format!("`test` does not know the argument `{other}`")),
        }
    }
    let stages = match only {
        Some(stage) => vec![stage],
        None => STAGES.iter().filter(|stage| stage.quick || !quick).collect(),
    };
    Ok(Choice { stages, required })
}

fn stage_of(name: &str) -> Result<&'static Stage, String> {
    STAGES.iter().find(|stage| stage.name == name).ok_or_else(|| {
        format!("there is no stage `{name}`; the stages are: {}", names(false).join(" "))
    })
}

fn headline(text: &str) {
    if stdout().is_terminal() && !plain_output() {
        println!("\n\x1b[1m{text}\x1b[0m");
    } else {
        println!("\n{text}");
    }
}

/// Prints the time of each stage, and the processor time of the programs that it ran.
fn print_table(table: &[(&str, String, (Duration, Duration))], total: (Duration, Duration)) {
    let line = |name: &str, verdict: &str, (elapsed, processor): (Duration, Duration)| {
        let (elapsed, processor) = (seconds(elapsed), seconds(processor));
        println!("{name:<13} {verdict:<8} {elapsed:>9} {processor:>9}");
    };
    headline("== stages");
    println!("{:<13} {:<8} {:>9} {:>9}", "", "", "time", "processor");
    table.iter().for_each(|(name, verdict, times)| line(name, verdict, *times));
    line("total", "", total);
    if total.0 > TOTAL_MAX {
        println!("note: over the {} allowed on two cores", seconds(TOTAL_MAX));
    }
}

/// An instant, and the processor time that ended children of this process had used until then.
struct Times {
    instant: Instant,
    processor: Duration,
}

impl Times {
    fn now() -> Self {
        Self { instant: Instant::now(), processor: processor_time().unwrap_or_default() }
    }

    /// The time since this instant, and the processor time of children that ended since then.
    fn elapsed(&self) -> (Duration, Duration) {
        let now = Self::now();
        (now.instant - self.instant, now.processor.saturating_sub(self.processor))
    }
}

/// The processor time of the ended children of this process, and of their ended children: the
/// fields cutime and cstime of `/proc/self/stat`, in hundredths of a second. `None` where that file
/// does not exist.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let ticks = after_name.split_whitespace().skip(13).take(2);
    let ticks = ticks.map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 10))
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

fn passed(steps: &[Step]) -> Result<Done, String> {
    for step in steps {
        println!("$ {step}");
        step.run()?;
    }
    Ok(Done::Passed)
}

/// Builds the test executables that each step of `builds` would run, and runs the chosen tests, up
/// to `at_once` executables at the same time.
fn side_by_side(builds: &[(Step, executables::Choice)], at_once: usize) -> Result<Done, String> {
    builds.iter().for_each(|(step, _)| println!("$ {step}"));
    executables::run(builds, at_once)?;
    Ok(Done::Passed)
}

fn fmt(_: &[&str]) -> Result<Done, String> {
    passed(&[Step::cargo("fmt --all --check")])
}

/// Applies the rules of `tidy` to all files of the repository. Meanwhile cargo compiles the program
/// that generates the test vectors of `spec/`; then its output is compared with the files there.
fn tidy_and_vectors(_: &[&str]) -> Result<Done, String> {
    let compare = || if vectors::exist() { vectors::main(&["--check".to_owned()]) } else { Ok(()) };
    std::thread::scope(|scope| {
        let compared = scope.spawn(compare);
        let tidy = tidy::main(&[]);
        let compared = compared.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        tidy.and(compared)
    })?;
    Ok(Done::Passed)
}

/// Runs clippy on all code, and then on the code that is only compiled with shuttle. With the test
/// profile, clippy also checks the unit tests of that code.
fn clippy(_: &[&str]) -> Result<Done, String> {
    passed(&[
        Step::cargo("clippy --workspace --all-features --all-targets -- -D warnings"),
        builds::on_shuttle("clippy -p partywall --lib --profile test").args("-- -D warnings"),
    ])
}

/// Runs the tests of every target but doctests, which the stage `doc` runs. Examples have no tests:
/// the stages `clippy` and `doc` compile them. The tests of the crate `link` have the guards of
/// seeded faults. Of the other crates, the tests that must notice a fault run a second time, with
/// the guards. So the stage `faults` finds them built and passed.
fn test(_: &[&str]) -> Result<Done, String> {
    let others = builds::tests().args("--exclude partywall-link --tests");
    let builds: [(Step, executables::Choice); 2] =
        [(others, executables::all), (faults::tests()?, faults::tests_of)];
    side_by_side(&builds, TESTS_AT_ONCE)
}

/// The command `cargo doc` with the given arguments, in which each warning is an error, such as a
/// warning for a broken link.
fn deny_warnings(arguments: &str) -> Step {
    Step::cargo(arguments).variable("RUSTDOCFLAGS", "-D warnings")
}

fn doc(_: &[&str]) -> Result<Done, String> {
    passed(&[
        builds::tests().args("--doc"),
        // With `--examples`, the dependencies have the same features as in the stage `clippy`, so
        // that cargo reuses the results of that stage.
        deny_warnings("doc --no-deps --workspace --all-features --lib --examples"),
        // The command `partywall` has the library's name. So its pages are written to another
        // directory, where they do not overwrite those of the library. Both runs use the same
        // intermediate files.
        deny_warnings("doc --no-deps --workspace --all-features --bins --examples")
            .args("--target-dir target/doc-bins")
            .variable("CARGO_BUILD_BUILD_DIR", "target"),
    ])
}

fn loom(_: &[&str]) -> Result<Done, String> {
    let step = builds::models()?;
    let lists =
        executables::build(&step)?.into_iter().map(|test| test.step().args("--list").capture());
    if !lists.flatten().any(|list| names_a_test(&list)) {
        return Err(
            "there is no model in crates/ring/tests/loom: memory orders are unproved".into()
        );
    }
    side_by_side(&[(step, executables::all)], BUSY_AT_ONCE)
}

/// Runs the models of sessions: unit tests in which shuttle chooses the order of threads. If there
/// is no such test, the stage fails.
fn shuttle(_: &[&str]) -> Result<Done, String> {
    passed(&[builds::orders()?.args("--no-run")])?;
    let step = builds::orders()?.arg(SHUTTLE_MODELS);
    if !names_a_test(&step.clone().args("-- --list").capture()?) {
        return Err(format!("there is no test in {SHUTTLE_MODELS}: the races are untested"));
    }
    passed(&[step])
}

fn names_a_test(listed: &Output) -> bool {
    String::from_utf8_lossy(&listed.stdout).contains(": test")
}

/// Path of the module with the models of sessions, the tests that run under shuttle.
const SHUTTLE_MODELS: &str = "session::interleavings::";

/// Runs the seeded faults (`faults.rs`): takes each registered rule out of the code, one at a time,
/// and expects that a test fails.
fn take_out_rules(passed: &[&str]) -> Result<Done, String> {
    let models_have_passed = ["loom", "shuttle"].iter().all(|stage| passed.contains(stage));
    faults::main(passed.contains(&"test"), models_have_passed)?;
    Ok(Done::Passed)
}

/// Runs the exchanges of messages with the published implementations of shmipc. Without Go, only
/// the exchanges with shmipc-go are left out.
fn conformance(_: &[&str]) -> Result<Done, String> {
    if !Step::new("go").args("version").works() {
        println!(
            "skipped in this stage: no Go, so shmipc-go takes no part; https://go.dev/dl has it"
        );
    }
    let manifest = "--manifest-path conformance/rust/Cargo.toml";
    passed(&[Step::cargo("fmt --all --check").args(manifest)])?;
    let step = Step::cargo("test --workspace --target-dir target").args(manifest);
    side_by_side(&[(step.args("--lib --bins --tests"), executables::all)], BUSY_AT_ONCE)
}

/// Compiles C programs against the library, and runs them. After that, the library is installed,
/// and examples are built against the installation.
fn c(_: &[&str]) -> Result<Done, String> {
    if !Step::new("cc").args("--version").works() {
        return skipped("no `cc`; the package gcc has it");
    }
    passed(&[builds::tests().args("--test c")])?;
    let prefix = installed()?;
    check_symbols(&format!("{prefix}/lib/libpartywall.so"))?;
    for example in ["echo", "link"] {
        let source = format!("bindings/c/examples/{example}.c");
        build_by_pkg_config("cc", "c11", &source, &format!("{prefix}/{example}"))?;
    }
    build_by_cmake("c", &prefix)?;
    Ok(passed_but_for(&missing_builders()))
}

/// Compiles C++ programs against the library, and runs them. After that, the headers are installed,
/// and examples are built against the installation.
fn cpp(_: &[&str]) -> Result<Done, String> {
    if !Step::new("c++").args("--version").works() {
        return skipped("no `c++`; the package g++ has it");
    }
    passed(&[builds::tests().args("--test cpp")])?;
    let prefix = installed()?;
    let program = format!("{prefix}/echo_cpp");
    build_by_pkg_config("c++", "c++17", "bindings/cpp/examples/echo.cpp", &program)?;
    build_by_cmake("cpp", &prefix)?;
    // The test executable leaves out the tests that need a library whose header is missing.
    let headers = [
        ("boost/asio.hpp", "libboost-dev"),
        ("boost/beast/http.hpp", "libboost-dev"),
        ("asio.hpp", "libasio-dev"),
    ];
    let missing = headers
        .iter()
        .filter(|(header, _)| !has_header(header))
        .map(|(header, package)| format!("no <{header}>, which the package {package} has"));
    Ok(passed_but_for(&missing.chain(missing_builders()).collect::<Vec<_>>()))
}

/// Returns the outcome of a stage that left out the parts whose tools or libraries are missing;
/// `missing` gives the reason for each part.
fn passed_but_for(missing: &[String]) -> Done {
    if missing.is_empty() { Done::Passed } else { Done::Partly(missing.join("; ")) }
}

/// Returns a reason for each missing tool of pkg-config and CMake, which build the examples against
/// the installed library.
fn missing_builders() -> Vec<String> {
    let is_there = |program: &str| Step::new(program).args("--version").works();
    let missing = ["pkg-config", "cmake"].into_iter().filter(|program| !is_there(program));
    missing.map(|program| format!("no {program}")).collect()
}

/// Whether the C++ compiler finds a header of the system. The tests of C++ look for headers in the
/// same way.
fn has_header(header: &str) -> bool {
    Step::new("c++").args("-x c++ -E -o /dev/null -include").arg(header).args("/dev/null").works()
}

/// Installs the library and the headers below `target/`, and returns the prefix of the
/// installation.
fn installed() -> Result<String, String> {
    let prefix = std::path::absolute("target/installed");
    let prefix = prefix.map_err(|error| format!("no current directory: {error}"))?;
    let prefix = prefix.to_string_lossy().into_owned();
    install::main(&["--prefix".to_owned(), prefix.clone()])?;
    Ok(prefix)
}

/// Builds a program against the installed library with pkg-config, as users do, unless pkg-config
/// is missing.
fn build_by_pkg_config(
    compiler: &str,
    standard: &str,
    source: &str,
    program: &str,
) -> Result<(), String> {
    if !Step::new("pkg-config").args("--version").works() {
        return Ok(());
    }
    let prefix = program.rsplit_once('/').map_or("", |(prefix, _)| prefix);
    let flags = Step::new("pkg-config").args("--cflags --libs partywall");
    let flags = flags.variable("PKG_CONFIG_PATH", &format!("{prefix}/lib/pkgconfig"));
    let output = flags.capture()?;
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    let compile = Step::new(compiler).arg(&format!("-std={standard}"));
    let compile = compile.args("-Wextra -Wpedantic -Werror").arg(source);
    passed(&[compile.args(&flags).arg("-o").arg(program)]).map(drop)
}

/// Builds the examples of a language against the installed library with CMake, as users do, unless
/// CMake is missing.
fn build_by_cmake(language: &str, prefix: &str) -> Result<(), String> {
    if !Step::new("cmake").args("--version").works() {
        return Ok(());
    }
    let (source, build) =
        (format!("bindings/{language}/examples"), format!("target/cmake/{language}"));
    passed(&[
        Step::new("cmake")
            .args("-S")
            .arg(&source)
            .arg("-B")
            .arg(&build)
            .arg(&format!("-DCMAKE_PREFIX_PATH={prefix}")),
        Step::new("cmake").arg("--build").arg(&build),
    ])
    .map(drop)
}

/// Checks that a shared library exports exactly the symbols of the version script.
fn check_symbols(library: &str) -> Result<(), String> {
    let script = std::fs::read_to_string("bindings/c/partywall.map");
    let script = script.map_err(|error| format!("cannot read the version script: {error}"))?;
    let listed = script.lines().map(str::trim).filter(|line| line.starts_with("partywall_"));
    let mut listed: Vec<String> = listed.map(|line| line.replace(';', "")).collect();
    let mut exported = Vec::new();
    Step::new("nm").args("--dynamic --defined-only").arg(library).lines(|line| {
        let name = line.rsplit(' ').next().unwrap_or_default();
        // The name of the version, PARTYWALL_0.1, is a symbol itself, and is left out of the
        // comparison.
        if let Some((name, _)) = name.split_once('@').filter(|(name, _)| *name != "PARTYWALL_0.1") {
            exported.push(name.to_owned());
        }
        Ok(())
    })?;
    listed.sort();
    exported.sort();
    exported.dedup();
    if listed == exported {
        return Ok(());
    }
    let unlike = |a: &[String], b: &[String]| {
        a.iter().filter(|name| !b.contains(name)).cloned().collect::<Vec<_>>().join(" ")
    };
    Err(format!(
        "the library has not: {}; it has besides: {}",
        unlike(&listed, &exported),
        unlike(&exported, &listed)
    ))
}

/// Runs calls of Volo's thrift over our streams, and over its own shmipc transport against our
/// shmipc protocol.
fn volo(_: &[&str]) -> Result<Done, String> {
    let manifest = "--manifest-path conformance/volo/Cargo.toml";
    passed(&[
        Step::cargo("fmt --check").args(manifest),
        Step::cargo("test --locked --target-dir target").args(manifest),
    ])
}

/// Checks and tests the Go module on this system. For two other systems only `go vet` checks it.
fn go_module(_: &[&str]) -> Result<Done, String> {
    if !go::command("version").works() {
        return skipped("no Go; https://go.dev/dl has it");
    }
    let mut unformatted = Vec::new();
    Step::new("gofmt").args("-l .").directory(go::MODULE).lines(|path| {
        unformatted.push(path.to_owned());
        Ok(())
    })?;
    if !unformatted.is_empty() {
        return Err(format!("in {}: gofmt -w {}", go::MODULE, unformatted.join(" ")));
    }
    passed(&[
        go::build_of_peers(),
        go::command("vet ./..."),
        go::command("vet ./...").variable("GOOS", "darwin"),
        go::command("vet ./...").variable("GOARCH", "arm64"),
        // Go reuses the result of an earlier test run if no file of the module has changed. The
        // tests also read test files in `spec/`, which lies outside the module, so `-count=1`
        // forbids the reuse.
        go::with_peers(go::command("test -count=1 ./..."))?,
    ])?;
    staticcheck()?;
    // The race detector, unlike the rest of this stage, needs a C compiler.
    if !Step::new("cc").args("--version").works() {
        println!("skipped in this stage: no C compiler, so no race detector");
        return Ok(Done::Passed);
    }
    passed(&[go::command("test -count=1 -race ./...").variable("CGO_ENABLED", "1")])
}

/// Builds staticcheck in the version that its Go module pins, and checks the first Go module with
/// it. If staticcheck cannot be downloaded or needs a newer Go, this check is left out.
fn staticcheck() -> Result<Done, String> {
    let command = |arguments| go::command(arguments).directory(tidy::go::STATICCHECK);
    let download = command("mod download");
    let output = download.capture()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        if !is_obtainable_elsewhere(&text) {
            return Err(format!("{text}\nrepeat it with:\n    {download}"));
        }
        println!("skipped in this stage: staticcheck: {text}");
        return Ok(Done::Passed);
    }
    let program = std::path::absolute("target/staticcheck");
    let program = program.map_err(|error| format!("no current directory: {error}"))?;
    let program = program.to_string_lossy();
    passed(&[
        command("build -o").arg(&program).arg("honnef.co/go/tools/cmd/staticcheck"),
        Step::new(&program).args("./...").directory(go::MODULE),
    ])
}

/// Checks and tests each Go module that is nested in the first one; the stage `go` checks their
/// format. If a module cannot be downloaded or needs a newer Go, it is left out, and the stage
/// counts as skipped.
fn go_frameworks(_: &[&str]) -> Result<Done, String> {
    if !go::command("version").works() {
        return skipped("no Go; https://go.dev/dl has it");
    }
    passed(&[go::build_of_frameworks()])?;
    let mut left_out = Vec::new();
    let elsewhere = [go::MODULE, tidy::go::STATICCHECK]; // the stage `go` checks these two modules
    for module in tidy::go::MODULES.iter().filter(|m| !elsewhere.contains(&m.directory)) {
        let command = |arguments| go::command(arguments).directory(module.directory);
        let download = command("mod download");
        let output = download.capture()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            if !is_obtainable_elsewhere(&text) {
                return Err(format!("{text}\nrepeat it with:\n    {download}"));
            }
            println!("skipped in this stage: {}: {text}", module.directory);
            left_out.push(module.directory);
            continue;
        }
        let tests = go::with_frameworks(command("test -count=1 ./..."))?;
        passed(&[command("vet ./..."), tests])?;
    }
    if left_out.is_empty() {
        return Ok(Done::Passed);
    }
    skipped(&format!("what these need could not be downloaded: {}", left_out.join(" ")))
}

/// Whether this output of a failed `go mod download` says that the network or a newer Go is
/// missing. Any other failure is a fault of the repository.
fn is_obtainable_elsewhere(text: &str) -> bool {
    let reasons =
        ["dial ", "no such host", "imeout", "connection re", "lookup disabled", "requires go >="];
    !text.contains("checksum mismatch") && reasons.iter().any(|reason| text.contains(reason))
}

/// Builds the Python package, and runs its tests and the type checker. The test tools are installed
/// below `target/`; if that fails, the stage is skipped.
fn python_package(_: &[&str]) -> Result<Done, String> {
    if !python::is_recent() {
        return skipped("no Python 3.11 or later; https://www.python.org/downloads has it");
    }
    if !Step::new(PYTHON).args("-m pytest --version").works() {
        let tools = "-m pip install --quiet aiohttp pytest numpy mypy";
        let made = Step::new("python3").args("-m venv").arg(PYTHON_TOOLS).works();
        if !made || !Step::new(PYTHON).args(tools).works() {
            return skipped("pytest, aiohttp, numpy and mypy could not be installed");
        }
    }
    passed(&[
        Step::cargo("fmt --check").args(python::MANIFEST),
        Step::cargo("clippy --release --locked --target-dir target/python")
            .args(python::MANIFEST)
            .args("-- -D warnings"),
    ])?;
    python::build()?;
    let interpreter = std::path::absolute(PYTHON)
        .map_err(|error| format!("no current directory: {error}"))?
        .to_string_lossy()
        .into_owned();
    let command = |arguments: &str| {
        Step::new(&interpreter)
            .args(arguments)
            .directory("bindings/python")
            .variable("PYTHONDONTWRITEBYTECODE", "1")
            .variable("PYTHONPATH", ".")
            .variable("MYPY_CACHE_DIR", "/dev/null")
    };
    passed(&[
        command("-m pytest -q -p no:cacheprovider"),
        command("-m mypy --strict --no-incremental partywall tests examples"),
        command("-m mypy.stubtest partywall --allowlist tests/stubtest.allow")
            .args("--ignore-unused-allowlist --ignore-disjoint-bases"),
    ])
}

fn java(_: &[&str]) -> Result<Done, String> {
    if jdk::Jdk::find().is_none() {
        return skipped(&jdk::missing());
    }
    if !Step::new("cc").args("--version").works() {
        return skipped("no `cc`, which links the native library; the package gcc has it");
    }
    jdk::test(&jdk::package()?)?;
    Ok(Done::Passed)
}

/// Builds the Java package and the Maven module for Netty, and runs the module's tests.
fn java_netty(_: &[&str]) -> Result<Done, String> {
    if jdk::Jdk::find().is_none() {
        return skipped(&jdk::missing());
    }
    for (tool, package, exists) in [
        ("cc", "gcc", Step::new("cc").args("--version").works()),
        ("mvn", "maven", netty::has_maven()),
    ] {
        if !exists {
            return skipped(&format!("no `{tool}`; the package {package} has it"));
        }
    }
    match netty::test(&jdk::package()?)? {
        netty::Tested::Passed => Ok(Done::Passed),
        netty::Tested::NotDownloaded(text) => {
            skipped(&format!("what the module needs could not be downloaded: {text}"))
        }
    }
}

/// Runs the short form of the matrix: each pair of languages exchanges messages of three sizes
/// (empty, in the ring, in a block), and one end of a link is killed.
fn every_language(_: &[&str]) -> Result<Done, String> {
    let missing = matrix::short()?;
    if missing.is_empty() { Ok(Done::Passed) } else { Ok(Done::Partly(missing)) }
}

/// The directory of the Python environment in which the test tools are installed.
const PYTHON_TOOLS: &str = "target/python/tools";
const PYTHON: &str = "target/python/tools/bin/python3";

/// Checks that the fuzz targets still compile. The inputs that the targets found earlier are
/// replayed by `cargo test`.
fn fuzz_smoke(_: &[&str]) -> Result<Done, String> {
    if !std::path::Path::new("fuzz/Cargo.toml").exists() {
        return Err("there is no fuzz/Cargo.toml: the parsers have no fuzz targets".into());
    }
    // This check links nothing, so libFuzzer, which is C++, is not needed: any existing path may
    // stand for the library. The target directory is that of the stage `clippy`, so that most
    // dependencies are built already.
    let path = std::fs::canonicalize("fuzz/Cargo.toml");
    let path = path.map_err(|error| format!("cannot find fuzz/Cargo.toml: {error}"))?;
    passed(&[Step::cargo("check --manifest-path fuzz/Cargo.toml --target-dir target")
        .variable("CUSTOM_LIBFUZZER_PATH", &path.to_string_lossy())])
}

/// Checks that the libraries compile with the oldest Rust that they promise. The stage looks for
/// that toolchain without calling it, because rustup might then download it.
fn msrv(_: &[&str]) -> Result<Done, String> {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    let listed = Step::new("rustup").args("toolchain list").capture();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_it = |name: &&str| {
        name.starts_with(&format!("{oldest}-")) || name.starts_with(&format!("{oldest}."))
    };
    let Some(toolchain) = listed.iter().flat_map(|text| text.split_whitespace()).find(is_it) else {
        return skipped(&format!(
            "no Rust {oldest}; `rustup toolchain install {oldest} --profile minimal` adds it"
        ));
    };
    passed(&[Step::cargo(&format!("+{toolchain} check -p partywall -p partywall-shmipc"))
        .args("--all-features --target-dir target/msrv")])
}

/// Runs the tests of the crates layout and ring under miri, with fewer property cases, because miri
/// is about 1,000 times slower.
fn miri(_: &[&str]) -> Result<Done, String> {
    if !Step::cargo("+nightly miri --version").works() {
        return skipped("no miri; `rustup +nightly component add miri` adds it");
    }
    passed(&[Step::cargo("+nightly miri test -p partywall-layout -p partywall-ring --lib")
        .args("--target-dir target/miri")
        .variable("PROPTEST_CASES", "4")
        .variable("MIRIFLAGS", "-Zmiri-disable-isolation")])
}

fn deny(_: &[&str]) -> Result<Done, String> {
    if !Step::cargo("deny --version").works() {
        return skipped("no cargo-deny; `cargo install --locked cargo-deny` adds it");
    }
    passed(&[Step::cargo("deny check bans licenses sources")])
}

fn semver(_: &[&str]) -> Result<Done, String> {
    let tags = Step::new("git").args("tag --list v* --sort=-version:refname").capture();
    let text = tags.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let Some(tag) = text.ok().and_then(|text| text.lines().next().map(str::to_owned)) else {
        return skipped("no release to compare with");
    };
    if !Step::cargo("semver-checks --version").works() {
        return skipped(
            "no cargo-semver-checks; `cargo install --locked cargo-semver-checks` adds it",
        );
    }
    passed(&[Step::cargo("semver-checks --workspace --baseline-rev").arg(&tag)])
}

fn skipped(reason: &str) -> Result<Done, String> {
    Ok(Done::Skipped(reason.to_owned()))
}

/// Number of test executables that run at the same time if they wait most of their time.
const TESTS_AT_ONCE: usize = 3;
/// Number of test executables that run at the same time if they are busy most of their time.
const BUSY_AT_ONCE: usize = 2;

/// Time that all stages together should take at most, on two cores. A longer run only prints a
/// note.
const TOTAL_MAX: Duration = Duration::from_secs(40 * 60);

const STAGES: [Stage; 23] = [
    Stage { name: "fmt", quick: true, run: fmt },
    Stage { name: "tidy", quick: true, run: tidy_and_vectors },
    Stage { name: "clippy", quick: true, run: clippy },
    Stage { name: "test", quick: true, run: test },
    Stage { name: "doc", quick: false, run: doc },
    Stage { name: "loom", quick: false, run: loom },
    Stage { name: "shuttle", quick: false, run: shuttle },
    Stage { name: "c", quick: false, run: c },
    Stage { name: "cpp", quick: false, run: cpp },
    Stage { name: "conformance", quick: false, run: conformance },
    Stage { name: "volo", quick: false, run: volo },
    Stage { name: "go", quick: false, run: go_module },
    Stage { name: "go-frameworks", quick: false, run: go_frameworks },
    Stage { name: "python", quick: false, run: python_package },
    Stage { name: "java", quick: false, run: java },
    Stage { name: "java-netty", quick: false, run: java_netty },
    Stage { name: "matrix", quick: false, run: every_language },
    Stage { name: "faults", quick: false, run: take_out_rules },
    Stage { name: "fuzz-smoke", quick: false, run: fuzz_smoke },
    Stage { name: "msrv", quick: false, run: msrv },
    Stage { name: "miri", quick: false, run: miri },
    Stage { name: "deny", quick: false, run: deny },
    Stage { name: "semver", quick: false, run: semver },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        Ok(choose(&arguments)?.stages.iter().map(|stage| stage.name).collect())
    }

    #[test]
    fn required_stage_that_was_skipped_in_whole_or_in_part_is_an_error() {
        let arguments = ["--require", "go,deny"].map(str::to_owned);
        let required = choose(&arguments).unwrap().required;
        let skipped = || Done::Skipped("no tool".to_owned());
        assert!(checked("go", skipped(), &required).unwrap_err().contains("no tool"));
        assert_eq!(checked("go", Done::Passed, &required), Ok(Done::Passed));
        assert_eq!(checked("miri", skipped(), &required), Ok(skipped()));
        let partly = || passed_but_for(&["no header".to_owned()]);
        assert!(checked("go", partly(), &required).unwrap_err().contains("no header"));
        assert_eq!(checked("miri", partly(), &required), Ok(partly()));
        assert_eq!(checked("go", passed_but_for(&[]), &required), Ok(Done::Passed));
        assert!(chosen(&["--require", "gone"]).unwrap_err().contains("no stage `gone`"));
        assert!(chosen(&["--require"]).is_err());
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let start = Times::now();
        Step::new("sh")
            .args("-c")
            .arg("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
            .run()
            .unwrap();
        assert!(start.elapsed().1 > Duration::ZERO);
    }

    #[test]
    fn module_that_nobody_can_download_fails() {
        let offline = "Get \"https://proxy.golang.org/\": dial tcp: lookup proxy.golang.org";
        assert!(is_obtainable_elsewhere(offline));
        assert!(is_obtainable_elsewhere("go.mod requires go >= 1.26.0 (running go 1.25.1)"));
        assert!(!is_obtainable_elsewhere("verifying module: checksum mismatch"));
        assert!(!is_obtainable_elsewhere("unknown revision v9.9.9"));
    }

    #[test]
    fn without_arguments_every_stage_runs() {
        assert_eq!(chosen(&[]), Ok(names(false)));
    }

    #[test]
    fn quick_leaves_out_the_slow_stages() {
        assert_eq!(chosen(&["--quick"]), Ok(vec!["fmt", "tidy", "clippy", "test"]));
    }

    #[test]
    fn only_runs_one_stage() {
        assert_eq!(chosen(&["--only", "loom"]), Ok(vec!["loom"]));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(chosen(&["--only"]).is_err());
        assert!(chosen(&["--only", "lint"]).is_err_and(|error| error.contains("fmt tidy")));
        assert!(chosen(&["--fast"]).is_err());
    }
}
