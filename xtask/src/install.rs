// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask install`: builds the C library, and copies it to where compilers, pkg-config and
//! CMake find it.
//!
//! ```text
//! PREFIX/include/partywall.h, .hpp,    PREFIX/lib/libpartywall.so ─▶ .so.0 ─▶ .so.0.1.0
//!   partywall/asio.hpp, calls.hpp,     PREFIX/lib/pkgconfig/partywall.pc
//!   partywall/lossy.hpp                PREFIX/lib/libpartywall.a
//! PREFIX/lib/cmake/Partywall/          PREFIX/share/man/man3/partywall.3
//! ```
//!
//! The C compiler links the shared library from the archive. Rust's own shared library cannot be
//! used, because rustc passes a version script of its own to the linker. `--destdir` puts a
//! directory before all paths, for packagers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::command::Step;

/// The directories into which the C library is installed.
struct Place {
    /// The prefix that is written into the installed files, such as partywall.pc.
    prefix: String,
    /// The directory below which the files are written: `--destdir` followed by the prefix.
    root: PathBuf,
}

/// Installs the C library into the directories that the arguments choose.
///
/// # Errors
/// If an argument is wrong, there is no C compiler, or a file cannot be written.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let place = Place::parse(arguments)?;
    if !Step::new("cc").args("--version").works() {
        return Err("no C compiler `cc`, which links the shared library".into());
    }
    build()?;
    place.archive()?;
    place.shared_library()?;
    place.copy("bindings/c/include/partywall.h", "include/partywall.h")?;
    for header in HEADERS {
        place.copy(&format!("bindings/cpp/include/{header}"), &format!("include/{header}"))?;
    }
    place.fill("bindings/c/partywall.pc.in", "lib/pkgconfig/partywall.pc")?;
    for name in ["partywall-config.cmake", "partywall-config-version.cmake"] {
        let template = format!("bindings/c/cmake/{name}.in");
        place.fill(&template, &format!("lib/cmake/Partywall/{name}"))?;
    }
    place.fill("bindings/c/partywall.3", "share/man/man3/partywall.3")?;
    println!("installed in {}; a program finds it with:", place.root.display());
    println!("    export PKG_CONFIG_PATH={}/lib/pkgconfig", place.prefix);
    println!("    cc program.c $(pkg-config --cflags --libs partywall)");
    println!("and, unless the loader knows the directory (ldconfig):");
    println!("    export LD_LIBRARY_PATH={}/lib", place.prefix);
    Ok(())
}

/// Builds the archive of the C library.
///
/// # Errors
///
/// If the library does not compile.
pub fn build() -> Result<(), String> {
    // The target directory is given explicitly, so that the caller's CARGO_TARGET_DIR does not move
    // the archive.
    Step::cargo("build --release --package partywall-capi --target-dir target").run()
}

/// Links the shared library from the archive that [`build`] has made. The shared library exports
/// only the functions of the header.
///
/// # Errors
/// If the C compiler fails.
pub fn link(path: &Path) -> Result<(), String> {
    let _ = fs::remove_file(path);
    Step::new("cc")
        .args("-shared -s -Wl,--gc-sections -Wl,-z,relro,-z,now")
        .arg(&format!("-Wl,-soname,libpartywall.so.{ABI}"))
        .args("-Wl,--version-script=bindings/c/partywall.map")
        .arg("-Wl,--whole-archive")
        .arg(ARCHIVE)
        .arg("-Wl,--no-whole-archive")
        .args(&PRIVATE.join(" "))
        .arg("-o")
        .arg(&path.to_string_lossy())
        .run()
}

/// Adds to a compiler's command the archive that [`build`] has made, and then the system libraries
/// that the archive needs.
pub fn with_archive(step: Step) -> Step {
    step.arg(ARCHIVE).args(&PRIVATE.join(" "))
}

