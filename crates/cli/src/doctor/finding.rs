// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of one check of `partywall doctor` (`Finding`), with its severity and advice.

use serde::Serialize;

/// The severity of a finding, the result of one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The checked property of the machine is in order.
    Ok,
    /// The operator may want to know the state of the checked property.
    Note,
    /// Shared memory works, but the state of the checked property limits some programs.
    Warn,
    /// Because of the state of the checked property, shared memory cannot be used.
    Fail,
}

/// The result of one check of `partywall doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How much the finding matters to a user of Partywall.
    pub severity: Severity,
    /// Name of the checked property; it is stable, so programs may use it.
    pub subject: &'static str,
    /// The state of the checked property, as text.
    pub state: String,
    /// Advice on the checked property for the operator, if there is any.
    pub advice: Option<String>,
}

impl Finding {
    /// Makes a finding that the property `subject` is in order.
    pub fn ok(subject: &'static str, state: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, subject, state: state.into(), advice: None }
    }

    /// Makes a finding that the property `subject` has a state of the given severity, with advice.
    pub fn new(
        severity: Severity,
        subject: &'static str,
        state: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, subject, state: state.into(), advice: Some(advice.into()) }
    }

    /// The finding as lines of text.
    pub fn text(&self) -> String {
        let mark = match self.severity {
            Severity::Ok => "ok  ",
            Severity::Note => "note",
            Severity::Warn => "WARN",
            Severity::Fail => "FAIL",
        };
        let mut text = format!("{mark}  {:<20}  {}\n", self.subject, self.state);
        if let Some(advice) = &self.advice {
            text += &format!("{:28}→ {advice}\n", "");
        }
        text
    }
}
