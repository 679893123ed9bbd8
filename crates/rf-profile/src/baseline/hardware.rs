//! What a figure was measured on, and with which build.

use std::fs;
use std::path::Path;
use std::thread;

use rf_hip::{Platform, Runtime};
use serde::{Deserialize, Serialize};

use super::DeviceKind;

/// The machine, as far as it matters for figures. What could not be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hardware {
    /// Marketing name of the GPU.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gpu: String,
    /// `gfx1100`; of older files perhaps a family, such as `RDNA3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gfx: String,
    /// Version of ROCm, or of CUDA.
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
    /// `x86_64`, `aarch64`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_arch: String,
    /// Main memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_bytes: u64,
    /// Distribution and kernel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub os: String,
    /// The compiler that this crate was built by.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rustc: String,
}

/// The program that measured. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Build {
    /// Version of the program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Revision of its sources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// `release`, `debug`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// What was switched on: CPU ISA, kernels, features.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub features: String,
}

impl Hardware {
    /// What this process runs on; the GPU is the runtime's first, and stays empty without a runtime.
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
        Self::cpu_only().with_gpu()
    }

    /// The same without looking for a GPU, which loads its runtime.
    pub fn cpu_only() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_model(&read("/proc/cpuinfo")),
            cpu_threads: thread::available_parallelism().map_or(0, usize::from),
            cpu_arch: std::env::consts::ARCH.to_owned(),
            memory_bytes: total_memory(&read("/proc/meminfo")),
            os: operating_system(&read("/etc/os-release"), &read("/proc/sys/kernel/osrelease")),
            rustc: env!("RF_PROFILE_RUSTC").to_owned(),
            ..Self::default()
        }
    }

    fn with_gpu(mut self) -> Self {
        let found = Runtime::load().and_then(|runtime| {
            let device = runtime.device(0)?;
            self.gpu.clone_from(&device.info().name);
            self.gfx.clone_from(&device.info().arch);
            if let Ok(versions) = runtime.versions() {
                self.rocm = versions.runtime.unwrap_or(versions.driver).to_string();
            }
            Ok(runtime.platform())
        });
        match found {
            Ok(Platform::Amd) => self.driver = first_line("/sys/module/amdgpu/version"),
            Ok(_) => self.driver = first_line("/sys/module/nvidia/version"),
            Err(error) => tracing::debug!("no GPU in the description of this machine: {error}"),
        }
        self
    }

    /// Why figures of `device` on `self` and `other` cannot be compared: which part is another one.
    /// `None` where they can. Versions of drivers and compilers may differ: comparing across them is
    /// what a baseline is for.
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
                // Of older files the family, which the name says as well.
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
            // Older files do not say how many.
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

    /// The part that figures of `device` depend on, for people.
    pub fn name(&self, device: DeviceKind) -> String {
        let name = match device {
            DeviceKind::Gpu if self.gfx.is_empty() => self.gpu.clone(),
            DeviceKind::Gpu => format!("{} ({})", self.gpu, self.gfx),
            DeviceKind::Cpu => format!("{}, {} threads", self.cpu, self.cpu_threads),
        };
        if name.is_empty() { "no GPU".to_owned() } else { name }
    }
}

/// `RX 7900 XT` and `AMD Radeon RX 7900 XT` are one card.
fn gpu_key(name: &str) -> String {
    let words = name.split_whitespace().map(str::to_lowercase);
    let words =
        words.filter(|word| !["amd", "radeon", "radeon(tm)", "graphics"].contains(&&**word));
    words.collect::<Vec<_>>().join(" ")
}

fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        let (_, value) = line.split_once(':')?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // Arm's kernel states numbers instead of a name.
    let arm = || {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("implementer {implementer}, part {part}"))
    };
    field("model name").or_else(arm).unwrap_or_default()
}

fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

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
    fn cards_are_told_apart_by_name_and_target() {
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
    fn cpus_are_told_apart_by_model_and_threads() {
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
    fn what_linux_says_is_read() {
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
