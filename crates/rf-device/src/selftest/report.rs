//! The results of a self-test, for people and for issues.

use serde::{Deserialize, Serialize};

use crate::probe::{DeviceReport, PlatformReport};

/// The results of a self-test, with what an issue needs to know about the machine.
#[derive(Clone, Debug, Serialize)]
pub struct SelftestReport {
    /// Version of the program.
    pub program: String,
    /// Compiler and targets of the embedded kernels.
    pub kernels: String,
    /// The operating system, and its version.
    pub system: String,
    /// Runtime, driver and compiler.
    pub platform: PlatformReport,
    /// The GPU.
    pub device: DeviceReport,
    /// Environment variables that choose or change a GPU.
    pub environment: Vec<(String, String)>,
    /// The origin of the code that ran.
    pub code: Option<String>,
    /// Bytes per second of copies within the memory of the GPU.
    pub copy_bandwidth: Option<f64>,
    /// Groups of cases, in order.
    pub groups: Vec<GroupReport>,
    /// The case that runs while the report is written.
    pub running: Option<String>,
    /// The time so far.
    pub seconds: f64,
}

/// The results of an op with a format.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupReport {
    /// The name of the group.
    pub name: String,
    /// The cases that ended.
    pub cases: Vec<CaseReport>,
    /// The measured speeds.
    pub speeds: Vec<SpeedReport>,
    /// The case in which the driver crashed or hung, and how.
    pub problem: Option<String>,
}

/// The result of a case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CaseReport {
    /// The name of the case.
    pub name: String,
    /// `Σ(a − b)² / Σb²` over all outputs; `None` if the case did not run.
    pub nmse: Option<f64>,
    /// The NMSE that the arithmetic of the case allows.
    pub allowed_nmse: f64,
    /// `max |a − b| / √(mean(b²))`.
    pub peak: Option<f64>,
    /// The reason why the backend does not support the case.
    pub skipped: Option<String>,
    /// The error of a case that failed.
    pub failure: Option<String>,
    /// True if the device may be lost.
    #[serde(default)]
    pub is_device_lost: bool,
    /// Time of the case, with that of the reference.
    pub seconds: f64,
}

/// A measured speed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SpeedReport {
    /// The work: `512 tokens, 4096 x 4096`.
    pub what: String,
    /// Microseconds.
    pub us: Option<f64>,
    /// Bytes per second, where memory bounds the op.
    pub bytes_per_s: Option<f64>,
    /// Operations per second, where arithmetic bounds the op.
    pub operations_per_s: Option<f64>,
    /// The reason why it was not measured.
    pub failure: Option<String>,
}

impl GroupReport {
    /// The case that is closest to what it allows, or beyond.
    pub fn worst(&self) -> Option<&CaseReport> {
        // An exact result has an error of 0 and may have 0.
        let share = |case: &&CaseReport| match case.nmse {
            Some(nmse) if case.allowed_nmse > 0.0 => nmse / case.allowed_nmse,
            Some(nmse) if nmse > 0.0 => f64::INFINITY,
            Some(_) => 0.0,
            None => -1.0,
        };
        self.cases.iter().max_by(|a, b| share(a).total_cmp(&share(b)))
    }

    /// Returns true if a case failed, or the driver did.
    pub fn is_wrong(&self) -> bool {
        self.problem.is_some() || self.cases.iter().any(|case| case.failure.is_some())
    }

    /// Returns true if the last case may have lost the device.
    pub(super) fn loses_device(&self) -> bool {
        self.cases.last().is_some_and(|case| case.is_device_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_case_is_relative_to_what_is_allowed() {
        let case = |name: &str, nmse, allowed_nmse| CaseReport {
            name: name.into(),
            nmse,
            allowed_nmse,
            ..CaseReport::default()
        };
        let cases = vec![
            case("skipped", None, 1e-9),
            case("exact", Some(0.0), 0.0),
            case("close", Some(9e-10), 1e-9),
            case("larger", Some(1e-5), 1e-4),
        ];
        let group = GroupReport { cases, ..GroupReport::default() };
        assert_eq!(group.worst().unwrap().name, "close");
        assert!(!group.is_wrong());
        let crashed = GroupReport { problem: Some("crash".into()), ..GroupReport::default() };
        assert!(crashed.is_wrong() && crashed.worst().is_none());
    }
}
