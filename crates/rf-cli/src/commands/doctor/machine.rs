//! What makes an AMD card hang, slow or short of memory below ROCm: the kernel, the firmware,
//! limits of memory, and variables.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::check::Check;

/// Facts about the machine, and about AMD's cards as the kernel lists them.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineFacts {
    /// Release of Linux, such as `6.17.0-5-generic`.
    kernel: Option<String>,
    /// Name of the distribution, and of those that it is like.
    distributions: Vec<String>,
    /// Memory that the processor sees.
    memory_bytes: Option<u64>,
    /// Memory of the machine that the kernel gives to GPUs.
    ttm_limit_bytes: Option<u64>,
    cards: Vec<Card>,
    /// Variables that are set and change what ROCm does.
    variables: Vec<(&'static str, String)>,
}

/// An AMD card that the compute interface lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Card {
    arch: String,
    /// Memory of the card, or reserved for an integrated one.
    vram_bytes: Option<u64>,
    /// The part of it that the processor reaches.
    visible_bytes: Option<u64>,
    /// Memory of the machine that the driver maps for it.
    gtt_bytes: Option<u64>,
    /// Version of the firmware that schedules queues (MES).
    mes: Option<u32>,
}

/// The first release of Linux in which gfx115x works, and that of Ubuntu with the same fixes.
const GFX115_FROM: [u32; 3] = [6, 18, 4];
const GFX115_FROM_ON_UBUNTU: [u32; 3] = [6, 17, 0];

/// The version of MES with which gfx115x hangs.
const BAD_MES: u32 = 0x83;

const PAGE_BYTES: u64 = 4096;

/// Variables that slow ROCm down or take memory from it, with the reason.
const VARIABLES: [(&str, &str); 6] = [
    ("AMD_SERIALIZE_KERNEL", "makes every kernel wait for the one before"),
    ("AMD_SERIALIZE_COPY", "makes every copy wait for the work before"),
    ("HIP_LAUNCH_BLOCKING", "makes the program wait for every kernel"),
    ("AMD_LOG_LEVEL", "makes HIP print its calls"),
    ("GPU_SINGLE_ALLOC_PERCENT", "limits each allocation"),
    ("GPU_MAX_HEAP_SIZE", "limits the memory of the card"),
];

/// The variable for the number of hardware queues.
const QUEUES: &str = "GPU_MAX_HW_QUEUES";

impl MachineFacts {
    /// Reads the files below `root`, which is `/`, and the variables of this process.
    pub(super) fn read(root: &Path) -> Self {
        let names = VARIABLES.iter().map(|(name, _)| *name).chain([QUEUES]);
        let set = |name| {
            let value = env::var(name).ok().filter(|value| !value.is_empty() && value != "0")?;
            Some((name, value))
        };
        Self { variables: names.filter_map(set).collect(), ..Self::of_files(root) }
    }

