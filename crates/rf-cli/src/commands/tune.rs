//! `rf-cli tune`: measures which launches are fastest on the user's GPU and keeps the choices.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use rocmforge::device::gpu::{self, Gpu};
use rocmforge::device::probe::{PlatformReport, Prober};
use rocmforge::device::tuning::{
    TableError, TrialEnd, TuneEvent, TunePlan, TuneSubject, TuningFailure, TuningTable,
};
use rocmforge::engine::{DType, KvType, Model};
use rocmforge::gguf::{Gguf, TensorInfo};

use crate::args::ModelArgs;
use crate::commands::info::ModelKeys;
use crate::commands::probe::prober;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::ModelFile;
use crate::terminal::{self, Palette};
use crate::{sources, version};

/// Arguments of `rf-cli tune`.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, Args)]
#[command(after_help = "\
Measures kernel launches with other numbers of waves, tiles and parts than the defaults, for the formats and \
shapes of a model. On AMD cards it also measures other variants of the kernel code, which ROCm's libhiprtc \
compiles if it is installed. A value replaces a default if it is at least 3 % faster in two rounds and its \
result is the same within the error of its arithmetic. Without a model, tune measures Q4_K, Q6_K, Q4_0 and \
Q8_0 with matrices of 4096 x 4096, and f16 and q8_0 caches. Measurements run in a child process. A value that \
crashes or hangs the driver is reported, recorded in the table, and not tried again.

The table of a GPU is stored in $XDG_CACHE_HOME/rocmforge/tune. All later commands use it. An entry is valid \
until an update changes the kernels with which it was measured. ROCFORGE_TUNING=off ignores the table.

Exit codes: 0 measured, 1 the GPU cannot be used, 2 invalid input, 130 stopped by Ctrl-C. A stopped run keeps \
its results.

Examples:
  rf-cli tune -m model.gguf
  rf-cli tune --quick
  rf-cli tune -m model.gguf prefill
  rf-cli tune --show
  rf-cli tune --export rx7900xt.toml")]
pub(crate) struct TuneArgs {
    /// Measure only knobs and formats that contain this text
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Tune the GPU with number N in `rf-cli devices` [default: the best GPU]
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// Stop after 10 s. Measurements are shorter, and the most important ones run first
    #[arg(long)]
    quick: bool,
    /// Measure every format, with matrices of 4096 x 4096
    #[arg(long, conflicts_with_all = ["model", "hf_repo"])]
    all: bool,
    /// Print the table and measure nothing
    #[arg(long, conflicts_with_all = ["quick", "all", "model", "hf_repo"])]
    show: bool,
    /// Remove the table and measure nothing
    #[arg(long, conflicts_with_all = ["show", "quick", "all", "model", "hf_repo", "import", "export"])]
    reset: bool,
    /// Write the table to FILE and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "all", "model", "hf_repo"])]
    export: Option<PathBuf>,
    /// Read the table from FILE, exported for the same kind of GPU, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["export", "quick", "all", "model", "hf_repo"])]
    import: Option<PathBuf>,
}

/// Duration of a quick run.
const QUICK_LIMIT: Duration = Duration::from_secs(10);

/// The formats that are measured without a model: those of most files.
const USUAL_FORMATS: [DType; 4] = [DType::Q4K, DType::Q6K, DType::Q4_0, DType::Q8_0];

/// Heads of Llama 3 8B: queries, keys and values, elements.
const USUAL_HEADS: [usize; 3] = [32, 8, 128];

/// Runs `rf-cli tune`.
pub(crate) fn tune(arguments: &TuneArgs) -> Result<()> {
    let subjects = subjects(arguments)?;
    let prober = prober()?;
    let gpu = gpu::find(arguments.device, Some(prober))?;
    if let Some(problem) = &gpu.report().problem {
        bail!("{gpu} cannot be used: {problem}");
    }
    let path = TuningTable::path(gpu.report())?;
    if arguments.reset {
        return reset(&path);
    }
    if let Some(file) = &arguments.import {
        let table = TuningTable::read(file, gpu.report()).map_err(|error| match error {
            TableError::Syntax { .. } => bad_input!("{error}: `rf-cli tune --export` writes one"),
            error => bad_input!("{error}"),
        })?;
        table.write(&path)?;
        terminal::note(format_args!("written: {}", path.display()));
        return print(&table);
    }
    if arguments.show || arguments.export.is_some() {
        return show(&path, &gpu, arguments.export.as_deref());
    }
    let table = match TuningTable::read(&path, gpu.report()) {
        Ok(table) => table,
        Err(error) => {
            if path.exists() {
                terminal::warn(format_args!("{error}: everything is measured again"));
            }
            new_table(prober, &gpu)?
        }
    };
    let plan = TunePlan::default()
        .with_subjects(subjects)
        .with_filter(arguments.filter.clone().unwrap_or_default())
        .with_block(Duration::from_millis(if arguments.quick { 20 } else { 150 }))
        .with_failures(table.failures.clone());
    measure((prober, &gpu), table, &plan, &path, arguments.quick)
}

