// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Maven module `partywall-netty`, with Netty and gRPC from Maven Central.
//!
//! ```text
//! target/java/partywall.jar ─ install-file ─┐
//! Maven Central ─ one test, online ─────────┴─▶ target/maven ─▶ every test, offline
//! ```
//!
//! `install-file` is the Maven command that copies a jar into a local repository. One test runs
//! online, so that Maven downloads what all tests need. Maven's local repository is below
//! `target/`, so that of the user stays as it is.

use crate::command::Step;
use crate::jdk::Jdk;

/// The outcome of a test run of the Maven module, unless it failed.
pub enum Tested {
    /// Every test of the Maven module has passed.
    Passed,
    /// A dependency of the module could not be downloaded, for the reason given here.
    NotDownloaded(String),
}

/// Compiles the Maven module, and runs its tests. The caller has built the jar of the Java package.
///
/// # Errors
/// If a test fails, or the module does not compile.
pub fn test(jdk: &Jdk) -> Result<Tested, String> {
    let version = env!("CARGO_PKG_VERSION");
    let install = maven(jdk, &format!("{INSTALL}:install-file"))
        .args("-q -Dfile=target/java/partywall.jar -DgroupId=dev.partywall -DartifactId=partywall")
        .args("-Dpackaging=jar")
        .arg(&format!("-Dversion={version}"));
    // Maven downloads parts of its test runner only when a test runs, so one short test runs online
    // first.
    let resolve = maven(jdk, "test").args("-q").arg(&format!("-Dtest={FIRST_TEST}"));
    for step in [install, resolve.args(MODULE)] {
        println!("$ {step}");
        let output = step.capture()?;
        if output.status.success() {
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if is_download_failure(&text) {
            return Ok(Tested::NotDownloaded(text));
        }
        return Err(format!("{text}\nrepeat it with:\n    {step}"));
    }
    maven(jdk, "test").args("-o").args(MODULE).run().map(|()| Tested::Passed)
}

/// Whether the command `mvn` can be run.
pub fn has_maven() -> bool {
    Step::new("mvn").args("--version").works()
}

fn maven(jdk: &Jdk, goal: &str) -> Step {
    let step = Step::new("mvn").args("-B -ntp -Dmaven.repo.local=target/maven").arg(goal);
    match jdk.home() {
        Some(home) => step.variable("JAVA_HOME", &home),
        None => step,
    }
}

/// Whether the output of a failed Maven run says that a download failed.
fn is_download_failure(text: &str) -> bool {
    ["Could not transfer", "Unknown host", "Connection refused", "Network is unreachable"]
        .iter()
        .any(|reason| text.contains(reason))
}

const MODULE: &str = "-f bindings/java-netty/pom.xml";
const INSTALL: &str = "org.apache.maven.plugins:maven-install-plugin:3.1.3";
/// The short test that runs online, so that Maven downloads all it needs.
const FIRST_TEST: &str = "LifeTest#addressesOfOtherTypesAreUnderstood";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_network_is_no_failure_of_the_module() {
        assert!(is_download_failure("Could not transfer artifact org.junit:junit-bom:pom:5.11.4"));
        assert!(!is_download_failure("Could not find artifact io.netty:netty-none:jar:1"));
        assert!(!is_download_failure("There are test failures."));
    }

    #[test]
    fn module_has_the_version_of_the_package() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings/java-netty/pom.xml");
        let pom = std::fs::read_to_string(path).unwrap();
        let version = concat!("<version>", env!("CARGO_PKG_VERSION"), "</version>");
        let module = "<artifactId>partywall-netty</artifactId>\n  ";
        let package = "<artifactId>partywall</artifactId>\n      ";
        for line in [module, package] {
            assert!(pom.contains(&format!("{line}{version}")), "{line}{version}");
        }
    }
}
