//! The values of options that choose a device.

use std::fmt;
use std::str::FromStr;

/// The use of captured graphs for steps of a few tokens on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graphs {
    /// On, except with versions of HIP that are known to replay them wrongly.
    #[default]
    Auto,
    /// On. Every replay is checked, as with [`Graphs::Auto`].
    On,
    /// Off: plain launches.
    Off,
}

/// A device as users name it: `auto`, `cpu`, `gpu` or the number of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A GPU if one is usable, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The best GPU.
    Gpu,
    /// The GPU with this number in the list of devices.
    Number(usize),
}

/// Layers on the GPU, counted from the end, with the output as one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// The number of layers that fit in the memory of the GPU.
    #[default]
    Auto,
    /// All layers.
    All,
    /// The last layers.
    Last(usize),
}

impl GpuLayers {
    /// Returns true if the user asked for layers on a GPU.
    pub(crate) fn requires_gpu(self) -> bool {
        matches!(self, Self::All | Self::Last(1..))
    }
}

impl FromStr for Device {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            number => number
                .parse()
                .map(Self::Number)
                .map_err(|_| "expected cpu, gpu, auto or the number of a GPU"),
        }
    }
}

impl FromStr for Graphs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err("expected on, off or auto"),
        }
    }
}

impl FromStr for GpuLayers {
    type Err = &'static str;

    /// Parses a number, `auto` or `all`; -1 and -2 are llama.cpp's numbers for the latter two.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "auto" | "-1" => Ok(Self::Auto),
            "all" | "-2" => Ok(Self::All),
            number => number.parse().map(Self::Last).map_err(|_| "expected a number, auto or all"),
        }
    }
}

impl fmt::Display for GpuLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::All => f.write_str("all"),
            Self::Last(count) => write!(f, "{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_word_or_a_number() {
        let parse = |text: &str| text.parse::<Device>();
        assert_eq!(parse("cpu"), Ok(Device::Cpu));
        assert_eq!(parse("GPU"), Ok(Device::Gpu));
        assert_eq!(parse("auto"), Ok(Device::Auto));
        // An empty environment variable counts as unset.
        assert_eq!(parse(""), Ok(Device::Auto));
        assert_eq!(parse("12"), Ok(Device::Number(12)));
        for bad in ["tpu", "-1", "0,1", "gpu0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn graphs_are_a_word() {
        let parse = |text: &str| text.parse::<Graphs>();
        assert_eq!(parse("auto"), Ok(Graphs::Auto));
        assert_eq!(parse("ON"), Ok(Graphs::On));
        assert_eq!(parse("off"), Ok(Graphs::Off));
        assert!(parse("1").is_err());
    }

    #[test]
    fn gpu_layers_are_a_number_or_a_word() {
        let parse = |text: &str| text.parse::<GpuLayers>();
        assert_eq!(parse("auto"), Ok(GpuLayers::Auto));
        assert_eq!(parse("all"), Ok(GpuLayers::All));
        assert_eq!(parse("-1"), Ok(GpuLayers::Auto));
        assert_eq!(parse("0"), Ok(GpuLayers::Last(0)));
        assert_eq!(parse("99"), Ok(GpuLayers::Last(99)));
        assert!(parse("many").is_err());
    }
}