fn reset(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => terminal::note(format_args!("removed: {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            terminal::note("this GPU has no table");
        }
        Err(error) => return Err(error).context(path.display().to_string()),
    }
    Ok(())
}

fn show(path: &Path, gpu: &Gpu, export: Option<&Path>) -> Result<()> {
    let table = if path.exists() {
        TuningTable::read(path, gpu.report())?
    } else if let Some(table) = TuningTable::embedded(gpu.report()) {
        terminal::note("the table of the program: `rf-cli tune` measures on this GPU");
        table
    } else {
        bail!("{gpu} is not tuned: run `rf-cli tune -m MODEL` first");
    };
    let Some(file) = export else { return print(&table) };
    sources::check_output(file)?;
    rf_profile::replace_file(file, |out| write!(out, "{}", table.to_toml()))
        .with_context(|| format!("cannot write '{}'", file.display()))?;
    terminal::note(format_args!("written: {}", file.display()));
    Ok(())
}

/// A table without results.
fn new_table(prober: &Prober, gpu: &Gpu) -> Result<TuningTable> {
    let of_gpu = |report: &PlatformReport| report.platform == gpu.report().platform;
    let platform = prober.survey()?.into_iter().find(of_gpu).unwrap_or_default();
    let version = platform.version.or(platform.driver_version).unwrap_or_default();
    let runtime = format!("{} {version}", platform.platform);
    Ok(TuningTable::new(gpu.report(), runtime, version::short().to_owned()))
}

/// The weights and caches for which launches are measured.
fn subjects(arguments: &TuneArgs) -> Result<Vec<TuneSubject>> {
    let cache = |kv: KvType, [num_heads, num_kv_heads, head_dim]: [usize; 3]| TuneSubject::Cache {
        format: kv.name().to_owned(),
        num_heads,
        num_kv_heads,
        head_dim,
    };
    let square = |dtype: DType| TuneSubject::Matrix {
        format: dtype.name().to_owned(),
        rows: 4096,
        columns: 4096,
    };
    if arguments.all {
        let caches = KvType::ALL.map(|kv| cache(kv, USUAL_HEADS));
        return Ok(DType::ALL.map(square).into_iter().chain(caches).collect());
    }
    let caches = |heads| [KvType::F16, KvType::Q8_0].map(|kv| cache(kv, heads));
    if arguments.model.is_demo() {
        return Ok(USUAL_FORMATS.map(square).into_iter().chain(caches(USUAL_HEADS)).collect());
    }
    let gguf = ModelFile::of(&arguments.model)?.open()?;
    let mut subjects = matrices(&gguf);
    let keys = ModelKeys::of(&gguf);
    if let Some(heads) = keys.heads().filter(|_| keys.latent_dim.is_none()) {
        subjects.extend(caches(heads));
    }
    // Refuses numbers of heads that no model has.
    Model::from_gguf(gguf)?;
    if subjects.is_empty() {
        return Err(bad_input!("the file has no layers: `rf-cli info` lists its contents"));
    }
    Ok(subjects)
}

/// For each format of the layers' matrices, the shape that has the most bytes.
fn matrices(gguf: &Gguf) -> Vec<TuneSubject> {
    let mut shapes: Vec<(DType, [usize; 2], usize)> = Vec::new();
    let of_layers = gguf
        .tensors()
        .iter()
        .filter(|tensor| tensor.name().starts_with("blk.") && tensor.shape().len() >= 2);
    for tensor in of_layers {
        let (Ok(dtype), &[columns, rows, ..]) = (tensor.dtype(), tensor.shape()) else { continue };
        let shape = [rows as usize, columns as usize];
        let bytes = TensorInfo::size_bytes(tensor);
        match shapes.iter_mut().find(|(other, of, _)| (*other, *of) == (dtype, shape)) {
            Some((.., sum)) => *sum += bytes,
            None => shapes.push((dtype, shape, bytes)),
        }
    }
    shapes.sort_by_key(|(.., bytes)| std::cmp::Reverse(*bytes));
    let mut known = HashSet::new();
    shapes.retain(|(dtype, ..)| known.insert(*dtype));
    let subject = |(dtype, [rows, columns], _): (DType, [usize; 2], usize)| TuneSubject::Matrix {
        format: dtype.name().to_owned(),
        rows,
        columns,
    };
    shapes.into_iter().map(subject).collect()
}

