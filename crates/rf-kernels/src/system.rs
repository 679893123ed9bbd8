//! Facts about a GPU and its memory that the operating system knows.

use std::fs;
use std::path::Path;

/// Memory of the machine that a GPU leaves to other programs.
const MARGIN_BYTES: u64 = 1 << 30;

/// Memory that programs on an integrated GPU may take, in bytes: what the machine has available,
/// without a margin, and at most what the kernel driver gives to the GPU. `None` if it is unknown.
pub(crate) fn shared_memory_bytes(root: &Path, pci_bus_id: &str) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let available = kib.checked_mul(1024)?.saturating_sub(MARGIN_BYTES);
    let device = device(root, pci_bus_id);
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(device.join(name)).ok()?.trim().parse().ok()
    };
    // Memory of the system that the driver maps for the GPU, and the part reserved for it.
    let free = |kind: &str| -> Option<u64> {
        let used = number(&format!("mem_info_{kind}_used"))?;
        Some(number(&format!("mem_info_{kind}_total"))?.saturating_sub(used))
    };
    let mapped = free("gtt").map(|bytes| bytes + free("vram").unwrap_or(0));
    Some(mapped.map_or(available, |mapped| mapped.min(available)))
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

    #[test]
    fn an_integrated_gpu_has_the_memory_of_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(shared_memory_bytes(root, BUS_ID), None);
        write(root, "proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable:   25165824 kB\n");
        assert_eq!(shared_memory_bytes(root, BUS_ID), Some(23 << 30));
        // The driver maps at most half of it.
        for (name, gib) in
            [("gtt_total", 16_u64), ("gtt_used", 1), ("vram_total", 1), ("vram_used", 0)]
        {
            let path = format!("sys/bus/pci/devices/0000:c5:00.0/mem_info_{name}");
            write(root, &path, &format!("{}\n", gib << 30));
        }
        assert_eq!(shared_memory_bytes(root, BUS_ID), Some(16 << 30));
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
