//! Fault injection: which call of which function fails with which status.

use std::{collections::HashMap, ops::RangeInclusive, str::FromStr};

use crate::Status;

/// Calls that fail.
///
/// The text form is a list of `FUNCTION:CALLS:STATUS`, separated by commas or line ends:
///
/// - `FUNCTION` is a function of HIP, `allocation` (each function that allocates device memory) or
///   `kernel` (each execution of a kernel, also within a graph).
/// - `CALLS` counts from 1: one call `3`, a range `3-5`, all from one on `3+`, or all `*`.
/// - `STATUS` is a name such as `hipErrorOutOfMemory`, or a number.
///
/// A function that fails has no effect, but the end of a capture ends it. The failure of a kernel,
/// and a status such as `hipErrorLaunchFailure` from any function, loses the device: all later
/// calls fail too.
///
/// # Examples
///
/// ```
/// use rf_emu_hip::FaultPlan;
///
/// let mut plan: FaultPlan = "hipMalloc:2:hipErrorOutOfMemory, hipEventQuery:1-3:600".parse()?;
/// assert_eq!(plan.next("hipMalloc"), None);
/// assert_eq!(plan.next("hipMalloc").map(|status| status.number()), Some(2));
/// assert_eq!(plan.next("hipMalloc"), None);
///
/// let error = "hipMalloc:two:2".parse::<FaultPlan>().unwrap_err();
/// assert_eq!(error.to_string(), "fault 'hipMalloc:two:2': 'two' is not a call: 3, 3-5, 3+ or *");
/// # Ok::<(), rf_emu_hip::PlanError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
    /// The number of calls of each function so far.
    calls: HashMap<&'static str, u64>,
}

#[derive(Debug, Clone)]
struct Fault {
    function: String,
    calls: RangeInclusive<u64>,
    status: Status,
}

/// A plan that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault '{fault}': {reason}")]
pub struct PlanError {
    fault: String,
    reason: String,
}

impl FaultPlan {
    /// Counts a call of `function` and returns the status with which it fails.
    pub fn next(&mut self, function: &'static str) -> Option<Status> {
        let calls = self.calls.entry(function).or_default();
        *calls += 1;
        let fails = |fault: &&Fault| fault.function == function && fault.calls.contains(&*calls);
        self.faults.iter().find(fails).map(|fault| fault.status)
    }

    /// The number of calls of a function so far.
    pub fn calls(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }
}

impl FromStr for FaultPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let faults = text.split([',', '\n']).map(str::trim).filter(|fault| !fault.is_empty());
        Ok(Self { faults: faults.map(fault).collect::<Result<_, _>>()?, calls: HashMap::new() })
    }
}

fn fault(text: &str) -> Result<Fault, PlanError> {
    let error = |reason: String| PlanError { fault: text.to_owned(), reason };
    let parts: Vec<_> = text.split(':').map(str::trim).collect();
    let [function, calls, status] = parts[..] else {
        return Err(error("it is not FUNCTION:CALLS:STATUS".to_owned()));
    };
    if function.is_empty() {
        return Err(error("it names no function".to_owned()));
    }
    let range = range(calls).ok_or_else(|| format!("'{calls}' is not a call: 3, 3-5, 3+ or *"));
    let status = Status::from_text(status)
        .ok_or_else(|| format!("'{status}' is no status: use its name in HIP or its number"));
    Ok(Fault {
        function: function.to_owned(),
        calls: range.map_err(error)?,
        status: status.map_err(error)?,
    })
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    if text == "*" {
        return Some(1..=u64::MAX);
    }
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => match text.strip_suffix('+') {
            Some(first) => (first.parse().ok()?, u64::MAX),
            None => (text.parse().ok()?, text.parse().ok()?),
        },
    };
    (first >= 1 && first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(plan: &str, calls: u64) -> Vec<u64> {
        let mut plan: FaultPlan = plan.parse().unwrap();
        (1..=calls).filter(|_| plan.next("hipFree").is_some()).collect()
    }

    #[test]
    fn calls_are_one_a_range_or_open() {
        assert_eq!(failing("hipFree:3:1", 6), [3]);
        assert_eq!(failing("hipFree:2-4:1", 6), [2, 3, 4]);
        assert_eq!(failing("hipFree:5+:1", 6), [5, 6]);
        assert_eq!(failing("hipFree:*:1", 3), [1, 2, 3]);
        assert_eq!(failing("hipMalloc:*:1\nhipFree:1:2", 3), [1]);
    }

    #[test]
    fn bad_plans_are_named() {
        for plan in
            ["hipFree", "hipFree:1", ":1:1", "hipFree:0:1", "hipFree:3-2:1", "a:1:b", "a:1:0"]
        {
            let error = plan.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("fault '{plan}': ")), "{error}");
        }
    }
}