    fn of_files(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let limit = read("sys/module/ttm/parameters/pages_limit");
        Self {
            kernel: read("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            distributions: read("etc/os-release")
                .map(|text| distributions(&text))
                .unwrap_or_default(),
            memory_bytes: read("proc/meminfo").and_then(|text| total_bytes(&text)),
            ttm_limit_bytes: limit
                .and_then(|text| text.trim().parse::<u64>().ok()?.checked_mul(PAGE_BYTES)),
            cards: cards(root),
            variables: Vec::new(),
        }
    }

    /// The findings. `has_dkms` is true if AMD's own kernel driver replaces that of the kernel.
    pub(super) fn checks(&self, has_dkms: bool) -> Vec<Check> {
        let mut checks = Vec::new();
        for card in &self.cards {
            checks.extend(self.kernel_of(card));
            checks.extend(card.firmware());
            if card.is_integrated() {
                checks.extend(self.memory_of(card));
            } else {
                checks.extend(card.bar());
            }
        }
        if has_dkms && self.cards.iter().any(Card::is_integrated) {
            checks.push(Check::warn(
                "AMD's own kernel driver (amdgpu-dkms) is installed, and AMD advises the kernel's on Ryzen",
                "remove the package amdgpu-dkms, then restart",
            ));
        }
        checks.extend(self.variables.iter().filter_map(|(name, value)| variable(name, value)));
        checks
    }

    /// The command that installs HIP on this distribution.
    pub(super) fn install(&self) -> String {
        let is = |name: &str| self.distributions.iter().any(|other| other == name);
        if is("arch") {
            return "sudo pacman -S hip-runtime-amd".to_owned();
        }
        if is("fedora") && !is("rhel") {
            return "sudo dnf install rocm-hip".to_owned();
        }
        if is("nixos") {
            return "set ROCM_PATH to the path of rocmPackages.clr".to_owned();
        }
        let of_amd = "amdrocm-runtime, or hip-runtime-amd of ROCm 6.4 to 7.2";
        match (is("debian"), is("rhel"), is("suse")) {
            (true, ..) => format!(
                "add AMD's repository and sudo apt install {of_amd}; where the distribution has ROCm 6 or newer, \
                 libamdhip64-dev is enough"
            ),
            (_, true, _) => format!("add AMD's repository and sudo dnf install {of_amd}"),
            (.., true) => format!("add AMD's repository and sudo zypper install {of_amd}"),
            _ => format!("install ROCm 6.4 or newer; the package is {of_amd}, or rocm-hip"),
        }
    }

    fn kernel_of(&self, card: &Card) -> Option<Check> {
        if !card.arch.starts_with("gfx115") {
            return None;
        }
        let kernel = self.kernel.as_deref()?;
        let numbers = numbers(kernel)?;
        let is_ubuntu = self.distributions.iter().any(|name| name == "ubuntu");
        let from = if is_ubuntu { GFX115_FROM_ON_UBUNTU } else { GFX115_FROM };
        let arch = &card.arch;
        Some(if numbers < from {
            let [major, minor, patch] = from;
            Check::warn(
                format!("Linux {kernel} is known to hang the {arch}: the first kernel never ends"),
                format!("install Linux {major}.{minor}.{patch} or newer"),
            )
        } else {
            Check::ok(format!("Linux {kernel} is new enough for the {arch}"))
        })
    }

    /// The memory of an integrated card.
    fn memory_of(&self, card: &Card) -> Option<Check> {
        /// A part that the firmware reserves, and that would be missed.
        const LARGE_BYTES: u64 = 2 << 30;
        /// A machine with less has no memory to spare for a GPU.
        const MANY_BYTES: u64 = 24 << 30;
        const OTHERS_BYTES: u64 = 8 << 30;
        let (vram, gtt) = (card.vram_bytes?, card.gtt_bytes?);
        let limit = self.ttm_limit_bytes.unwrap_or(u64::MAX).min(gtt);
        let arch = &card.arch;
        if vram >= gtt {
            return Some(Check::ok(format!(
                "the {arch} has {} reserved for it, and {} of the machine's memory",
                gib(vram),
                gib(limit)
            )));
        }
        let what = format!("the {arch} can use {} of the machine's memory", gib(limit));
        if vram >= LARGE_BYTES {
            return Some(Check::warn(
                format!("{what}; ROCm does not use the {} that the firmware reserves", gib(vram)),
                "reserve as little as the firmware settings allow (UMA frame buffer), and raise the limit \
                 ttm.pages_limit",
            ));
        }
        let memory = self.memory_bytes?;
        if memory < MANY_BYTES || limit > memory / 8 * 5 {
            return Some(Check::ok(what));
        }
        let pages = (memory - OTHERS_BYTES) / PAGE_BYTES;
        Some(Check::warn(
            format!("{what}, of {}: that is the kernel's default limit", gib(memory)),
            format!(
                "for larger models, add ttm.pages_limit={pages} to the kernel's command line, which leaves {} to \
                 other programs",
                gib(OTHERS_BYTES)
            ),
        ))
    }
}

impl Card {
    fn is_integrated(&self) -> bool {
        const INTEGRATED: [&str; 6] =
            ["gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx115"];
        INTEGRATED.iter().any(|arch| self.arch.starts_with(arch))
    }

    fn firmware(&self) -> Option<Check> {
        if !self.arch.starts_with("gfx115") {
            return None;
        }
        let arch = &self.arch;
        Some(match self.mes {
            Some(BAD_MES) => Check::warn(
                format!("the firmware MES {BAD_MES:#x} is known to hang the {arch}"),
                "install another version of the package linux-firmware, then restart",
            ),
            Some(mes) => Check::ok(format!("firmware MES {mes:#x} of the {arch}")),
            None => Check::ok(format!(
                "the firmware of the {arch} is not readable: MES {BAD_MES:#x} hangs it (sudo grep MES \
                 /sys/kernel/debug/dri/*/amdgpu_firmware_info)"
            )),
        })
    }

