//! Runs of a program under a profiler.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::command::{Invocation, ToolOutput};
use super::process::{ProcessOutput, Runner};
use super::request::ProfileRequest;
use super::tool::{InstalledTool, QUERY_LIMIT, Tool};
use crate::Error;
use crate::tables::{
    AllocationRow, ApiRow, CopyRow, CounterProfile, CounterRow, KernelRow, KernelSummary, PcSample,
    StatsRow, Table, TimelineEvent, summarize_kernels,
};

/// Runs programs under one profiler.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::{ProfileRequest, Session, Tool, Toolbox};
///
/// fn kernels_of(program: &str) -> Result<usize, rf_profile::Error> {
///     let tool = Toolbox::system().find(Tool::Rocprofv3)?;
///     let folder = std::env::temp_dir().join("profiles");
///     let profile =
///         Session::new(tool, folder).run(&ProfileRequest::kernels(), &[program.into()])?;
///     Ok(profile.kernel_summaries().len())
/// }
///
/// match kernels_of("vector-add") {
///     Ok(count) => println!("{count} kernels"),
///     Err(error) => println!("skipped: {error}"),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    installed: InstalledTool,
    folder: PathBuf,
    runner: Runner,
    gfx: Option<String>,
}

/// The data that a profiler recorded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// Kernel dispatches.
    pub kernels: Vec<KernelRow>,
    /// Counters of dispatches from all passes.
    pub counters: Vec<CounterRow>,
    /// Calls of the HIP or HSA runtime.
    pub api: Vec<ApiRow>,
    /// Copies between memories.
    pub copies: Vec<CopyRow>,
    /// Allocations of device memory.
    pub allocations: Vec<AllocationRow>,
    /// Program counter samples.
    pub samples: Vec<PcSample>,
    /// The summaries that the tool computed, by file.
    pub stats: Vec<(PathBuf, Vec<StatsRow>)>,
    /// Events of timelines in Chrome's format.
    pub timeline: Vec<TimelineEvent>,
    /// All files that the tool wrote, including those that are not parsed: Perfetto traces and
    /// databases.
    pub files: Vec<PathBuf>,
    /// The running time of the tool.
    pub elapsed: Duration,
}

impl Session {
    /// The default time limit of a run.
    pub const LIMIT: Duration = Duration::from_mins(10);

    /// Runs programs under `installed`. Each run creates a folder of its own in `folder` and keeps
    /// it.
    pub fn new(installed: InstalledTool, folder: impl Into<PathBuf>) -> Self {
        let runner = Runner::new(Self::LIMIT);
        Self { installed, folder: folder.into(), runner, gfx: None }
    }

    /// Replaces the runner, and with it the time limit and the stop condition.
    #[must_use]
    pub fn with_runner(mut self, runner: Runner) -> Self {
        self.runner = runner;
        self
    }

    /// Checks that the tool supports this target before a run.
    #[must_use]
    pub fn on_target(mut self, gfx: impl Into<String>) -> Self {
        self.gfx = Some(gfx.into());
        self
    }

    /// Runs `program` and reads the recorded data. The files stay in the folder.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] and [`Error::FlagMissing`] before the run; [`Error::Start`],
    /// [`Error::Killed`] and [`Error::Failed`] from the run; [`Error::NoOutput`] and
    /// [`Error::Malformed`] from reading the files.
    pub fn run(&self, request: &ProfileRequest, program: &[OsString]) -> Result<Profile, Error> {
        if let Some(gfx) = &self.gfx {
            self.installed.tool.check_target(gfx)?;
        }
        let folder = self.run_folder();
        let output = ToolOutput { folder: folder.clone(), name: "run".to_owned() };
        let line = Invocation::new(self.installed.tool, request, &output, program)?;
        let arguments = line.arguments(&self.help(&line)?)?;
        fs::create_dir_all(&folder).map_err(|source| Error::write(&folder, source))?;
        if let Some((path, text)) = &line.input {
            fs::write(path, text).map_err(|source| Error::write(path, source))?;
        }
        let mut command = Command::new(&self.installed.path);
        command.args(arguments);
        let output = self.runner.run(command)?;
        let profile = Profile { elapsed: output.elapsed, ..Profile::read(&folder)? };
        if profile.is_empty() {
            return Err(no_tables(&output, &profile, &folder));
        }
        Ok(profile)
    }

    /// The help text of the tool.
    fn help(&self, line: &Invocation) -> Result<String, Error> {
        let mut command = Command::new(&self.installed.path);
        command.args(line.help_arguments());
        let output = self.runner.at_most(QUERY_LIMIT).run(command)?;
        let help = format!("{}\n{}", output.stdout, output.stderr);
        if help.trim().is_empty() { Err(output.no_output("--help")) } else { Ok(help) }
    }

