//! The GPUs of this machine as child processes list them: a driver that hangs or crashes takes only
//! the child with it.
//!
//! The child is a command of the same program ([`Prober::new`]), which calls [`answer`].
//! Where no runtime library is installed, no child starts.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use rf_hip::Platform;
use rf_hip::{Compiler, DeviceInfo, Runtime};
use rf_kernels::objects::{self, CodeOrigin};
use rf_kernels::{GpuBackend, GpuOptions, graph_problem};
use rf_oracle::case::cases;
use rf_oracle::conformance::{self, CaseOutcome};
use serde::{Deserialize, Serialize};

use crate::error::{Error, sentence};

/// Loading a runtime and listing GPUs takes a few seconds, even where a card has to wake up.
const LISTING_LIMIT: Duration = Duration::from_secs(30);

/// The first kernels of a process include the compilation of PTX by the driver.
const RUNNING_LIMIT: Duration = Duration::from_mins(3);

/// The variable that hides AMD GPUs from everything in a process.
pub const VISIBLE_DEVICES: &str =
    if cfg!(windows) { "HIP_VISIBLE_DEVICES" } else { "ROCR_VISIBLE_DEVICES" };

/// Kind of code that the machine's ROCm compiles.
pub(crate) const RUN_TIME: &str = "run-time";

/// Conformance cases that show that a GPU works: one simple op, and a matmul with the instructions
/// of the architecture.
const SMOKE_CASES: [&str; 2] = ["add", "matmul/Q8_0/64x256"];

/// Report on a GPU platform.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlatformReport {
    /// `AMD` or `NVIDIA`.
    pub platform: String,
    /// Path of the runtime library that was loaded.
    pub library: Option<String>,
    /// Version of HIP.
    pub version: Option<String>,
    /// Version of the driver interface: on NVIDIA the newest CUDA version that it supports.
    pub driver_version: Option<String>,
    /// Version of libhiprtc, which compiles kernels that are not embedded.
    pub compiler: Option<String>,
    /// True if the runtime library is not installed.
    pub is_absent: bool,
    /// The reason why captured graphs are off by default with this version.
    #[serde(default)]
    pub graph_problem: Option<String>,
    /// The reason why the platform does not work, or a GPU of it.
    pub error: Option<String>,
    /// True if the driver crashed or hung, or could not be examined.
    #[serde(default)]
    pub is_broken: bool,
    /// GPUs that the runtime lists.
    pub devices: Vec<DeviceReport>,
}

/// Report on a GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Number over all platforms, for `--device`.
    pub number: usize,
    /// `AMD` or `NVIDIA`.
    pub platform: String,
    /// Number on its platform.
    pub ordinal: usize,
    /// Marketing name.
    pub name: String,
    /// Architecture, such as `gfx1100`.
    pub arch: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Compute units, or multiprocessors.
    pub compute_units: u32,
    /// Lanes of a wave.
    pub wave_size: u32,
    /// True if it shares memory with the CPU.
    pub integrated: bool,
    /// Address on the PCI bus.
    pub pci_bus_id: String,
    /// True if there is code for it.
    pub usable: bool,
    /// The code object for it.
    pub code: Option<String>,
    /// Kind of the code object: `exact`, `generic`, `ptx` or `run-time`.
    pub code_kind: Option<String>,
    /// The reason why it is not usable.
    pub problem: Option<String>,
}

/// Starts child processes that examine drivers.
#[derive(Debug)]
pub struct Prober {
    program: PathBuf,
    arguments: Vec<OsString>,
    reports: OnceLock<Vec<PlatformReport>>,
}

impl Prober {
    /// The child is `program` with `arguments`, followed by the two arguments of [`answer`]: the
    /// platform in lower case, and the ordinal of a GPU if kernels are to run.
    pub fn new(program: PathBuf, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments = arguments.into_iter().collect();
        Self { program, arguments, reports: OnceLock::new() }
    }

    /// Examines every platform that `ROCFORGE_GPU_PLATFORM` allows, all at the same time. Later
    /// calls return the same reports.
    ///
    /// # Errors
    ///
    /// If that variable names no platform. A driver that fails is an `error` in its report.
    pub fn survey(&self) -> Result<Vec<PlatformReport>, Error> {
        let platforms = platforms()?;
        let reports = self.reports.get_or_init(|| {
            let reports = thread::scope(|scope| {
                let children: Vec<_> = platforms
                    .iter()
                    .map(|&platform| {
                        let list = move || self.list(platform, &[]);
                        thread::Builder::new().spawn_scoped(scope, list).map_err(|_| list)
                    })
                    .collect();
                // Where no thread can be started, one platform comes after the other.
                let children = children.into_iter().map(|child| match child {
                    Ok(child) => child.join().unwrap_or_default(),
                    Err(list) => list(),
                });
                children.collect()
            });
            numbered(reports)
        });
        Ok(reports.clone())
    }

