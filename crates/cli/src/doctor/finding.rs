// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thing that was looked at: how it is, how bad that is, and what to do.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Works, but will stand in the way of somebody.
    Warn,
    /// Shared memory does not work because of it.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was looked at; stable, for programs.
    pub subject: &'static str,
    /// How it is.
    pub state: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(subject: &'static str, state: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, subject, state: state.into(), advice: None }
    }

    /// Something to tell; with what to do about it.
    pub fn told(
        severity: Severity,
        subject: &'static str,
        state: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, subject, state: state.into(), advice: Some(advice.into()) }
    }

    /// The lines for people.
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