impl Place {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut prefix, mut destdir) = ("/usr/local".to_owned(), String::new());
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("`{argument}` needs a directory"))?;
            match argument.as_str() {
                "--prefix" => prefix.clone_from(value),
                "--destdir" => destdir.clone_from(value),
                other => return Err(format!("`install` does not know the argument `{other}`")),
            }
        }
        let prefix = std::path::absolute(prefix.trim_end_matches('/'));
        let prefix = prefix.map_err(|error| format!("the prefix is no path: {error}"))?;
        let prefix = prefix.to_str().ok_or("the prefix is not UTF-8")?.to_owned();
        let root = PathBuf::from(format!("{destdir}{prefix}"));
        Ok(Self { prefix, root })
    }

    /// Returns the path of the file `name` in the installation, and creates the directory that
    /// holds it.
    fn path(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.root.join(name);
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(path)
    }

    fn copy(&self, from: &str, name: &str) -> Result<(), String> {
        let path = self.path(name)?;
        // The old file is removed, not overwritten, because a running program may have mapped it.
        let _ = fs::remove_file(&path);
        let copied = fs::copy(from, &path);
        copied
            .map(drop)
            .map_err(|error| format!("cannot copy {from} to {}: {error}", path.display()))
    }

    fn fill(&self, template: &str, name: &str) -> Result<(), String> {
        let text = fs::read_to_string(template);
        let text = text.map_err(|error| format!("cannot read {template}: {error}"))?;
        let path = self.path(name)?;
        let written = fs::write(&path, self.replaced(&text));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn replaced(&self, template: &str) -> String {
        let series = VERSION.rsplit_once('.').map_or(VERSION, |(series, _)| series);
        let names: Vec<&str> = PRIVATE.iter().map(|it| it.trim_start_matches("-l")).collect();
        template
            .replace("@PREFIX@", &self.prefix)
            .replace("@VERSION@", VERSION)
            .replace("@SERIES@", series)
            .replace("@ABI@", ABI)
            .replace("@PRIVATE@", &PRIVATE.join(" "))
            .replace("@CMAKE_PRIVATE@", &names.join(";"))
    }

    fn archive(&self) -> Result<(), String> {
        let name = "lib/libpartywall.a";
        self.copy(ARCHIVE, name)?;
        let path = self.path(name)?;
        let strip = Step::new("strip").arg("--strip-debug").arg(&path.to_string_lossy());
        // If the tool `strip` is missing, the archive stays larger, and works the same.
        if Step::new("strip").args("--version").works() { strip.run() } else { Ok(()) }
    }

    fn shared_library(&self) -> Result<(), String> {
        let path = self.path(&format!("lib/libpartywall.so.{VERSION}"))?;
        link(&path)?;
        for (name, target) in [
            (format!("lib/libpartywall.so.{ABI}"), format!("libpartywall.so.{VERSION}")),
            ("lib/libpartywall.so".to_owned(), format!("libpartywall.so.{ABI}")),
        ] {
            let path = self.path(&name)?;
            let _ = fs::remove_file(&path);
            symlink(target, &path)
                .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// The installed C++ headers, relative to their source directory.
const HEADERS: [&str; 4] =
    ["partywall.hpp", "partywall/asio.hpp", "partywall/calls.hpp", "partywall/lossy.hpp"];
const ARCHIVE: &str = "target/release/libpartywall_capi.a";
/// Version of the workspace, which all its packages share.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of the binary interface, as `partywall_abi` returns it.
const ABI: &str = "0";
/// Linker options for the system libraries that the archive needs.
const PRIVATE: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Place, String> {
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        Place::parse(&arguments)
    }

    #[test]
    fn destdir_precedes_the_prefix_but_is_not_named_in_files() {
        let place = parse(&["--prefix", "/opt/x/", "--destdir", "/tmp/stage"]).unwrap();
        assert_eq!(place.root, PathBuf::from("/tmp/stage/opt/x"));
        assert_eq!(place.replaced("prefix=@PREFIX@ @ABI@"), "prefix=/opt/x 0");
        assert_eq!(parse(&[]).unwrap().root, PathBuf::from("/usr/local"));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(parse(&["--prefix"]).is_err());
        assert!(parse(&["--into", "/opt"]).is_err());
    }
}
