//! `rocm-smi --json`: an object of cards whose values are all strings.

use serde_json::Value;

use super::gpu_state::GpuState;
use crate::Error;

pub(super) const ARGUMENTS: [&str; 8] = [
    "--showuse",
    "--showmemuse",
    "--showmeminfo",
    "vram",
    "--showpower",
    "--showtemp",
    "--showclocks",
    "--json",
];

pub(super) fn parse(text: &str) -> Result<Vec<GpuState>, Error> {
    const ORIGIN: &str = "rocm-smi";
    // Lines such as "Exception caught: map::at" can precede the JSON.
    let start = text.find('{').ok_or_else(|| Error::malformed(ORIGIN, 0, "no JSON"))?;
    let value: Value =
        serde_json::from_str(&text[start..]).map_err(|error| Error::json(ORIGIN, &error))?;
    let cards = value
        .as_object()
        .ok_or_else(|| Error::malformed(ORIGIN, 0, "the JSON is not an object"))?;
    let cards = cards.iter().filter_map(|(name, card)| {
        let number = name.strip_prefix("card")?.parse().ok()?;
        Some(state(number, card))
    });
    let mut states: Vec<GpuState> = cards.collect();
    states.sort_by_key(|state| state.gpu);
    Ok(states)
}

fn state(gpu: u32, card: &Value) -> GpuState {
    let number = |key: &str| {
        let value = card.get(key)?;
        value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
    };
    // "(2400Mhz)"
    let clock = |key: &str| {
        let text = card.get(key)?.as_str()?.trim_matches(['(', ')']);
        text.to_ascii_lowercase().strip_suffix("mhz")?.trim().parse().ok()
    };
    GpuState {
        gpu,
        busy_percent: number("GPU use (%)"),
        memory_busy_percent: number("GPU Memory Read/Write Activity (%)"),
        vram_used_bytes: number("VRAM Total Used Memory (B)").map(|bytes| bytes as u64),
        vram_total_bytes: number("VRAM Total Memory (B)").map(|bytes| bytes as u64),
        clock_mhz: clock("sclk clock speed:"),
        memory_clock_mhz: clock("mclk clock speed:"),
        temperature_c: number("Temperature (Sensor edge) (C)"),
        hotspot_c: number("Temperature (Sensor junction) (C)"),
        memory_temperature_c: number("Temperature (Sensor memory) (C)"),
        power_w: number("Average Graphics Package Power (W)")
            .or_else(|| number("Current Socket Graphics Package Power (W)")),
        throttled: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"Exception caught: map::at
{"card1":{"GPU use (%)":"N/A","Current Socket Graphics Package Power (W)":"30.0"},
 "card0":{"GPU use (%)":"68","GPU Memory Allocated (VRAM%)":"42","GPU Memory Read/Write Activity (%)":"10","VRAM Total Memory (B)":"68719476736","VRAM Total Used Memory (B)":"28823961600","Temperature (Sensor edge) (C)":"72.0","Temperature (Sensor junction) (C)":"78.0","Average Graphics Package Power (W)":"235.5","sclk clock speed:":"(2100Mhz)"},"system":{}}"#;

    #[test]
    fn cards_after_other_lines_are_parsed() {
        let gpus = parse(OUTPUT).unwrap();
        assert_eq!(gpus.len(), 2);
        assert_eq!((gpus[0].busy_percent, gpus[0].power_w), (Some(68.0), Some(235.5)));
        assert_eq!((gpus[0].vram_total_bytes, gpus[0].hotspot_c), (Some(64 << 30), Some(78.0)));
        assert_eq!(gpus[0].clock_mhz, Some(2100.0));
        assert_eq!((gpus[1].busy_percent, gpus[1].power_w), (None, Some(30.0)));
        assert!(matches!(parse("no devices"), Err(Error::Malformed { .. })));
        assert!(parse("{\"card0\":").is_err());
    }
}
