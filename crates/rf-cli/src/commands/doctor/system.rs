//! GPUs and drivers according to the operating system.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::machine::{MachineFacts, arch};

/// Information about GPUs from files of the system.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    /// AMD graphics cards and accelerators on the PCI bus.
    pub(super) amd_cards: usize,
    pub(super) nvidia_cards: usize,
    /// True if AMD's kernel driver is loaded.
    pub(super) has_amdgpu: bool,
    /// Version of the driver, if it is not the one of the kernel.
    pub(super) amdgpu_version: Option<String>,
    /// Version line of NVIDIA's kernel driver.
    pub(super) nvidia_version: Option<String>,
    /// AMD's compute interface, `/dev/kfd`.
    pub(super) kfd: Option<DeviceFile>,
    pub(super) render_nodes: Vec<DeviceFile>,
    /// Architectures that the compute interface lists, before any override.
    pub(super) archs: Vec<String>,
    pub(super) is_container: bool,
    /// True if this is WSL, where GPUs have another device file.
    pub(super) is_wsl: bool,
    pub(super) machine: MachineFacts,
    /// The display drivers of Windows; `None` on other systems.
    pub(super) display_drivers: Option<Vec<DisplayDriver>>,
}

/// A display driver of Windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DisplayDriver {
    /// Name of the card, such as `AMD Radeon RX 9070`.
    pub(super) card: String,
    pub(super) version: String,
    /// The hardware id, such as `PCI\VEN_1002&DEV_7550`.
    pub(super) device: String,
}

/// A device file.
#[derive(Clone, Debug)]
pub(super) struct DeviceFile {
    pub(super) path: PathBuf,
    pub(super) access: FileAccess,
}

/// Access to a device file for reading and writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileAccess {
    Allowed,
    /// Only members of a group have access.
    Denied {
        group: Option<String>,
    },
    Failed(String),
}

impl System {
    /// Reads the files below `root`, which is `/`, and the registry of Windows.
    pub(super) fn read(root: &Path) -> Self {
        let text = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.lines().next()?.trim().to_owned())
        };
        let cards = |vendor| cards(&root.join("sys/bus/pci/devices"), vendor);
        let nodes = |folder: &str, prefix: &str| {
            let mut paths = entries(&root.join(folder), prefix);
            paths.sort();
            paths.into_iter().map(|path| DeviceFile::open(path, root)).collect::<Vec<_>>()
        };
        Self {
            amd_cards: cards("0x1002"),
            nvidia_cards: cards("0x10de"),
            has_amdgpu: root.join("sys/module/amdgpu").is_dir(),
            amdgpu_version: text("sys/module/amdgpu/version"),
            nvidia_version: text("proc/driver/nvidia/version"),
            kfd: nodes("dev", "kfd").pop(),
            render_nodes: nodes("dev/dri", "renderD"),
            archs: archs(&root.join("sys/class/kfd/kfd/topology/nodes")),
            is_container: [".dockerenv", "run/.containerenv", "run/systemd/container"]
                .iter()
                .any(|file| root.join(file).exists()),
            is_wsl: root.join("dev/dxg").exists(),
            machine: MachineFacts::read(root),
            display_drivers: display_drivers(),
        }
    }
}

impl DeviceFile {
    fn open(path: PathBuf, root: &Path) -> Self {
        let access = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(_) => FileAccess::Allowed,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                FileAccess::Denied { group: group_of(&path, root) }
            }
            Err(error) => FileAccess::Failed(error.to_string()),
        };
        Self { path, access }
    }
}

/// Display controllers (class 0x03) and processing accelerators (0x12) of a vendor.
fn cards(devices: &Path, vendor: &str) -> usize {
    let is = |device: &Path| -> io::Result<bool> {
        let class = fs::read_to_string(device.join("class"))?;
        let vendor_of = fs::read_to_string(device.join("vendor"))?;
        let is_gpu = ["0x03", "0x12"].iter().any(|start| class.starts_with(start));
        Ok(is_gpu && vendor_of.trim() == vendor)
    };
    entries(devices, "").iter().filter(|device| is(device).unwrap_or(false)).count()
}

