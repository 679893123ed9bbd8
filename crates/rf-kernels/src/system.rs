//! Facts about a GPU and its memory that the operating system knows.

use std::fs;
use std::path::Path;

/// Memory of the machine that a GPU leaves to other programs.
const MARGIN_BYTES: u64 = 1 << 30;

/// Bytes of a page of TTM, the kernel's memory manager of GPUs.
const PAGE_BYTES: u64 = 4096;

/// Memory that programs on an AMD GPU can take, in bytes: the least that the runtime and the kernel
/// driver name. `None` if neither names one.
///
/// HIP does not count what other programs use, such as windows and games.
pub(crate) fn card_memory_bytes(root: &Path, pci_bus_id: &str, hip: Option<u64>) -> Option<u64> {
    let vram = DriverMemory::read(root, pci_bus_id).map(|memory| memory.vram_free);
    [hip, vram].into_iter().flatten().min()
}

/// The same for an integrated AMD GPU. The firmware reserves a part of the machine's memory for it,
/// and the kernel maps more for it, up to a limit.
///
/// Where that limit exceeds the reserved part, the kernel (from 6.10 on) takes all memory of HIP
/// from the machine's and none from the reserved part. HIP may name more than there is, because it
/// counts no other program, or less than the reserved part, which nothing else uses.
pub(crate) fn shared_memory_bytes(root: &Path, pci_bus_id: &str, hip: Option<u64>) -> Option<u64> {
    let Some(memory) = DriverMemory::read(root, pci_bus_id) else { return hip };
    let shared = match available_bytes(root) {
        Some(available) => memory.gtt_free.min(available.saturating_sub(MARGIN_BYTES)),
        None => memory.gtt_free,
    };
    if memory.vram_total < memory.gtt_total {
        return Some(hip.map_or(shared, |hip| hip.min(shared)));
    }
    let all = memory.vram_free.saturating_add(shared);
    Some(hip.map_or(all, |hip| all.min(hip.max(memory.vram_free))))
}

/// Free memory of a GPU as the kernel driver counts it, with that of all programs.
struct DriverMemory {
    /// Memory of the card, or the part of the machine's that is reserved for an integrated GPU.
    vram_total: u64,
    vram_free: u64,
    /// Memory of the machine that the driver can map for the GPU.
    gtt_total: u64,
    gtt_free: u64,
}

impl DriverMemory {
    fn read(root: &Path, pci_bus_id: &str) -> Option<Self> {
        let device = device(root, pci_bus_id);
        let bytes = |name: &str| number(&device.join(format!("mem_info_{name}")));
        let limit = number(&root.join("sys/module/ttm/parameters/pages_limit"));
        let limit_bytes = limit.map_or(u64::MAX, |pages| pages.saturating_mul(PAGE_BYTES));
        let (vram_total, gtt_total) = (bytes("vram_total")?, bytes("gtt_total").unwrap_or(0));
        let gtt_used = bytes("gtt_used").unwrap_or(0);
        Some(Self {
            vram_total,
            vram_free: vram_total.saturating_sub(bytes("vram_used")?),
            gtt_total,
            gtt_free: gtt_total.min(limit_bytes).saturating_sub(gtt_used),
        })
    }
}