fn measure(
    (prober, gpu): (&Prober, &Gpu),
    mut table: TuningTable,
    plan: &TunePlan,
    path: &Path,
    quick: bool,
) -> Result<()> {
    terminal::note(format_args!("{gpu}"));
    let (watch, started) = (Watch::new(), Instant::now());
    let (mut bar, mut failure, mut is_over) = (None::<ProgressBar>, None, false);
    let mut is_none = false;
    let mut observe = |table: &TuningTable, event: TuneEvent<'_>| {
        match event {
            TuneEvent::Open { trials: 0 } => is_none = true,
            TuneEvent::Open { trials } => {
                bar = Some(terminal::count_progress("tuning", trials as u64));
            }
            TuneEvent::Trial(trial, end) => {
                // Kept at once: the next trial may take the machine down.
                if let Err(error) = table.write(path) {
                    failure.get_or_insert(error);
                }
                let note = match end {
                    TrialEnd::Measured { .. } => None,
                    TrialEnd::Failed(reason) => Some(("failed", reason)),
                    TrialEnd::NotMeasured(reason) => Some(("not measured", reason)),
                };
                if let (Some(bar), Some((what, reason))) = (&bar, note) {
                    bar.suspend(|| {
                        let (knob, format, value) = (&trial.knob, &trial.format, trial.value);
                        terminal::warn(format_args!(
                            "{knob} {value} for {format} {what}: {reason}"
                        ));
                    });
                }
                if let Some(bar) = &bar {
                    bar.inc(1);
                }
            }
            _ => {}
        }
        is_over = quick && started.elapsed() > QUICK_LIMIT;
        let is_stopped = is_over || watch.requested() || failure.is_some();
        if is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let is_whole = table.measure((prober, gpu), plan, &mut observe)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    if !is_whole && !is_over {
        return Err(Interrupted.into());
    }
    let has_failed = |failure: &TuningFailure| plan.selects(&failure.knob, &failure.format);
    if is_none && !plan.failures.iter().any(has_failed) {
        return Err(bad_input!(
            "no knob or format to measure on this GPU contains the text: docs/gpu.md lists the \
             knobs. Knobs of kernel code need ROCm's libhiprtc"
        ));
    }
    table.write(path)?;
    print(&table)?;
    if !is_whole {
        terminal::note("stopped after 10 s: without --quick, everything is measured");
    }
    terminal::note(format_args!("written: {}", path.display()));
    Ok(())
}

fn print(table: &TuningTable) -> Result<()> {
    let mut out = io::stdout().lock();
    let palette = Palette::stdout();
    let TuningTable { device, arch, compute_units, runtime, .. } = table;
    let device = terminal::shown(device);
    writeln!(
        out,
        "{device} ({arch}, {compute_units} compute units), {}",
        terminal::shown(runtime)
    )?;
    let head = format!(
        "{:<18} {:<12} {:>8} {:>11} {:>11} {:>7}",
        "knob", "format", "value", "default us", "us", "gain"
    );
    writeln!(out, "{}", palette.bold(head))?;
    for choice in &table.choices {
        let (knob, format) = (terminal::shown(&choice.knob), terminal::shown(&choice.format));
        let (value, us, gain) = match choice.value {
            None => ("default".to_owned(), String::new(), String::new()),
            Some(value) => {
                let gain = 100.0 * (1.0 - choice.us / choice.default_us);
                (value.to_string(), format!("{:.1}", choice.us), format!("{gain:.1} %"))
            }
        };
        let line = format!(
            "{knob:<18} {format:<12} {value:>8} {:>11.1} {us:>11} {gain:>7}",
            choice.default_us
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    for failure in &table.failures {
        let (knob, format) = (terminal::shown(&failure.knob), terminal::shown(&failure.format));
        let reason = terminal::shown(&failure.reason);
        writeln!(out, "{knob} {} for {format} failed: {reason}", failure.value)?;
    }
    out.flush()?;
    Ok(())
}
