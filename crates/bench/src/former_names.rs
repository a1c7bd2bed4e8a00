// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors for names of the command line that were replaced: they give the new name.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// A parser of values some of which had another name before.
#[derive(Clone)]
pub struct FormerNames<P> {
    parser: P,
    pairs: &'static [(&'static str, &'static str)],
}

impl<P> FormerNames<P> {
    /// Wraps `parser`; `pairs` are former and present names.
    pub const fn new(parser: P, pairs: &'static [(&'static str, &'static str)]) -> Self {
        Self { parser, pairs }
    }
}

impl<P: TypedValueParser> TypedValueParser for FormerNames<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        if let Some((former, present)) = self.pairs.iter().find(|(former, _)| value == *former) {
            let what = argument.map(|argument| format!(" of {argument}")).unwrap_or_default();
            let text = format!("the value '{former}'{what} is now called '{present}'\n");
            return Err(command.clone().error(ErrorKind::InvalidValue, text));
        }
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.parser.possible_values()
    }
}

/// The parser of a flag that was replaced by `present`: each use is an error.
pub fn former_flag(present: &'static str) -> impl TypedValueParser<Value = String> {
    FormerFlag { present }
}

#[derive(Clone)]
struct FormerFlag {
    present: &'static str,
}

impl TypedValueParser for FormerFlag {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        _: &OsStr,
    ) -> Result<String, clap::Error> {
        let former = argument.and_then(Arg::get_long).unwrap_or("?");
        let text = format!("the flag '--{former}' is now called '{}'\n", self.present);
        Err(command.clone().error(ErrorKind::UnknownArgument, text))
    }
}
