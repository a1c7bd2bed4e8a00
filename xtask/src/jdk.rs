// SPDX-License-Identifier: MIT OR Apache-2.0
//! The JDK that compiles the Java package, `cargo xtask package java`, and the package's tests.
//!
//! ```text
//! libpartywall_capi.a ─ cc ─▶ libpartywall.so ─┐
//! bindings/java/src/main ─ javac ─▶ classes ───┴─ jar ─▶ target/java/partywall.jar
//! bindings/java/src/echo ─ javac ─▶ classes ───── jar ─▶ target/java/partywall-echo.jar
//! ```
//!
//! Only the JDK's own tools are needed: no Maven, and no packages of others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Step;
use crate::install;

/// A JDK with a version that has the foreign function interface which the Java package uses.
pub struct Jdk {
    /// Directory of the JDK's tools; empty if `PATH` finds them.
    tools: PathBuf,
}

impl Jdk {
    /// Finds a JDK: first that of `JAVA_HOME`, then the newest one that the distribution has
    /// installed, then that of `PATH`. Returns `None` if no JDK is recent enough.
    pub fn find() -> Option<Self> {
        let mut homes: Vec<PathBuf> =
            env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
        homes.extend(installed());
        let mut directories: Vec<PathBuf> = homes.into_iter().map(|it| it.join("bin")).collect();
        directories.push(PathBuf::new());
        directories.into_iter().map(|tools| Self { tools }).find(Self::is_recent)
    }

    /// Makes a command that runs a tool of the JDK, such as `javac`.
    pub fn tool(&self, name: &str) -> Step {
        Step::new(&self.path(name))
    }

    /// The path of a tool of the JDK, or only its name if `PATH` finds it.
    pub fn path(&self, name: &str) -> String {
        self.tools.join(name).to_string_lossy().into_owned()
    }

    /// Compiles a program that uses the Java package, and returns the class path with which to run
    /// it.
    ///
    /// # Errors
    /// If the program does not compile.
    pub fn compile_program(&self, source: &str, name: &str) -> Result<String, String> {
        let jar = format!("{TARGET}/partywall.jar");
        self.compile(source, name, &jar, "-try")?;
        Ok(format!("{jar}:{TARGET}/{name}"))
    }

    /// The home directory of the JDK; `None` if `PATH` found the JDK.
    pub fn home(&self) -> Option<String> {
        let home = self.tools.parent()?.to_string_lossy().into_owned();
        Some(home).filter(|home| !home.is_empty())
    }

    fn is_recent(&self) -> bool {
        let Ok(output) = self.tool("javac").args("-version").capture() else { return false };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        version(&text).is_some_and(|version| version >= VERSION_MIN)
    }

    /// Compiles all classes below one source directory into `target/java/NAME`.
    fn compile(
        &self,
        source: &str,
        name: &str,
        class_path: &str,
        lint: &str,
    ) -> Result<(), String> {
        let target = format!("{TARGET}/{name}");
        let _ = fs::remove_dir_all(&target);
        let mut step =
            self.tool("javac").args("-Werror").args("--release").arg(&VERSION_MIN.to_string());
        step = step.arg(&format!("-Xlint:all,{lint}")).args("-d").arg(&target);
        if !class_path.is_empty() {
            step = step.args("-cp").arg(class_path);
        }
        let mut files = Vec::new();
        sources(Path::new(source), &mut files)?;
        if files.is_empty() {
            return Err(format!("there is no Java file in {source}"));
        }
        files.sort();
        files.iter().fold(step, |step, file| step.arg(file)).run()
    }
}

