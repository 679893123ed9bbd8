//! The self-test of a device: groups of conformance cases, and the speed of kernels.
//!
//! `rf-cli selftest` runs the groups and prints the results. A [`CaseGroup`] has the conformance
//! cases of an op with a format, and the cases whose speed is reported for the group.
//!
//! A kernel takes microseconds, and the step around it tens of microseconds. Therefore [`speed`]
//! times programs with few and with many copies of an op, and divides the difference by the number
//! of additional copies. The copies read more memory than any cache holds.

use std::time::{Duration, Instant};

use rf_graph::{Backend, BackendError, OpCost, OperandFormat};
use rf_oracle::case::{self, Case, CaseBatch, CaseShape, Timer};

use crate::GpuBackend;
use crate::params::MatrixUnit;
use crate::tuning::Knob;

/// The conformance cases of one op with one format.
#[derive(Debug)]
pub struct CaseGroup {
    op: String,
    format: Option<OperandFormat>,
    cases: Vec<Case>,
    /// False if the group has some of its cases only.
    is_whole: bool,
}

/// Groups whose names contain a text, ignoring case, in the order of their first cases. If there
/// are none, the groups of the cases whose names contain it, with these cases alone.
pub fn groups(filter: &str) -> Vec<CaseGroup> {
    let mut groups: Vec<CaseGroup> = Vec::new();
    for case in case::cases() {
        match groups.iter_mut().find(|group| group.op == case.op() && group.format == case.format())
        {
            Some(group) => group.cases.push(case),
            None => groups.push(CaseGroup {
                op: case.op().to_owned(),
                format: case.format(),
                cases: vec![case],
                is_whole: true,
            }),
        }
    }
    let filter = filter.to_lowercase();
    let is_named = |name: &str| name.to_lowercase().contains(&filter);
    if groups.iter().any(|group| is_named(&group.name())) {
        groups.retain(|group| is_named(&group.name()));
        return groups;
    }
    for group in &mut groups {
        group.cases.retain(|case| is_named(case.name()));
        group.is_whole = false;
    }
    groups.retain(|group| !group.cases.is_empty());
    groups
}

impl CaseGroup {
    /// The name: `matmul Q4_K`, or the op alone.
    pub fn name(&self) -> String {
        match self.format {
            Some(format) => format!("{} {}", self.op, format.name()),
            None => self.op.clone(),
        }
    }

    /// At most `most` cases at equal distances, the first and the last included.
    pub fn cases(&self, most: usize) -> Vec<&Case> {
        let count = self.cases.len().min(most);
        let last = self.cases.len() - 1;
        let at = |i: usize| if count < 2 { 0 } else { i * last / (count - 1) };
        (0..count).map(|i| &self.cases[at(i)]).collect()
    }

    /// The cases whose speed is reported with the whole group.
    pub fn speeds(&self) -> Vec<Case> {
        if self.is_whole { case::speed::selftest(&self.op, self.format) } else { Vec::new() }
    }
}

/// The backend with tiles of 256 tokens for the matmuls of a case that fills them, if its formulas
/// choose these tiles for larger matrices only (NVIDIA).
pub fn with_wide_tiles(backend: &GpuBackend, case: &Case) -> Option<GpuBackend> {
    let format @ OperandFormat::Weight(_) = case.format()? else { return None };
    let most_tokens = case.batches().iter().map(CaseBatch::tokens).max()?;
    let mut tuning = *backend.tuning();
    let differs = backend.matmul_device().matrix_unit == MatrixUnit::Nvidia
        && most_tokens > 128
        && tuning.set(Knob::PrefillTile, format, Some(256));
    differs.then(|| backend.with_tuning(tuning))
}

/// The time of one run of an op, and its cost.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Speed {
    /// Seconds.
    pub seconds: f64,
    /// The cost of the run.
    pub cost: OpCost,
}

impl Speed {
    /// Memory throughput, in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.cost.bytes as f64 / self.seconds
    }

    /// Arithmetic throughput, in operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.cost.operations() as f64 / self.seconds
    }
}

