//! Locations of baseline and record files, and the rules for writing them.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use rf_profile::baseline::{
    BaselineComparison, BaselineSet, DeviceKind, Hardware, ModelId, Origin,
};
use rf_profile::replace_file;
use serde_json::json;

use crate::model::IdentifiedModel;
use crate::plan::BenchmarkPlan;
use crate::results::{FORMAT, Run, VERSION};
use crate::{Error, machine};

/// Folder of the baselines, relative to the checkout.
const BASELINES: &str = "benchmarks/baselines";
/// Folder of the records, relative to the checkout.
const RECORDS: &str = "benchmarks/records";

/// A stored baseline to compare a run with.
#[derive(Clone, Debug)]
pub struct Stored {
    path: PathBuf,
    set: BaselineSet,
}

/// A comparison with a baseline whose results are all of other hardware. Nothing is measured for
/// it.
#[derive(Clone, Debug)]
pub struct Incomparable {
    /// The comparison, without measurements.
    pub comparison: BaselineComparison,
    /// Commands that repeat the measurements on their hardware.
    pub commands: Vec<String>,
}

impl Stored {
    /// Reads the file at the given path, or the file of that name in `benchmarks/baselines/` of the
    /// checkout `root`.
    ///
    /// # Errors
    ///
    /// [`Error::NoBaseline`] and [`Error::Folder`] if there is no such file,
    /// [`Error::CompareWith`] if it cannot be read.
    pub fn load(root: &Path, given: &Path) -> Result<Self, Error> {
        let path = find(root, given)?;
        match BaselineSet::load(&path) {
            Ok(set) => Ok(Self { path, set }),
            Err(source) => Err(Error::CompareWith { path, source }),
        }
    }

    /// Returns the comparison with no measurement if every entry is of other hardware, and `None`
    /// if at least one entry is comparable.
    pub fn incomparable(&self, here: &Hardware, threshold: f64) -> Option<Incomparable> {
        let entries = &self.set.entries;
        let is_comparable = |entry: &rf_profile::baseline::Baseline| {
            here.mismatch(&entry.hardware, entry.device).is_none()
        };
        if entries.is_empty() || entries.iter().any(is_comparable) {
            return None;
        }
        let comparison = self.set.compare(&BaselineSet::default(), here, threshold);
        Some(Incomparable { comparison, commands: self.commands() })
    }

    /// Returns the commands that repeat these measurements on their hardware, one for each model.
    fn commands(&self) -> Vec<String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut commands: Vec<String> = Vec::new();
        for entry in &self.set.entries {
            let suite = entry.name.split('/').next().unwrap_or_default();
            let backend = entry.device.to_string().to_lowercase();
            let model = entry.model.as_ref().map(|model| format!(" --model <{}.gguf>", model.name));
            let command = format!(
                "cargo xtask bench {suite} --backend {backend}{} --compare {name}    # on {}",
                model.unwrap_or_default(),
                entry.hardware.name(entry.device)
            );
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        commands
    }

    /// Compares a run with this baseline. A run of a subset is compared with the same subset.
    pub fn compare(
        &self,
        run: &Run,
        model: Option<&IdentifiedModel>,
        plan: &BenchmarkPlan,
        threshold: f64,
    ) -> BaselineComparison {
        let mut set = self.set.clone();
        set.entries.retain(|entry| plan.is_whole || plan.has(&entry.name));
        if let Some(model) = model {
            adopt_published(&mut set, &model.id, &model.kind);
        }
        set.compare(&run.baselines(), &run.hardware, threshold)
    }
}

impl Incomparable {
    /// Formats the comparison and the commands as text.
    pub fn table(&self) -> String {
        format!(
            "{}\nNothing was measured: every baseline result is of other hardware. Commands for that hardware:\n  {}\n",
            self.comparison.table(),
            self.commands.join("\n  ")
        )
    }