/// Builds two jars: that of the Java package, and that of its echo example.
///
/// # Errors
/// If there is no JDK or C compiler, or a step fails.
pub fn package() -> Result<Jdk, String> {
    let jdk = Jdk::find().ok_or_else(missing)?;
    if !Step::new("cc").args("--version").works() {
        return Err("no C compiler `cc`, which links the native library".into());
    }
    let cannot = |error: std::io::Error| format!("cannot write below {TARGET}: {error}");
    jdk.compile("bindings/java/src/main/java", "classes", "", "-restricted")?;
    let classes = format!("{TARGET}/classes");
    jdk.compile("bindings/java/src/echo/java", "echo", &classes, "-try")?;
    install::build()?;
    // The name of the processor in Java's property `os.arch`, by which the package finds its
    // library.
    let processor = if cfg!(target_arch = "x86_64") { "amd64" } else { env::consts::ARCH };
    let native = format!("{classes}/native/linux-{processor}");
    fs::create_dir_all(&native).map_err(cannot)?;
    install::link(Path::new(&format!("{native}/libpartywall.so")))?;
    let version = env!("CARGO_PKG_VERSION");
    let manifests = [
        ("partywall", "classes", format!("Implementation-Version: {version}\n")),
        (
            "partywall-echo",
            "echo",
            "Main-Class: dev.partywall.echo.Main\nClass-Path: partywall.jar\n\
             Enable-Native-Access: ALL-UNNAMED\n"
                .to_owned(),
        ),
    ];
    for (name, classes, lines) in manifests {
        let manifest = format!("{TARGET}/{name}.manifest");
        fs::write(&manifest, lines).map_err(cannot)?;
        jdk.tool("jar")
            .args("--create --file")
            .arg(&format!("{TARGET}/{name}.jar"))
            .args("--manifest")
            .arg(&manifest)
            .args("-C")
            .arg(&format!("{TARGET}/{classes}"))
            .arg(".")
            .run()?;
    }
    Ok(jdk)
}

/// Compiles and runs the tests of the Java package, with two carrier threads for virtual threads.
/// The command `partywall` is the peer of the tests.
///
/// # Errors
/// If a test fails.
pub fn test(jdk: &Jdk) -> Result<(), String> {
    Step::cargo("build --package partywall-cli").run()?;
    let jar = format!("{TARGET}/partywall.jar");
    jdk.compile("bindings/java/src/test/java", "test", &jar, "-try")?;
    let program = std::path::absolute("target/debug/partywall");
    let program = program.map_err(|error| format!("no current directory: {error}"))?;
    jdk.tool("java")
        .args("--enable-native-access=ALL-UNNAMED")
        .args("-Djdk.virtualThreadScheduler.parallelism=2")
        .args("-Djdk.virtualThreadScheduler.maxPoolSize=2")
        .arg(&format!("-Dpartywall.program={}", program.display()))
        .arg(&format!("-Dpartywall.echo={TARGET}/partywall-echo.jar"))
        .args("-cp")
        .arg(&format!("{jar}:{TARGET}/test"))
        .args("dev.partywall.Main")
        .run()?;
    // The benchmark runs with few messages: here it only shows that it works, and measures nothing.
    jdk.tool("java")
        .args("--enable-native-access=ALL-UNNAMED -cp")
        .arg(&jar)
        .args("bindings/java/bench/Bench.java quick")
        .run()
}

/// Returns the message that no JDK was found, for a skipped stage.
pub fn missing() -> String {
    format!(
        "no JDK {VERSION_MIN} or later in JAVA_HOME, {INSTALLED} or PATH; https://adoptium.net has it"
    )
}

/// The home directories of the JDKs that the distribution has installed, sorted by name in
/// descending order.
fn installed() -> Vec<PathBuf> {
    let entries = fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut homes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    homes.sort();
    homes.reverse();
    homes
}

/// Returns the major version from the output of `javac -version`, such as 25 from `javac 25.0.1`.
fn version(text: &str) -> Option<u32> {
    let number = text.trim().strip_prefix("javac ")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn sources(directory: &Path, files: &mut Vec<String>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "java") {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The oldest version of Java for which the package is compiled.
const VERSION_MIN: u32 = 22;
/// The directory in which Linux distributions install JDKs.
const INSTALLED: &str = "/usr/lib/jvm";
/// The directory into which classes and jars are written.
const TARGET: &str = "target/java";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_first_number() {
        assert_eq!(version("javac 25.0.1\n"), Some(25));
        assert_eq!(version("javac 22"), Some(22));
        assert_eq!(version("javac 1.8.0_402"), Some(1));
        assert_eq!(version("no such program"), None);
    }

    #[test]
    fn java_files_are_found_in_all_directories() {
        let mut files = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/java/src");
        sources(&root, &mut files).unwrap();
        for name in ["main/java/module-info.java", "echo/Main.java", "partywall/Channel.java"] {
            assert!(files.iter().any(|file| file.ends_with(name)), "{name}: {files:?}");
        }
    }
}
