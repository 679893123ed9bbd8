//! Findings of the doctor.

use serde::Serialize;

/// A finding about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) level: Level,
    /// The finding.
    pub(super) what: String,
    /// The cure, if it is a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warn,
    Fail,
}

impl Check {
    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), cure: None }
    }

    pub(super) fn warn(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Warn, what: what.into(), cure: Some(cure.into()) }
    }

    pub(super) fn fail(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Fail, what: what.into(), cure: Some(cure.into()) }
    }

    /// Turns a failure into a warning, for a problem that affects nobody.
    pub(super) fn at_most_warn(mut self) -> Self {
        if self.level == Level::Fail {
            self.level = Level::Warn;
        }
        self
    }
}