/// Architectures of the nodes that are GPUs.
fn archs(nodes: &Path) -> Vec<String> {
    let mut folders = entries(nodes, "");
    folders.sort();
    let arch = |folder: &PathBuf| {
        let properties = fs::read_to_string(folder.join("properties")).ok()?;
        let version =
            properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?;
        arch(version.trim().parse().ok()?)
    };
    folders.iter().filter_map(arch).collect()
}

/// Paths in a folder whose names begin with `prefix`; none if there is no such folder.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let fits = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    };
    entries.map(|entry| entry.path()).filter(fits).collect()
}

/// The version of ROCm that a library belongs to: of the file that its packages install, or of the
/// name of its folder, such as `core-10.0`.
pub(super) fn rocm_version(library: &Path) -> Option<String> {
    let root = library.parent()?.parent()?;
    let written = fs::read_to_string(root.join(".info/version")).ok();
    if let Some(version) = written.as_deref().and_then(|text| text.lines().next()) {
        return Some(version.trim().to_owned());
    }
    let name = root.file_name()?.to_str()?;
    let version = name.strip_prefix("core-").or_else(|| name.strip_prefix("rocm-"))?;
    Some(version.to_owned())
}

/// The name of the group that a file belongs to.
#[cfg(unix)]
fn group_of(path: &Path, root: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let id = fs::metadata(path).ok()?.gid().to_string();
    let groups = fs::read_to_string(root.join("etc/group")).ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    })
}

#[cfg(not(unix))]
fn group_of(_path: &Path, _root: &Path) -> Option<String> {
    None
}

/// Reads the class of display adapters, whose subkeys are numbers.
#[cfg(windows)]
fn display_drivers() -> Option<Vec<DisplayDriver>> {
    use windows_registry::LOCAL_MACHINE;
    const CLASS: &str =
        r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}";
    let numbers = (0..64).map(|number| format!(r"{CLASS}\{number:04}"));
    let driver = |key: String| {
        let key = LOCAL_MACHINE.open(key).ok()?;
        let text = |value| key.get_string(value);
        Some(DisplayDriver {
            card: text("DriverDesc").ok()?,
            version: text("DriverVersion").unwrap_or_default(),
            device: text("MatchingDeviceId").unwrap_or_default(),
        })
    };
    Some(numbers.filter_map(driver).collect())
}

#[cfg(not(windows))]
fn display_drivers() -> Option<Vec<DisplayDriver>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rocm_has_the_version_of_its_folder() {
        let root = tempfile::TempDir::new().unwrap();
        let version = |folder: &str| rocm_version(&root.path().join(folder).join("lib/x.so"));
        assert_eq!(version("core-10.0").as_deref(), Some("10.0"));
        assert_eq!(version("usr"), None);
        fs::create_dir_all(root.path().join("rocm/.info")).unwrap();
        fs::write(root.path().join("rocm/.info/version"), "6.3.1-48\n").unwrap();
        assert_eq!(version("rocm").as_deref(), Some("6.3.1-48"));
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::TempDir::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (slot, vendor, class) in [
            ("00", "0x1002", "0x030000"),
            ("01", "0x1002", "0x040300"),
            ("02", "0x10de", "0x120000"),
        ] {
            write(&format!("sys/bus/pci/devices/{slot}/vendor"), &format!("{vendor}\n"));
            write(&format!("sys/bus/pci/devices/{slot}/class"), &format!("{class}\n"));
        }
        write(
            "sys/class/kfd/kfd/topology/nodes/0/properties",
            "cpu_cores_count 8\ngfx_target_version 0\n",
        );
        write(
            "sys/class/kfd/kfd/topology/nodes/1/properties",
            "simd_count 96\ngfx_target_version 110000\n",
        );
        write("sys/module/amdgpu/version", "6.10.5\n");
        write("dev/kfd", "");
        write("dev/dri/renderD128", "");
        write("dev/dri/card0", "");
        write("run/systemd/container", "lxc\n");
        let system = System::read(root.path());
        assert_eq!((system.amd_cards, system.nvidia_cards), (1, 1));
        assert_eq!(system.archs, ["gfx1100"]);
        assert_eq!(system.amdgpu_version.as_deref(), Some("6.10.5"));
        assert_eq!(system.kfd.unwrap().access, FileAccess::Allowed);
        assert_eq!(system.render_nodes.len(), 1);
        assert!(system.has_amdgpu && system.is_container && !system.is_wsl);
    }
}
