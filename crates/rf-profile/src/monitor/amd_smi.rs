//! `amd-smi metric --json`: an array up to ROCm 6, an object with `gpu_data` from ROCm 7.

use serde_json::Value;

use super::gpu_state::GpuState;
use crate::Error;

/// Usage, memory, power, clocks, temperatures.
pub(super) const ARGUMENTS: [&str; 7] = ["metric", "-u", "-m", "-p", "-c", "-t", "--json"];

pub(super) fn parse(text: &str) -> Result<Vec<GpuState>, Error> {
    const ORIGIN: &str = "amd-smi metric";
    let start = text.find(['[', '{']).unwrap_or(0);
    let value: Value =
        serde_json::from_str(&text[start..]).map_err(|error| Error::json(ORIGIN, &error))?;
    let gpus = value.get("gpu_data").unwrap_or(&value).as_array();
    let gpus = gpus.ok_or_else(|| Error::malformed(ORIGIN, 0, "neither an array nor gpu_data"))?;
    Ok(gpus.iter().zip(0..).map(|(gpu, place)| state(gpu, place)).collect())
}

fn state(gpu: &Value, place: u32) -> GpuState {
    let number = |path: &[&str]| number(gpu, path);
    let bytes = |path: &[&str]| {
        let amount = number(path)?;
        let unit = at(gpu, path)?.get("unit").and_then(Value::as_str).unwrap_or("MB");
        // MB means MiB here: amd-smi reports 32704 MB for a card of 32 GiB.
        let factor = match unit {
            "B" => 1.0,
            "KB" => 1024.0,
            "GB" => f64::from(1 << 30),
            _ => f64::from(1 << 20),
        };
        Some((amount * factor) as u64)
    };
    let throttled = at(gpu, &["power", "throttle_status"]).and_then(Value::as_str);
    GpuState {
        gpu: gpu.get("gpu").and_then(Value::as_u64).map_or(place, |number| number as u32),
        busy_percent: number(&["usage", "gfx_activity"]),
        memory_busy_percent: number(&["usage", "umc_activity"]),
        vram_used_bytes: bytes(&["mem_usage", "used_vram"]),
        vram_total_bytes: bytes(&["mem_usage", "total_vram"]),
        clock_mhz: number(&["clock", "gfx_0", "clk"]),
        memory_clock_mhz: number(&["clock", "mem_0", "clk"]),
        temperature_c: number(&["temperature", "edge"]),
        hotspot_c: number(&["temperature", "hotspot"]),
        memory_temperature_c: number(&["temperature", "mem"]),
        power_w: number(&["power", "socket_power"]),
        throttled: throttled.and_then(|status| match status {
            "THROTTLED" => Some(true),
            "UNTHROTTLED" => Some(false),
            _ => None,
        }),
    }
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// A number, bare or as `{"value": …, "unit": …}`. `None` for `"N/A"` at any level.
fn number(value: &Value, path: &[&str]) -> Option<f64> {
    let value = at(value, path)?;
    let value = value.get("value").unwrap_or(value);
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROCM_6: &str = r#"[{"gpu":0,"power":{"socket_power":{"value":10,"unit":"W"},"power_management":"ENABLED","throttle_status":"UNTHROTTLED"},"temperature":"N/A"},
        {"gpu":1,"power":{"socket_power":{"value":300,"unit":"W"},"throttle_status":"THROTTLED"}}]"#;

    const ROCM_7: &str = r#"{"gpu_data":[{"gpu":0,"usage":{"gfx_activity":{"value":100,"unit":"%"},"umc_activity":{"value":41,"unit":"%"},"mm_activity":"N/A","vcn_activity":["N/A"]},
        "clock":{"gfx_0":{"clk":{"value":2400,"unit":"MHz"}},"mem_0":{"clk":{"value":1249,"unit":"MHz"}}},
        "mem_usage":{"total_vram":{"value":32704,"unit":"MB"},"used_vram":{"value":1024,"unit":"MB"}},
        "temperature":{"edge":{"value":55,"unit":"C"},"hotspot":{"value":71,"unit":"C"},"mem":"N/A"}}]}"#;

    #[test]
    fn arrays_of_rocm_6_are_parsed() {
        let gpus = parse(ROCM_6).unwrap();
        assert_eq!((gpus[0].power_w, gpus[0].throttled), (Some(10.0), Some(false)));
        assert_eq!((gpus[1].gpu, gpus[1].throttled), (1, Some(true)));
        assert_eq!((gpus[0].temperature_c, gpus[0].busy_percent), (None, None));
    }

    #[test]
    fn objects_of_rocm_7_are_parsed() {
        let gpu = parse(ROCM_7).unwrap().remove(0);
        assert_eq!((gpu.busy_percent, gpu.memory_busy_percent), (Some(100.0), Some(41.0)));
        assert_eq!((gpu.vram_total_bytes, gpu.vram_used_bytes), (Some(32704 << 20), Some(1 << 30)));
        assert_eq!((gpu.clock_mhz, gpu.hotspot_c), (Some(2400.0), Some(71.0)));
        assert_eq!((gpu.memory_temperature_c, gpu.throttled, gpu.power_w), (None, None, None));
    }

    #[test]
    fn other_output_is_an_error() {
        for text in ["", "amdsmi failed", "{}", "{\"gpu_data\": 3}", "[{\"gpu\":0"] {
            assert!(matches!(parse(text), Err(Error::Malformed { .. })), "{text}");
        }
        assert_eq!(parse("[]").unwrap(), []);
        assert_eq!(parse("[\"N/A\"]").unwrap(), [GpuState::default()]);
    }
}