    /// Without a large BAR the processor reaches 256 MiB of the card only.
    fn bar(&self) -> Option<Check> {
        let (all, visible) = (self.vram_bytes?, self.visible_bytes?);
        (visible < all).then(|| {
            Check::warn(
                format!(
                    "Resizable BAR is off: the processor reaches {} MiB of {} of the {}",
                    visible >> 20,
                    gib(all),
                    self.arch
                ),
                "enable Above 4G Decoding and Resizable BAR in the firmware settings; results are right without, \
                 only slower",
            )
        })
    }
}

fn variable(name: &'static str, value: &str) -> Option<Check> {
    if name == QUEUES {
        return (value != "1").then(|| {
            Check::warn(
                format!("{QUEUES}={value}: with a second hardware queue many cards do not save power when idle"),
                format!("unset {QUEUES}: one queue is the default here"),
            )
        });
    }
    let (_, reason) = VARIABLES.iter().find(|(other, _)| *other == name)?;
    Some(Check::warn(format!("{name}={value} {reason}"), format!("unset {name}")))
}

/// The cards of the compute interface, with what the PCI device has of each.
fn cards(root: &Path) -> Vec<Card> {
    let nodes = root.join("sys/class/kfd/kfd/topology/nodes");
    let mut folders: Vec<_> =
        fs::read_dir(nodes).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let card = |folder: &PathBuf| {
        let text = fs::read_to_string(folder.join("properties")).ok()?;
        let property = |name: &str| -> Option<u32> {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let arch = arch(property("gfx_target_version ")?)?;
        let (location, domain) = (property("location_id ")?, property("domain ").unwrap_or(0));
        let (bus, device, function) = (location >> 8, location >> 3 & 31, location & 7);
        let slot = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
        let device = root.join("sys/bus/pci/devices").join(slot);
        let read = |name: &str| fs::read_to_string(device.join(name)).ok();
        let bytes = |name: &str| read(name)?.trim().parse().ok();
        let mes = read("fw_version/mes_fw_version");
        let mes =
            mes.and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
        Some(Card {
            arch,
            vram_bytes: bytes("mem_info_vram_total"),
            visible_bytes: bytes("mem_info_vis_vram_total"),
            gtt_bytes: bytes("mem_info_gtt_total"),
            mes: mes.filter(|version| *version > 0),
        })
    };
    folders.iter().filter_map(card).collect()
}

/// Converts 90010 to `gfx90a`: two decimal digits each for minor version and stepping, which are
/// hexadecimal in the name. CPUs have version 0.
pub(super) fn arch(version: u32) -> Option<String> {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

/// `ID` and `ID_LIKE` of a file os-release.
fn distributions(os_release: &str) -> Vec<String> {
    let values = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")));
    let names = values.flat_map(|value| value.trim_matches('"').split_whitespace());
    names.map(|name| name.trim_matches('"').to_lowercase()).collect()
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The first three numbers of `6.17.0-5-generic`; missing ones are 0.
fn numbers(release: &str) -> Option<[u32; 3]> {
    let version = release.split(['-', '+', '_']).next()?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let major = numbers.next()?;
    Some([major, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use snapbox::{assert_data_eq, str};

    use super::super::check::Level;
    use super::*;

    /// The files of a machine with one AMD card, whose sizes are in MiB.
    struct Files {
        os_release: &'static str,
        kernel: &'static str,
        memory_mib: u64,
        ttm_limit_mib: u64,
        /// The version of the GPU target in the topology, such as 110501 for gfx1151.
        version: u32,
        vram_mib: u64,
        visible_mib: u64,
        gtt_mib: u64,
        mes: &'static str,
    }

    const STRIX_HALO: Files = Files {
        os_release: "NAME=\"Fedora Linux\"\nID=fedora\n",
        kernel: "6.18.7-200.fc43.x86_64\n",
        memory_mib: 126 << 10,
        ttm_limit_mib: 120 << 10,
        version: 110_501,
        vram_mib: 512,
        visible_mib: 512,
        gtt_mib: 120 << 10,
        mes: "0x00000087\n",
    };

    const RADEON: Files = Files {
        os_release: "ID=ubuntu\nID_LIKE=debian\n",
        kernel: "6.8.0-40-generic\n",
        version: 110_000,
        vram_mib: 24 << 10,
        visible_mib: 24 << 10,
        gtt_mib: 16 << 10,
        mes: "",
        ..STRIX_HALO
    };

    impl Files {
        fn machine(&self) -> MachineFacts {
            let root = tempfile::TempDir::new().unwrap();
            let write = |path: &str, text: String| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("etc/os-release", self.os_release.to_owned());
            write("proc/sys/kernel/osrelease", self.kernel.to_owned());
            write("proc/meminfo", format!("MemTotal:  {} kB\n", self.memory_mib << 10));
            let pages = self.ttm_limit_mib << 20 >> 12;
            write("sys/module/ttm/parameters/pages_limit", format!("{pages}\n"));
            let nodes = "sys/class/kfd/kfd/topology/nodes";
            write(&format!("{nodes}/0/properties"), "gfx_target_version 0\n".to_owned());
            let version = self.version;
            let text = format!("gfx_target_version {version}\nlocation_id 50432\ndomain 0\n");
            write(&format!("{nodes}/1/properties"), text);
            let sizes =
                [("vram", self.vram_mib), ("vis_vram", self.visible_mib), ("gtt", self.gtt_mib)];
            let device = "sys/bus/pci/devices/0000:c5:00.0";
            for (kind, mib) in sizes {
                write(&format!("{device}/mem_info_{kind}_total"), format!("{}\n", mib << 20));
            }
            write(&format!("{device}/fw_version/mes_fw_version"), self.mes.to_owned());
            MachineFacts::of_files(root.path())
        }

        fn text(&self) -> String {
            text(&self.machine().checks(false))
        }
    }

    fn text(checks: &[Check]) -> String {
        let line = |check: &Check| {
            let mark = match check.level {
                Level::Ok => "ok",
                Level::Warn => "warn",
                Level::Fail => "fail",
            };
            let cure = check.cure.as_ref().map(|cure| format!("  -> {cure}\n"));
            format!("{mark} {}\n{}", check.what, cure.unwrap_or_default())
        };
        checks.iter().map(line).collect()
    }

    #[test]
    fn architectures_come_from_the_topology() {
        assert_eq!(arch(110_000).as_deref(), Some("gfx1100"));
        assert_eq!(arch(90_010).as_deref(), Some("gfx90a"));
        assert_eq!(arch(100_306).as_deref(), Some("gfx1036"));
        assert_eq!(arch(110_501).as_deref(), Some("gfx1151"));
        assert_eq!(arch(0), None);
    }

    #[test]
    fn a_machine_that_works() {
        assert_data_eq!(
            STRIX_HALO.text(),
            str![[r#"
ok Linux 6.18.7-200.fc43.x86_64 is new enough for the gfx1151
ok firmware MES 0x87 of the gfx1151
ok the gfx1151 can use 120.0 GiB of the machine's memory

"#]]
        );
        assert_eq!(RADEON.text(), "");
    }

    #[test]
    fn kernels_and_firmware_that_hang() {
        let old = Files { kernel: "6.14.0-37-generic", mes: "0x00000083\n", ..STRIX_HALO };
        assert_data_eq!(
            old.text(),
            str![[r#"
warn Linux 6.14.0-37-generic is known to hang the gfx1151: the first kernel never ends
  -> install Linux 6.18.4 or newer
warn the firmware MES 0x83 is known to hang the gfx1151
  -> install another version of the package linux-firmware, then restart
ok the gfx1151 can use 120.0 GiB of the machine's memory

"#]]
        );
        // Ubuntu has the fixes in an older release.
        let ubuntu = Files { os_release: RADEON.os_release, kernel: "6.17.0-5-generic", ..old };
        let other = Files { os_release: "ID=debian\n", mes: "", ..ubuntu };
        assert_data_eq!(
            ubuntu.text(),
            str![[r#"
ok Linux 6.17.0-5-generic is new enough for the gfx1151
warn the firmware MES 0x83 is known to hang the gfx1151
  -> install another version of the package linux-firmware, then restart
ok the gfx1151 can use 120.0 GiB of the machine's memory

"#]]
        );
        assert_data_eq!(
            other.text(),
            str![[r#"
warn Linux 6.17.0-5-generic is known to hang the gfx1151: the first kernel never ends
  -> install Linux 6.18.4 or newer
ok the firmware of the gfx1151 is not readable: MES 0x83 hangs it (sudo grep MES /sys/kernel/debug/dri/*/amdgpu_firmware_info)
ok the gfx1151 can use 120.0 GiB of the machine's memory

"#]]
        );
    }

    #[test]
    fn memory_of_integrated_cards() {
        let default = Files { ttm_limit_mib: 63 << 10, gtt_mib: 63 << 10, ..STRIX_HALO };
        assert_data_eq!(
            default.text(),
            str![[r#"
ok Linux 6.18.7-200.fc43.x86_64 is new enough for the gfx1151
ok firmware MES 0x87 of the gfx1151
warn the gfx1151 can use 63.0 GiB of the machine's memory, of 126.0 GiB: that is the kernel's default limit
  -> for larger models, add ttm.pages_limit=30932992 to the kernel's command line, which leaves 8.0 GiB to other programs

"#]]
        );
        let unused = Files {
            memory_mib: 48 << 10,
            vram_mib: 16 << 10,
            ttm_limit_mib: 24 << 10,
            gtt_mib: 24 << 10,
            ..STRIX_HALO
        };
        assert_data_eq!(
            unused.text(),
            str![[r#"
ok Linux 6.18.7-200.fc43.x86_64 is new enough for the gfx1151
ok firmware MES 0x87 of the gfx1151
warn the gfx1151 can use 24.0 GiB of the machine's memory; ROCm does not use the 16.0 GiB that the firmware reserves
  -> reserve as little as the firmware settings allow (UMA frame buffer), and raise the limit ttm.pages_limit

"#]]
        );
        let reserved = Files { vram_mib: 96 << 10, memory_mib: 31 << 10, ..unused };
        assert_data_eq!(
            reserved.text(),
            str![[r#"
ok Linux 6.18.7-200.fc43.x86_64 is new enough for the gfx1151
ok firmware MES 0x87 of the gfx1151
ok the gfx1151 has 96.0 GiB reserved for it, and 24.0 GiB of the machine's memory

"#]]
        );
    }

    #[test]
    fn a_small_bar() {
        assert_data_eq!(
            Files { visible_mib: 256, ..RADEON }.text(),
            str![[r#"
warn Resizable BAR is off: the processor reaches 256 MiB of 24.0 GiB of the gfx1100
  -> enable Above 4G Decoding and Resizable BAR in the firmware settings; results are right without, only slower

"#]]
        );
    }

    #[test]
    fn variables_and_drivers() {
        let variables = vec![
            ("HIP_LAUNCH_BLOCKING", "1".to_owned()),
            (QUEUES, "4".to_owned()),
            (QUEUES, "1".to_owned()),
        ];
        let machine = MachineFacts { variables, ..STRIX_HALO.machine() };
        let checks = machine.checks(true);
        let warnings: Vec<_> =
            checks.into_iter().filter(|check| check.level == Level::Warn).collect();
        assert_data_eq!(
            text(&warnings),
            str![[r#"
warn AMD's own kernel driver (amdgpu-dkms) is installed, and AMD advises the kernel's on Ryzen
  -> remove the package amdgpu-dkms, then restart
warn HIP_LAUNCH_BLOCKING=1 makes the program wait for every kernel
  -> unset HIP_LAUNCH_BLOCKING
warn GPU_MAX_HW_QUEUES=4: with a second hardware queue many cards do not save power when idle
  -> unset GPU_MAX_HW_QUEUES: one queue is the default here

"#]]
        );
    }

    #[test]
    fn the_package_is_that_of_the_distribution() {
        let names = [
            "ID=ubuntu\nID_LIKE=debian\n",
            "ID=fedora\n",
            "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
            "ID=cachyos\nID_LIKE=arch\n",
            "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n",
            "ID=nixos\n",
            "",
        ];
        let cures = names.map(|os_release| Files { os_release, ..RADEON }.machine().install());
        assert_data_eq!(
            cures.join("\n"),
            str![[r#"
add AMD's repository and sudo apt install amdrocm-runtime, or hip-runtime-amd of ROCm 6.4 to 7.2; where the distribution has ROCm 6 or newer, libamdhip64-dev is enough
sudo dnf install rocm-hip
add AMD's repository and sudo dnf install amdrocm-runtime, or hip-runtime-amd of ROCm 6.4 to 7.2
sudo pacman -S hip-runtime-amd
add AMD's repository and sudo zypper install amdrocm-runtime, or hip-runtime-amd of ROCm 6.4 to 7.2
set ROCM_PATH to the path of rocmPackages.clr
install ROCm 6.4 or newer; the package is amdrocm-runtime, or hip-runtime-amd of ROCm 6.4 to 7.2, or rocm-hip
"#]]
        );
    }
}
