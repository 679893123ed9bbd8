//! The use of captured graphs.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use rf_hip::{DeviceInfo, Platform, Runtime};

use crate::objects::cache_folder;

/// The use of captured graphs for steps of a few tokens.
///
/// In any mode the result of each replay is checked; `exec/replay.rs` describes how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// Like [`GraphMode::On`], except with versions of HIP that [`graph_problem`] names, and after
    /// a process that ended inside the first launch of a graph.
    #[default]
    Auto,
    /// Replay of captured graphs, if the runtime supports it and its results are right.
    On,
    /// Plain launches for every batch.
    Off,
}

/// The reason why graphs are off by default with a version of a platform's runtime (major, minor);
/// `None` if they are on.
pub fn graph_problem(platform: Platform, version: Option<(u32, u32)>) -> Option<&'static str> {
    match version {
        Some((7, 2)) if platform == Platform::Amd => Some(
            "HIP 7.2 replays captured graphs with stale data (ROCm/clr #279, ROCm/hip #3887 and #3902)",
        ),
        // A crash inside a replay ends the process, which no check of its result can prevent.
        _ if cfg!(windows) && platform == Platform::Amd => {
            Some("HIP on Windows has ended processes inside a replay")
        }
        _ => None,
    }
}

impl GraphMode {
    /// Returns true if graphs are used with a runtime.
    pub(crate) fn is_on(self, runtime: &Runtime, mark: &LaunchMark) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => {
                let version = runtime.versions().ok().and_then(|versions| versions.runtime);
                let version = version.map(|version| (version.major, version.minor));
                let problem = graph_problem(runtime.platform(), version);
                if let Some(problem) = problem {
                    tracing::info!("captured graphs are off: {problem}");
                    return false;
                }
                let left = mark.left();
                if let Some(path) = left {
                    tracing::warn!(
                        "captured graphs are off, because a process ended inside the first launch of one; \
                         switching them on tries them again, and so does another version of HIP or removing {}",
                        path.display()
                    );
                }
                left.is_none()
            }
        }
    }
}

/// A file that exists, locked, while a process launches a graph for the first time. HIP may end the
/// process there, and then the file is left.
#[derive(Debug, Default)]
pub(crate) struct LaunchMark {
    /// `None` where nothing is marked.
    path: Option<PathBuf>,
}

/// Removes the file of a [`LaunchMark`] when the launch is done.
pub(crate) struct Launching<'a> {
    path: &'a Path,
    /// Locked as long as it is open.
    _file: File,
}

impl LaunchMark {
    /// The mark of a device with a version of HIP.
    pub(crate) fn new(runtime: &Runtime, device: &DeviceInfo) -> Self {
        let version = runtime.versions().ok().and_then(|versions| versions.runtime);
        let (Platform::Amd, Some(version), Some(folder)) =
            (runtime.platform(), version, cache_folder())
        else {
            return Self::default();
        };
        let arch = device.arch.replace(':', "-");
        Self { path: Some(folder.join("graphs").join(format!("{arch}-hip-{version}"))) }
    }

    /// The file, if a process ended in its launch. That of a process that runs is locked.
    fn left(&self) -> Option<&Path> {
        let path = self.path.as_deref()?;
        let file = File::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => None,
            _ => Some(path),
        }
    }

    /// Marks a first launch. Without a folder that can be written, nothing is marked.
    pub(crate) fn set(&self) -> Option<Launching<'_>> {
        let path = self.path.as_deref()?;
        fs::create_dir_all(path.parent()?).ok()?;
        let file = File::create(path).ok()?;
        file.try_lock().ok()?;
        Some(Launching { path, _file: file })
    }
}

impl Drop for Launching<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(self.path) {
            tracing::debug!("{}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_does_not_end_leaves_its_mark() {
        let folder = tempfile::tempdir().unwrap();
        let mark = LaunchMark { path: Some(folder.path().join("graphs/gfx1100-hip-7.1")) };
        assert!(mark.left().is_none());
        let launching = mark.set().unwrap();
        assert!(mark.left().is_none(), "the process still runs");
        assert!(mark.set().is_none(), "another process has marked its launch");
        drop(launching);
        assert!(mark.left().is_none());
        // The lock of a process ends with it.
        fs::write(mark.path.as_ref().unwrap(), "").unwrap();
        assert!(mark.left().is_some());
        drop(mark.set());
        assert!(mark.left().is_none());
        assert!(LaunchMark::default().set().is_none());
    }

    #[test]
    #[cfg(not(windows))]
    fn graphs_are_off_with_versions_of_hip_that_replay_them_wrongly() {
        let problem =
            |platform, major, minor| graph_problem(platform, Some((major, minor))).is_some();
        assert!(problem(Platform::Amd, 7, 2));
        for (major, minor) in [(6, 4), (7, 1), (7, 3), (7, 13)] {
            assert!(!problem(Platform::Amd, major, minor), "{major}.{minor}");
        }
        assert!(!problem(Platform::Nvidia, 7, 2) && graph_problem(Platform::Amd, None).is_none());
    }
}
