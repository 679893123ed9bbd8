//! The plan that a child gets, and the lines that it writes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::report::{CaseReport, SpeedReport};

/// The cases of a self-test, and their limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SelftestPlan {
    /// Only groups whose names contain this text, or if there are none, only such cases.
    pub filter: String,
    /// Cases of each group; all of them without a number.
    pub cases_per_group: Option<usize>,
    /// True if speeds are measured.
    pub times: bool,
    /// The longest time of a case.
    pub case_limit: Duration,
}

/// A line of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
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
