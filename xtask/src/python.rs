// SPDX-License-Identifier: MIT OR Apache-2.0
//! The native module of the Python package.

use crate::command::Step;

/// Whether there is an interpreter that the package supports.
pub fn is_recent() -> bool {
    let version = "import sys; sys.exit(sys.version_info < (3, 11))";
    Step::new("python3").arg("-c").arg(version).works()
}

/// Builds the native module, and puts it into the package.
///
/// # Errors
/// If it does not compile, or cannot be copied.
pub fn build() -> Result<(), String> {
    let step = Step::cargo("build --release --locked --target-dir target/python").args(MANIFEST);
    println!("$ {step}");
    step.run()?;
    let library = "bindings/python/partywall/_native.abi3.so";
    std::fs::copy("target/python/release/libpartywall_python.so", library)
        .map(drop)
        .map_err(|error| format!("cannot copy the native module to {library}: {error}"))
}

/// The argument that names the workspace of the package.
pub const MANIFEST: &str = "--manifest-path bindings/python/Cargo.toml";
