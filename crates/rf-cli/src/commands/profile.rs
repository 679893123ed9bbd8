//! `rf-cli profile`: runs a command under a profiler and prints its hot spots.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rf_profile::baseline::Hardware;
use rf_profile::tables::{CounterProfile, kernel_table};
use rf_profile::tools::{
    InstalledTool, Profile, ProfileRequest, Runner, Session, Tool, Toolbox, available_tools, perf,
};
use rf_profile::{Trace, plot, replace_file};

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::{picture, sources, terminal};

/// Samples of call stacks per second. An odd number does not run in step with timers.
const HERTZ: u32 = 997;

/// Rows of a flame graph on a terminal.
const FLAME_ROWS: usize = 30;

/// Functions in the table of hot spots.
const FUNCTIONS: usize = 25;

/// Commands that stand for this program with that command.
const OWN_COMMANDS: [&str; 4] = ["run", "bench", "perplexity", "selftest"];

/// Arguments of `rf-cli profile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Uses rocprofv3 if it is installed, else perf, unless --tool names another one. A COMMAND that begins with run, \
bench, perplexity or selftest is a command of this program.

Examples:
  rf-cli profile --list
  rf-cli profile -- run -n 50 \"Tell me a story.\"
  rf-cli profile --record memory --gfx gfx1100 -- bench -m model.gguf
  rf-cli profile --record timeline --trace trace.json -- run \"Hello\"
  rf-cli profile --tool perf --flame-graph flames.svg -- run \"Hello\"
  rf-cli profile --tool perf --flame-graph - -- bench -n 64")]
pub(crate) struct ProfileArgs {
    /// Profile this command line, which follows --
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "list")]
    command: Vec<OsString>,
    /// List the installed profilers and exit
    #[arg(long)]
    list: bool,
    /// Use this profiler: rocprofv3, rocprofv2, rocprof, rocprof-compute, rocprof-sys-sample or
    /// perf
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Record WHAT on the GPU
    #[arg(long, value_name = "WHAT", default_value = "kernels")]
    record: RecordedData,
    /// Choose the counters of the GPU target GFX [default: the target of the first GPU]
    #[arg(long, value_name = "GFX")]
    gfx: Option<String>,
    /// Keep the files of the profiler in DIR
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write a timeline of the GPU to FILE, for Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write folded call stacks to FILE, for flame graphs (with perf)
    #[arg(long, value_name = "FILE")]
    stacks: Option<PathBuf>,
    /// Draw a flame graph to FILE, an SVG picture; - draws it with characters on stderr (with perf)
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// Kill the command after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

/// Data to record.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RecordedData {
    /// Times of kernels
    Kernels,
    /// Kernels, calls, copies, allocations
    Timeline,
    /// Bytes that each kernel moves
    Memory,
    /// Bytes, caches, stalls and waves of each kernel
    DetailedMemory,
    /// Memory, caches, LDS and instructions of matmuls
    MatmulMemory,
    /// Utilisation of the compute units
    ComputeUnit,
}

/// Runs `rf-cli profile`.
pub(crate) fn profile(arguments: &ProfileArgs) -> Result<()> {
    if arguments.list {
        return list();
    }
    let tool = arguments.tool()?;
    let command = own_or_other(&arguments.command)?;
    check_program(&command)?;
    for path in [&arguments.trace, &arguments.stacks].into_iter().flatten() {
        sources::check_output(path)?;
    }
    if let Some(path) = &arguments.flame_graph {
        picture::check(path)?;
    }
    arguments.check_stacks(tool.tool)?;
    let watch = Arc::new(Watch::new());
    let asked = Arc::clone(&watch);
    let runner = Runner::new(Duration::from_secs(arguments.timeout))
        .echo(true)
        .stopped_when(move || asked.requested());
    let kept = arguments.folder.is_some();
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| env::temp_dir().join(format!("rf-cli-profile-{}", std::process::id())));
    let outcome = if tool.tool == Tool::Perf {
        arguments.with_perf(&tool, &runner, &folder, &command)
    } else {
        arguments.with_gpu_tool(tool, runner, &folder, &command)
    };
    if kept {
        terminal::note(format_args!("the files of the profiler are in {}", folder.display()));
    } else if let Err(error) = fs::remove_dir_all(&folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        terminal::warn(format_args!("cannot remove {}: {error}", folder.display()));
    }
    if watch.requested() { Err(Interrupted.into()) } else { outcome }
}

fn list() -> Result<()> {
    let out = &mut io::stdout().lock();
    for found in available_tools() {
        match found.version {
            Ok(version) => writeln!(out, "{:<20} {version}", found.tool.program())?,
            // The error begins with the name of the tool.
            Err(why) => writeln!(out, "{why}")?,
        }
    }
    Ok(())
}

/// The command line, preceded by this program if it begins with one of its commands.
fn own_or_other(command: &[OsString]) -> Result<Vec<OsString>> {
    let mut line = command.to_vec();
    if command.first().is_some_and(|first| OWN_COMMANDS.iter().any(|own| first == own)) {
        let program = env::current_exe().context("cannot find this program's own file")?;
        line.insert(0, program.into());
    }
    Ok(line)
}

/// Checks that the command exists, which a profiler may not report.
fn check_program(command: &[OsString]) -> Result<()> {
    let Some(program) = command.first().map(Path::new) else { return Ok(()) };
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_path = program.components().count() > 1;
    if is_path && program.exists()
        || !is_path && env::split_paths(&folders).any(|folder| folder.join(program).exists())
    {
        return Ok(());
    }
    Err(bad_input!("there is no program '{}': check its name", program.display()))
}

