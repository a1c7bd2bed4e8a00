// SPDX-License-Identifier: MIT OR Apache-2.0
//! Former names of values on the command line: each use is an error that gives the present name.
//!
//! The table is the only place that knows a former name. `CHANGELOG.md` has the same rows.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// A value of a flag or argument of the command line that was renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerName {
    /// The flag or argument that takes the renamed value.
    pub place: Place,
    /// The former name of the value, which the command line refuses.
    pub former: &'static str,
    /// The present name of the value, which the error message gives.
    pub present: &'static str,
}

/// A flag or argument of which some values were renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The argument SCENARIO of `partywall bench`, which names a scenario.
    BenchScenario,
    /// The flag `--transport` of `partywall bench` and of `bench-peers`.
    BenchTransport,
    /// The flag `--wait` of `partywall bench`, which names a way of waiting.
    BenchWait,
    /// The flag `--transport` of those `partywall` commands that open a channel.
    ChannelTransport,
    /// The flag `--wait` of those `partywall` commands that open a channel.
    ChannelWait,
}

impl Place {
    /// Returns, for tests, the command-line arguments that give `value` to this flag or argument.
    pub fn command_line(self, value: &str) -> Vec<String> {
        let line = match self {
            Self::BenchScenario => format!("bench {value}"),
            Self::BenchTransport => format!("bench ping --transport uds,{value}"),
            Self::BenchWait => format!("bench ping --wait spin,{value}"),
            Self::ChannelTransport => format!("connect unix:/x --transport {value}"),
            Self::ChannelWait => format!("connect unix:/x --wait {value}:1ms"),
        };
        line.split(' ').map(str::to_owned).collect()
    }
}

/// Returns the present name of a value of `place` that was called `former`.
pub fn present_name(place: Place, former: &str) -> Option<&'static str> {
    let is_it = |row: &&FormerName| row.place == place && row.former == former;
    FORMER_NAMES.iter().find(is_it).map(|row| row.present)
}

/// A parser that turns former names into errors and leaves all other values to another parser.
#[derive(Clone)]
pub struct FormerNames<P> {
    parser: P,
    place: Place,
}

impl<P> FormerNames<P> {
    /// A parser for the values of `place`: former names are errors, and `parser` reads all other
    /// values.
    pub const fn new(place: Place, parser: P) -> Self {
        Self { parser, place }
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
        let present = value.to_str().and_then(|former| present_name(self.place, former));
        let Some(present) = present else {
            return self.parser.parse_ref(command, argument, value);
        };
        let argument = argument.map(|argument| format!(" of {argument}")).unwrap_or_default();
        let former = value.display();
        let text = format!("the value '{former}'{argument} is now called '{present}'");
        Err(command.clone().error(ErrorKind::InvalidValue, text))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.parser.possible_values()
    }
}

const fn row(place: Place, former: &'static str, present: &'static str) -> FormerName {
    FormerName { place, former, present }
}

/// All values of flags and arguments that were renamed.
pub const FORMER_NAMES: [FormerName; 9] = [
    row(Place::BenchScenario, "flood", "throughput"),
    row(Place::BenchScenario, "crowd", "oversubscribe"),
    row(Place::BenchTransport, "wall", "shm"),
    row(Place::BenchTransport, "link-wall", "link-shm"),
    row(Place::BenchTransport, "floor-spin", "baseline-spin"),
    row(Place::BenchTransport, "floor-eventfd", "baseline-eventfd"),
    row(Place::BenchWait, "timed", "poll"),
    row(Place::ChannelTransport, "wall", "shm"),
    row(Place::ChannelWait, "timed", "poll"),
];
