// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C compiler of the system, and the programs that it builds.

#[path = "objects.rs"]
mod objects;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whether a program is built with the sanitizers for addresses, leaks and undefined behaviour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sanitizers {
    Off,
    On,
}

/// A C or C++ program of `bindings/c` or `bindings/cpp`, built in a directory of its own.
pub struct Program {
    path: PathBuf,
    directory: tempfile::TempDir,
}

impl Program {
    /// Builds the program from the source file `source`. The path is relative to `bindings/cpp` if
    /// `standard` is a C++ standard, else to `bindings/c`.
    ///
    /// # Panics
    /// The compiler is missing, or reports a warning.
    pub fn build_as(standard: &str, source: &str, sanitizers: Sanitizers) -> Self {
        Self::build_with(standard, source, sanitizers, &[])
    }

    /// Builds the program from the source file `source` for the language `standard`, with the given
    /// macros defined.
    pub fn build_with(
        standard: &str,
        source: &str,
        sanitizers: Sanitizers,
        defined: &[&str],
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("program");
        let with_flags = || {
            let mut command = compiler(standard);
            command.args(["-g", "-pthread"]);
            if sanitizers == Sanitizers::On {
                command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
            }
            command
        };
        let mut compiling = with_flags();
        compiling.args(defined.iter().map(|name| format!("-D{name}")));
        compiling.arg(bindings(standard).join(source));
        let object = objects::object(compiling, run);
        let mut linking = with_flags();
        run(linking.arg(object).arg(library()).args(LIBRARIES).arg("-o").arg(&path));
        Self { path, directory }
    }

    /// Runs the program to its end. Its first argument is the path of an empty directory, made for
    /// this program.
    ///
    /// # Panics
    /// The program fails.
    pub fn run(&self, arguments: &[&str]) {
        let scratch = self.directory.path().join("scratch");
        fs::create_dir_all(&scratch).expect("a directory");
        run(Command::new(&self.path).arg(scratch).args(arguments));
    }

    /// Starts the program with exactly these arguments. Dropping the returned value kills the
    /// program.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(&self, arguments: &[&str], input: Stdio, output: Stdio) -> Running {
        let mut command = Command::new(&self.path);
        let child = command.args(arguments).stdin(input).stdout(output).spawn();
        Running(child.expect("a program that starts"))
    }

    /// Returns the directory in which the program was built. It is deleted when the program is
    /// dropped.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// A program that runs.
pub struct Running(pub Child);

impl Running {
    /// Waits for the end of the program, whose status has to be 0.
    ///
    /// # Panics
    /// The program fails.
    pub fn succeed(mut self) {
        let status = self.0.wait().expect("a status");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Killing a program that has ended already fails, which does no harm.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles a source file in the given standard of C or C++, without linking it.
///
/// # Panics
/// The compiler is missing, or reports a warning.
pub fn compiles(standard: &str, source: &Path) {
    run(compiler(standard).args(["-fsyntax-only"]).arg(source));
}

/// Returns a command of the compiler for the given standard, with the include paths of the headers.
fn compiler(standard: &str) -> Command {
    let mut command = Command::new(if is_cpp(standard) { "c++" } else { "cc" });
    command.arg(format!("-std={standard}")).args(WARNINGS);
    for standard in ["c11", "c++17"] {
        command.arg("-I").arg(bindings(standard).join("include"));
    }
    command
}

fn is_cpp(standard: &str) -> bool {
    standard.starts_with("c++")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the static library that cargo built together with this test. The folder may have static
/// libraries of other features; the newest has the present sources.
fn library() -> PathBuf {
    let executable = env::current_exe().expect("a path of this executable");
    let directory = executable.parent().expect("a directory of this executable");
    let files = fs::read_dir(directory).expect("a list of files").flatten();
    let archives = files.filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libpartywall_capi") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|file| file.metadata().and_then(|it| it.modified()).ok());
    newest.expect("the archive of the library").path()
}

/// Returns the directory with the headers and programs of the language that the standard belongs
/// to.
fn bindings(standard: &str) -> PathBuf {
    let language = if is_cpp(standard) { "cpp" } else { "c" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings").join(language)
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// Libraries of the system that programs need together with the static library.
const LIBRARIES: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
