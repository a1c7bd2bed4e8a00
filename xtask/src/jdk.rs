// SPDX-License-Identifier: MIT OR Apache-2.0
//! The JDK that compiles the Java package, `cargo xtask package java`, and the package's tests.
//!
//! ```text
//! libpartywall_capi.a ─ cc ─▶ libpartywall.so ─┐
//! bindings/java/src/main ─ javac ─▶ classes ───┴─ jar ─▶ target/java/partywall.jar
//! bindings/java/src/echo ─ javac ─▶ classes ───── jar ─▶ target/java/partywall-echo.jar
//! ```
//!
//! Nothing but the JDK's own tools is needed: no Maven, and no package of others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Step;
use crate::install;

/// A JDK of a version that has the package's foreign function interface.
pub struct Jdk {
    /// Directory of the tools; empty if they are found by `PATH`.
    tools: PathBuf,
}

impl Jdk {
    /// Finds a JDK: that of `JAVA_HOME`, the newest of the distribution, or that of `PATH`.
    /// Returns `None` if none of them is recent enough.
    pub fn find() -> Option<Self> {
        let mut homes: Vec<PathBuf> =
            env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
        homes.extend(installed());
        let mut directories: Vec<PathBuf> = homes.into_iter().map(|it| it.join("bin")).collect();
        directories.push(PathBuf::new());
        directories.into_iter().map(|tools| Self { tools }).find(Self::is_recent)
    }

    /// A tool of the JDK, such as `javac`.
    pub fn tool(&self, name: &str) -> Step {
        Step::new(&self.path(name))
    }

    /// The path of a tool, or its name if `PATH` finds it.
    pub fn path(&self, name: &str) -> String {
        self.tools.join(name).to_string_lossy().into_owned()
    }

    /// Compiles the classes of a program of a user of the package, and returns its class path.
    ///
    /// # Errors
    /// If they do not compile.
    pub fn compile_program(&self, source: &str, name: &str) -> Result<String, String> {
        let jar = format!("{TARGET}/partywall.jar");
        self.compile(source, name, &jar, "-try")?;
        Ok(format!("{jar}:{TARGET}/{name}"))
    }

    /// The home of the JDK; `None` if it was found by `PATH`.
    pub fn home(&self) -> Option<String> {
        let home = self.tools.parent()?.to_string_lossy().into_owned();
        Some(home).filter(|home| !home.is_empty())
    }

    fn is_recent(&self) -> bool {
        let Ok(output) = self.tool("javac").args("-version").capture() else { return false };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        version(&text).is_some_and(|version| version >= VERSION_MIN)
    }

    /// Compiles the classes of one source directory to `target/java/NAME`.
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

/// Builds the jar of the package, and that of the echo example.
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
    // The JDK's name of the processor, with which the package looks for the library.
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

/// Compiles and runs the tests of the package, with two carriers of virtual threads. The command
/// `partywall` is their peer.
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
    // The benchmark measures next to nothing here: this shows that it runs.
    jdk.tool("java")
        .args("--enable-native-access=ALL-UNNAMED -cp")
        .arg(&jar)
        .args("bindings/java/bench/Bench.java quick")
        .run()
}

/// Returns the reason why nothing can be built without a JDK.
pub fn missing() -> String {
    format!(
        "no JDK {VERSION_MIN} or later in JAVA_HOME, {INSTALLED} or PATH; https://adoptium.net has it"
    )
}

/// The homes of the distribution's JDKs, the last name first.
fn installed() -> Vec<PathBuf> {
    let entries = fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut homes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    homes.sort();
    homes.reverse();
    homes
}

/// Returns the first number of what `javac -version` prints, such as 25 of `javac 25.0.1`.
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

/// The oldest version of Java that the package compiles for.
const VERSION_MIN: u32 = 22;
/// Where distributions install JDKs.
const INSTALLED: &str = "/usr/lib/jvm";
/// Where the classes and the jars are written.
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