    /// If an AMD driver cannot list all GPUs: the numbers of the GPUs that it lists alone, for
    /// [`VISIBLE_DEVICES`], with their names.
    pub fn visible_alone(&self) -> Vec<(usize, String)> {
        const MOST: usize = 8;
        let mut alone = Vec::new();
        for number in 0..MOST {
            let value = number.to_string();
            let report = self.list(Platform::Amd, &[(VISIBLE_DEVICES, &value)]);
            match report.devices.first() {
                Some(device) => alone.push((number, device.name.clone())),
                // There are no more.
                None if !report.is_broken => break,
                None => {}
            }
        }
        alone
    }

    /// Runs kernels on a GPU and compares their results with the CPU's.
    ///
    /// # Errors
    ///
    /// If the driver or a result is wrong.
    pub fn run_kernels(&self, device: &DeviceReport) -> Result<(), Error> {
        let platform = device.platform.to_lowercase();
        let ordinal = device.ordinal.to_string();
        let answer = self.run(&[&platform, &ordinal], &[], RUNNING_LIMIT)?;
        let verdict: Result<(), String> = parse(&answer)?;
        verdict.map_err(Error::Probe)
    }

    /// The command of a child, without the arguments of [`answer`].
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    fn list(&self, platform: Platform, variables: &[(&str, &str)]) -> PlatformReport {
        if !Runtime::is_installed(platform) {
            // Nothing of a driver runs.
            return list(platform);
        }
        let name = platform.to_string();
        let answer = self.run(&[&name.to_lowercase()], variables, LISTING_LIMIT);
        answer.and_then(|answer| parse(&answer)).unwrap_or_else(|error| PlatformReport {
            platform: name,
            error: Some(sentence(&error)),
            is_broken: true,
            ..PlatformReport::default()
        })
    }

    /// Runs the child and returns its output.
    fn run(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Vec<u8>, Error> {
        let mut child = self
            .command()
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Error::Probe(format!("cannot start the process that examines the driver: {error}"))
            })?;
        let stdout = child.stdout.take();
        let (send, receive) = mpsc::channel();
        // The thread ends with the child. A child that cannot be killed keeps it waiting.
        thread::spawn(move || {
            let mut answer = Vec::new();
            let read = stdout.map(|mut stdout| stdout.read_to_end(&mut answer));
            drop(read);
            drop(send.send(answer));
        });
        let deadline = Instant::now() + limit;
        let Ok(answer) = receive.recv_timeout(limit) else {
            give_up(&mut child);
            let seconds = limit.as_secs();
            return Err(Error::Probe(format!("the driver hangs: no answer within {seconds} s")));
        };
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() > deadline => {
                    give_up(&mut child);
                    let reason = "the driver hangs: the process that examines it does not end";
                    return Err(Error::Probe(reason.to_owned()));
                }
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(Error::Probe(error.to_string())),
            }
        };
        if !status.success() {
            let reason = format!("the driver ended the process that examines it ({status})");
            return Err(Error::Probe(reason));
        }
        Ok(answer)
    }
}

/// The platforms that `ROCFORGE_GPU_PLATFORM` allows, in order of preference.
///
/// # Errors
///
/// If the variable names no platform.
pub(crate) fn platforms() -> Result<Vec<Platform>, Error> {
    let name = std::env::var("ROCFORGE_GPU_PLATFORM").unwrap_or_default();
    match name.to_ascii_lowercase().as_str() {
        "" => Ok(vec![Platform::Amd, Platform::Nvidia]),
        "amd" => Ok(vec![Platform::Amd]),
        "nvidia" => Ok(vec![Platform::Nvidia]),
        _ => Err(Error::Platform(Box::new(rf_hip::Error::UnknownPlatform { name }))),
    }
}

/// Numbers the GPUs of all platforms.
pub(crate) fn numbered(mut reports: Vec<PlatformReport>) -> Vec<PlatformReport> {
    let devices = reports.iter_mut().flat_map(|report| &mut report.devices);
    devices.enumerate().for_each(|(number, device)| device.number = number);
    reports
}

/// The GPU that is used where the user names none.
pub fn best(reports: &[PlatformReport]) -> Option<&DeviceReport> {
    let usable = reports.iter().flat_map(|report| &report.devices).filter(|device| device.usable);
    // Platforms are in order of preference, and `max_by_key` returns the last maximum.
    usable.rev().max_by_key(|device| {
        (device.platform == Platform::Amd.to_string(), !device.integrated, device.memory_bytes)
    })
}

