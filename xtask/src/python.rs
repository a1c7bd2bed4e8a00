// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the native module of the Python package.

use crate::command::Step;

/// Whether the command `python3` exists in a version that the package supports.
pub fn is_recent() -> bool {
    let version = "import sys; sys.exit(sys.version_info < (3, 11))";
    Step::new("python3").arg("-c").arg(version).works()
}

/// Builds the native module, and copies it into the directory of the Python package.
///
/// # Errors
/// If the native module does not compile, or cannot be copied.
pub fn build() -> Result<(), String> {
    let step = Step::cargo("build --release --locked --target-dir target/python").args(MANIFEST);
    println!("$ {step}");
    step.run()?;
    let library = "bindings/python/partywall/_native.abi3.so";
    std::fs::copy("target/python/release/libpartywall_python.so", library)
        .map(drop)
        .map_err(|error| format!("cannot copy the native module to {library}: {error}"))
}

/// The cargo argument that selects the Cargo workspace of the Python package.
pub const MANIFEST: &str = "--manifest-path bindings/python/Cargo.toml";
