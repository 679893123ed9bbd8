//! Atomic replacement of output files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::Error;

/// Replaces the file `path` with the output of `write`, or leaves it unchanged.
///
/// The new contents go to a temporary file in the same folder, which takes the name of `path` once
/// they are on the disk. A missing folder is created. A symbolic link stays, and its target is
/// replaced. A device or a pipe such as `/dev/stdout` is written to and never replaced.
///
/// # Errors
///
/// [`Error::Write`], also for an error that `write` returns.
///
/// # Examples
///
/// ```
/// let path = std::env::temp_dir().join(format!("replace-file-{}", std::process::id()));
/// rf_profile::replace_file(&path, |out| out.write_all(b"all of it"))?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let is_special = fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir());
    if is_special { write_in_place(path, write) } else { write_and_rename(path, write) }
        .map_err(|source| Error::write(path, source))
}

fn write_in_place(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut writer)?;
    writer.flush()
}

fn write_and_rename(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = temporary_file(folder)?;
    let mut writer = BufWriter::new(&mut file);
    write(&mut writer)?;
    writer.flush()?;
    drop(writer);
    // Without this, a crash after the rename can leave the new name with no contents.
    file.as_file().sync_all()?;
    file.persist(&target)?;
    Ok(())
}

fn temporary_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The default is private to the user. The umask applies, as to any new file.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn is_disk_full(error: &Error) -> bool {
        matches!(error, Error::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        replace_file(&path, |out| out.write_all(b"old")).unwrap();
        let error = replace_file(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(is_disk_full(&error), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn folders_are_created_and_files_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x/y/a.json");
        replace_file(&path, |out| out.write_all(b"longer text")).unwrap();
        replace_file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(path.parent().unwrap()), ["a.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_has_the_permissions_of_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        replace_file(&ours, |out| out.write_all(b"x")).unwrap();
        fs::write(&plain, b"x").unwrap();
        let permissions = |path: &Path| fs::metadata(path).unwrap().permissions();
        assert_eq!(permissions(&ours), permissions(&plain));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_its_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace_file(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_without_room_is_a_full_disk() {
        if !Path::new("/dev/full").exists() {
            rf_testing::skip!("no /dev/full");
            return;
        }
        let error = replace_file(Path::new("/dev/full"), |out| out.write_all(b"text")).unwrap_err();
        assert!(is_disk_full(&error), "{error:?}");
    }

    // The test uses a pipe: with a bug here, a device of the machine would be lost.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_to_and_stays() {
        use std::io::Read;
        use std::os::unix::fs::FileTypeExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let created = std::process::Command::new("mkfifo").arg(&path).status();
        if !created.is_ok_and(|status| status.success()) {
            rf_testing::skip!("no mkfifo");
            return;
        }
        // Open for both directions, so that neither side waits for the other.
        let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
        replace_file(&path, |out| out.write_all(b"text")).unwrap();
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        let mut read = [0; 4];
        pipe.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"text");
    }
}
