//! Compiles units for targets in parallel, each combination once per content.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};

use twox_hash::XxHash3_128;

use crate::{Compiler, Error, Sources, Target, Unit};

/// The age at which [`Cache::prune`] removes unused objects.
const MAX_AGE: Duration = Duration::from_hours(3 * 24);

/// Files that mark a target directory. Cargo writes the first one only into directories it creates.
const TARGET_DIRECTORY_MARKS: [&str; 2] = ["CACHEDIR.TAG", ".rustc_info.json"];

/// A directory of compiled objects, named by a hash of their inputs.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// One unit compiled for one target.
#[derive(Debug)]
pub struct ObjectFile<'a> {
    /// The translation unit.
    pub unit: &'a Unit,
    /// The target.
    pub target: &'static Target,
    /// The file in the cache: an AMD code object or PTX.
    pub path: PathBuf,
    /// The compiler's warnings.
    pub warnings: String,
    /// How long the compiler ran; `None` for a cache hit.
    pub compile_time: Option<Duration>,
}

impl Cache {
    /// Opens the cache of the cargo target directory that contains `path`: builds with other
    /// features or profiles share it. Outside of a target directory the cache is in `path` itself.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the directory cannot be created.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let is_target_directory =
            |folder: &&Path| TARGET_DIRECTORY_MARKS.iter().any(|mark| folder.join(mark).is_file());
        let target = path.ancestors().find(is_target_directory);
        let directory = target.unwrap_or(path).join("rocmforge-kernels");
        match fs::create_dir_all(&directory) {
            Ok(()) => Ok(Self { directory }),
            Err(source) => Err(Error::Write { path: directory, source }),
        }
    }

    /// Removes objects that no build has used for three days. Failures are ignored: such objects
    /// only take space.
    pub fn prune(&self) {
        let Some(oldest) = SystemTime::now().checked_sub(MAX_AGE) else { return };
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            if modified.is_ok_and(|modified| modified < oldest) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// The object of `unit` for `target`, compiled on a cache miss.
    fn object<'a>(
        &self,
        compiler: &Compiler,
        include: &Path,
        unit: &'a Unit,
        target: &'static Target,
    ) -> Result<ObjectFile<'a>, Error> {
        let arguments = target.arguments().join(" ");
        let inputs = [&*unit.text, compiler.version(), &arguments].join("\0");
        let hash = XxHash3_128::oneshot(inputs.as_bytes());
        let name = format!("{}-{}-{hash:032x}", unit.name, target.name);
        let path = self.directory.join(format!("{name}.{}", target.extension()));
        let log = self.directory.join(format!("{name}.log"));

        // The log is written before the object: an object never lacks its log.
        if let (true, Ok(warnings)) = (path.is_file(), fs::read_to_string(&log)) {
            for file in [&path, &log] {
                mark_used(file);
            }
            return Ok(ObjectFile { unit, target, path, warnings, compile_time: None });
        }

        let started = Instant::now();
        let fail = |path: &Path, source: io::Error| Error::Write { path: path.to_owned(), source };
        let partial = tempfile::Builder::new()
            .suffix(".part")
            .tempfile_in(&self.directory)
            .map_err(|error| fail(&self.directory, error))?
            .into_temp_path();
        let output = compiler.run(target, &unit.path, Some(include), &partial)?;
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            let (unit, target) = (unit.name.clone(), target.name);
            return Err(Error::Compile { unit, target, log: warnings });
        }
        fs::write(&log, &warnings).map_err(|error| fail(&log, error))?;
        partial.persist(&path).map_err(|error| fail(&path, error.error))?;
        Ok(ObjectFile { unit, target, path, warnings, compile_time: Some(started.elapsed()) })
    }
}

/// Compiles every unit for every target on `threads` threads. The objects are sorted by target,
/// then by unit.
///
/// # Errors
///
/// The first error; the remaining combinations are not compiled.
pub fn compile_all<'a>(
    compiler: &Compiler,
    cache: &Cache,
    sources: &'a Sources,
    targets: &[&'static Target],
    threads: usize,
) -> Result<Vec<ObjectFile<'a>>, Error> {
    let units = sources.units();
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
                    let outcome = cache.object(compiler, sources.include(), unit, target);
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

/// Sets the modification time, by which [`Cache::prune`] determines the age.
fn mark_used(file: &Path) {
    let opened = fs::File::options().append(true).open(file);
    opened.and_then(|file| file.set_modified(SystemTime::now())).ok();
}
