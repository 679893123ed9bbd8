//! The cache folder of one repository, in the layout of `huggingface_hub`: contents in `blobs`,
//! links with names in `snapshots/COMMIT`, commits of branches in `refs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use crate::listing::Blob;
use crate::{Error, ModelName, choice};

/// The folder of a repository.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder of `repo` in the cache folder `cache`.
    pub(crate) fn new(cache: &Path, repo: &str) -> Self {
        Self { path: cache.join(format!("models--{}", repo.replace('/', "--"))) }
    }

    /// The contents with this id.
    pub(crate) fn blob(&self, id: &str) -> PathBuf {
        self.path.join("blobs").join(id)
    }

    /// The file in the snapshot of `commit`.
    pub(crate) fn file(&self, commit: &str, file: &str) -> PathBuf {
        self.path.join("snapshots").join(commit).join(file)
    }

    /// Returns true if the snapshot of `commit` has the file.
    pub(crate) fn has(&self, commit: &str, file: &str, blob: &Blob) -> bool {
        has_size(&self.file(commit, file), blob.size)
    }

    /// Returns true if the contents are there, for any commit.
    pub(crate) fn has_blob(&self, blob: &Blob) -> bool {
        has_size(&self.blob(&blob.id), blob.size)
    }

    /// Gives contents a name in the snapshot of `commit`.
    pub(crate) fn link(&self, commit: &str, file: &str, blob: &Blob) -> Result<(), Error> {
        let link = self.file(commit, file);
        create_parent(&link)?;
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::Disk { path: link, error });
            }
            _ => {}
        }
        let depth = file.split('/').count();
        link_to(&self.blob(&blob.id), &link, depth)
            .map_err(|error| Error::Disk { path: link, error })
    }

    /// Records that the branch `main` is at `commit`.
    pub(crate) fn set_main(&self, commit: &str) -> Result<(), Error> {
        // A folder that cannot be written serves what it has.
        if self.main().as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.main_path();
        create_parent(&path)?;
        fs::write(&path, commit).map_err(|error| Error::Disk { path, error })
    }

    /// The commit of the branch `main`.
    fn main(&self) -> Option<String> {
        Some(fs::read_to_string(self.main_path()).ok()?.trim().to_owned())
    }

    fn main_path(&self) -> PathBuf {
        self.path.join("refs").join("main")
    }

    /// The first file of a cached model: from the snapshot of the branch `main`, else from any.
    pub(crate) fn model(&self, name: &ModelName) -> Option<PathBuf> {
        self.snapshots().iter().find_map(|snapshot| {
            let files = files_below(snapshot);
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let chosen = choice::choose(name.repo(), &files, name.quant()).ok()?;
            Some(snapshot.join(chosen.first()?))
        })
    }

    /// The snapshots, that of the branch `main` first.
    fn snapshots(&self) -> Vec<PathBuf> {
        let main = self.main();
        let mut snapshots = entries(&self.path.join("snapshots"));
        snapshots
            .sort_by_key(|path| path.file_name().and_then(|name| name.to_str()) != main.as_deref());
        snapshots
    }

    /// The complete models, each from the first snapshot that has it.
    fn models(&self, repo: &str) -> Vec<CachedModel> {
        let mut models = BTreeMap::new();
        for snapshot in self.snapshots() {
            let files = files_below(&snapshot);
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            for (quant, parts) in choice::complete(&files) {
                let Some(name) = ModelName::of_parts(repo, Some(&quant)) else { continue };
                let paths: Vec<PathBuf> = parts.iter().map(|part| snapshot.join(part)).collect();
                let metadata = paths.iter().filter_map(|path| fs::metadata(path).ok());
                let size_bytes = metadata.map(|metadata| metadata.len()).sum();
                let Some(path) = paths.into_iter().next() else { continue };
                let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
                models.entry(quant).or_insert(CachedModel { name, path, size_bytes, modified });
            }
        }
        models.into_values().collect()
    }

    /// Removes a model from all snapshots, and the contents that no other name needs. Removes the
    /// folder if no model is left. Returns the size of the removed files.
    pub(crate) fn remove(&self, name: &ModelName) -> Result<u64, Error> {
        let is_meant = |label: &str| {
            name.quant().is_none_or(|quant| {
                label.eq_ignore_ascii_case(quant)
                    || label.eq_ignore_ascii_case(&format!("{}{quant}", choice::VARIANT))
            })
        };
        // A file may be in several snapshots.
        let mut removed = HashMap::new();
        let mut left = 0;
        for snapshot in self.snapshots() {
            let files = files_below(&snapshot);
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            for (label, parts) in choice::complete(&files) {
                if !is_meant(&label) {
                    left += 1;
                    continue;
                }
                for part in parts {
                    let path = snapshot.join(part);
                    if let (Ok(contents), Ok(metadata)) =
                        (fs::canonicalize(&path), fs::metadata(&path))
                    {
                        removed.insert(contents, metadata.len());
                    }
                    remove_file(&path)?;
                }
            }
        }
        if removed.is_empty() {
            return Err(Error::NothingToRemove { name: name.to_string() });
        }
        if left == 0 {
            let path = self.path.clone();
            fs::remove_dir_all(&path).map_err(|error| Error::Disk { path, error })?;
        } else {
            self.remove_unnamed_blobs()?;
        }
        Ok(removed.values().sum())
    }

    /// Removes the contents that no snapshot names.
    fn remove_unnamed_blobs(&self) -> Result<(), Error> {
        let snapshots = self.snapshots();
        let named = snapshots.iter().flat_map(|snapshot| {
            files_below(snapshot)
                .into_iter()
                .filter_map(|file| fs::canonicalize(snapshot.join(file)).ok())
        });
        let named: HashSet<PathBuf> = named.collect();
        for blob in entries(&self.path.join("blobs")) {
            // An incomplete download may be another program's.
            let is_part = blob.extension().is_some();
            let is_named = fs::canonicalize(&blob).is_ok_and(|path| named.contains(&path));
            if !is_part && !is_named {
                remove_file(&blob)?;
            }
        }
        Ok(())
    }
}