/// Memory that the machine has available.
fn available_bytes(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns true if a screen is connected to a GPU, as far as it is known.
pub(crate) fn has_display(root: &Path, pci_bus_id: &str) -> bool {
    let folders = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let cards = folders(&device(root, pci_bus_id).join("drm"));
    let mut connectors = cards.iter().flat_map(|card| folders(card));
    connectors.any(|connector| {
        fs::read_to_string(connector.join("status"))
            .is_ok_and(|status| status.trim() == "connected")
    })
}

fn device(root: &Path, pci_bus_id: &str) -> std::path::PathBuf {
    root.join("sys/bus/pci/devices").join(pci_bus_id.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUS_ID: &str = "0000:C5:00.0";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A machine with `available` GiB, and a GPU with total and used GiB of both kinds.
    fn machine(available: u64, vram: [u64; 2], gtt: [u64; 2]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let kib = available << 20;
        write(
            root.path(),
            "proc/meminfo",
            &format!("MemTotal: 134217728 kB\nMemAvailable:   {kib} kB\n"),
        );
        for (kind, [total, used]) in [("vram", vram), ("gtt", gtt)] {
            for (name, gib) in [("total", total), ("used", used)] {
                let path = format!("sys/bus/pci/devices/0000:c5:00.0/mem_info_{kind}_{name}");
                write(root.path(), &path, &format!("{}\n", gib << 30));
            }
        }
        root
    }

    /// Free GiB of an integrated GPU for which HIP names `hip` GiB.
    fn shared(machine: &tempfile::TempDir, hip: u64) -> Option<u64> {
        shared_memory_bytes(machine.path(), BUS_ID, Some(hip << 30)).map(|bytes| bytes >> 30)
    }

    #[test]
    fn with_a_small_carve_out_the_memory_of_the_machine_counts() {
        // The driver maps 96 of 128 GiB.
        let idle = machine(120, [1, 0], [96, 0]);
        assert_eq!((shared(&idle, 96), shared(&idle, 120)), (Some(96), Some(96)));
        // HIP names what the machine does not have.
        assert_eq!(shared(&machine(41, [1, 0], [96, 0]), 120), Some(40));
        // The driver has mapped some for another program.
        assert_eq!(shared(&machine(120, [1, 0], [96, 80]), 120), Some(16));
        // HIP takes nothing of the carve-out.
        assert_eq!(shared(&machine(20, [16, 1], [24, 0]), 24), Some(19));
    }

    #[test]
    fn a_large_carve_out_does_not_depend_on_the_memory_of_the_machine() {
        // 96 of 128 GiB are reserved. Some versions of HIP name what the machine has available.
        let reserved = machine(28, [96, 1], [16, 0]);
        assert_eq!(shared(&reserved, 27), Some(95));
        assert_eq!(shared(&reserved, 96), Some(96));
        assert_eq!(shared(&reserved, 124), Some(111));
        assert_eq!(shared(&machine(3, [96, 1], [16, 0]), 124), Some(97));
    }

    #[test]
    fn the_limit_of_the_kernel_applies() {
        // 15.5 GiB, half of what the processor sees, and a larger amdgpu.gttsize.
        let machine = machine(30, [1, 0], [64, 0]);
        write(machine.path(), "sys/module/ttm/parameters/pages_limit", "4063232\n");
        assert_eq!(shared_memory_bytes(machine.path(), BUS_ID, None), Some(31 << 29));
        assert_eq!(shared(&machine, 128), Some(15));
    }

    #[test]
    fn the_runtime_counts_where_the_driver_names_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(shared_memory_bytes(root.path(), BUS_ID, None), None);
        assert_eq!(shared_memory_bytes(root.path(), BUS_ID, Some(5)), Some(5));
        assert_eq!(card_memory_bytes(root.path(), BUS_ID, Some(5)), Some(5));
        assert_eq!(card_memory_bytes(root.path(), BUS_ID, None), None);
    }

    #[test]
    fn the_memory_of_windows_and_games_is_not_free() {
        let machine = machine(60, [16, 5], [30, 1]);
        let free = |hip: u64| {
            card_memory_bytes(machine.path(), BUS_ID, Some(hip << 30)).map(|bytes| bytes >> 30)
        };
        assert_eq!((free(16), free(8)), (Some(11), Some(8)));
        assert_eq!(card_memory_bytes(machine.path(), BUS_ID, None), Some(11 << 30));
    }

    #[test]
    fn a_connected_screen_is_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let drm = "sys/bus/pci/devices/0000:c5:00.0/drm/card1";
        assert!(!has_display(root, BUS_ID));
        write(root, &format!("{drm}/card1-DP-1/status"), "disconnected\n");
        assert!(!has_display(root, BUS_ID));
        write(root, &format!("{drm}/card1-HDMI-A-1/status"), "connected\n");
        assert!(has_display(root, BUS_ID) && !has_display(root, "0000:03:00.0"));
    }
}
