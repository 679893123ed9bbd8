//! The command line of `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use rf_bench::plan::BenchmarkSelection;
use rf_bench::{Suite, Target, targets};
use rocmforge::device::Isa;

/// Options of a measurement, its baselines and its output.
#[derive(Args, Debug)]
#[command(after_help = "\
Results are valid for this machine only. benchmarks/README.md describes the measurement.

Exit code: 0 no regression; 1 a regression or a missed target; 2 an error; 3 no regression,
but an inconclusive benchmark (noise or CPU contention); 130 ended by Ctrl-C, complete
measurements are printed and kept.

Examples:
  cargo xtask bench --quick
  cargo xtask bench --quick --against main
  cargo xtask bench matmul attention --save-baseline mine.json
  cargo xtask bench --compare mine.json --threshold 5%
  cargo xtask bench inference --model model.gguf --format html --output report.html
  cargo xtask bench --peer llama.cpp --model model.gguf -t 2 -p 512 -n 64
  cargo xtask bench serve --help")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// Measure these suites [default: all]
    #[arg(value_name = "SUITE", value_parser = suite())]
    pub(crate) suites: Vec<Suite>,
    /// Measure only benchmarks whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Measure a subset in less than a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run N rounds over all benchmarks [default: 5; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) rounds: Option<usize>,
    /// Print the names of the benchmarks and run none
    #[arg(long)]
    pub(crate) list: bool,

    /// Measure this backend
    #[arg(long, alias = "device", value_enum, value_name = "BACKEND", default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,
    /// Measure the model FILE in the suite inference (repeatable with --peer) [default: the demo
    /// model]
    #[arg(short, long, value_name = "FILE", env = "ROCFORGE_TEST_MODEL", hide_env_values = true)]
    pub(crate) model: Vec<PathBuf>,
    /// Use N CPU threads [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Compute with this ISA [default: the best available one]
    #[arg(long, alias = "tier", value_name = "ISA")]
    pub(crate) isa: Option<String>,

    /// Write the results to FILE [default: `benchmarks/baselines/<hardware>.json`]
    #[expect(
        clippy::option_option,
        reason = "clap's form of an option whose value may be missing"
    )]
    #[arg(long, value_name = "FILE", num_args = 0..=1, help_heading = "Baselines")]
    pub(crate) save_baseline: Option<Option<PathBuf>>,
    /// Compare with the baseline FILE, which may be a name in benchmarks/baselines/
    #[arg(long, value_name = "FILE", help_heading = "Baselines")]
    pub(crate) compare: Option<PathBuf>,
    /// Ignore changes up to PERCENT [default: 10% with --compare, 2.5% with --against]
    #[arg(long, value_name = "PERCENT", value_parser = threshold, help_heading = "Baselines")]
    pub(crate) threshold: Option<f64>,
    /// Exit with code 2 if a baseline is of other hardware
    #[arg(long, requires = "compare", help_heading = "Baselines")]
    pub(crate) require_hardware: bool,
    /// Add the run to benchmarks/records/
    #[arg(long, help_heading = "Baselines")]
    pub(crate) record: bool,
    /// Compare with another build, alternating measurements: a git revision, which is built first,
    /// or an rf-bench binary
    #[arg(
        long,
        value_name = "REV|BINARY",
        conflicts_with_all = UNPAIRED_ONLY,
        help_heading = "Paired comparison"
    )]
    pub(crate) against: Option<String>,
    /// Compare the build REV|BINARY with that of --against [default: this build]
    #[arg(
        long,
        value_name = "REV|BINARY",
        requires = "against",
        help_heading = "Paired comparison"
    )]
    pub(crate) head: Option<String>,
    /// Stop the comparison of --against after MINUTES [default: 9; 4 with --quick]
    #[arg(
        long,
        value_name = "MINUTES",
        requires = "against",
        value_parser = minutes,
        help_heading = "Paired comparison"
    )]
    pub(crate) budget: Option<f64>,
    /// Check the performance targets: PASS, FAIL, or NOT MEASURED with the reason
    #[arg(long, help_heading = "Baselines")]
    pub(crate) targets: bool,

    /// Print the results in this format
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = OutputFormat::Table,
        help_heading = "Output"
    )]
    pub(crate) format: OutputFormat,
    /// Write the results to FILE instead of stdout
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) peer: PeerOptions,
}

