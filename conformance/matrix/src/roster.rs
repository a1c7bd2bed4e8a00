// SPDX-License-Identifier: MIT OR Apache-2.0
//! The roster of the matrix: the program of each language, and the features that each language
//! lacks.

use std::process::Command;

/// The program of one language, which the harness starts as server or as client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the language, as `--program` gives it.
    pub language: String,
    words: Vec<String>,
    features: Vec<String>,
}

impl Program {
    /// Returns the command that starts the program, without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }

    /// Whether the language has the feature `channel`, `session` or `link`.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|it| it == feature)
    }

    /// Asks the program for its features, and checks that it lacks exactly those that the table
    /// `LACKS` names.
    fn with_features(mut self) -> Result<Self, String> {
        let output = self.command().arg("features").output();
        let output =
            output.map_err(|error| format!("{} does not start: {error}", self.language))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(format!("{} does not tell its features: {text}", self.language));
        }
        self.features = text.split_whitespace().map(str::to_owned).collect();
        self.judge_lacks()?;
        Ok(self)
    }

    fn judge_lacks(&self) -> Result<(), String> {
        for feature in FEATURES {
            let named = reason_of_lack(&self.language, feature).is_some();
            if !self.has(feature) && !named {
                return Err(format!("{} has no {feature}, and LACKS has no reason", self.language));
            }
            if self.has(feature) && named {
                return Err(format!("{} has a {feature}: remove it from LACKS", self.language));
            }
        }
        Ok(())
    }
}

/// The programs that take part in a run, in the order of the command line.
pub struct Roster {
    /// The programs of the matrix, one for each language.
    pub programs: Vec<Program>,
}

impl Roster {
    /// Reads `--program LANGUAGE WORD…` for each language, and asks each program for its features.
    ///
    /// # Errors
    /// If there is no program, a program does not start, or a program lacks a feature that it
    /// should have.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let programs = words.split(|word| word == "--program").skip(1).map(|words| match words {
            [language, words @ ..] if !words.is_empty() => {
                Program { language: language.clone(), words: words.to_vec(), features: Vec::new() }
                    .with_features()
            }
            _ => Err("`--program` needs a language and a command".to_owned()),
        });
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        if programs.is_empty() {
            return Err("`--program` names no language".to_owned());
        }
        Ok(Self { programs })
    }
}

/// Returns why a language lacks a feature; `None` if the language has the feature.
pub fn reason_of_lack(language: &str, feature: &str) -> Option<&'static str> {
    LACKS.iter().find(|lack| lack.0 == language && lack.1 == feature).map(|lack| lack.2)
}

/// The features that a language may have: the objects of the library that it offers.
pub const FEATURES: [&str; 3] = ["channel", "session", "link"];

/// The features that languages lack: language, feature, and the reason.
const LACKS: [(&str, &str, &str); 1] =
    [("Go", "link", "the Go module has channels and sessions, but no links yet")];

#[cfg(test)]
mod tests {
    use super::*;

    fn program(language: &str, features: &str) -> Program {
        Program {
            language: language.to_owned(),
            words: vec!["true".to_owned()],
            features: features.split_whitespace().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn lack_that_the_table_does_not_name_is_an_error() {
        assert_eq!(program("C", "channel session link").judge_lacks(), Ok(()));
        assert!(program("C", "channel link").judge_lacks().is_err());
        let (language, feature, _) = LACKS[0];
        let others: Vec<&str> = FEATURES.into_iter().filter(|&it| it != feature).collect();
        assert_eq!(program(language, &others.join(" ")).judge_lacks(), Ok(()));
        assert!(program(language, &FEATURES.join(" ")).judge_lacks().is_err());
    }

    #[test]
    fn program_that_does_not_start_is_an_error() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Roster::parse(&words).err()
        };
        assert!(parse("").is_some_and(|error| error.contains("no language")));
        assert!(parse("--program C").is_some_and(|error| error.contains("needs")));
        assert!(parse("--program C /no/such/program").is_some_and(|it| it.contains("start")));
        assert!(parse("--program C false").is_some_and(|error| error.contains("features")));
    }
}
