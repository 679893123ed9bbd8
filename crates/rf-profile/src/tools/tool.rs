//! Which tools there are, and which of them are here.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Runner;
use crate::Error;

/// Time for a tool to state its version or its options. Python tools with cold caches take seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A tool that is known by name, options and formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tool {
    /// `rocprofv3`: traces and counters on every AMD GPU, the one to use.
    Rocprofv3,
    /// `rocprofv2`: its deprecated predecessor.
    Rocprofv2,
    /// `rocprof`: the deprecated first.
    Rocprof,
    /// `rocprof-compute`: derived metrics and rooflines on Instinct GPUs.
    RocprofCompute,
    /// `omniperf`: its name before ROCm 6.3.
    Omniperf,
    /// `rocprof-sys-sample`: host and GPU on one timeline, by sampling.
    RocprofSys,
    /// `omnitrace-sample`: its name before ROCm 6.3.
    Omnitrace,
    /// `perf`: Linux's own, for the CPU.
    Perf,
    /// `amd-smi`: state of the GPUs.
    AmdSmi,
    /// `rocm-smi`: its predecessor, in maintenance.
    RocmSmi,
}

/// A tool on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Installed {
    /// Which.
    pub tool: Tool,
    /// Its program.
    pub path: PathBuf,
}

/// Whether a tool is on this machine, and which version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Availability {
    /// Which.
    pub tool: Tool,
    /// Its program, where it is installed.
    pub path: Option<PathBuf>,
    /// What it says of its version; where it could not be asked, why.
    pub version: Result<String, String>,
}

/// Folders that tools are looked for in.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::{Tool, Toolbox};
///
/// let nowhere = Toolbox::of([]).find(Tool::Rocprofv3).unwrap_err();
/// assert!(nowhere.to_string().starts_with("rocprofv3 is not installed: it comes with ROCm 6.2"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolbox {
    folders: Vec<PathBuf>,
}

impl Tool {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Rocprofv3,
        Self::Rocprofv2,
        Self::Rocprof,
        Self::RocprofCompute,
        Self::Omniperf,
        Self::RocprofSys,
        Self::Omnitrace,
        Self::Perf,
        Self::AmdSmi,
        Self::RocmSmi,
    ];

    /// The tool of this name, which may be that of its program.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTool`] for names of tools that do not exist, with what to use instead, and
    /// [`Error::UnknownTool`] for any other.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::tools::Tool;
    ///
    /// assert_eq!(Tool::named("omniperf")?.successor(), Some(Tool::RocprofCompute));
    /// let error = Tool::named("rocperf").unwrap_err().to_string();
    /// assert_eq!(error, "there is no tool 'rocperf': use rocprofv3 for kernels and counters, or perf for the CPU");
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Self, Error> {
        let lower = name.to_ascii_lowercase();
        let aliases = [
            ("rocprofv1", Self::Rocprof),
            ("rocprof-sys", Self::RocprofSys),
            ("omnitrace", Self::Omnitrace),
        ];
        let alias = aliases.into_iter().find(|(alias, _)| *alias == lower).map(|(_, tool)| tool);
        if let Some(tool) = Self::ALL.into_iter().find(|tool| tool.program() == lower).or(alias) {
            return Ok(tool);
        }
        if lower == "rocperf" {
            return Err(Error::NoSuchTool {
                name: name.to_owned(),
                successor: "rocprofv3 for kernels and counters, or perf for the CPU",
            });
        }
        let known = Self::ALL.map(Self::program).join(", ");
        Err(Error::UnknownTool { name: name.to_owned(), known })
    }

    /// Its program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Rocprofv3 => "rocprofv3",
            Self::Rocprofv2 => "rocprofv2",
            Self::Rocprof => "rocprof",
            Self::RocprofCompute => "rocprof-compute",
            Self::Omniperf => "omniperf",
            Self::RocprofSys => "rocprof-sys-sample",
            Self::Omnitrace => "omnitrace-sample",
            Self::Perf => "perf",
            Self::AmdSmi => "amd-smi",
            Self::RocmSmi => "rocm-smi",
        }
    }

    /// What to use instead, of tools that are on their way out.
    pub const fn successor(self) -> Option<Self> {
        match self {
            Self::Rocprofv2 | Self::Rocprof => Some(Self::Rocprofv3),
            Self::Omniperf => Some(Self::RocprofCompute),
            Self::Omnitrace => Some(Self::RocprofSys),
            Self::RocmSmi => Some(Self::AmdSmi),
            _ => None,
        }
    }

    /// What brings it.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Rocprofv3 => "it comes with ROCm 6.2 and later (package rocprofiler-sdk)",
            Self::Rocprofv2 | Self::Rocprof => {
                "it came with ROCm 5 and 6 (package rocprofiler); use rocprofv3"
            }
            Self::RocprofCompute => {
                "it comes with ROCm 6.3 and later (package rocprofiler-compute), for Instinct GPUs"
            }
            Self::Omniperf => "it is called rocprof-compute since ROCm 6.3",
            Self::RocprofSys => "it comes with ROCm 6.3 and later (package rocprofiler-systems)",
            Self::Omnitrace => "it is called rocprof-sys since ROCm 6.3",
            Self::Perf => {
                "install the package linux-perf (Debian), linux-tools (Ubuntu) or perf (Fedora)"
            }
            Self::AmdSmi => "it comes with ROCm 6 and later (package amd-smi-lib)",
            Self::RocmSmi => "it comes with ROCm (package rocm-smi-lib); use amd-smi",
        }
    }

    fn version_arguments(self) -> &'static [&'static str] {
        match self {
            // `--version` fails in some releases.
            Self::AmdSmi => &["version"],
            _ => &["--version"],
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.program())
    }
}

