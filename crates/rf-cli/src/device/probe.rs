//! What GPUs there are, found out by a child process: a driver that hangs or crashes takes that one with it.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rf_graph::case::cases;
use rf_graph::conformance::{self, Outcome};
use rf_hip::{Compiler, DeviceInfo, Platform, Runtime};
use rf_kernels::objects::{self, Choice};
use rf_kernels::{GpuBackend, GpuOptions};
use serde::{Deserialize, Serialize};

use super::gpus;

/// Loading a runtime and listing devices takes some seconds at most, even where a card has to wake up.
const LISTING_LIMIT: Duration = Duration::from_secs(30);

/// The first kernels of a process include the driver's compilation of PTX.
const RUNNING_LIMIT: Duration = Duration::from_mins(3);

/// Cases of the conformance table that show that a device works: one op, and a product that uses what is
/// special to the architecture.
const SMOKE_CASES: [&str; 2] = ["add", "matmul/Q8_0/64x256"];

/// Arguments of the child.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    platform: Which,
    /// Run kernels on this device instead of listing what there is.
    #[arg(long)]
    ordinal: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Amd,
    Nvidia,
}

/// What is known of a platform.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PlatformReport {
    /// `AMD`, `NVIDIA`.
    pub(crate) platform: String,
    /// The file of the runtime's library that was loaded.
    pub(crate) library: Option<String>,
    /// HIP's version.
    pub(crate) version: Option<String>,
    /// The driver interface's: on NVIDIA the newest CUDA version it serves.
    pub(crate) driver_version: Option<String>,
    /// Version of libhiprtc, which compiles what is not embedded.
    pub(crate) compiler: Option<String>,
    /// There is no library.
    pub(crate) is_absent: bool,
    /// Why the platform does not work.
    pub(crate) error: Option<String>,
    pub(crate) devices: Vec<DeviceReport>,
}

/// What is known of a GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    /// For `--device`.
    pub(crate) number: usize,
    pub(crate) platform: String,
    /// Number on its platform.
    pub(crate) ordinal: usize,
    pub(crate) name: String,
    pub(crate) arch: String,
    pub(crate) memory_bytes: u64,
    pub(crate) compute_units: u32,
    pub(crate) wave_size: u32,
    pub(crate) integrated: bool,
    pub(crate) pci_bus_id: String,
    pub(crate) usable: bool,
    /// The code object that it gets.
    pub(crate) code: Option<String>,
    /// `exact`, `generic`, `ptx`, `run-time`.
    pub(crate) code_kind: Option<String>,
    /// Why it is not usable.
    pub(crate) problem: Option<String>,
}

