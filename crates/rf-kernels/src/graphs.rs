//! The use of captured graphs.

use rf_hip::{Platform, Runtime};

/// The use of captured graphs for steps of a few tokens.
///
/// In any mode the result of each replay is checked; `exec/replay.rs` describes how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// Like [`GraphMode::On`], except with versions of HIP that [`graph_problem`] names.
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
            Some("HIP on Windows has ended processes inside a replay; --graphs on uses them")
        }
        _ => None,
    }
}

impl GraphMode {
    /// Returns true if graphs are used with a runtime.
    pub(crate) fn is_on(self, runtime: &Runtime) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => {
                let version = runtime.versions().ok().and_then(|versions| versions.runtime);
                let version = version.map(|version| (version.major, version.minor));
                let problem = graph_problem(runtime.platform(), version);
                if let Some(problem) = problem {
                    tracing::info!("captured graphs are off: {problem}");
                }
                problem.is_none()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
