//! Files of baselines and of records: where they are, and what may be written to them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rf_profile::baseline::{BaselineSet, Comparison, Hardware, ModelId, Origin};

use crate::{
    machine,
    options::Options,
    output,
    plan::Plan,
    results::{FORMAT, Run, VERSION},
};

/// Below the checkout.
const BASELINES: &str = "benchmarks/baselines";
const RECORDS: &str = "benchmarks/records";

/// A baseline to compare with.
pub(crate) struct Stored {
    path: PathBuf,
    set: BaselineSet,
}

impl Stored {
    /// Reads the file as it is named, or that of benchmarks/baselines/.
    pub(crate) fn load(root: &Path, given: &Path) -> Result<Self> {
        let path = find(root, given)?;
        let set = BaselineSet::load(&path).with_context(|| {
            format!(
                "'{}' is no baseline to compare with; take a new one with --save-baseline",
                path.display()
            )
        })?;
        Ok(Self { path, set })
    }

    /// The comparison that can be made without measuring anything: where all figures are of other hardware, so that
    /// there is nothing to compare with.
    pub(crate) fn of_other_hardware(&self, here: &Hardware, threshold: f64) -> Option<Comparison> {
        let entries = &self.set.entries;
        let foreign = |entry: &rf_profile::baseline::Baseline| {
            here.mismatch(&entry.hardware, entry.device).is_some()
        };
        let all_foreign = !entries.is_empty() && entries.iter().all(foreign);
        all_foreign.then(|| self.set.compare(&BaselineSet::default(), here, threshold))
    }

    /// What would measure these figures on their hardware: commands, one for each model.
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

    /// Holds a run against it. Of a part of the benchmarks only that part is compared.
    pub(crate) fn compare(&self, run: &Run, kind: &str, plan: &Plan, threshold: f64) -> Comparison {
        let mut set = self.set.clone();
        set.entries.retain(|entry| plan.is_whole || plan.has(&entry.name));
        if let Some(model) = &run.model {
            adopt_published(&mut set, model, kind);
        }
        set.compare(&run.baselines(), &run.hardware, threshold)
    }
}

/// Published figures are of a kind of model, not of a file: those of the kind that was measured count as of its file.
fn adopt_published(set: &mut BaselineSet, measured: &ModelId, kind: &str) {
    for entry in &mut set.entries {
        let Origin::Reference { .. } = entry.origin else { continue };
        if let Some(model) = entry.model.as_mut().filter(|model| model.name == kind) {
            model.hash.clone_from(&measured.hash);
        }
    }
}

/// Where `--save-baseline` writes.
pub(crate) struct Destination {
    path: PathBuf,
    /// Whether the file stays, with the entries that were not measured now.
    merges: bool,
}

impl Destination {
    /// Looks whether it can be written before anything is measured.
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
        // A device has nothing to merge into, and may have no end.
        let merges = !plan.is_whole && path.is_file();
        if merges {
            BaselineSet::load(&path).with_context(|| {
                format!(
                    "'{}' cannot take these benchmarks in; remove it, or name another file",
                    path.display()
                )
            })?;
        }
        Ok(Some(Self { path, merges }))
    }

    /// Writes what was measured. A whole run takes the place of the file, one of some benchmarks is merged into it, and
    /// one that Ctrl-C ended is written beside it: so a baseline never loses figures.
    pub(crate) fn save(&self, run: &Run, was_interrupted: bool) -> Result<()> {
        let fresh = run.baselines();
        if fresh.entries.is_empty() {
            bail!("nothing was measured, so '{}' is left as it was", self.path.display());
        }
        let count = fresh.entries.len();
        if was_interrupted || !run.missing.is_empty() {
            let path = self.beside();
            fresh.save(&path)?;
            output::note(format_args!(
                "baseline: {count} of {} benchmarks, in '{}'; '{}' is left as it was",
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

    /// `mine.partial.json` of `mine.json`.
    fn beside(&self) -> PathBuf {
        self.path.with_extension("partial.json")
    }
}

/// Adds a whole run to the records of its hardware.
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

/// The records of this hardware, the oldest first. What is not readable is said, and left out.
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
                output::note(format_args!("'{}' is left out: {error:#}", path.display()));
            }
        }
    }
    runs.sort_by_key(|run| run.timestamp);
    runs
}

/// As given, or in benchmarks/baselines/.
fn find(root: &Path, given: &Path) -> Result<PathBuf> {
    let folder = root.join(BASELINES);
    let candidates =
        [given.to_owned(), folder.join(given), folder.join(format!("{}.json", given.display()))];
    if let Some(found) = candidates.into_iter().find(|path| path.is_file()) {
        return Ok(found);
    }
    if given.is_dir() {
        bail!("'{}' is a folder: name a baseline in it", given.display());
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
        "there is no baseline '{}', neither here nor in {BASELINES}, which has {known}; --save-baseline makes one",
        given.display()
    );
}
