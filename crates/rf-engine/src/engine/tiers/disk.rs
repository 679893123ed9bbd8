//! Pages in the files of a folder.
//!
//! Each computation has a subfolder in the folder of the user, named after its identity, with a
//! file per page. A thread writes and removes files. If its queue is full, pages are dropped. A
//! file is written under a temporary name and renamed, so that a file with a final name is
//! complete.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rf_kv::PageKey;

use super::file::{self, is_state};
use crate::engine::stats::TierStats;
use crate::error::Error;

/// Bytes of pages that wait to be written. Further ones are dropped.
const MOST_QUEUED_BYTES: u64 = 256 << 20;
/// The end of the names of files that are being written.
const UNFINISHED: &str = "tmp";
/// The age of a file that is still being written if a process was killed.
const ABANDONED: Duration = Duration::from_hours(1);
/// The divisor of the limit: a full folder is reduced by a sixteenth of its limit. Finding the
/// oldest files reads the whole folder, so it should be rare.
const FREED_SHARE: u64 = 16;

/// A folder for pages of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCacheOptions {
    /// The folder. Several models and processes may share it.
    pub folder: PathBuf,
    /// Bytes of all files in the folder. The files that were not used for longest make room.
    pub max_bytes: u64,
}

impl DiskCacheOptions {
    /// A folder whose files have at most `max_bytes`.
    pub fn new(folder: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self { folder: folder.into(), max_bytes }
    }
}

/// The pages of one computation in a folder.
pub(super) struct DiskTier {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The folder of the user.
    root: PathBuf,
    /// The folder of the computation.
    folder: PathBuf,
    identity: u128,
    max_bytes: u64,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    /// The bytes of each file.
    files: HashMap<PageKey, u64>,
    /// Pages that wait to be written.
    queued: HashMap<PageKey, Arc<[u8]>>,
    queued_bytes: u64,
    stats: TierStats,
}

/// Work for the thread.
enum Job {
    Write(PageKey, Arc<[u8]>),
    /// Note that a file was used.
    Touch(PageKey),
    Remove(PageKey),
}

impl DiskTier {
    /// Opens a folder and finds the pages of a computation.
    pub(super) fn open(options: &DiskCacheOptions, identity: u128) -> Result<Self, Error> {
        let DiskCacheOptions { folder: root, max_bytes } = options;
        let folder = root.join(format!("{identity:032x}"));
        let failed = |source| Error::DiskCache { folder: root.clone(), source };
        create_folder(&folder).map_err(failed)?;
        let shared = Shared {
            root: root.clone(),
            folder,
            identity,
            max_bytes: *max_bytes,
            index: Mutex::default(),
        };
        for Stored { path, bytes, modified } in stored(root).map_err(failed)? {
            let name = path.file_name().and_then(|name| name.to_str());
            if is_unfinished(&path) && modified.elapsed().is_ok_and(|age| age > ABANDONED) {
                remove(&path);
            }
            if path.parent() == Some(&shared.folder)
                && let Some(key) = name.and_then(file::key_of)
            {
                shared.index().insert(key, bytes);
            }
        }
        let shared = Arc::new(shared);
        let (jobs, queue) = channel();
        let writer = Writer { shared: Arc::clone(&shared), used_bytes: 0, number: 0 };
        let thread = std::thread::Builder::new()
            .name("rf-disk-cache".into())
            .spawn(move || writer.run(&queue))
            .map_err(Error::Thread)?;
        Ok(Self { shared, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Returns true if a page has a file, or waits for one.
    pub(super) fn contains(&self, key: PageKey) -> bool {
        let index = self.shared.index();
        index.files.contains_key(&key) || index.queued.contains_key(&key)
    }

    /// A page that waits to be written.
    pub(super) fn queued(&self, key: PageKey) -> Option<Arc<[u8]>> {
        let mut index = self.shared.index();
        let page = index.queued.get(&key).map(Arc::clone)?;
        index.stats.loads += 1;
        Some(page)
    }

    /// Writes a page later, unless too many wait already.
    pub(super) fn write(&self, key: PageKey, page: Arc<[u8]>) {
        let bytes = page.len() as u64;
        let mut index = self.shared.index();
        if index.queued_bytes + bytes > MOST_QUEUED_BYTES {
            index.stats.dropped += 1;
        } else if index.queued.insert(key, Arc::clone(&page)).is_none() {
            index.queued_bytes += bytes;
            drop(index);
            self.send(Job::Write(key, page));
        }
    }

    /// The file of a page, if it is intact.
    pub(super) fn read(&self, key: PageKey) -> Option<Vec<u8>> {
        let path = self.shared.path(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                // Another process may have removed it, to make room.
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "cannot read a cached page");
                }
                self.shared.index().remove(key);
                return None;
            }
        };
        if !file::is_intact(&bytes, self.shared.identity, key) {
            tracing::warn!(path = %path.display(), "a cached page is damaged: it is removed");
            let mut index = self.shared.index();
            index.stats.damaged += 1;
            index.remove(key);
            drop(index);
            self.send(Job::Remove(key));
            return None;
        }
        self.shared.index().stats.loads += 1;
        self.send(Job::Touch(key));
        Some(bytes)
    }

    /// Removes a page.
    pub(super) fn remove(&self, key: PageKey) {
        let mut index = self.shared.index();
        if index.remove(key) || index.queued.contains_key(&key) {
            drop(index);
            self.send(Job::Remove(key));
        }
    }

