//! `rf-cli selftest`: every kernel on the user's GPU, against the CPU reference, with its speed.

mod groups;

use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use rf_graph::conformance::{Case, Outcome};
use rf_graph::{BackendError, DType, KvType};
use rf_kernels::GpuBackend;
use rf_kernels::selftest::{self, Speed};

use self::groups::{Group, groups};
use crate::device::gpus;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli selftest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a group of cases: an op with a format. NMSE is the error of the worst one, relative to the results of \
the CPU reference, beside what its arithmetic allows. Speeds are of one token, or of 512; GB/s count the weights or \
the cache that are read, and the share is that of the speed at which the device copies its own memory.

Exit codes: 0 all is right, 1 something is wrong or did not run.

Examples:
  rf-cli selftest
  rf-cli selftest --quick Q4_K")]
pub(crate) struct SelftestArgs {
    /// Only groups whose names contain this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// The GPU's number from `rf-cli devices`; the best one if left out
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// Three cases of each group, and no speeds
    #[arg(long)]
    quick: bool,
}

/// Cases of a group that a quick test runs.
const QUICK_CASES: usize = 3;

/// Runs `rf-cli selftest`.
pub(crate) fn selftest(arguments: &SelftestArgs) -> Result<()> {
    let started = Instant::now();
    let groups = groups(arguments.filter.as_deref().unwrap_or_default());
    if groups.is_empty() {
        return Err(bad_input!(
            "no group's name contains the text: the names are those in the first column of rf-cli selftest"
        ));
    }
    let (gpu, backend) = gpus::open_for_test(arguments.device)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{gpu}, code for {}", backend.code())?;
    let mut copy_bandwidth = None;
    if !arguments.quick {
        match selftest::copy_bandwidth(&backend) {
            Ok(bandwidth) => {
                writeln!(out, "copying moves {:.0} GB/s", bandwidth / 1e9)?;
                copy_bandwidth = Some(bandwidth);
            }
            Err(error) => terminal::warn(format_args!("no speed of copying: {error}")),
        }
    }
    Line::head().write(&mut out)?;
    let watch = Watch::new();
    let (mut wrong, mut ran, mut skipped) = (Vec::new(), 0, 0);
    for group in &groups {
        let cases = group.cases(if arguments.quick { QUICK_CASES } else { usize::MAX });
        let result = Verdict::of(&cases, &backend, &watch)?;
        ran += result.cases;
        skipped += result.skipped;
        Line::of_group(group, &result).write(&mut out)?;
        wrong.extend(result.wrong);
        if !arguments.quick {
            for test in speed_tests(group) {
                match (test.run)(&backend) {
                    Ok(speed) => Line::of_speed(&test, speed, copy_bandwidth).write(&mut out)?,
                    Err(error) => writeln!(out, "  {}: not timed: {error}", test.what)?,
                }
            }
        }
        if watch.requested() {
            return Err(Interrupted.into());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "{ran} cases in {seconds:.1} s, {skipped} skipped, {} wrong", wrong.len())?;
    out.flush()?;
    for sentence in &wrong {
        terminal::note(format_args!("{} {sentence}", Palette::stderr().red("wrong:")));
    }
    if !wrong.is_empty() {
        bail!("{gpu} does not compute what the CPU does: please report it with this output");
    }
    Ok(())
}

/// How the cases of a group came out.
#[derive(Default)]
struct Verdict {
    cases: usize,
    skipped: usize,
    /// NMSE and the largest one allowed, of the case that is closest to that.
    worst: (f64, f64),
    wrong: Vec<String>,
}

impl Verdict {
    fn of(cases: &[&Case], backend: &GpuBackend, watch: &Watch) -> Result<Self> {
        let mut verdict = Self::default();
        for case in cases {
            if watch.requested() {
                return Err(Interrupted.into());
            }
            verdict.cases += 1;
            let allowed = case.bound().nmse();
            match rf_graph::conformance::check(backend, case) {
                Ok(Outcome::Passed { deviation, .. }) => {
                    let (nmse, of) = verdict.worst;
                    // Exact results have a bound of 0.
                    if of == 0.0 || deviation.nmse / allowed > nmse / of {
                        verdict.worst = (deviation.nmse, allowed);
                    }
                }
                Ok(_) => verdict.skipped += 1,
                Err(error) => verdict.wrong.push(format!("{:#}", anyhow::Error::from(error))),
            }
        }
        Ok(verdict)
    }
}

/// Something that is timed.
struct SpeedTest {
    what: &'static str,
    limit: Limit,
    run: Box<Timed>,
}

type Timed = dyn Fn(&GpuBackend) -> Result<Speed, BackendError>;

/// What a kernel is as fast as.
#[derive(Clone, Copy)]
enum Limit {
    Memory,
    Arithmetic,
    Latency,
}

/// What is timed beside a group's cases.
fn speed_tests(group: &Group) -> Vec<SpeedTest> {
    let product = |what, limit, dtype, rows, tokens| SpeedTest {
        what,
        limit,
        run: Box::new(move |backend| selftest::product(backend, dtype, rows, 4096, tokens)),
    };
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == group.format);
    let kv = KvType::ALL.into_iter().find(|kv| kv.name() == group.format);
    match (group.op.as_str(), dtype, kv) {
        ("matmul", Some(dtype), _) => vec![
            product("1 token, 4096 x 4096", Limit::Memory, dtype, 4096, 1),
            product("1 token, 11008 x 4096", Limit::Memory, dtype, 11008, 1),
            product("512 tokens, 4096 x 4096", Limit::Arithmetic, dtype, 4096, 512),
        ],
        ("attention", _, Some(kv)) => vec![SpeedTest {
            what: "1 token after 4096",
            limit: Limit::Memory,
            run: Box::new(move |backend| selftest::attention(backend, kv, 4096)),
        }],
        ("rms_norm", ..) => vec![SpeedTest {
            what: "1 token of 4096",
            limit: Limit::Latency,
            run: Box::new(|backend| selftest::rms_norm(backend, 4096)),
        }],
        _ => Vec::new(),
    }
}

