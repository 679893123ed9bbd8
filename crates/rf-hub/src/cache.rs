//! The cache folder of one repository, in the layout of `huggingface_hub`: contents in `blobs`,
//! links with names in `snapshots/COMMIT`, commits of branches in `refs`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
        let main = self.main();
        let mut snapshots: Vec<PathBuf> = entries(&self.path.join("snapshots"));
        snapshots
            .sort_by_key(|path| path.file_name().and_then(|name| name.to_str()) != main.as_deref());
        snapshots.iter().find_map(|snapshot| {
            let mut files = Vec::new();
            list(snapshot, "", 4, &mut files);
            files.sort();
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let chosen = choice::choose(name.repo(), &files, name.quant()).ok()?;
            Some(snapshot.join(chosen.first()?))
        })
    }
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
