//! A new file that appears under its name only when it is complete.
//!
//! On Linux the file has no name until then, so that nothing is left behind however the process
//! ends: by a signal, a fault or a power cut. Where the file system does not support that, it is a
//! hidden file next to the target, which is removed unless the process is killed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// The file that will replace a target.
pub(crate) enum OutputFile {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Hidden(NamedTempFile),
}

impl OutputFile {
    /// Creates the file in the folder of `target`.
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        // tempfile quotes its own path in errors: a missing folder gets the plain error.
        fs::metadata(folder(target))?;
        #[cfg(target_os = "linux")]
        if let Ok(file) = unnamed(folder(target)) {
            return Ok(Self::Unnamed(file));
        }
        builder(&prefix(target)).tempfile_in(folder(target)).map(Self::Hidden)
    }

    pub(crate) fn file(&mut self) -> &mut File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => file,
            Self::Hidden(file) => file.as_file_mut(),
        }
    }

    /// Replaces `target` by the file.
    pub(crate) fn persist(mut self, target: &Path) -> io::Result<()> {
        // Data before name: after a power cut the target is the old file or the complete new one.
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => {
                // A link cannot replace a file, but a rename can.
                let link = |path: &Path| link(&file, path);
                let hidden = builder(&prefix(target)).make_in(folder(target), link)?;
                hidden.persist(target).map_err(|error| error.error)?;
            }
            Self::Hidden(file) => {
                file.persist(target).map_err(|error| error.error)?;
            }
        }
        Ok(())
    }
}

fn folder(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The prefix of hidden files: the name of the target after a dot.
fn prefix(target: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix
}

fn builder(prefix: &OsStr) -> tempfile::Builder<'_, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As for other new files: the umask applies.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::from_raw_mode(0o666))?.into())
}

#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, linkat};
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
