//! `rf-cli profile`: a command under a profiler, and a table of where its time goes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rf_profile::baseline::Hardware;
use rf_profile::tables::{CounterProfile, kernel_table};
use rf_profile::tools::{
    InstalledTool, Profile, Request, Runner, Session, Tool, Toolbox, available_tools, perf,
};
use rf_profile::{Trace, replace_file};

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal;

/// Samples of call stacks in a second: no round number, so as not to beat with timers.
const HERTZ: u32 = 997;

/// Functions that are printed.
const FUNCTIONS: usize = 25;

/// Commands of this program that may stand for the whole command line.
const OWN_COMMANDS: [&str; 4] = ["run", "bench", "perplexity", "selftest"];

/// Arguments of `rf-cli profile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --tool, rocprofv3 is taken where it is installed, and perf where not. A COMMAND that is one of run, bench, \
perplexity and selftest is this program's.

Examples:
  rf-cli profile --list
  rf-cli profile -- run -n 50 \"Tell me a story.\"
  rf-cli profile --record memory --gfx gfx1100 -- bench -m model.gguf
  rf-cli profile --record timeline --trace trace.json -- run \"Hello\"
  rf-cli profile --tool perf --stacks stacks.txt -- run \"Hello\"")]
pub(crate) struct ProfileArgs {
    /// What to run, after --
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "list")]
    command: Vec<OsString>,
    /// Print which profilers are installed, and end
    #[arg(long)]
    list: bool,
    /// rocprofv3, rocprofv2, rocprof, rocprof-compute, rocprof-sys-sample or perf
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// What to record on the GPU
    #[arg(long, value_name = "WHAT", default_value = "kernels")]
    record: What,
    /// The GPU's target, which decides on the counters [default: that of the first GPU]
    #[arg(long, value_name = "GFX")]
    gfx: Option<String>,
    /// Keep what the profiler writes in this folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write what was recorded on the GPU as a timeline for Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// With perf: write the call stacks in the format that flame graphs are drawn from
    #[arg(long, value_name = "FILE")]
    stacks: Option<PathBuf>,
    /// End the command after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

/// What to record.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Times of kernels
    Kernels,
    /// Kernels, calls, copies, allocations
    Timeline,
    /// Bytes of each kernel
    Memory,
    /// The same with caches, stalls and waves
    DetailedMemory,
    /// Memory, caches, LDS and instructions of matrix products
    MatmulMemory,
    /// How busy the compute units are
    ComputeUnit,
}

/// Runs `rf-cli profile`.
pub(crate) fn profile(arguments: &ProfileArgs) -> Result<()> {
    if arguments.list {
        return list();
    }
    let tool = arguments.tool()?;
    let command = own_or_other(&arguments.command)?;
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
        terminal::note(format_args!("what the profiler wrote is in {}", folder.display()));
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
            // It begins with the tool's name.
            Err(why) => writeln!(out, "{why}")?,
        }
    }
    Ok(())
}

/// The command line, with this program before it where it begins with a command of ours.
fn own_or_other(command: &[OsString]) -> Result<Vec<OsString>> {
    let mut line = command.to_vec();
    if command.first().is_some_and(|first| OWN_COMMANDS.iter().any(|own| first == own)) {
        let program = env::current_exe().context("cannot find this program's own file")?;
        line.insert(0, program.into());
    }
    Ok(line)
}

impl ProfileArgs {
    fn tool(&self) -> Result<InstalledTool> {
        let toolbox = Toolbox::system();
        if let Some(name) = &self.tool {
            let tool = Tool::named(name).map_err(|error| bad_input!("{error}"))?;
            if let Some(successor) = tool.successor() {
                terminal::warn(format_args!(
                    "{tool} is on its way out: {successor} takes its place"
                ));
            }
            return Ok(toolbox.find(tool)?);
        }
        if let Ok(tool) = toolbox.find(Tool::Rocprofv3) {
            return Ok(tool);
        }
        if !matches!(self.record, What::Kernels) || self.trace.is_some() {
            // What was asked for only a profiler of GPUs records.
            return Ok(toolbox.find(Tool::Rocprofv3)?);
        }
        let perf = toolbox.find(Tool::Perf).context("neither rocprofv3 nor perf is there")?;
        terminal::note("rocprofv3 is not installed, so perf records the CPU");
        Ok(perf)
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

    fn request(&self, gfx: &str) -> Result<Request> {
        let request = match self.record {
            What::Kernels => return Ok(Request::kernels()),
            What::Timeline => return Ok(Request::timeline()),
            _ if gfx.is_empty() => {
                return Err(bad_input!(
                    "there is no GPU here to tell the counters by: give its target with --gfx"
                ));
            }
            What::Memory => Request::memory(gfx),
            What::DetailedMemory => Request::detailed_memory(gfx),
            What::MatmulMemory => Request::matmul_memory(gfx),
            What::ComputeUnit => Request::compute_unit(gfx),
        };
        request.map_err(|error| bad_input!("{error}"))
    }
}

/// What counters come to, a line for each kernel.
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
