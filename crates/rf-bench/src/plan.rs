//! Selection of benchmarks.

use crate::model_metric::ModelMetric;
use crate::timers::Timer;
use crate::{Error, Suite, Workload, workloads};

/// A benchmark: one line in reports.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// Name of the benchmark in reports and baselines.
    pub name: String,
    /// Suite of the benchmark.
    pub suite: Suite,
    /// The measurement.
    pub kind: BenchmarkKind,
}

/// The kind of a benchmark.
#[derive(Clone, Debug)]
pub enum BenchmarkKind {
    /// A workload of one op or one call.
    Op(Workload),
    /// A metric of the whole model.
    Model(ModelMetric),
    /// The overhead of a timer.
    Timer(Timer),
}

/// Criteria that select benchmarks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BenchmarkSelection {
    /// Suites; empty for all.
    pub suites: Vec<Suite>,
    /// Text that the names contain, in any case.
    pub filter: Option<String>,
    /// True to select the quick subset only.
    pub quick: bool,
}

/// The selected benchmarks, in the order of reports.
#[derive(Clone, Debug)]
pub struct BenchmarkPlan {
    /// Benchmarks, in the order of reports.
    pub benchmarks: Vec<Benchmark>,
    /// True if every benchmark is selected.
    pub is_whole: bool,
}

impl BenchmarkPlan {
    /// Selects benchmarks.
    ///
    /// # Errors
    ///
    /// [`Error::NoBenchmark`] if no name contains the filter.
    pub fn new(selection: &BenchmarkSelection) -> Result<Self, Error> {
        let BenchmarkSelection { suites, filter, quick } = selection;
        let suites: &[Suite] = if suites.is_empty() { &Suite::ALL } else { suites };
        let all = all();
        let count = all.len();
        let mut benchmarks: Vec<Benchmark> = all
            .into_iter()
            .filter(|one| suites.contains(&one.suite) && (!quick || one.is_quick()))
            .collect();
        if let Some(filter) = filter {
            let lower = filter.to_lowercase();
            benchmarks.retain(|benchmark| benchmark.name.to_lowercase().contains(&lower));
            if benchmarks.is_empty() {
                let suites = suites.to_vec();
                return Err(Error::NoBenchmark { suites, filter: filter.clone() });
            }
        }
        Ok(Self { is_whole: benchmarks.len() == count, benchmarks })
    }

    /// Returns true if the plan contains a benchmark of this name.
    pub fn has(&self, name: &str) -> bool {
        self.benchmarks.iter().any(|benchmark| benchmark.name == name)
    }

    /// Returns true if the plan contains a metric of the model.
    pub fn needs_model(&self) -> bool {
        let is_metric = |one: &Benchmark| matches!(one.kind, BenchmarkKind::Model(_));
        self.benchmarks.iter().any(is_metric)
    }

    /// The names of the benchmarks that a paired comparison supports.
    pub fn paired(&self) -> Vec<String> {
        let is_repeatable = |one: &&Benchmark| match one.kind {
            BenchmarkKind::Model(metric) => metric.is_repeatable(),
            BenchmarkKind::Op(_) | BenchmarkKind::Timer(_) => true,
        };
        self.benchmarks.iter().filter(is_repeatable).map(|one| one.name.clone()).collect()
    }

    /// Formats one line per benchmark: the name, and a mark for the quick subset.
    pub fn list(&self) -> String {
        let width = self.benchmarks.iter().map(|one| one.name.len()).max().unwrap_or(0);
        let lines = self.benchmarks.iter().map(|benchmark| {
            let quick = if benchmark.is_quick() { "quick" } else { "" };
            let line = format!("{:<width$}  {quick}", benchmark.name);
            line.trim_end().to_owned() + "\n"
        });
        lines.collect()
    }
}

impl Benchmark {
    fn is_quick(&self) -> bool {
        match &self.kind {
            BenchmarkKind::Op(workload) => workload.quick,
            BenchmarkKind::Model(_) | BenchmarkKind::Timer(_) => true,
        }
    }
}

/// Every benchmark, in the order of reports.
fn all() -> Vec<Benchmark> {
    let of_suite = |suite: Suite| -> Vec<Benchmark> {
        let op = |workload: Workload| Benchmark {
            name: workload.name.clone(),
            suite,
            kind: BenchmarkKind::Op(workload),
        };
        let ops = workloads(suite).into_iter().map(op);
        match suite {
            Suite::Launch => {
                let timer = |timer: Timer| Benchmark {
                    name: timer.name().to_owned(),
                    suite,
                    kind: BenchmarkKind::Timer(timer),
                };
                ops.chain(Timer::ALL.map(timer)).collect()
            }
            Suite::Inference => {
                let metric = |metric: ModelMetric| Benchmark {
                    name: metric.name(),
                    suite,
                    kind: BenchmarkKind::Model(metric),
                };
                ModelMetric::all().into_iter().map(metric).collect()
            }
            _ => ops.collect(),
        }
    };
    Suite::ALL.into_iter().flat_map(of_suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_begin_with_their_suite() {
        let all = all();
        let mut names: Vec<&str> = all.iter().map(|benchmark| &*benchmark.name).collect();
        for benchmark in &all {
            let suite = format!("{}/", benchmark.suite.name());
            assert!(benchmark.name.starts_with(&suite), "{}", benchmark.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }
}
