//! The state of a GPU at one moment.

/// The state of one GPU. A value that the source does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuState {
    /// The GPU number of the tool, or the card number in sysfs.
    pub gpu: u32,
    /// Shader utilisation in percent.
    pub busy_percent: Option<f64>,
    /// Utilisation of the memory controller in percent.
    pub memory_busy_percent: Option<f64>,
    /// Used device memory.
    pub vram_used_bytes: Option<u64>,
    /// Total device memory.
    pub vram_total_bytes: Option<u64>,
    /// Shader clock.
    pub clock_mhz: Option<f64>,
    /// Memory clock.
    pub memory_clock_mhz: Option<f64>,
    /// Temperature at the edge of the die.
    pub temperature_c: Option<f64>,
    /// Temperature at the hottest point of the die.
    pub hotspot_c: Option<f64>,
    /// Temperature of the memory.
    pub memory_temperature_c: Option<f64>,
    /// Power of the card or the package.
    pub power_w: Option<f64>,
    /// True if the tool reports throttling.
    pub throttled: Option<bool>,
}
