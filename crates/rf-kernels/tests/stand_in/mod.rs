//! Runs of models on the emulator's stand-in for libamdhip64, with injected faults.
//!
//! A test runs itself in a child process ([`session`]), because the stand-in is chosen by the
//! environment. The two talk through files: the plan of faults, and the log of calls.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rf_graph::BackendError;
use rf_kernels::objects::{build_note, embedded_targets};

/// The environment variable that names the folder of the child process.
const FOLDER: &str = "RF_KERNELS_TEST_FOLDER";

/// Outputs by batch.
pub(crate) type Outputs = Vec<Vec<f32>>;

/// One line of the log.
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) number: u64,
    pub(crate) live_objects: usize,
}

/// The child's side of a test.
pub(crate) struct Session {
    folder: PathBuf,
}

impl Session {
    /// Runs a scenario with a fault plan, and returns the calls from the first one after the plan
    /// was read.
    pub(crate) fn run(
        &self,
        plan: &str,
        scenario: impl FnOnce() -> Result<Outputs, BackendError>,
    ) -> (Result<Outputs, BackendError>, Vec<Call>) {
        fs::write(self.folder.join("plan"), plan).unwrap();
        let log = self.folder.join("log");
        let before = fs::metadata(&log).map_or(0, |log| log.len()) as usize;
        let outcome = scenario();
        let text = fs::read_to_string(log).unwrap();
        let calls = text[before..].lines().map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [function, number, _, live_objects] = fields[..] else { panic!("{line}") };
            Call {
                function: function.to_owned(),
                number: number.parse().unwrap(),
                live_objects: live_objects.parse().unwrap(),
            }
        });
        (outcome, calls.skip_while(|call| call.function != "hipGetDeviceCount").collect())
    }
}

/// Runs this test again in a child process with a stand-in and further variables. Returns the
/// session in the child, and `None` in the parent after the child has passed or where no kernels
/// are embedded.
pub(crate) fn session(
    test: &str,
    library: &Path,
    variables: &[(&str, &Path)],
    limit: Duration,
) -> Option<Session> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(Session { folder: folder.into() });
    }
    let Some(arch) = arch() else {
        rf_testing::skip!("{}", build_note());
        return None;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("plan"), "").unwrap();
    let output = path.join("output");
    let file = fs::File::create(&output).unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, path)
        .env("ROCFORGE_GPU_PLATFORM", "amd")
        .env("ROCFORGE_HIP_LIBRARY", library)
        .env("ROCFORGE_EMU_ARCH", arch)
        .env("ROCFORGE_EMU_CHECK", "none")
        .env("ROCFORGE_EMU_FAIL", format!("@{}", path.join("plan").display()))
        .env("ROCFORGE_EMU_LOG", path.join("log"))
        .env("XDG_CACHE_HOME", path.join("cache"))
        .envs(variables.iter().copied())
        .stdout(Stdio::from(file.try_clone().unwrap()))
        .stderr(Stdio::from(file))
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = fs::read_to_string(output).unwrap();
    let plan = fs::read_to_string(path.join("plan")).unwrap();
    let Some(status) = status else { panic!("hung with the fault {plan}:\n{text}") };
    assert!(status.success() && text.contains("1 passed"), "fault {plan}:\n{text}");
    text.lines().filter(|line| line.contains("runs")).for_each(|line| println!("{line}"));
    None
}

/// A device for which kernels are embedded.
pub(crate) fn arch() -> Option<&'static str> {
    embedded_targets().find(|target| target.starts_with("gfx1") && !target.contains("generic"))
}

/// The stand-in, which cargo builds next to the tests.
pub(crate) fn library() -> PathBuf {
    env::current_exe().unwrap().with_file_name("librf_emu_hip.so")
}
