//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// Puts what `write` writes into the place of `path`, whose folder is made where it is missing. Until
/// all of it is on the disk the old file stays; where anything fails it stays for good. What is no file (a pipe, a
/// device such as `/dev/null`) is written to, and stays what it is.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let to_error = |source| Error::write(path, source);
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return write_into(path, write).map_err(to_error);
    }
    // A link keeps pointing to the file, which is what gets replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(to_error)?;
    }
    let partial = Partial::beside(&target);
    write_whole(&partial.path, write).map_err(to_error)?;
    fs::rename(&partial.path, &target).map_err(to_error)
}

fn write_into(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut writer)?;
    writer.flush()
}

fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).open(path)?;
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    // Before the rename: some file systems would otherwise keep the new name and lose the contents.
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A file that goes away unless it was renamed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn beside(target: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}.{}-{number}.partial", process::id());
        Self { path: target.with_file_name(name) }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %self.path.display(), "cannot remove a partial file: {error}");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        replace(&path, |out| out.write_all(b"old")).unwrap();
        let error = replace(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(error.is_disk_full(), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn folders_are_made_and_files_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x/y/a.json");
        replace(&path, |out| out.write_all(b"longer text")).unwrap();
        replace(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(path.parent().unwrap()), ["a.json"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_without_room_is_a_full_disk() {
        // What the kernel says, not what a test says.
        let full = File::options().write(true).open("/dev/full");
        let Ok(mut full) = full else {
            println!("skipped: no /dev/full");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let error = replace(&folder.path().join("a"), |_| full.write_all(b"text")).unwrap_err();
        assert!(error.is_disk_full(), "{error:?}");
    }

    // With a pipe: were it wrong, a device of the machine would be gone.
    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_written_to_and_stays() {
        use std::io::Read;
        use std::os::unix::fs::FileTypeExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = process::Command::new("mkfifo").arg(&path).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: no mkfifo");
            return;
        }
        // For both, so that neither side waits for the other.
        let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
        replace(&path, |out| out.write_all(b"text")).unwrap();
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        let mut read = [0; 4];
        pipe.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"text");
    }
}
