//! The plan that a child gets, and the lines that it writes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::report::{CaseReport, SpeedReport};

/// The cases of a self-test, and their limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SelftestPlan {
    /// Selects groups whose names contain this text or, if none match, cases.
    pub filter: String,
    /// Cases of each group; all of them without a number.
    pub cases_per_group: Option<usize>,
    /// True if speeds are measured.
    pub times: bool,
    /// The longest time of a case.
    pub case_limit: Duration,
}

impl SelftestPlan {
    /// Sets [`filter`](Self::filter).
    #[must_use]
    pub fn with_filter(mut self, filter: String) -> Self {
        self.filter = filter;
        self
    }

    /// Sets [`cases_per_group`](Self::cases_per_group).
    #[must_use]
    pub fn with_cases_per_group(mut self, cases_per_group: impl Into<Option<usize>>) -> Self {
        self.cases_per_group = cases_per_group.into();
        self
    }

    /// Sets [`times`](Self::times).
    #[must_use]
    pub fn with_times(mut self, times: bool) -> Self {
        self.times = times;
        self
    }

    /// Sets [`case_limit`](Self::case_limit).
    #[must_use]
    pub fn with_case_limit(mut self, case_limit: Duration) -> Self {
        self.case_limit = case_limit;
        self
    }
}

/// A line of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SelftestMessage {
    /// The GPU is open: the origin of its code, and the bandwidth of copies in its memory.
    Open { code: String, copy_bandwidth: Option<f64> },
    /// A group begins.
    Group,
    /// A case or a measurement begins.
    Begin(String),
    /// A case ended.
    Case(CaseReport),
    /// A measurement ended.
    Speed(SpeedReport),
    /// A group ended.
    End,
}