/// Options of the comparison with another engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Comparison with another engine")]
pub(crate) struct PeerOptions {
    /// Compare with another engine, alternating measurements
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = PLAIN_ONLY)]
    pub(crate) peer: Option<PeerName>,
    /// Use PYTHON, which has llama-cpp-python [default: the Python of --peer-install]
    #[arg(long, value_name = "PYTHON", requires = "peer", conflicts_with = "peer_bench")]
    pub(crate) peer_python: Option<PathBuf>,
    /// Use the llama-bench PROGRAM, or with --peer rocmforge the rf-bench of another build
    #[arg(long, value_name = "PROGRAM", requires = "peer")]
    pub(crate) peer_bench: Option<PathBuf>,
    /// Build llama-cpp-python in a virtual environment under target/ first (takes minutes)
    #[arg(long, requires = "peer", conflicts_with_all = ["peer_python", "peer_bench"])]
    pub(crate) peer_install: bool,
    /// Measure prefill of N tokens; 0 for none
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Measure decode of N tokens; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    pub(crate) generate: usize,
    /// Measure at depth N: with N tokens in the context
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) depth: usize,
    /// Run each engine N times, each in a fresh process
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub(crate) repetitions: usize,
    /// Measure this engine once and print JSON: the process that --peer starts for its own side
    #[arg(long, hide = true)]
    pub(crate) peer_self: bool,
}

/// Options that conflict with --peer.
const PLAIN_ONLY: [&str; 10] = [
    "suites",
    "rounds",
    "filter",
    "quick",
    "list",
    "save_baseline",
    "compare",
    "record",
    "targets",
    "require_hardware",
];

/// Options that conflict with --against.
const UNPAIRED_ONLY: [&str; 7] =
    ["rounds", "list", "save_baseline", "compare", "record", "targets", "peer"];

/// A backend to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The processor
    Cpu,
    /// The best usable GPU
    Gpu,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Table for terminals
    Table,
    /// All results with their samples
    Json,
    /// One line per benchmark
    Csv,
    /// Page with plots and history
    Html,
}

/// An engine to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// llama.cpp through llama-cpp-python or llama-bench
    #[value(name = "llama.cpp")]
    LlamaCpp,
    /// Another build of this program, given by --peer-bench
    Rocmforge,
}

impl Options {
    /// The benchmarks to measure.
    pub(crate) fn selection(&self) -> BenchmarkSelection {
        let is_of_targets = self.targets && self.suites.is_empty();
        BenchmarkSelection {
            suites: if is_of_targets { targets::SUITES.to_vec() } else { self.suites.clone() },
            filter: self.filter.clone(),
            quick: self.quick || is_of_targets,
        }
    }

    /// Opens the backend to measure.
    pub(crate) fn target(&self) -> Result<Target> {
        match self.backend {
            BackendName::Cpu => Ok(Target::cpu(self.threads, self.isa()?)?),
            BackendName::Gpu => Target::gpu(None).context("--backend gpu is not available"),
        }
    }

    fn isa(&self) -> Result<Option<Isa>> {
        let parse = |name: &str| name.parse::<Isa>().map_err(|error| anyhow!("--isa: {error}"));
        self.isa.as_deref().map(parse).transpose()
    }
}

/// Parses a suite. Errors and the help list the possible names.
fn suite() -> impl TypedValueParser<Value = Suite> {
    PossibleValuesParser::new(Suite::ALL.map(Suite::name)).try_map(|name| name.parse::<Suite>())
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("expected a number from 1")
}

fn minutes(text: &str) -> Result<f64, &'static str> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.0..=1440.0).contains(minutes));
    minutes.ok_or("expected minutes, as in 4 or 0.5")
}

/// Parses a percentage or a fraction: `10%` and `0.1` are both 0.1.
fn threshold(text: &str) -> Result<f64, &'static str> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>().ok(),
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or("expected a change between 0% and 100%, as in 10% or 0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_percentage_or_a_fraction() {
        assert_eq!(threshold("10%"), Ok(0.1));
        assert_eq!(threshold("0.05"), Ok(0.05));
        assert_eq!(threshold(" 5 % "), Ok(0.05));
        for bad in ["10", "-1%", "many", "", "%", "NaN"] {
            assert!(threshold(bad).is_err(), "{bad}");
        }
    }
}
