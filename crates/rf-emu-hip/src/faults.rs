//! Fault injection: which call of which function fails with which status, and which replays of
//! graphs go wrong.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;
use std::{process, thread};

use crate::Status;

/// Calls that fail.
///
/// The text form is a list of `FUNCTION:CALLS:STATUS`, separated by commas or line ends:
///
/// - `FUNCTION` is a function of HIP, `allocation` (each function that allocates device memory),
///   `kernel` (each execution of a kernel, also within a graph) or the symbol of a kernel.
/// - `CALLS` counts from 1: one call `3`, a range `3-5`, all from one on `3+`, or all `*`. For
///   `allocation` a size may follow, and only larger ones fail: `3+>64KiB` (or `MiB`, `GiB`).
/// - `STATUS` is a name such as `hipErrorOutOfMemory`, or a number.
///
/// `crash` instead of a status ends the process, as ROCm does after a memory fault, and `hang`
/// never returns. `20ms` makes a call slow, and it succeeds; a kernel with `skipped` has no effect.
///
/// `replay:CALLS:WRONG` counts the launches of graphs. They succeed and go wrong as HIP's are known
/// to: `stale` (the first kernel has no effect, so the others read what an earlier replay left),
/// `skipped` (no kernel has an effect), or `altered` (one in the middle has none).
///
/// `hipMemGetInfo:CALLS:+8GiB` reports so much more memory as free than there is, as HIP does where
/// other programs use the card.
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
    calls: HashMap<String, u64>,
}

#[derive(Debug, Clone)]
struct Fault {
    function: String,
    calls: RangeInclusive<u64>,
    /// Only allocations of more bytes fail.
    above_bytes: u64,
    effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Failure(Status),
    Crash,
    Hang,
    Slow(Duration),
    /// A kernel has no effect.
    Skipped,
    Replay(WrongReplay),
    /// More bytes are reported as free than there are.
    MoreFree(u64),
}

/// The fault of an execution of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelFault {
    /// The device is lost.
    Failure(Status),
    /// The kernel has no effect.
    Skipped,
}

/// How a replay goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongReplay {
    Stale,
    Skipped,
    Altered,
}

impl WrongReplay {
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "stale" => Some(Self::Stale),
            "skipped" => Some(Self::Skipped),
            "altered" => Some(Self::Altered),
            _ => None,
        }
    }

    /// Returns true if a kernel has no effect: its place in the graph, and their number.
    pub(crate) fn skips(self, place: usize, count: usize) -> bool {
        match self {
            Self::Stale => place == 0,
            Self::Skipped => true,
            Self::Altered => place == count / 2,
        }
    }
}

/// A plan that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault '{fault}': {reason}")]
pub struct PlanError {
    fault: String,
    reason: String,
}

impl FaultPlan {
    /// Counts a call of `function` and returns the status with which it fails. A call that the plan
    /// makes slow takes its time here.
    pub fn next(&mut self, function: &str) -> Option<Status> {
        match self.fault(function)? {
            KernelFault::Failure(status) => Some(status),
            KernelFault::Skipped => None,
        }
    }

    /// Counts an execution of a kernel and returns how it fails.
    pub(crate) fn next_kernel(&mut self, symbol: &str) -> Option<KernelFault> {
        let (any, own) = (self.fault("kernel"), self.fault(symbol));
        any.or(own)
    }

    /// Counts an allocation and returns the status with which it fails.
    pub(crate) fn next_allocation(&mut self, bytes: u64) -> Option<Status> {
        match self.fault_of("allocation", bytes)? {
            KernelFault::Failure(status) => Some(status),
            KernelFault::Skipped => None,
        }
    }

    /// The bytes that the latest call of `hipMemGetInfo` reports as free although they are not.
    pub(crate) fn reported_too_much(&self) -> u64 {
        match self.effect_of("hipMemGetInfo", self.calls("hipMemGetInfo"), u64::MAX) {
            Some(Effect::MoreFree(bytes)) => bytes,
            _ => 0,
        }
    }

    fn fault(&mut self, function: &str) -> Option<KernelFault> {
        self.fault_of(function, u64::MAX)
    }

    fn fault_of(&mut self, function: &str, bytes: u64) -> Option<KernelFault> {
        match self.effect(function, bytes)? {
            Effect::Failure(status) => Some(KernelFault::Failure(status)),
            Effect::Crash => process::abort(),
            Effect::Hang => loop {
                thread::park();
            },
            Effect::Slow(duration) => {
                thread::sleep(duration);
                None
            }
            Effect::Skipped => Some(KernelFault::Skipped),
            Effect::Replay(_) | Effect::MoreFree(_) => None,
        }
    }

    /// Counts a launch of a graph and returns how it goes wrong.
    pub(crate) fn next_replay(&mut self) -> Option<WrongReplay> {
        match self.effect("replay", u64::MAX)? {
            Effect::Replay(wrong) => Some(wrong),
            _ => None,
        }
    }

