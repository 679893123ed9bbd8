//! The files of the amdgpu driver in `card*/device` and its `hwmon`.

use std::fs;
use std::path::Path;

use super::gpu_state::GpuState;
use crate::Error;

pub(super) fn read(drm: &Path) -> Result<Vec<GpuState>, Error> {
    let to_error = |source| Error::read(drm, source);
    let mut states = Vec::new();
    for entry in fs::read_dir(drm).map_err(to_error)? {
        let path = entry.map_err(to_error)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // card0-DP-1 is a connector.
        let number = name.strip_prefix("card").and_then(|number| number.parse().ok());
        // Only the amdgpu driver has this file.
        if let Some(gpu) = number.filter(|_| path.join("device/gpu_busy_percent").exists()) {
            states.push(state(gpu, &path.join("device")));
        }
    }
    states.sort_by_key(|state| state.gpu);
    Ok(states)
}

fn state(gpu: u32, device: &Path) -> GpuState {
    let number = |name: &str| number(&device.join(name));
    let hwmon = fs::read_dir(device.join("hwmon")).ok().and_then(|mut all| all.next()?.ok());
    let sensor = |name: &str| self::number(&hwmon.as_ref()?.path().join(name));
    // Sensors have a number and a label.
    let temperature = |label: &str| {
        let of = |i: u32| {
            let text = fs::read_to_string(hwmon.as_ref()?.path().join(format!("temp{i}_label")));
            (text.ok()?.trim() == label).then(|| sensor(&format!("temp{i}_input")))?
        };
        Some((1..=4).find_map(of)? / 1e3)
    };
    GpuState {
        gpu,
        busy_percent: number("gpu_busy_percent"),
        memory_busy_percent: number("mem_busy_percent"),
        vram_used_bytes: number("mem_info_vram_used").map(|bytes| bytes as u64),
        vram_total_bytes: number("mem_info_vram_total").map(|bytes| bytes as u64),
        clock_mhz: sensor("freq1_input")
            .map(|hz| hz / 1e6)
            .or_else(|| level(device, "pp_dpm_sclk")),
        memory_clock_mhz: sensor("freq2_input")
            .map(|hz| hz / 1e6)
            .or_else(|| level(device, "pp_dpm_mclk")),
        temperature_c: temperature("edge"),
        hotspot_c: temperature("junction"),
        memory_temperature_c: temperature("mem"),
        power_w: sensor("power1_average").or_else(|| sensor("power1_input")).map(|uw| uw / 1e6),
        throttled: None,
    }
}

fn number(path: &Path) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The current clock in a list, which has an asterisk: `1: 2400Mhz *`.
fn level(device: &Path, name: &str) -> Option<f64> {
    let text = fs::read_to_string(device.join(name)).ok()?;
    let line = text.lines().find(|line| line.trim_end().ends_with('*'))?;
    let value = line.split_once(':')?.1.trim().trim_end_matches('*').trim();
    value.to_ascii_lowercase().strip_suffix("mhz")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_card_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("card1/device");
        fs::create_dir_all(device.join("hwmon/hwmon3")).unwrap();
        fs::create_dir_all(folder.path().join("card0/device")).unwrap();
        fs::create_dir_all(folder.path().join("card1-DP-1")).unwrap();
        for (name, text) in [
            ("gpu_busy_percent", "97\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("mem_info_vram_total", "21458059264\n"),
            ("pp_dpm_sclk", "0: 500Mhz\n1: 2371Mhz *\n2: 3220Mhz\n"),
            ("hwmon/hwmon3/temp1_label", "edge\n"),
            ("hwmon/hwmon3/temp1_input", "61000\n"),
            ("hwmon/hwmon3/temp2_label", "junction\n"),
            ("hwmon/hwmon3/temp2_input", "83000\n"),
            ("hwmon/hwmon3/power1_average", "287000000\n"),
            ("hwmon/hwmon3/freq2_input", "1249000000\n"),
        ] {
            fs::write(device.join(name), text).unwrap();
        }
        let states = read(folder.path()).unwrap();
        assert_eq!(states.len(), 1, "card0 has another driver");
        let gpu = &states[0];
        assert_eq!((gpu.gpu, gpu.busy_percent, gpu.power_w), (1, Some(97.0), Some(287.0)));
        assert_eq!((gpu.clock_mhz, gpu.memory_clock_mhz), (Some(2371.0), Some(1249.0)));
        assert_eq!((gpu.temperature_c, gpu.hotspot_c), (Some(61.0), Some(83.0)));
        assert_eq!((gpu.vram_used_bytes, gpu.memory_busy_percent), (Some(1 << 30), None));
        assert!(matches!(read(&folder.path().join("none")), Err(Error::Read { .. })));
    }
}
