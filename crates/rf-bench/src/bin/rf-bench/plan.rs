//! Selection of benchmarks by the command line.

use anyhow::{Result, bail};
use rf_bench::{Suite, Workload, model_metric::ModelMetric, timers::Timer, workloads};

use crate::options::Options;

/// A benchmark: one line in reports.
#[derive(Clone, Debug)]
pub(crate) struct Benchmark {
    pub(crate) name: String,
    pub(crate) suite: Suite,
    pub(crate) task: Task,
}

/// The kind of a benchmark.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A workload of one op or one call.
    Op(Workload),
    /// A metric of the whole model.
    Model(ModelMetric),
    /// The overhead of a timer.
    Timer(Timer),
}

/// The benchmarks of a command line, in the order of reports.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) benchmarks: Vec<Benchmark>,
    /// True if the plan contains every benchmark.
    pub(crate) is_whole: bool,
}

/// Suites of `--targets` if the command line names none.
const TARGET_SUITES: [Suite; 3] = [Suite::Matmul, Suite::Inference, Suite::Launch];

impl Plan {
    /// Selects the benchmarks of a command line.
    ///
    /// # Errors
    ///
    /// If no benchmark matches `--filter`.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let suites: &[Suite] = match &options.suites[..] {
            [] if options.targets => &TARGET_SUITES,
            [] => &Suite::ALL,
            given => given,
        };
        // The quick subset is enough to check the targets.
        let is_quick = options.quick || (options.targets && options.suites.is_empty());
        let all = all();
        let count = all.len();
        let chosen = all.into_iter().filter(|benchmark| {
            let is_quick_one = match &benchmark.task {
                Task::Op(workload) => workload.quick,
                Task::Model(_) | Task::Timer(_) => true,
            };
            suites.contains(&benchmark.suite) && (!is_quick || is_quick_one)
        });
        let mut benchmarks: Vec<Benchmark> = chosen.collect();
        if let Some(filter) = &options.filter {
            let filter = filter.to_lowercase();
            benchmarks.retain(|benchmark| benchmark.name.to_lowercase().contains(&filter));
            if benchmarks.is_empty() {
                bail!(
                    "no benchmark of {} contains '{filter}'; `cargo xtask bench --list` prints the names",
                    suites.iter().map(|suite| suite.name()).collect::<Vec<_>>().join(", ")
                );
            }
        }
        Ok(Self { is_whole: benchmarks.len() == count, benchmarks })
    }

    /// Returns true if the plan contains a benchmark of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.benchmarks.iter().any(|benchmark| benchmark.name == name)
    }

    /// Formats one line per benchmark: the name, and a mark for the subset of `--quick`.
    pub(crate) fn list(&self) -> String {
        let width = self.benchmarks.iter().map(|one| one.name.len()).max().unwrap_or(0);
        let lines = self.benchmarks.iter().map(|benchmark| {
            let quick = match &benchmark.task {
                Task::Op(workload) if !workload.quick => "",
                _ => "quick",
            };
            let line = format!("{:<width$}  {quick}", benchmark.name);
            line.trim_end().to_owned() + "\n"
        });
        lines.collect()
    }
}

/// Every benchmark, in the order of reports.
fn all() -> Vec<Benchmark> {
    let of_suite = |suite: Suite| -> Vec<Benchmark> {
        let op = |workload: Workload| Benchmark {
            name: workload.name.clone(),
            suite,
            task: Task::Op(workload),
        };
        let ops = workloads(suite).into_iter().map(op);
        match suite {
            Suite::Launch => {
                let timer = |timer: Timer| Benchmark {
                    name: timer.name().to_owned(),
                    suite,
                    task: Task::Timer(timer),
                };
                ops.chain(Timer::ALL.map(timer)).collect()
            }
            Suite::Inference => {
                let metric = |metric: ModelMetric| Benchmark {
                    name: metric.name(),
                    suite,
                    task: Task::Model(metric),
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