/// Asks about every platform that `ROCFORGE_GPU_PLATFORM` allows.
pub(crate) fn survey() -> Result<Vec<PlatformReport>> {
    let mut number = 0;
    let mut reports = Vec::new();
    for platform in gpus::platforms()? {
        let mut report = list(platform);
        for device in &mut report.devices {
            device.number = number;
            number += 1;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// The device that is taken where none is named.
pub(crate) fn best(reports: &[PlatformReport]) -> Option<&DeviceReport> {
    let usable = reports.iter().flat_map(|report| &report.devices).filter(|device| device.usable);
    // Platforms come in order of preference; the last of equals would win.
    usable.rev().max_by_key(|device| {
        (device.platform == Platform::Amd.to_string(), !device.integrated, device.memory_bytes)
    })
}

/// Runs kernels on a device and compares them with the CPU.
///
/// # Errors
///
/// What went wrong, as a sentence.
pub(crate) fn try_out(device: &DeviceReport) -> Result<()> {
    let platform = device.platform.to_lowercase();
    let ordinal = device.ordinal.to_string();
    let answer = ask(&[&platform, "--ordinal", &ordinal], RUNNING_LIMIT)?;
    let verdict: Result<(), String> = serde_json::from_slice(&answer)?;
    verdict.map_err(anyhow::Error::msg)
}

/// What the child does: prints JSON.
pub(crate) fn run(arguments: &ProbeArgs) -> Result<()> {
    let platform = match arguments.platform {
        Which::Amd => Platform::Amd,
        Which::Nvidia => Platform::Nvidia,
    };
    let out = io::stdout().lock();
    match arguments.ordinal {
        Some(ordinal) => {
            let verdict = run_kernels(platform, ordinal).map_err(|error| format!("{error:#}"));
            serde_json::to_writer(out, &verdict)?;
        }
        None => serde_json::to_writer(out, &look(platform))?,
    }
    Ok(())
}

fn list(platform: Platform) -> PlatformReport {
    let name = platform.to_string();
    let answer = ask(&[&name.to_lowercase()], LISTING_LIMIT)
        .and_then(|answer| Ok(serde_json::from_slice(&answer)?));
    answer.unwrap_or_else(|error| PlatformReport {
        platform: name,
        error: Some(format!("{error:#}")),
        ..PlatformReport::default()
    })
}

fn look(platform: Platform) -> PlatformReport {
    let mut report = PlatformReport { platform: platform.to_string(), ..PlatformReport::default() };
    let runtime = match Runtime::load_platform(platform) {
        Ok(runtime) => runtime,
        Err(error) => {
            report.is_absent = matches!(&error, rf_hip::Error::LibraryNotFound { tried }
                if tried.iter().all(is_absent));
            report.error = Some(error.to_string());
            return report;
        }
    };
    report.library = Some(file_of(runtime.library_path()));
    if let Ok(versions) = runtime.versions() {
        report.version = versions.runtime.map(|version| version.to_string());
        report.driver_version = Some(versions.driver.to_string());
    }
    if platform == Platform::Amd {
        let version = Compiler::load().and_then(|compiler| compiler.version());
        report.compiler = version.ok().map(|(major, minor)| format!("{major}.{minor}"));
    }
    match runtime.devices() {
        Ok(devices) => {
            report.devices = devices.iter().map(|d| DeviceReport::of(d.info())).collect();
        }
        Err(error) => report.error = Some(error.to_string()),
    }
    report
}

/// Whether there is no such file; one that does not load is another matter.
fn is_absent(attempt: &rf_hip::Attempt) -> bool {
    let reason = format!("{}: cannot open shared object file", attempt.path.display());
    attempt.reason.contains(&reason)
}

impl DeviceReport {
    fn of(info: &DeviceInfo) -> Self {
        let chosen = objects::choose(&info.arch);
        let kind = |choice: &Choice| match choice {
            Choice::Exact { .. } => "exact",
            Choice::Generic { .. } => "generic",
            Choice::Ptx { .. } => "ptx",
            _ => "run-time",
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
            code: chosen.as_ref().ok().map(Choice::to_string),
            code_kind: chosen.as_ref().ok().map(|choice| kind(choice).to_owned()),
            problem: chosen.err().map(|error| error.to_string()),
        }
    }
}

/// The file behind a library that is loaded, as the kernel has it.
fn file_of(name: &Path) -> String {
    let given = name.display().to_string();
    let stem = name.file_name().and_then(|name| name.to_str()).unwrap_or(&given);
    let stem = stem.split(".so").next().unwrap_or(stem);
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let mut found =
        paths.filter(|path| path.rsplit('/').next().is_some_and(|f| f.starts_with(stem)));
    found.next().map_or(given, str::to_owned)
}

fn run_kernels(platform: Platform, ordinal: usize) -> Result<()> {
    let options = GpuOptions { ordinal: Some(ordinal), ..GpuOptions::default() };
    let backend = GpuBackend::on(Runtime::load_platform(platform)?, options)?;
    for case in cases() {
        if !SMOKE_CASES.contains(&case.name()) {
            continue;
        }
        match conformance::check(&backend, &case)? {
            Outcome::Passed { .. } => {}
            Outcome::Skipped(why) => bail!("{why}"),
            _ => bail!("{} did not pass", case.name()),
        }
    }
    Ok(())
}

/// Runs this program as a child with the hidden command, and returns what it prints.
fn ask(arguments: &[&str], limit: Duration) -> Result<Vec<u8>> {
    let mut child = Command::new(env::current_exe()?)
        .arg("probe")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process that asks the driver")?;
    let stdout = child.stdout.take();
    let (send, receive) = mpsc::channel();
    // It ends with the child; where even killing that one does not help, it waits for nothing.
    thread::spawn(move || {
        let mut answer = Vec::new();
        let read = stdout.map(|mut stdout| stdout.read_to_end(&mut answer));
        drop(read);
        drop(send.send(answer));
    });
    let deadline = Instant::now() + limit;
    let Ok(answer) = receive.recv_timeout(limit) else {
        give_up(&mut child);
        bail!("the driver did not answer within {} s, so it hangs", limit.as_secs());
    };
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            give_up(&mut child);
            bail!("the process that asked the driver did not end, so the driver hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        bail!("the driver ended the process that asked it ({status})");
    }
    Ok(answer)
}

/// Kills the child without waiting: one that hangs in the kernel does not die.
fn give_up(child: &mut Child) {
    drop(child.kill());
    drop(child.try_wait());
}