/// The work of the child: writes a report as JSON, or runs kernels on the GPU with that ordinal.
///
/// # Errors
///
/// If writing fails.
pub fn answer(platform: Platform, ordinal: Option<usize>, out: impl Write) -> io::Result<()> {
    match ordinal {
        Some(ordinal) => {
            let verdict = run_kernels(platform, ordinal).map_err(|error| sentence(&*error));
            serde_json::to_writer(out, &verdict)?;
        }
        None => serde_json::to_writer(out, &list(platform))?,
    }
    Ok(())
}

fn parse<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(answer).map_err(|error| Error::Probe(error.to_string()))
}

/// Loads a runtime and lists its GPUs, in this process.
pub(crate) fn list(platform: Platform) -> PlatformReport {
    let mut report = PlatformReport { platform: platform.to_string(), ..PlatformReport::default() };
    let runtime = match Runtime::load_platform(platform) {
        Ok(runtime) => runtime,
        Err(error) => {
            report.is_absent = matches!(&error, rf_hip::Error::LibraryNotFound { tried }
                if tried.iter().all(rf_hip::Attempt::is_absent));
            report.error = Some(error.to_string());
            return report;
        }
    };
    report.library = Some(file_of(runtime.library_path()));
    if let Ok(versions) = runtime.versions() {
        report.version = versions.runtime.map(|version| version.to_string());
        let version = versions.runtime.map(|version| (version.major, version.minor));
        report.graph_problem = graph_problem(platform, version).map(str::to_owned);
        report.driver_version = Some(versions.driver.to_string());
    }
    if platform == Platform::Amd {
        let version = Compiler::load().and_then(|compiler| compiler.version());
        report.compiler = version.ok().map(|(major, minor)| format!("{major}.{minor}"));
    }
    let count = runtime.device_count().unwrap_or_else(|error| {
        report.error = Some(error.to_string());
        0
    });
    for ordinal in 0..count {
        match runtime.device(ordinal) {
            Ok(device) => report.devices.push(DeviceReport::of(device.info())),
            Err(error) => report.error = Some(format!("device {ordinal}: {error}")),
        }
    }
    report
}

impl DeviceReport {
    fn of(info: &DeviceInfo) -> Self {
        let chosen = objects::choose(&info.arch);
        let kind = |choice: &CodeOrigin| match choice {
            CodeOrigin::Exact { .. } => "exact",
            CodeOrigin::Generic { .. } => "generic",
            CodeOrigin::Ptx { .. } => "ptx",
            _ => RUN_TIME,
        };
        Self {
            number: info.ordinal,
            platform: info.platform.to_string(),
            ordinal: info.ordinal,
            name: info.name.clone(),
            arch: info.arch.clone(),
            memory_bytes: info.total_memory_bytes,
            compute_units: info.compute_units,
            wave_size: info.wave_size,
            integrated: info.integrated,
            pci_bus_id: info.pci_bus_id.clone(),
            usable: chosen.is_ok(),
            code: chosen.as_ref().ok().map(CodeOrigin::to_string),
            code_kind: chosen.as_ref().ok().map(|choice| kind(choice).to_owned()),
            problem: chosen.err().map(|error| error.to_string()),
        }
    }
}

/// Path of a loaded library, from the memory map of this process.
fn file_of(name: &Path) -> String {
    let given = name.display().to_string();
    let stem = name.file_name().and_then(|name| name.to_str()).unwrap_or(&given);
    let stem = stem.split(".so").next().unwrap_or(stem);
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let mut files =
        paths.filter(|path| path.rsplit('/').next().is_some_and(|f| f.starts_with(stem)));
    files.next().map_or(given, str::to_owned)
}

/// Runs the smoke cases on a GPU, in this process.
fn run_kernels(platform: Platform, ordinal: usize) -> Result<(), Box<dyn std::error::Error>> {
    let options = GpuOptions::default().with_ordinal(ordinal);
    let backend = GpuBackend::on(&Runtime::load_platform(platform)?, options)?;
    for case in cases() {
        if !SMOKE_CASES.contains(&case.name()) {
            continue;
        }
        match conformance::check(&backend, &case)? {
            CaseOutcome::Passed { .. } => {}
            CaseOutcome::Skipped(why) => return Err(why.into()),
            _ => return Err(format!("{} did not pass", case.name()).into()),
        }
    }
    Ok(())
}

/// Kills the child without waiting: one that hangs in the kernel does not die.
pub(crate) fn give_up(child: &mut Child) {
    drop(child.kill());
    drop(child.try_wait());
}
