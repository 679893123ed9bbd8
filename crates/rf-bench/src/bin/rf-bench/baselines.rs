//! Locations of baseline and record files, and the rules for writing them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rf_bench::machine;
use rf_profile::baseline::{BaselineSet, Comparison, Hardware, ModelId, Origin};

use crate::{
    options::Options,
    output,
    plan::Plan,
    results::{FORMAT, Run, VERSION},
};

/// Folder of the baselines, relative to the checkout.
const BASELINES: &str = "benchmarks/baselines";
/// Folder of the records, relative to the checkout.
const RECORDS: &str = "benchmarks/records";

/// A stored baseline to compare a run with.
pub(crate) struct Stored {
    path: PathBuf,
    set: BaselineSet,
}

impl Stored {
    /// Reads the file at the given path, or the file of that name in `benchmarks/baselines/`.
    pub(crate) fn load(root: &Path, given: &Path) -> Result<Self> {
        let path = find(root, given)?;
        let set = BaselineSet::load(&path).with_context(|| {
            format!(
                "cannot compare with '{}'; write a new baseline with --save-baseline",
                path.display()
            )
        })?;
        Ok(Self { path, set })
    }

    /// Returns the comparison with no measurement if every entry is of other hardware, and `None`
    /// if at least one entry is comparable.
    pub(crate) fn of_other_hardware(&self, here: &Hardware, threshold: f64) -> Option<Comparison> {
        let entries = &self.set.entries;
        let foreign = |entry: &rf_profile::baseline::Baseline| {
            here.mismatch(&entry.hardware, entry.device).is_some()
        };
        let all_foreign = !entries.is_empty() && entries.iter().all(foreign);
        all_foreign.then(|| self.set.compare(&BaselineSet::default(), here, threshold))
    }

    /// Returns the commands that repeat these measurements on their hardware, one for each model.
    pub(crate) fn commands(&self) -> Vec<String> {
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
    pub(crate) fn compare(&self, run: &Run, kind: &str, plan: &Plan, threshold: f64) -> Comparison {
        let mut set = self.set.clone();
        set.entries.retain(|entry| plan.is_whole || plan.has(&entry.name));
        if let Some(model) = &run.model {
            adopt_published(&mut set, model, kind);
        }
        set.compare(&run.baselines(), &run.hardware, threshold)
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

/// The output file of `--save-baseline`.
pub(crate) struct Destination {
    path: PathBuf,
    /// Whether the run is merged into the existing file, which keeps its other entries.
    merges: bool,
}

impl Destination {
    /// Checks the output file before the measurement starts.
    pub(crate) fn new(
        root: &Path,
        options: &Options,
        run_name: &str,
        plan: &Plan,
    ) -> Result<Option<Self>> {
        let Some(given) = &options.save_baseline else { return Ok(None) };
        let default = || root.join(BASELINES).join(format!("{run_name}.json"));
        let path = given.clone().unwrap_or_else(default);
        if path.is_dir() {
            bail!("cannot write '{}': it is a folder", path.display());
        }
        // Only regular files are read: a device such as /dev/zero has no end.
        let merges = !plan.is_whole && path.is_file();
        if merges {
            BaselineSet::load(&path).with_context(|| {
                format!(
                    "cannot merge into '{}'; remove the file or name another one",
                    path.display()
                )
            })?;
        }
        Ok(Some(Self { path, merges }))
    }

    /// Writes the results of a run without losing stored entries.
    ///
    /// A run of all benchmarks replaces the file. A run of a subset is merged into it. An
    /// interrupted run goes to a separate file, see [`Self::partial_path`].
    pub(crate) fn save(&self, run: &Run, was_interrupted: bool) -> Result<()> {
        let fresh = run.baselines();
        if fresh.entries.is_empty() {
            bail!("no benchmark was measured; '{}' is unchanged", self.path.display());
        }
        let count = fresh.entries.len();
        if was_interrupted || !run.missing.is_empty() {
            let path = self.partial_path();
            fresh.save(&path)?;
            output::note(format_args!(
                "baseline: {count} of {} benchmarks, written to '{}'; '{}' is unchanged",
                count + run.missing.len(),
                path.display(),
                self.path.display()
            ));
            return Ok(());
        }
        if self.merges {
            BaselineSet::update(&self.path, fresh)?;
            output::note(format_args!(
                "baseline: {count} benchmarks merged into '{}'",
                self.path.display()
            ));
        } else {
            fresh.save(&self.path)?;
            output::note(format_args!("baseline: {count} benchmarks in '{}'", self.path.display()));
        }
        Ok(())
    }

    /// The file for an interrupted run: `mine.partial.json` for `mine.json`.
    fn partial_path(&self) -> PathBuf {
        self.path.with_extension("partial.json")
    }
}

/// Writes a whole run, without its samples, to the records of its hardware.
pub(crate) fn record(root: &Path, run: &Run) -> Result<()> {
    let slug = machine::slug(&run.hardware, run.device);
    let day = run.timestamp.to_string();
    let day = day.split('T').next().unwrap_or_default();
    let revision = if run.build.revision.is_empty() { "unknown" } else { &run.build.revision };
    let path = root.join(RECORDS).join(slug).join(format!("{day}-{revision}.json"));
    let text = serde_json::to_string_pretty(&run.without_samples())? + "\n";
    output::replace(&path, &text)?;
    output::note(format_args!("recorded in '{}'", path.display()));
    Ok(())
}

/// Reads the records of this hardware, oldest first. Unreadable files are reported and skipped.
pub(crate) fn history(root: &Path, run: &Run) -> Vec<Run> {
    let folder = root.join(RECORDS).join(machine::slug(&run.hardware, run.device));
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut runs: Vec<Run> = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let read = || -> Result<Run> {
            let run: Run = serde_json::from_str(&fs::read_to_string(&path)?)?;
            if run.format != FORMAT || run.version > VERSION {
                bail!("format {} {}, not {FORMAT} {VERSION}", run.format, run.version);
            }
            Ok(run)
        };
        match read() {
            Ok(run) => runs.push(run),
            Err(error) => {
                output::note(format_args!("skipped record '{}': {error:#}", path.display()));
            }
        }
    }
    runs.sort_by_key(|run| run.timestamp);
    runs
}

/// Finds the file at the given path, or the file of that name in `benchmarks/baselines/`.
fn find(root: &Path, given: &Path) -> Result<PathBuf> {
    let folder = root.join(BASELINES);
    let candidates =
        [given.to_owned(), folder.join(given), folder.join(format!("{}.json", given.display()))];
    if let Some(found) = candidates.into_iter().find(|path| path.is_file()) {
        return Ok(found);
    }
    if given.is_dir() {
        bail!("'{}' is a folder; name a baseline file in it", given.display());
    }
    let names = fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let is_json = Path::new(&name).extension().is_some_and(|ending| ending == "json");
        is_json.then_some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    bail!(
        "there is no baseline '{}', here or in {BASELINES} (available: {known}); --save-baseline writes one",
        given.display()
    );
}