/// A line of the table.
#[derive(Clone, Debug, Default)]
struct Line {
    name: String,
    cases: String,
    nmse: String,
    allowed: String,
    mark: &'static str,
    us: String,
    gigabytes: String,
    share: String,
    operations: String,
}

impl Line {
    fn head() -> Self {
        Self {
            name: "op".into(),
            cases: "cases".into(),
            nmse: "NMSE".into(),
            allowed: "allowed".into(),
            mark: "",
            us: "us".into(),
            gigabytes: "GB/s".into(),
            share: "of copy".into(),
            operations: "TFLOP/s".into(),
        }
    }

    fn of_group(group: &Group, verdict: &Verdict) -> Self {
        let (nmse, allowed) = verdict.worst;
        let mark = match verdict {
            Verdict { wrong, .. } if !wrong.is_empty() => "WRONG",
            Verdict { cases, skipped, .. } if cases == skipped => "skipped",
            _ => "ok",
        };
        Self {
            name: format!("{} {}", group.op, group.format),
            cases: verdict.cases.to_string(),
            nmse: format!("{nmse:.1e}"),
            allowed: format!("{allowed:.1e}"),
            mark,
            ..Self::default()
        }
    }

    fn of_speed(test: &SpeedTest, speed: Speed, copy_bandwidth: Option<f64>) -> Self {
        let mut line = Self {
            name: format!("  {}", test.what),
            us: format!("{:.1}", speed.seconds * 1e6),
            ..Self::default()
        };
        match test.limit {
            Limit::Memory => {
                let rate = speed.bytes_per_second();
                let share = copy_bandwidth.map(|copy| format!("{:.0}%", 100.0 * rate / copy));
                line.gigabytes = format!("{:.0}", rate / 1e9);
                line.share = share.unwrap_or_default();
            }
            Limit::Arithmetic => {
                line.operations = format!("{:.1}", speed.operations_per_second() / 1e12);
            }
            Limit::Latency => {}
        }
        line
    }

    /// Printed at once, so that it shows where a driver died.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { name, cases, nmse, allowed, mark, us, gigabytes, share, operations } = self;
        let text = format!(
            "{name:<26} {cases:>5} {nmse:>9} {allowed:>9} {mark:<7} {us:>9} {gigabytes:>6} {share:>7} {operations:>8}"
        );
        let palette = Palette::stdout();
        match *mark {
            "WRONG" => writeln!(out, "{}", palette.red(text.trim_end()))?,
            _ => writeln!(out, "{}", text.trim_end())?,
        }
        out.flush()
    }
}