    /// Formats the comparison and the commands as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Json`] if a value cannot be encoded.
    pub fn json(&self) -> Result<String, Error> {
        let all = json!({
            "run": null,
            "comparison": self.comparison.to_json(),
            "targets": [],
            "would_run": self.commands,
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

/// Assigns the hash of the measured model to published results of the same kind of model.
///
/// Published results name a kind, such as `7B Q4_0`, and have no file hash.
fn adopt_published(set: &mut BaselineSet, measured: &ModelId, kind: &str) {
    for entry in &mut set.entries {
        let Origin::Reference { .. } = entry.origin else { continue };
        if let Some(model) = entry.model.as_mut().filter(|model| model.name == kind) {
            model.hash.clone_from(&measured.hash);
        }
    }
}

/// The file that a run is saved to as a baseline.
#[derive(Clone, Debug)]
pub struct Destination {
    path: PathBuf,
    /// True if the run is merged into the existing file, which keeps its other entries.
    merges: bool,
}

/// A saved baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// A run of all benchmarks replaced the file.
    Replaced {
        /// The file.
        path: PathBuf,
        /// Saved benchmarks.
        count: usize,
    },
    /// A run of a subset was merged into the file.
    Merged {
        /// The file.
        path: PathBuf,
        /// Saved benchmarks.
        count: usize,
    },
    /// An incomplete run went to a file of its own.
    Partial {
        /// The file.
        path: PathBuf,
        /// Saved benchmarks.
        count: usize,
        /// Benchmarks of the plan.
        total: usize,
        /// The baseline, which is unchanged.
        unchanged: PathBuf,
    },
}

impl Destination {
    /// Checks the given file, or that of the hardware, before the measurement starts.
    ///
    /// # Errors
    ///
    /// [`Error::WriteFolder`] if it is a folder, [`Error::MergeInto`] if a subset cannot be merged
    /// into it.
    pub fn new(
        root: &Path,
        given: Option<&Path>,
        hardware: &Hardware,
        device: DeviceKind,
        plan: &BenchmarkPlan,
    ) -> Result<Self, Error> {
        let default =
            || root.join(BASELINES).join(format!("{}.json", machine::slug(hardware, device)));
        let path = given.map_or_else(default, Path::to_owned);
        if path.is_dir() {
            return Err(Error::WriteFolder { path });
        }
        // Only regular files are read: a device such as /dev/zero has no end.
        let merges = !plan.is_whole && path.is_file();
        if merges && let Err(source) = BaselineSet::load(&path) {
            return Err(Error::MergeInto { path, source });
        }
        Ok(Self { path, merges })
    }

    /// Writes the results of a run without losing stored entries. An incomplete run of `plan` goes
    /// to a separate file: `mine.partial.json` for `mine.json`.
    ///
    /// # Errors
    ///
    /// [`Error::NothingMeasured`] for a run without results; errors of writing.
    pub fn save(&self, run: &Run, is_complete: bool) -> Result<Saved, Error> {
        let fresh = run.baselines();
        let count = fresh.entries.len();
        let path = self.path.clone();
        if count == 0 {
            return Err(Error::NothingMeasured { unchanged: path });
        }
        if !is_complete || !run.missing.is_empty() {
            let unchanged = path;
            let path = unchanged.with_extension("partial.json");
            fresh.save(&path)?;
            return Ok(Saved::Partial { path, count, total: count + run.missing.len(), unchanged });
        }
        if self.merges {
            BaselineSet::update(&path, fresh)?;
            return Ok(Saved::Merged { path, count });
        }
        fresh.save(&path)?;
        Ok(Saved::Replaced { path, count })
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced { path, count } => {
                write!(f, "baseline: {count} benchmarks in '{}'", path.display())
            }
            Self::Merged { path, count } => {
                write!(f, "baseline: {count} benchmarks merged into '{}'", path.display())
            }
            Self::Partial { path, count, total, unchanged } => write!(
                f,
                "baseline: {count} of {total} benchmarks, written to '{}'; '{}' is unchanged",
                path.display(),
                unchanged.display()
            ),
        }
    }
}

/// Writes a whole run, without its samples, to the records of its hardware. Returns the file.
///
/// # Errors
///
/// [`Error::Profile`] if the file cannot be written.
pub fn record(root: &Path, run: &Run) -> Result<PathBuf, Error> {
    let day = run.timestamp.to_string();
    let day = day.split('T').next().unwrap_or_default();
    let revision = if run.build.revision.is_empty() { "unknown" } else { &run.build.revision };
    let path = records(root, run).join(format!("{day}-{revision}.json"));
    replace_file(&path, |out| {
        serde_json::to_writer_pretty(&mut *out, &run.without_samples())?;
        writeln!(out)
    })?;
    Ok(path)
}

/// The records of a hardware.
#[derive(Debug, Default)]
pub struct History {
    /// Runs, oldest first.
    pub runs: Vec<Run>,
    /// Files that cannot be read.
    pub errors: Vec<Error>,
}

/// Reads the records of the hardware of a run.
pub fn history(root: &Path, run: &Run) -> History {
    let mut history = History::default();
    let Ok(entries) = fs::read_dir(records(root, run)) else { return history };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        match read_record(&path) {
            Ok(run) => history.runs.push(run),
            Err(reason) => history.errors.push(Error::Record { path, reason }),
        }
    }
    history.runs.sort_by_key(|run| run.timestamp);
    history
}

fn records(root: &Path, run: &Run) -> PathBuf {
    root.join(RECORDS).join(machine::slug(&run.hardware, run.device))
}

fn read_record(path: &Path) -> Result<Run, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let run: Run = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if run.format != FORMAT || run.version > VERSION {
        return Err(format!("format {} {}, not {FORMAT} {VERSION}", run.format, run.version));
    }
    Ok(run)
}

/// Finds the file at the given path, or the file of that name in `benchmarks/baselines/`.
fn find(root: &Path, given: &Path) -> Result<PathBuf, Error> {
    let folder = root.join(BASELINES);
    let candidates =
        [given.to_owned(), folder.join(given), folder.join(format!("{}.json", given.display()))];
    if let Some(found) = candidates.into_iter().find(|path| path.is_file()) {
        return Ok(found);
    }
    if given.is_dir() {
        return Err(Error::Folder { path: given.to_owned() });
    }
    let names = fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let is_json = Path::new(&name).extension().is_some_and(|ending| ending == "json");
        is_json.then_some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Err(Error::NoBaseline { given: given.to_owned(), folder: BASELINES, known: names })
}