    fn run_folder(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{}-{}-{number}", self.installed.tool, process::id()))
    }
}

impl Tool {
    /// Checks that the tool supports GPUs of this target.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it does not.
    pub fn check_target(self, gfx: &str) -> Result<(), Error> {
        const INSTINCT: [&str; 6] = ["gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"];
        let unsupported = |reason| Err(Error::Unsupported { tool: self.program(), reason });
        let arch = gfx.split(':').next().unwrap_or(gfx);
        match self {
            Self::RocprofCompute | Self::Omniperf if !INSTINCT.contains(&arch) => unsupported(
                format!("it supports Instinct GPUs (MI100 and later), not {gfx}: use rocprofv3"),
            ),
            Self::Perf => Ok(()),
            _ if !gfx.starts_with("gfx") => unsupported(format!("{gfx} is not an AMD target")),
            _ => Ok(()),
        }
    }
}

impl Profile {
    /// Reads all files of a profiler in a folder. The columns of a table determine its type.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], [`Error::Malformed`] and [`Error::NoColumn`].
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let mut profile = Self::default();
        walk(folder, &mut profile.files)?;
        profile.files.sort();
        for path in profile.files.clone() {
            let ends = |end: &str| path.extension().is_some_and(|extension| extension == end);
            if ends("csv") && fs::metadata(&path).is_ok_and(|data| data.len() > 0) {
                profile.take(&path, &Table::read(&path)?)?;
            } else if path.file_name().is_some_and(|name| name == "run.json") {
                // Only rocprof's JSON file is a timeline.
                profile.timeline.extend(TimelineEvent::read(&path).unwrap_or_default());
            }
        }
        Ok(profile)
    }

    fn take(&mut self, path: &Path, table: &Table) -> Result<(), Error> {
        if StatsRow::fits(table) {
            self.stats.push((path.to_owned(), StatsRow::all(table)?));
        } else if ApiRow::fits(table) {
            self.api.extend(ApiRow::all(table)?);
        } else if AllocationRow::fits(table) {
            self.allocations.extend(AllocationRow::all(table)?);
        } else if CopyRow::fits(table) {
            self.copies.extend(CopyRow::all(table)?);
        } else if PcSample::fits(table) {
            self.samples.extend(PcSample::all(table)?);
        } else {
            let counts = CounterRow::fits(table);
            if counts {
                self.counters.extend(CounterRow::all(table)?);
            }
            // A table in long form repeats a dispatch for each of its counters.
            if KernelRow::fits(table) && !table.has("Counter_Name") {
                self.kernels.extend(KernelRow::all(table)?);
            }
        }
        Ok(())
    }

    /// Returns true if the folder held no profile.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
            && self.counters.is_empty()
            && self.api.is_empty()
            && self.copies.is_empty()
            && self.allocations.is_empty()
            && self.samples.is_empty()
            && self.stats.is_empty()
            && self.timeline.is_empty()
            && !self.files.iter().any(|path| is_trace(path))
    }

    /// Kernels in descending order of their total time: from the dispatches, or without them from
    /// the summaries of the tool.
    pub fn kernel_summaries(&self) -> Vec<KernelSummary> {
        if !self.kernels.is_empty() {
            return summarize_kernels(&self.kernels);
        }
        let of_kernels = self.stats.iter().find(|(path, _)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with("kernel_stats.csv") || name.ends_with("run.stats.csv")
        });
        of_kernels
            .map(|(_, rows)| rows.iter().map(KernelSummary::from).collect())
            .unwrap_or_default()
    }

    /// Counters by kernel.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroCounters`] if the hardware did not count.
    pub fn counter_profile(&self) -> Result<CounterProfile, Error> {
        CounterProfile::new(&self.counters)
    }
}

fn no_tables(output: &ProcessOutput, profile: &Profile, folder: &Path) -> Error {
    let has =
        |end: &str| profile.files.iter().any(|path| path.extension().is_some_and(|e| e == end));
    let cure = if has("db") { " (only a rocpd database: convert it to csv)" } else { "" };
    output.no_output(&format!("tables in '{}'{cure}", folder.display()))
}

/// Returns true if a file is a Perfetto timeline of rocprof-sys.
fn is_trace(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "proto" || end == "pftrace")
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let to_error = |source| Error::read(folder, source);
    for entry in fs::read_dir(folder).map_err(to_error)? {
        let entry = entry.map_err(to_error)?;
        // A symbolic link could form a cycle, so links are not followed.
        if entry.file_type().map_err(to_error)?.is_dir() {
            walk(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}
