//! Compiles units for targets in parallel, each pair once per content.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::{compiler::Compiler, digest::Digest, sources::Unit, targets::Target};

/// Objects that no build asked for in this time are removed.
const KEPT: Duration = Duration::from_hours(3 * 24);

/// Mark the top of a target directory. Cargo writes the first only into one that it has made itself.
const TARGET_DIRECTORY_MARKS: [&str; 2] = ["CACHEDIR.TAG", ".rustc_info.json"];

/// A folder of compiled objects named by what they were made of.
pub(crate) struct Cache {
    folder: PathBuf,
}

/// One unit compiled for one target.
pub(crate) struct Object<'a> {
    pub(crate) unit: &'a Unit,
    pub(crate) target: &'static Target,
    /// In the cache.
    pub(crate) path: PathBuf,
    /// What the compiler said beside success: warnings.
    pub(crate) warnings: String,
    /// How long the compiler took; `None` when the cache had it.
    pub(crate) took: Option<Duration>,
}

impl Cache {
    /// The cache of the target directory that `inside` is in: builds with other features or profiles share it.
    /// Outside of any, a folder at `inside` itself.
    ///
    /// # Errors
    ///
    /// The folder cannot be created.
    pub(crate) fn of(inside: &Path) -> io::Result<Self> {
        let marked =
            |folder: &&Path| TARGET_DIRECTORY_MARKS.iter().any(|mark| folder.join(mark).is_file());
        let target = inside.ancestors().find(marked);
        let folder = target.unwrap_or(inside).join("rocmforge-kernels");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what was not used for long. What cannot be removed stays.
    pub(crate) fn prune(&self) {
        let Some(oldest) = SystemTime::now().checked_sub(KEPT) else { return };
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            if modified.is_ok_and(|modified| modified < oldest) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// The object of `unit` for `target`, compiled now unless it is there.
    fn object<'a>(
        &self,
        compiler: &Compiler,
        include: &Path,
        unit: &'a Unit,
        target: &'static Target,
    ) -> Result<Object<'a>, String> {
        let mut digest =
            Digest::new().field(unit.text.as_bytes()).field(compiler.version.as_bytes());
        for argument in target.arguments() {
            digest = digest.field(argument.as_bytes());
        }
        let name = format!("{}-{}-{:032x}", unit.name, target.name, digest.finish());
        let path = self.folder.join(format!("{name}.{}", target.extension()));
        let log = self.folder.join(format!("{name}.log"));

        // The log is written first, so an object is never without it.
        if let (true, Ok(warnings)) = (path.is_file(), fs::read_to_string(&log)) {
            for file in [&path, &log] {
                mark_used(file);
            }
            return Ok(Object { unit, target, path, warnings, took: None });
        }

        let started = Instant::now();
        let partial = self.folder.join(format!("{name}.{}.part", process::id()));
        let output = compiler
            .run(target, &unit.path, Some(include), &partial)
            .map_err(|error| format!("{}: {error}", compiler.path.display()))?;
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            let (unit, target) = (&unit.name, target.name);
            return Err(format!("kernels/{unit}.hip does not compile for {target}:\n{warnings}"));
        }
        fs::write(&log, &warnings)
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Object { unit, target, path, warnings, took: Some(started.elapsed()) })
    }
}

/// Compiles every unit for every target on `threads` threads; in the order of targets, then units.
///
/// # Errors
///
/// The compiler's text for the first that failed; the rest is not tried.
pub(crate) fn compile_all<'a>(
    compiler: &Compiler,
    cache: &Cache,
    include: &Path,
    units: &'a [Unit],
    targets: &[&'static Target],
    threads: usize,
) -> Result<Vec<Object<'a>>, String> {
    let pairs: Vec<_> =
        targets.iter().flat_map(|&target| units.iter().map(move |unit| (unit, target))).collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(pairs.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, pairs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(unit, target)) = pairs.get(index) else { break };
                    let outcome = cache.object(compiler, include, unit, target);
                    if outcome.is_err() {
                        next.store(pairs.len(), Ordering::Relaxed);
                    }
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.push((index, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|&(index, _)| index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Sets the modification time, which [`Cache::prune`] goes by.
fn mark_used(file: &Path) {
    let touched = fs::File::options().append(true).open(file);
    touched.and_then(|file| file.set_modified(SystemTime::now())).ok();
}
