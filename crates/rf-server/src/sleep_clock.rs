//! Finds out that the machine was suspended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The least difference between two clocks that is a suspend, and not their reading.
const LEAST: Duration = Duration::from_secs(2);

/// Compares the time since a start with and without the time in suspend.
pub(crate) struct SleepClock {
    /// The file with the time since the start of the machine, with that in suspend.
    uptime: PathBuf,
    /// Both at the start. [`Instant`] does not count suspend on Linux.
    start: Option<(Instant, Duration)>,
}

impl SleepClock {
    /// Starts to compare. Without the file, the machine was never suspended.
    pub(crate) fn start(uptime: &Path) -> Self {
        let start = read(uptime).map(|uptime| (Instant::now(), uptime));
        Self { uptime: uptime.to_owned(), start }
    }

    /// Returns true if the machine was suspended after the start.
    pub(crate) fn has_slept(&self) -> bool {
        let Some(((awake, before), now)) = self.start.zip(read(&self.uptime)) else { return false };
        now.saturating_sub(before) >= awake.elapsed() + LEAST
    }
}

/// The first number of `350735.47 234388.90`, in seconds.
fn read(uptime: &Path) -> Option<Duration> {
    let text = fs::read_to_string(uptime).ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_is_time_that_only_one_clock_counts() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("uptime");
        assert!(!SleepClock::start(&file).has_slept(), "there is no such file");
        fs::write(&file, "350735.47 234388.90\n").unwrap();
        let clock = SleepClock::start(&file);
        assert!(!clock.has_slept());
        fs::write(&file, "350736.47 234389.90\n").unwrap();
        assert!(!clock.has_slept());
        fs::write(&file, "354335.47 234389.90\n").unwrap();
        assert!(clock.has_slept());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_machine_that_runs_has_not_slept() {
        assert!(!SleepClock::start(Path::new("/proc/uptime")).has_slept());
    }
}