fn remove_file(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|error| Error::Disk { path: path.to_owned(), error })
}

/// The names of the files below a folder, in order.
fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    list(folder, "", 4, &mut files);
    files.sort();
    files
}

/// A model in the cache folder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CachedModel {
    /// The repository and the quantisation.
    pub name: ModelName,
    /// Its file, for a split model the first one.
    pub path: PathBuf,
    /// The size of its files.
    pub size_bytes: u64,
    /// The time of the download, if the file system has it.
    pub modified: Option<SystemTime>,
}

/// The complete models in the cache folder `cache`, by name.
pub(crate) fn models(cache: &Path) -> Vec<CachedModel> {
    let repo = |path: PathBuf| {
        let repo = path.file_name()?.to_str()?.strip_prefix("models--")?.replacen("--", "/", 1);
        Some(Folder { path }.models(&repo))
    };
    entries(cache).into_iter().filter_map(repo).flatten().collect()
}

/// Creates the folder of `path`.
pub(crate) fn create_parent(path: &Path) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| Error::Disk { path: folder.to_owned(), error })
}

fn has_size(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == size)
}

/// The entries of a folder by name. One that cannot be read has none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Adds the files below `folder` to `files`, with names relative to the start. Links to missing
/// contents are left out.
fn list(folder: &Path, prefix: &str, depth: u32, files: &mut Vec<String>) {
    for path in entries(folder) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = format!("{prefix}{name}");
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => files.push(name),
            Ok(metadata) if metadata.is_dir() && depth > 0 => {
                list(&path, &format!("{name}/"), depth - 1, files);
            }
            _ => {}
        }
    }
}

/// Links relatively, so that the cache folder can move. `depth` counts the components of the name
/// inside the snapshot.
#[cfg(unix)]
fn link_to(blob: &Path, link: &Path, depth: usize) -> io::Result<()> {
    let mut target: PathBuf = std::iter::repeat_n("..", depth + 1).collect();
    target.push("blobs");
    target.push(blob.file_name().unwrap_or_default());
    std::os::unix::fs::symlink(target, link)
}

/// Symbolic links need a privilege, hard links do not. FAT has neither.
#[cfg(not(unix))]
fn link_to(blob: &Path, link: &Path, _depth: usize) -> io::Result<()> {
    fs::hard_link(blob, link).or_else(|_| fs::copy(blob, link).map(drop))
}