    fn effect(&mut self, function: &str, bytes: u64) -> Option<Effect> {
        if !self.calls.contains_key(function) {
            self.calls.insert(function.to_owned(), 0);
        }
        let calls = self.calls.get_mut(function)?;
        *calls += 1;
        let call = *calls;
        self.effect_of(function, call, bytes)
    }

    fn effect_of(&self, function: &str, call: u64, bytes: u64) -> Option<Effect> {
        let applies = |fault: &&Fault| {
            fault.function == function && fault.calls.contains(&call) && bytes > fault.above_bytes
        };
        self.faults.iter().find(applies).map(|fault| fault.effect)
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
    let (range, above_bytes) = match calls.split_once('>') {
        Some((calls, size)) if function == "allocation" => (range(calls), bytes(size)),
        _ => (range(calls), Some(0)),
    };
    let range = range.zip(above_bytes);
    let range = range.ok_or_else(|| format!("'{calls}' is not a call: 3, 3-5, 3+ or *"));
    let effect = if function == "replay" {
        WrongReplay::from_text(status)
            .map(Effect::Replay)
            .ok_or_else(|| format!("'{status}' is not stale, skipped or altered"))
    } else {
        let effect = match status {
            "crash" => Some(Effect::Crash),
            "hang" => Some(Effect::Hang),
            // Functions of HIP have a status to tell the caller; kernels have none.
            "skipped" if !function.starts_with("hip") && function != "allocation" => {
                Some(Effect::Skipped)
            }
            status if function == "hipMemGetInfo" && status.starts_with('+') => {
                bytes(&status[1..]).map(Effect::MoreFree)
            }
            status if let Some(duration) = milliseconds(status) => Some(Effect::Slow(duration)),
            status => Status::from_text(status).map(Effect::Failure),
        };
        effect.ok_or_else(|| {
            format!(
                "'{status}' is no status: use its name in HIP, its number, or a time such as 20ms"
            )
        })
    };
    let (calls, above_bytes) = range.map_err(error)?;
    Ok(Fault { function: function.to_owned(), calls, above_bytes, effect: effect.map_err(error)? })
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
}

/// A size such as `64KiB`.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
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
        for plan in [
            "hipFree",
            "hipFree:1",
            ":1:1",
            "hipFree:0:1",
            "hipFree:3-2:1",
            "a:1:b",
            "a:1:0",
            "replay:1:2",
            "hipFree:1:stale",
            "hipFree:1:skipped",
            "hipFree:1:-1ms",
            "hipFree:1>1KiB:1",
            "allocation:1>1:1",
            "hipMemGetInfo:*:+8",
            "hipFree:1:+8GiB",
        ] {
            let error = plan.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("fault '{plan}': ")), "{error}");
        }
    }

    #[test]
    fn large_allocations_fail_and_free_memory_is_reported_wrongly() {
        let mut plan: FaultPlan = "allocation:2+>64KiB:2, hipMemGetInfo:2+:+8GiB".parse().unwrap();
        let failed = [65537, 65536, 65537].map(|bytes| plan.next_allocation(bytes).is_some());
        assert_eq!(failed, [false, false, true]);
        let too_much = [(); 2].map(|()| {
            assert_eq!(plan.next("hipMemGetInfo"), None);
            plan.reported_too_much()
        });
        assert_eq!(too_much, [0, 8 << 30]);
    }

    #[test]
    fn kernels_fail_by_number_and_by_symbol() {
        let mut plan: FaultPlan = "kernel:2:719, add_f32:2+:skipped".parse().unwrap();
        let failed: Vec<_> = ["add_f32", "mul_f32", "add_f32", "add_f32"]
            .map(|kernel| plan.next_kernel(kernel))
            .into();
        let lost = Some(KernelFault::Failure(Status::LAUNCH_FAILURE));
        let skipped = Some(KernelFault::Skipped);
        assert_eq!(failed, [None, lost, skipped, skipped]);
        assert_eq!((plan.calls("kernel"), plan.calls("add_f32")), (4, 3));
    }

    #[test]
    fn slow_calls_succeed() {
        let mut plan: FaultPlan = "hipMemcpyDtoHAsync:2:30ms".parse().unwrap();
        let mut call = || {
            let start = std::time::Instant::now();
            assert_eq!(plan.next("hipMemcpyDtoHAsync"), None);
            start.elapsed()
        };
        call();
        assert!(call() >= Duration::from_millis(30));
    }

    #[test]
    fn replays_go_wrong_in_three_ways() {
        let mut plan: FaultPlan = "replay:2:stale, replay:3+:altered".parse().unwrap();
        let wrong: Vec<_> = (0..4).map(|_| plan.next_replay()).collect();
        let (stale, altered) = (Some(WrongReplay::Stale), Some(WrongReplay::Altered));
        assert_eq!(wrong, [None, stale, altered, altered]);
        let skipped =
            |wrong: WrongReplay| (0..5).filter(|i| wrong.skips(*i, 5)).collect::<Vec<_>>();
        assert_eq!(skipped(WrongReplay::Stale), [0]);
        assert_eq!(skipped(WrongReplay::Altered), [2]);
        assert_eq!(skipped(WrongReplay::Skipped).len(), 5);
    }
}