    pub(super) fn stats(&self) -> TierStats {
        self.shared.index().stats
    }

    fn send(&self, job: Job) {
        // The thread ends after this only.
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_err()
        {
            tracing::warn!("the thread that writes cached pages has ended");
        }
    }
}

impl Drop for DiskTier {
    /// Waits until all pages are written.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes cached pages panicked");
        }
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: PageKey) -> PathBuf {
        self.folder.join(file::name(key))
    }
}

impl Index {
    fn insert(&mut self, key: PageKey, bytes: u64) {
        self.remove(key);
        self.files.insert(key, bytes);
        self.stats.pages += 1;
        self.stats.bytes += bytes;
        self.stats.states += usize::from(is_state(key));
    }

    fn remove(&mut self, key: PageKey) -> bool {
        let Some(bytes) = self.files.remove(&key) else { return false };
        self.stats.pages -= 1;
        self.stats.bytes -= bytes;
        self.stats.states -= usize::from(is_state(key));
        true
    }
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    /// Bytes of all files in the folder of the user when they were counted, and those written
    /// since.
    used_bytes: u64,
    /// Files that were begun.
    number: u64,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Job>) {
        // The limit may have been higher before.
        if let Err(error) = self.make_room(0) {
            let folder = self.shared.root.display();
            tracing::warn!(%folder, %error, "cannot read the cached pages");
        }
        for job in queue {
            match job {
                Job::Write(key, page) => {
                    let written = self.write(key, &page);
                    let mut index = self.shared.index();
                    index.queued.remove(&key);
                    index.queued_bytes -= page.len() as u64;
                    match written {
                        Ok(true) => index.insert(key, file::file_bytes(page.len())),
                        Ok(false) => index.stats.dropped += 1,
                        Err(error) => {
                            index.stats.dropped += 1;
                            drop(index);
                            let folder = self.shared.folder.display();
                            tracing::warn!(%folder, %error, "cannot write a cached page");
                        }
                    }
                }
                Job::Touch(key) => {
                    let file = File::options().append(true).open(self.shared.path(key));
                    let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
                    if let Err(error) = touched {
                        tracing::debug!(%error, "cannot note that a cached page was used");
                    }
                }
                Job::Remove(key) => {
                    self.shared.index().remove(key);
                    remove(&self.shared.path(key));
                }
            }
        }
    }

    /// Writes the file of a page. Returns false if it is larger than the limit.
    fn write(&mut self, key: PageKey, page: &[u8]) -> io::Result<bool> {
        let bytes = file::file_bytes(page.len());
        let limit = self.shared.max_bytes;
        if bytes > limit {
            return Ok(false);
        }
        if self.used_bytes.saturating_add(bytes) > limit {
            self.make_room(bytes)?;
        }
        self.number += 1;
        let name = format!("{}-{}.{UNFINISHED}", std::process::id(), self.number);
        let unfinished = self.shared.folder.join(name);
        let written = self.write_to(&unfinished, key, page);
        let renamed = written.and_then(|()| fs::rename(&unfinished, self.shared.path(key)));
        if let Err(error) = renamed {
            remove(&unfinished);
            return Err(error);
        }
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        Ok(true)
    }

    fn write_to(&self, path: &Path, key: PageKey, page: &[u8]) -> io::Result<()> {
        // Another process may have removed the folder.
        create_folder(&self.shared.folder)?;
        let mut out = BufWriter::new(create_file(path)?);
        file::write(&mut out, self.shared.identity, key, page)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(())
    }

    /// Removes files, those that were not used for longest first, until there is room for a file
    /// and some more.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let limit = self.shared.max_bytes;
        let most = limit.saturating_sub(bytes);
        let mut files = stored(&self.shared.root)?;
        let mut used: u64 = files.iter().map(|file| file.bytes).sum();
        self.used_bytes = used;
        if used <= most {
            return Ok(());
        }
        let most = most.saturating_sub(limit / FREED_SHARE);
        files.sort_unstable_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
        for Stored { path, bytes, .. } in files {
            if used <= most {
                break;
            }
            let name = path.file_name().and_then(|name| name.to_str());
            if path.parent() == Some(&self.shared.folder)
                && let Some(key) = name.and_then(file::key_of)
            {
                self.shared.index().remove(key);
            }
            remove(&path);
            used = used.saturating_sub(bytes);
        }
        self.used_bytes = used;
        Ok(())
    }
}

/// A file of a folder of pages.
struct Stored {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// The files below a folder that have names of pages or of unfinished files, of all computations.
fn stored(root: &Path) -> io::Result<Vec<Stored>> {
    let mut files = Vec::new();
    for folder in fs::read_dir(root)? {
        let folder = folder?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_ours = |name: &str| name.len() == 32 && name.bytes().all(is_digit);
        if !folder.file_name().to_str().is_some_and(is_ours) || !folder.file_type()?.is_dir() {
            continue;
        }
        for entry in fs::read_dir(folder.path())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !is_unfinished(&path) && file::key_of(name).is_none() {
                continue;
            }
            // Another process may remove files at the same time.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            files.push(Stored { path, bytes: metadata.len(), modified });
        }
    }
    Ok(files)
}

fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == UNFINISHED)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove a cached page"),
    }
}

/// Creates a folder that only the user reads, if there is none: pages hold what was written.
fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
