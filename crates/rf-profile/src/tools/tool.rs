//! The supported tools and where they are installed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fmt};

use super::process::Runner;
use crate::Error;

/// The time limit for a tool to print its version or options. Tools in Python take seconds to start
/// from a cold cache.
pub(super) const QUERY_LIMIT: Duration = Duration::from_secs(30);

/// A tool whose options and formats are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tool {
    /// `rocprofv3`: traces and counters on every AMD GPU, the recommended tool.
    Rocprofv3,
    /// `rocprofv2`: the deprecated predecessor of `rocprofv3`.
    Rocprofv2,
    /// `rocprof`: the deprecated first version.
    Rocprof,
    /// `rocprof-compute`: derived metrics and rooflines on Instinct GPUs.
    RocprofCompute,
    /// `omniperf`: the name of `rocprof-compute` before ROCm 6.3.
    Omniperf,
    /// `rocprof-sys-sample`: a sampling profiler for one timeline of host and GPU.
    RocprofSys,
    /// `omnitrace-sample`: the name of `rocprof-sys-sample` before ROCm 6.3.
    Omnitrace,
    /// `perf`: the CPU profiler of Linux.
    Perf,
    /// `amd-smi`: the state of AMD GPUs.
    AmdSmi,
    /// `rocm-smi`: the predecessor of `amd-smi`, in maintenance mode.
    RocmSmi,
}

/// A tool that is installed on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstalledTool {
    /// The tool.
    pub tool: Tool,
    /// The path of its program.
    pub path: PathBuf,
}

/// True if a tool is installed on this machine, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Availability {
    /// The tool.
    pub tool: Tool,
    /// The path of its program if it is installed.
    pub path: Option<PathBuf>,
    /// The version that the tool prints, or the reason why it is unknown.
    pub version: Result<String, String>,
}

/// The folders in which tools are searched.
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
    /// All tools.
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

    /// The tool with this name: the name of its program or a common alias.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTool`] with a replacement for a name that some documents use by mistake, and
    /// [`Error::UnknownTool`] for any other name.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::tools::Tool;
    ///
    /// assert_eq!(Tool::named("omniperf")?.successor(), Some(Tool::RocprofCompute));
    /// let error = Tool::named("rocperf").unwrap_err().to_string();
    /// assert!(error.starts_with("there is no tool 'rocperf': use rocprofv3"));
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

    /// The name of the tool's program.
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

    /// The replacement of a deprecated tool.
    pub const fn successor(self) -> Option<Self> {
        match self {
            Self::Rocprofv2 | Self::Rocprof => Some(Self::Rocprofv3),
            Self::Omniperf => Some(Self::RocprofCompute),
            Self::Omnitrace => Some(Self::RocprofSys),
            Self::RocmSmi => Some(Self::AmdSmi),
            _ => None,
        }
    }

    /// How to install the tool.
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
        for folder in [PathBuf::from(rocm).join("bin"), PathBuf::from("/opt/rocm/bin")] {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Self { folders }
    }

    /// Searches only these folders.
    pub fn of(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { folders: folders.into_iter().collect() }
    }

    /// Finds a tool.
    ///
    /// # Errors
    ///
    /// [`Error::ToolMissing`] with how to install it.
    pub fn find(&self, tool: Tool) -> Result<InstalledTool, Error> {
        let program = tool.program();
        // An empty list would mean the current folder.
        let paths = env::join_paths(&self.folders).ok().filter(|_| !self.folders.is_empty());
        which::which_in_global(program, paths)
            .ok()
            .and_then(|mut paths| paths.next())
            .map(|path| InstalledTool { tool, path })
            .ok_or(Error::ToolMissing { tool: program, hint: tool.hint() })
    }

    /// The availability of every tool, the missing ones included.
    pub fn availability(&self) -> Vec<Availability> {
        let query = |tool: Tool| match self.find(tool) {
            Ok(installed) => {
                let version = installed.version().map_err(|error| error.to_string());
                Availability { tool, path: Some(installed.path), version }
            }
            Err(error) => Availability { tool, path: None, version: Err(error.to_string()) },
        };
        Tool::ALL.into_iter().map(query).collect()
    }
}

impl InstalledTool {
    /// The version that the tool prints.
    ///
    /// # Errors
    ///
    /// [`Error::Start`], [`Error::Killed`], [`Error::Failed`] or [`Error::NoOutput`].
    pub fn version(&self) -> Result<String, Error> {
        let mut command = Command::new(&self.path);
        command.args(self.tool.version_arguments());
        let output = Runner::new(QUERY_LIMIT).run(command)?;
        let lines = output.stdout.lines().chain(output.stderr.lines());
        let with_digit = |line: &&str| line.chars().any(|c| c.is_ascii_digit());
        // Some tools print banners and warnings first.
        lines
            .map(str::trim)
            .filter(with_digit)
            .min_by_key(|line| !line.to_ascii_lowercase().contains("version"))
            .map(str::to_owned)
            .ok_or_else(|| output.no_output("version"))
    }
}

/// The availability of every tool on this machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_name_is_accepted_and_rocperf_is_rejected() {
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
    fn no_successor_is_deprecated() {
        for tool in Tool::ALL {
            assert_eq!(tool.successor().and_then(Tool::successor), None);
        }
    }
}