impl ProfileArgs {
    fn tool(&self) -> Result<InstalledTool> {
        let toolbox = Toolbox::system();
        if let Some(name) = &self.tool {
            let tool = Tool::named(name).map_err(|error| bad_input!("{error}"))?;
            if let Some(successor) = tool.successor() {
                terminal::warn(format_args!("{tool} is deprecated: use {successor}"));
            }
            return Ok(toolbox.find(tool)?);
        }
        if let Ok(tool) = toolbox.find(Tool::Rocprofv3) {
            return Ok(tool);
        }
        if !matches!(self.record, RecordedData::Kernels) || self.trace.is_some() {
            // Only a GPU profiler records this.
            return Ok(toolbox.find(Tool::Rocprofv3)?);
        }
        let perf = toolbox.find(Tool::Perf).context("neither rocprofv3 nor perf is available")?;
        terminal::note("rocprofv3 is not installed, so perf records the CPU");
        Ok(perf)
    }

    /// Checks that a tool samples call stacks, if they are asked for.
    fn check_stacks(&self, tool: Tool) -> Result<()> {
        let asked = [("--stacks", &self.stacks), ("--flame-graph", &self.flame_graph)];
        match asked.iter().find(|(_, path)| path.is_some()) {
            Some((flag, _)) if tool != Tool::Perf => Err(bad_input!(
                "{flag} needs call stacks, which {tool} does not sample: give --tool perf"
            )),
            _ => Ok(()),
        }
    }

    fn with_perf(
        &self,
        tool: &InstalledTool,
        runner: &Runner,
        folder: &Path,
        command: &[OsString],
    ) -> Result<()> {
        let stacks = perf::record(tool, runner, folder, HERTZ, command)?;
        let out = &mut io::stdout().lock();
        writeln!(out, "\n{} samples", stacks.samples())?;
        for (function, count, share) in stacks.hottest().into_iter().take(FUNCTIONS) {
            writeln!(out, "{count:>8}  {:>5.1}%  {function}", 100.0 * share)?;
        }
        if let Some(path) = &self.stacks {
            replace_file(path, |out| out.write_all(stacks.folded().as_bytes()))?;
        }
        if let Some(path) = &self.flame_graph {
            let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
            let svg = || plot::flame_graph_svg(&stacks, &words.join(" "));
            picture::show(path, svg, |width| plot::flame_graph_text(&stacks, width, FLAME_ROWS))?;
        }
        Ok(())
    }

    fn with_gpu_tool(
        &self,
        tool: InstalledTool,
        runner: Runner,
        folder: &Path,
        command: &[OsString],
    ) -> Result<()> {
        let gfx = self.gfx.clone().unwrap_or_else(|| Hardware::detect().gfx);
        let request = self.request(&gfx)?;
        let mut session = Session::new(tool, folder).with_runner(runner);
        if !gfx.is_empty() {
            session = session.on_target(&gfx);
        }
        let profile = session.run(&request, command)?;
        let out = &mut io::stdout().lock();
        writeln!(out, "\n{}", kernel_table(&profile.kernel_summaries()))?;
        if !request.passes.is_empty() {
            write_counters(out, &profile, &profile.counter_profile()?)?;
        }
        if let Some(path) = &self.trace {
            let mut trace = Trace::new();
            trace.add_profile(&profile.kernels, &profile.copies, &profile.api);
            trace.save(path)?;
        }
        Ok(())
    }

    fn request(&self, gfx: &str) -> Result<ProfileRequest> {
        let request = match self.record {
            RecordedData::Kernels => return Ok(ProfileRequest::kernels()),
            RecordedData::Timeline => return Ok(ProfileRequest::timeline()),
            _ if gfx.is_empty() => {
                return Err(bad_input!(
                    "no GPU was found, so the counters are unknown: give its target with --gfx"
                ));
            }
            RecordedData::Memory => ProfileRequest::memory(gfx),
            RecordedData::DetailedMemory => ProfileRequest::detailed_memory(gfx),
            RecordedData::MatmulMemory => ProfileRequest::matmul_memory(gfx),
            RecordedData::ComputeUnit => ProfileRequest::compute_unit(gfx),
        };
        request.map_err(|error| bad_input!("{error}"))
    }
}

/// Prints the metrics that follow from counters, a line per kernel.
fn write_counters(
    out: &mut impl Write,
    profile: &Profile,
    counters: &CounterProfile,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<60}  {:>8}  {:>6}  {:>9}  {:>13}  {:>9}",
        "kernel", "GB/s", "L2 hit", "occupancy", "LDS conflicts", "VALU/wave"
    )?;
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    for kernel in counters.kernels() {
        let speed = counters.bandwidth_bytes_per_s(kernel, &profile.kernels);
        let speed = speed.map_or("-".to_owned(), |speed| format!("{:.1}", speed / 1e9));
        let vector = counters.instructions_per_wave(kernel, "VALU");
        let vector = vector.map_or("-".to_owned(), |count| format!("{count:.0}"));
        let name: String = kernel.chars().take(60).collect();
        writeln!(
            out,
            "{name:<60}  {speed:>8}  {:>6}  {:>9}  {:>13}  {vector:>9}",
            percent(counters.l2_hit_rate(kernel)),
            percent(counters.occupancy(kernel)),
            percent(counters.lds_conflict_rate(kernel)),
        )?;
    }
    Ok(())
}
