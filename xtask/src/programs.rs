// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds one program in each language for a harness: for the matrix (`matrix.rs`), or for `cargo
//! xtask bench-languages`.
//!
//! ```text
//! DIRECTORY/NAME.rs     cargo; the caller says how
//!           NAME.go     go, in the module `go`
//!           NAME.c      cc,  and libpartywall_capi.a
//!           NAME.cpp    c++, and libpartywall_capi.a
//!           NAME.py     python3, and the native module of bindings/python
//!           CLASS.java  javac, and the jar of bindings/java
//! ```
//!
//! A language whose tools are missing is left out, with a reason.

use std::fs;

use crate::command::Step;
use crate::{install, jdk, python};

/// The sources of the programs that a harness starts, one program in each language.
pub struct Programs {
    /// The directory of the sources of all languages' programs.
    pub directory: &'static str,
    /// The file name, without extension, of every source except the Java source.
    pub name: &'static str,
    /// The name of the Java class, and of its source file.
    pub class: &'static str,
    /// The command that builds the Rust program.
    pub rust: Step,
    /// The path of the Rust program that the build makes.
    pub rust_program: &'static str,
    /// The options with which the command `java` runs the Java program.
    pub java_options: &'static [&'static str],
}

/// The result of building the program of one language.
enum Built {
    /// The words of the command that starts the built program.
    Program(Vec<String>),
    /// The reason why the program cannot be built on this machine.
    Nothing(String),
}

impl Programs {
    /// Builds the programs, and runs the harness with the arguments `--program LANGUAGE WORD…` for
    /// each program. Returns which languages were left out and why.
    ///
    /// # Errors
    /// If a program does not compile, or the harness fails.
    pub fn run_with(&self, harness: Step) -> Result<String, String> {
        let target = self.target();
        fs::create_dir_all(&target).map_err(|error| format!("cannot make {target}: {error}"))?;
        let languages = [
            ("Rust", self.build_rust()?),
            ("Go", self.build_go()?),
            ("C", self.build_with("cc", "c11", "c")?),
            ("C++", self.build_with("c++", "c++17", "cpp")?),
            ("Python", self.build_python()?),
            ("Java", self.build_java()?),
        ];
        let mut step = harness;
        let mut missing = Vec::new();
        for (language, built) in languages {
            match built {
                Built::Program(words) => {
                    step = step.arg("--program").arg(language);
                    step = words.iter().fold(step, |step, word| step.arg(word));
                }
                Built::Nothing(reason) => {
                    println!("left out: {language}: {reason}");
                    missing.push(format!("{language} ({reason})"));
                }
            }
        }
        let step = step.variable("PYTHONPATH", &absolute("bindings/python")?);
        let step = step.variable("PYTHONDONTWRITEBYTECODE", "1");
        println!("$ {step}");
        step.run()?;
        Ok(missing.join("; "))
    }

    fn build_rust(&self) -> Result<Built, String> {
        self.rust.run()?;
        Ok(Built::Program(vec![self.rust_program.to_owned()]))
    }

    fn build_go(&self) -> Result<Built, String> {
        if !go("version").works() {
            return Ok(Built::Nothing("no Go".to_owned()));
        }
        let source = self.source("go");
        let unformatted = Step::new("gofmt").args("-l").arg(&source).capture()?;
        if !unformatted.stdout.is_empty() {
            return Err(format!("gofmt -w {source}"));
        }
        go("vet").arg(&format!("../{source}")).run()?;
        Ok(Built::Program(vec![self.go_program("")?]))
    }

    /// Builds the Go program with the given build tags, and returns its path.
    ///
    /// # Errors
    /// If the program does not compile.
    pub fn go_program(&self, tags: &str) -> Result<String, String> {
        let program = absolute(&format!("{}/{}_go{tags}", self.target(), self.name))?;
        let source = format!("../{}", self.source("go"));
        go("build -buildvcs=false -o").arg(&program).arg("-tags").arg(tags).arg(&source).run()?;
        Ok(program)
    }

    /// Builds the C or C++ program, linked with the archive of the C interface.
    fn build_with(&self, compiler: &str, standard: &str, extension: &str) -> Result<Built, String> {
        if !Step::new(compiler).args("--version").works() {
            return Ok(Built::Nothing(format!("no `{compiler}`")));
        }
        install::build()?;
        let program = format!("{}/{}_{extension}", self.target(), self.name);
        let step = Step::new(compiler)
            .arg(&format!("-std={standard}"))
            .args("-O2 -Wextra -Wpedantic -Werror -pthread -D_GNU_SOURCE")
            .args("-Ibindings/c/include -Ibindings/cpp/include -o")
            .arg(&program)
            .arg(&self.source(extension));
        install::with_archive(step).run()?;
        Ok(Built::Program(vec![program]))
    }

    fn build_python(&self) -> Result<Built, String> {
        if !python::is_recent() {
            return Ok(Built::Nothing("no Python 3.11 or later".to_owned()));
        }
        python::build()?;
        Ok(Built::Program(vec!["python3".to_owned(), self.source("py")]))
    }

    fn build_java(&self) -> Result<Built, String> {
        if jdk::Jdk::find().is_none() || !Step::new("cc").args("--version").works() {
            return Ok(Built::Nothing(jdk::missing()));
        }
        let jdk = jdk::package()?;
        let classes = jdk.compile_program(self.directory, self.name)?;
        let mut words = vec![jdk.path("java"), "--enable-native-access=ALL-UNNAMED".to_owned()];
        words.extend(self.java_options.iter().map(|&option| option.to_owned()));
        words.extend(["-cp".to_owned(), classes, self.class.to_owned()]);
        Ok(Built::Program(words))
    }

    fn source(&self, extension: &str) -> String {
        format!("{}/{}.{extension}", self.directory, self.name)
    }

    /// The directory into which the Go, C and C++ programs are built.
    fn target(&self) -> String {
        format!("target/{}", self.name)
    }
}

/// Measures each language against its own Unix socket, and prints a table. With `--write` the table
/// is also written into README.md and the guide.
///
/// # Errors
/// If the arguments are wrong, a program fails, or a language was left out.
pub fn bench(arguments: &[String]) -> Result<(), String> {
    let harness = Step::new("target/release/bench-languages");
    let harness = match arguments {
        [] => harness,
        [option] if option == "--write" => harness.arg(option),
        _ => return Err("`bench-languages` takes one argument, --write, or none".into()),
    };
    let manifest = "--manifest-path bench/languages/Cargo.toml";
    let programs = Programs {
        directory: "bench/languages/programs",
        name: "rate",
        class: "Rate",
        rust: Step::cargo("build --release --target-dir target").args(manifest),
        rust_program: "target/release/rate",
        java_options: &[],
    };
    let missing = programs.run_with(harness)?;
    if missing.is_empty() { Ok(()) } else { Err(format!("not measured: {missing}")) }
}

/// Makes a command `go` that runs in the Go module, so that a program outside the module finds its
/// package.
fn go(arguments: &str) -> Step {
    Step::new("go").args(arguments).directory("go").variable("CGO_ENABLED", "0")
}

fn absolute(path: &str) -> Result<String, String> {
    let path = std::path::absolute(path);
    let path = path.map_err(|error| format!("no current directory: {error}"))?;
    Ok(path.to_string_lossy().into_owned())
}