impl Toolbox {
    /// The folders of `PATH`, then ROCm's: `$ROCM_PATH/bin` and `/opt/rocm/bin`.
    pub fn system() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let rocm = env::var_os("ROCM_PATH").unwrap_or_else(|| OsString::from("/opt/rocm"));
        let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
        for folder in [Path::new(&rocm).join("bin"), PathBuf::from("/opt/rocm/bin")] {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Self { folders }
    }

    /// These folders and no other.
    pub fn of(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { folders: folders.into_iter().collect() }
    }

    /// Finds a tool.
    ///
    /// # Errors
    ///
    /// [`Error::ToolMissing`] with what brings it.
    pub fn find(&self, tool: Tool) -> Result<Installed, Error> {
        let program = tool.program();
        let paths = self.folders.iter().map(|folder| folder.join(program));
        paths
            .into_iter()
            .find(|path| is_executable(path))
            .map(|path| Installed { tool, path })
            .ok_or(Error::ToolMissing { tool: program, hint: tool.hint() })
    }

    /// Asks every tool for its version, those that are missing included.
    pub fn availability(&self) -> Vec<Availability> {
        let ask = |tool: Tool| match self.find(tool) {
            Ok(installed) => {
                let version = installed.version().map_err(|error| error.to_string());
                Availability { tool, path: Some(installed.path), version }
            }
            Err(error) => Availability { tool, path: None, version: Err(error.to_string()) },
        };
        Tool::ALL.into_iter().map(ask).collect()
    }
}

impl Installed {
    /// What the tool says of its version.
    ///
    /// # Errors
    ///
    /// [`Error::Start`], [`Error::TimedOut`], [`Error::Failed`] or [`Error::NoOutput`].
    pub fn version(&self) -> Result<String, Error> {
        let mut command = Command::new(&self.path);
        command.args(self.tool.version_arguments());
        let finished = Runner::new(PATIENCE).run(&mut command)?;
        let lines = finished.stdout.lines().chain(finished.stderr.lines());
        let with_digit = |line: &&str| line.chars().any(|c| c.is_ascii_digit());
        // Banners and warnings come first with some.
        lines
            .map(str::trim)
            .filter(with_digit)
            .min_by_key(|line| !line.to_ascii_lowercase().contains("version"))
            .map(str::to_owned)
            .ok_or_else(|| finished.no_output("version"))
    }
}

/// What of the known tools is installed on this machine, with versions.
///
/// # Examples
///
/// ```
/// for tool in rf_profile::tools::available_tools() {
///     match tool.version {
///         Ok(version) => println!("{}: {version}", tool.tool),
///         Err(why) => println!("{}: {why}", tool.tool),
///     }
/// }
/// ```
pub fn available_tools() -> Vec<Availability> {
    Toolbox::system().availability()
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_programs_and_rocperf_is_none() {
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.program()).unwrap(), tool);
        }
        assert_eq!(Tool::named("rocprofv1").unwrap(), Tool::Rocprof);
        let error = Tool::named("rocperf").unwrap_err().to_string();
        let expected = "there is no tool 'rocperf': use rocprofv3 for kernels and counters, or perf for the CPU";
        assert_eq!(error, expected);
        assert!(matches!(Tool::named("vtune"), Err(Error::UnknownTool { .. })));
    }

    #[test]
    fn successors_are_not_succeeded_themselves() {
        for tool in Tool::ALL {
            assert_eq!(tool.successor().and_then(Tool::successor), None);
        }
    }
}
