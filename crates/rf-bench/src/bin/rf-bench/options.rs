//! The command line of `cargo xtask bench`.

use std::path::PathBuf;

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use rf_bench::Suite;

/// What to measure, how, and what to do with it.
#[derive(Args, Debug)]
#[command(after_help = "\
Results are of this machine; benchmarks/README.md describes the measurement.

Exit code: 0 no regression; 1 a regression or a missed target; 2 an error; 3 no regression,
but an inconclusive benchmark (noise or CPU contention); 130 ended by Ctrl-C: complete
measurements are printed and kept.

Examples:
  cargo xtask bench --quick
  cargo xtask bench --quick --against main
  cargo xtask bench matmul attention --save-baseline mine.json
  cargo xtask bench --compare mine.json --threshold 5%
  cargo xtask bench inference --model model.gguf --format html --output report.html
  cargo xtask bench --peer llama.cpp --model model.gguf -t 2 -p 512 -n 64")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// What to measure [default: everything]
    #[arg(value_name = "SUITE", value_parser = suite())]
    pub(crate) suites: Vec<Suite>,
    /// Only benchmarks whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// A subset that takes less than a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds over all benchmarks [default: 5; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) rounds: Option<usize>,
    /// Print the names of the benchmarks and run none
    #[arg(long)]
    pub(crate) list: bool,

    /// What computes
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,
    /// Model of the suite inference; several for --peer [default: the demo model]
    #[arg(short, long, value_name = "FILE", env = "ROCFORGE_TEST_MODEL", hide_env_values = true)]
    pub(crate) model: Vec<PathBuf>,
    /// Threads of the CPU [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Instruction set of the CPU [default: the best one]
    #[arg(long, alias = "tier", value_name = "NAME")]
    pub(crate) isa: Option<String>,

    /// Write what was measured to FILE, `benchmarks/baselines/<hardware>.json` if none is given
    #[expect(
        clippy::option_option,
        reason = "clap's form of an option whose value may be missing"
    )]
    #[arg(long, value_name = "FILE", num_args = 0..=1, help_heading = "Baselines")]
    pub(crate) save_baseline: Option<Option<PathBuf>>,
    /// Compare with a baseline: a file, looked for in benchmarks/baselines/ too
    #[arg(long, value_name = "FILE", help_heading = "Baselines")]
    pub(crate) compare: Option<PathBuf>,
    /// Smallest change that counts [default: 10% with --compare, 2.5% with --against]
    #[arg(long, value_name = "PERCENT", value_parser = threshold, help_heading = "Baselines")]
    pub(crate) threshold: Option<f64>,
    /// Exit with 2 where a baseline is of other hardware
    #[arg(long, requires = "compare", help_heading = "Baselines")]
    pub(crate) require_hardware: bool,
    /// Add the run to benchmarks/records/
    #[arg(long, help_heading = "Baselines")]
    pub(crate) record: bool,
    /// Compare in turns with another build: a git revision, which is built, or an rf-bench program
    #[arg(
        long,
        value_name = "REV|BINARY",
        conflicts_with_all = UNPAIRED_ONLY,
        help_heading = "Paired comparison"
    )]
    pub(crate) against: Option<String>,
    /// The build that --against judges [default: this build]
    #[arg(
        long,
        value_name = "REV|BINARY",
        requires = "against",
        help_heading = "Paired comparison"
    )]
    pub(crate) head: Option<String>,
    /// End --against after MINUTES [default: 9; 4 with --quick]
    #[arg(
        long,
        value_name = "MINUTES",
        requires = "against",
        value_parser = minutes,
        help_heading = "Paired comparison"
    )]
    pub(crate) budget: Option<f64>,
    /// Check the targets of the plan: PASS, FAIL, or NOT MEASURED and why
    #[arg(long, help_heading = "Baselines")]
    pub(crate) targets: bool,

    /// How to print the results
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = Format::Table,
        help_heading = "Output"
    )]
    pub(crate) format: Format,
    /// Where to, instead of stdout
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) peer: PeerOptions,
}

/// Comparing with another program.
#[derive(Args, Debug)]
#[command(next_help_heading = "Comparison with another engine")]
pub(crate) struct PeerOptions {
    /// Measure another engine beside this one, in turns
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = PLAIN_ONLY)]
    pub(crate) peer: Option<PeerName>,
    /// Python that has llama-cpp-python [default: that of target/peers, see --peer-install]
    #[arg(long, value_name = "PYTHON", requires = "peer", conflicts_with = "peer_bench")]
    pub(crate) peer_python: Option<PathBuf>,
    /// A llama-bench instead; with --peer rocmforge another build's target/release/rf-bench
    #[arg(long, value_name = "PROGRAM", requires = "peer")]
    pub(crate) peer_bench: Option<PathBuf>,
    /// Build llama-cpp-python in a virtual environment below target/ first: takes minutes
    #[arg(long, requires = "peer", conflicts_with_all = ["peer_python", "peer_bench"])]
    pub(crate) peer_install: bool,
    /// Prompt length in tokens; 0 for none
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Tokens to generate; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    pub(crate) generate: usize,
    /// Tokens that are in the context already
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) depth: usize,
    /// How often each engine runs, each time in a fresh process
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub(crate) repetitions: usize,
    /// Measure this program once and print JSON: what a comparison starts for its own side
    #[arg(long, hide = true)]
    pub(crate) peer_self: bool,
}

/// What --peer has no use for.
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

/// Options that --against does not have.
const UNPAIRED_ONLY: [&str; 7] =
    ["rounds", "list", "save_baseline", "compare", "record", "targets", "peer"];

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The processor
    Cpu,
    /// The best usable GPU
    Gpu,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For terminals
    Table,
    /// Everything, for programs
    Json,
    /// A line per benchmark
    Csv,
    /// A page with plots and history
    Html,
}

/// An engine to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// By llama-cpp-python or llama-bench
    #[value(name = "llama.cpp")]
    LlamaCpp,
    /// Another build of this program, which --peer-bench names
    Rocmforge,
}

/// The suites by name, which clap lists in errors and in the help.
fn suite() -> impl TypedValueParser<Value = Suite> {
    PossibleValuesParser::new(Suite::ALL.map(Suite::name)).try_map(|name| name.parse::<Suite>())
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("expected a number from 1")
}

fn minutes(text: &str) -> Result<f64, &'static str> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.0..=1440.0).contains(minutes));
    minutes.ok_or("expected minutes, as in 4 or 0.5")
}

/// `10%` or `0.1`, as a share.
fn threshold(text: &str) -> Result<f64, &'static str> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>().ok(),
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or("expected a share between 0% and 100%, as in 10% or 0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_percentage_or_a_share() {
        assert_eq!(threshold("10%"), Ok(0.1));
        assert_eq!(threshold("0.05"), Ok(0.05));
        assert_eq!(threshold(" 5 % "), Ok(0.05));
        for bad in ["10", "-1%", "many", "", "%", "NaN"] {
            assert!(threshold(bad).is_err(), "{bad}");
        }
    }
}
