//! Descriptions of the hardware and the build of a measurement.

#[cfg(windows)]
mod registry;

use std::path::Path;
use std::{fmt, fs, thread};

use rf_hip::{DeviceInfo, Platform, Runtime};
use serde::{Deserialize, Serialize};

/// The hardware and system software that results depend on. Unknown fields are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hardware {
    /// Marketing name of the GPU, such as `AMD Radeon RX 7900 XT`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gpu: String,
    /// Target of the GPU, such as `gfx1100`. Older files may have a family, such as `RDNA3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gfx: String,
    /// Version of ROCm or CUDA.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rocm: String,
    /// Version of the kernel driver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Model of the CPU.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu: String,
    /// Hardware threads that this process may use.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_threads: usize,
    /// Architecture of the CPU, such as `x86_64` or `aarch64`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_arch: String,
    /// Size of the main memory in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_bytes: u64,
    /// Distribution and kernel version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub os: String,
    /// Version of the compiler that built this crate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rustc: String,
}

/// The build of the measuring program. Unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Build {
    /// Version of the program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Git revision of the sources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Cargo profile: `release` or `debug`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// Enabled features, such as the CPU ISA and kernels.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub features: String,
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The CPU. Results are comparable if the CPU and its number of threads are equal.
    Cpu,
    /// The GPU. Results are comparable if [`Hardware::gpu`] and [`Hardware::gfx`] are equal.
    Gpu,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        })
    }
}

impl Hardware {
    /// Detects the hardware of this process. The GPU is the first of the runtime, and empty without
    /// a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::baseline::Hardware;
    ///
    /// let here = Hardware::detect();
    /// assert_eq!(here.cpu_arch, std::env::consts::ARCH);
    /// assert!(here.cpu_threads > 0);
    /// ```
    pub fn detect() -> Self {
        let hardware = Self::cpu_only();
        match Runtime::load().and_then(|runtime| Ok((runtime.device(0)?, runtime))) {
            Ok((device, runtime)) => hardware.with_gpu(&runtime, device.info()),
            Err(error) => {
                tracing::debug!("no GPU detected for the hardware description: {error}");
                hardware
            }
        }
    }

    /// Detects the hardware without the GPU, whose detection loads a runtime.
    pub fn cpu_only() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        #[cfg(windows)]
        let (cpu, os) = (registry::cpu_model(), registry::operating_system());
        #[cfg(not(windows))]
        let (cpu, os) = (
            cpu_model(&read("/proc/cpuinfo")),
            operating_system(&read("/etc/os-release"), &read("/proc/sys/kernel/osrelease")),
        );
        Self {
            cpu,
            cpu_threads: thread::available_parallelism().map_or(0, usize::from),
            cpu_arch: std::env::consts::ARCH.to_owned(),
            memory_bytes: total_memory(&read("/proc/meminfo")),
            os,
            rustc: env!("RF_PROFILE_RUSTC").to_owned(),
            ..Self::default()
        }
    }

    /// Adds a GPU of a runtime.
    #[must_use]
    pub fn with_gpu(self, runtime: &Runtime, gpu: &DeviceInfo) -> Self {
        let rocm = runtime.versions().map(|versions| versions.runtime.unwrap_or(versions.driver));
        let driver = match runtime.platform() {
            Platform::Amd => "/sys/module/amdgpu/version",
            Platform::Nvidia => "/sys/module/nvidia/version",
        };
        Self {
            gpu: gpu.name.clone(),
            gfx: gpu.arch.clone(),
            rocm: rocm.map_or_else(|_| String::new(), |version| version.to_string()),
            driver: first_line(driver),
            ..self
        }
    }

    /// Returns the difference that makes results of `device` on `self` and `other` incomparable, or
    /// `None` if they are comparable.
    ///
    /// Versions of drivers and compilers may differ, because baselines are compared across them.
    pub fn mismatch(&self, other: &Self, device: DeviceKind) -> Option<String> {
        let differs = |what: &str, ours: &str, theirs: &str| {
            let shown =
                |name: &str| if name.is_empty() { "none".to_owned() } else { name.to_owned() };
            Some(format!("{what} {}, not {}", shown(ours), shown(theirs)))
        };
        match device {
            DeviceKind::Gpu => {
                if gpu_key(&self.gpu) != gpu_key(&other.gpu) {
                    return differs("GPU", &self.gpu, &other.gpu);
                }
                // Older files have a family, which the name implies.
                let is_target = |gfx: &str| gfx.starts_with("gfx") || gfx.starts_with("sm_");
                let comparable = is_target(&self.gfx) && is_target(&other.gfx);
                if comparable && self.gfx != other.gfx {
                    return differs("target", &self.gfx, &other.gfx);
                }
                None
            }
            DeviceKind::Cpu if self.cpu != other.cpu => differs("CPU", &self.cpu, &other.cpu),
            DeviceKind::Cpu if self.cpu_arch != other.cpu_arch => {
                differs("CPU", &self.cpu_arch, &other.cpu_arch)
            }
            // Older files have no number of threads.
            DeviceKind::Cpu
                if self.cpu_threads != other.cpu_threads
                    && self.cpu_threads != 0
                    && other.cpu_threads != 0 =>
            {
                Some(format!("{} threads, not {}", self.cpu_threads, other.cpu_threads))
            }
            DeviceKind::Cpu => None,
        }
    }

    /// Formats the part that results of `device` depend on.
    pub fn name(&self, device: DeviceKind) -> String {
        let name = match device {
            DeviceKind::Gpu if self.gfx.is_empty() => self.gpu.clone(),
            DeviceKind::Gpu => format!("{} ({})", self.gpu, self.gfx),
            DeviceKind::Cpu => format!("{}, {} threads", self.cpu, self.cpu_threads),
        };
        if name.is_empty() { "no GPU".to_owned() } else { name }
    }
}