/// Measures the speed of a case. Matmuls are launched in groups of three, as Q, K and V are.
///
/// # Errors
///
/// If the device fails, or lacks the memory.
pub fn speed(backend: &dyn Backend, case: &Case) -> Result<Speed, BackendError> {
    /// Copies of the op in the smaller program: a whole group of matmuls.
    const FEW: usize = 3;
    let cost = case.cost();
    let many = copies(case, cost).next_multiple_of(FEW);
    let few = seconds(backend, case, FEW)?;
    let all = seconds(backend, case, FEW + many)?;
    // A coarse clock may give a difference of zero or less; the time must be positive.
    Ok(Speed { seconds: (all - few).max(1e-9) / many as f64, cost })
}

/// The number of copies of an op that read more memory than any cache holds, within limits.
pub(crate) fn copies(case: &Case, cost: OpCost) -> usize {
    const WORKING_SET_BYTES: u64 = 400 << 20;
    const MAX_COPIES: usize = 48;
    match case.shape() {
        CaseShape::Row { .. } => MAX_COPIES,
        _ if case.timed_batch().tokens() == 1 => {
            ((WORKING_SET_BYTES / cost.bytes.max(1)) as usize).clamp(6, MAX_COPIES)
        }
        // Matmuls of many tokens are not bound by memory, and the outputs of all copies need
        // memory.
        _ => 9,
    }
}

/// The median time of a step with this many copies of the op.
fn seconds(backend: &dyn Backend, case: &Case, copies: usize) -> Result<f64, BackendError> {
    const RUNS: usize = 41;
    const MIN_RUNS: usize = 5;
    const MAX_DURATION: Duration = Duration::from_millis(700);
    let program = case.timed_program(copies).fused_for(backend);
    let mut timer = Timer::new(backend, case, program)?;
    // Warm up: plain launches, graph capture, first replay.
    for _ in 0..3 {
        timer.step()?;
    }
    let (started, mut times) = (Instant::now(), Vec::new());
    while times.len() < RUNS && (times.len() < MIN_RUNS || started.elapsed() < MAX_DURATION) {
        let start = Instant::now();
        timer.step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use rf_graph::{DType, KvType};

    use super::*;

    #[test]
    fn every_case_has_a_group_and_every_format_has_one() {
        let all = groups("");
        let cases: usize = all.iter().map(|group| group.cases.len()).sum();
        assert_eq!(cases, case::cases().len());
        for dtype in DType::ALL {
            let name = format!("matmul {dtype}");
            let group = all.iter().find(|group| group.name() == name).unwrap();
            assert_eq!(group.speeds().len(), 3, "{name}");
        }
        for kv in KvType::ALL {
            let name = format!("attention {kv}");
            let group = all.iter().find(|group| group.name() == name).unwrap();
            assert_eq!(group.speeds().len(), 1, "{name}");
        }
        let names: Vec<String> = groups("MATMUL mi").iter().map(CaseGroup::name).collect();
        assert_eq!(names, ["matmul mixed"]);
    }

    #[test]
    fn a_text_that_no_group_has_selects_cases() {
        let groups = groups("Many-Heads");
        let names: Vec<String> = groups.iter().map(CaseGroup::name).collect();
        assert_eq!(names, ["attention f16", "attention q8_0", "attention fp8"]);
        for group in &groups {
            assert!(group.cases(usize::MAX).iter().all(|case| case.name().contains("many-heads")));
            assert!(group.speeds().is_empty());
        }
    }

    #[test]
    fn a_quick_choice_has_the_first_and_the_last() {
        let group = groups("attention f16").pop().unwrap();
        let names = |most| group.cases(most).iter().map(|case| case.name()).collect::<Vec<_>>();
        let (all, some) = (names(usize::MAX), names(3));
        assert_eq!(some.len(), 3);
        assert_eq!((some.first(), some.last()), (all.first(), all.last()));
        assert_eq!(names(1), all[..1]);
    }

    #[test]
    fn copies_exceed_caches_where_memory_is_the_limit() {
        let [one, large, many] = <[Case; 3]>::try_from(groups("matmul Q4_0")[0].speeds()).unwrap();
        let copies = |case: &Case| copies(case, case.cost());
        // 400 MiB divided by 9.5 MB and by 25.4 MB.
        assert_eq!((copies(&one), copies(&large), copies(&many)), (44, 16, 9));
    }
}