/// Normalizes a GPU name: `RX 7900 XT` and `AMD Radeon RX 7900 XT` are the same card.
fn gpu_key(name: &str) -> String {
    let words = name.split_whitespace().map(str::to_lowercase);
    let words =
        words.filter(|word| !["amd", "radeon", "radeon(tm)", "graphics"].contains(&&**word));
    words.collect::<Vec<_>>().join(" ")
}

/// Parses the CPU model from `/proc/cpuinfo`.
#[cfg(any(test, not(windows)))]
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        let (_, value) = line.split_once(':')?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // On Arm, Linux reports numbers instead of a name.
    let arm = || {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("implementer {implementer}, part {part}"))
    };
    field("model name").or_else(arm).unwrap_or_default()
}

/// Parses the memory size in bytes from `/proc/meminfo`.
fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(any(test, not(windows)))]
fn operating_system(os_release: &str, kernel: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or(std::env::consts::OS, |name| name.trim_matches('"'));
    let kernel = kernel.trim();
    if kernel.is_empty() { name.to_owned() } else { format!("{name}, Linux {kernel}") }
}

fn first_line(path: impl AsRef<Path>) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_differ_by_name_and_target() {
        let card = |gpu: &str, gfx: &str| Hardware {
            gpu: gpu.into(),
            gfx: gfx.into(),
            ..Hardware::default()
        };
        let xt = card("AMD Radeon RX 7900 XT", "gfx1100");
        assert_eq!(xt.mismatch(&card("RX 7900 XT", "RDNA3"), DeviceKind::Gpu), None);
        let mismatch = xt.mismatch(&card("RX 7900 XTX", "gfx1100"), DeviceKind::Gpu);
        assert_eq!(mismatch.unwrap(), "GPU AMD Radeon RX 7900 XT, not RX 7900 XTX");
        let mismatch = Hardware::default().mismatch(&xt, DeviceKind::Gpu);
        assert_eq!(mismatch.unwrap(), "GPU none, not AMD Radeon RX 7900 XT");
        assert!(xt.mismatch(&card("RX 7900 XT", "gfx1101"), DeviceKind::Gpu).is_some());
    }

    #[test]
    fn cpus_differ_by_model_and_threads() {
        let cpu = |threads| Hardware {
            cpu: "A".into(),
            cpu_threads: threads,
            rustc: threads.to_string(),
            ..Hardware::default()
        };
        assert_eq!(cpu(2).mismatch(&cpu(4), DeviceKind::Cpu).unwrap(), "2 threads, not 4");
        assert_eq!(cpu(2).mismatch(&cpu(0), DeviceKind::Cpu), None);
    }

    #[test]
    fn linux_descriptions_are_parsed() {
        let intel = "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R) Processor @ 2.50GHz\n";
        assert_eq!(cpu_model(intel), "Intel(R) Xeon(R) Processor @ 2.50GHz");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "implementer 0x41, part 0xd0c");
        assert_eq!(cpu_model(""), "");
        assert_eq!(total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16 << 20);
        let os = operating_system("NAME=x\nPRETTY_NAME=\"Debian 12\"\n", "6.1.0\n");
        assert_eq!(os, "Debian 12, Linux 6.1.0");
    }
}
