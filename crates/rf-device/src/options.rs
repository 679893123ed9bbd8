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

/// A device as users name it: `auto`, `cpu`, `gpu`, the numbers of GPUs, or `cpu` several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A GPU if one is usable, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The best GPU.
    Gpu,
    /// The GPUs with these numbers in the list of devices; several share the model.
    Numbers(GpuNumbers),
    /// So many parts of the CPU, each with some of its threads, for [`SplitMode::Tensor`].
    CpuParts(u8),
}

/// The most devices that share a model.
pub(crate) const MAX_GPUS: usize = 16;

/// Numbers of GPUs, all different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuNumbers {
    numbers: [u8; MAX_GPUS],
    count: usize,
}

impl GpuNumbers {
    /// The numbers, at least one.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.numbers[..self.count].iter().map(|number| usize::from(*number))
    }
}

/// How several GPUs share a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitMode {
    /// One GPU computes, unless several are named.
    #[default]
    None,
    /// Each usable GPU has a part of the layers.
    Layer,
    /// Each usable GPU has a part of every layer, or each part of the CPU.
    Tensor,
}

/// The shares of the model that devices get, in their order. Without any, GPUs share by free
/// memory, and parts of the CPU equally.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    values: [f32; MAX_GPUS],
    count: usize,
}

impl Shares {
    /// The shares, not all 0.
    pub fn as_slice(&self) -> &[f32] {
        &self.values[..self.count]
    }
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
            // llama.cpp's word for the CPU.
            "cpu" | "none" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            cpus if cpus.split(',').all(|part| part.trim() == "cpu") => {
                let count = cpus.split(',').count();
                let count = u8::try_from(count).ok().filter(|n| usize::from(*n) <= MAX_GPUS);
                count.map(Self::CpuParts).ok_or("at most 16 parts of the CPU share a model")
            }
            numbers => numbers.parse().map(Self::Numbers),
        }
    }
}

impl FromStr for GpuNumbers {
    type Err = &'static str;

    /// Parses `1` or `0,1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self { numbers: [0; MAX_GPUS], count: 0 };
        for number in text.split(',') {
            let number = number.trim().parse().map_err(
                |_| "expected cpu, gpu, auto, or the number of a GPU, or several as in 0,1",
            )?;
            if all.iter().any(|other| other == usize::from(number)) {
                return Err("a GPU is named twice");
            }
            let place = all.numbers.get_mut(all.count).ok_or("at most 16 GPUs share a model")?;
            *place = number;
            all.count += 1;
        }
        Ok(all)
    }
}

impl FromStr for SplitMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "layer" => Ok(Self::Layer),
            "tensor" => Ok(Self::Tensor),
            "row" => Err("expected none, layer or tensor, which divides every layer"),
            _ => Err("expected none, layer or tensor"),
        }
    }
}

impl FromStr for Shares {
    type Err = &'static str;

    /// Parses `3,1` or, as llama.cpp allows, `3/1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::default();
        for share in text.split([',', '/']) {
            let share: f32 = share.trim().parse().map_err(|_| "expected shares such as 3,1")?;
            if !(0.0..=1e9).contains(&share) {
                return Err("expected shares from 0 on, such as 3,1");
            }
            let place = all.values.get_mut(all.count).ok_or("at most 16 GPUs share a model")?;
            *place = share;
            all.count += 1;
        }
        let sum: f32 = all.as_slice().iter().sum();
        if sum > 0.0 { Ok(all) } else { Err("expected a share above 0") }
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
        let numbers = |text| match parse(text) {
            Ok(Device::Numbers(numbers)) => numbers.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(numbers("12"), [12]);
        assert_eq!(numbers("1, 0"), [1, 0]);
        assert_eq!(parse("cpu,cpu"), Ok(Device::CpuParts(2)));
        assert!(parse(&["cpu"; 17].join(",")).is_err() && parse("cpu,0").is_err());
        let many = (0..17).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        for bad in ["tpu", "-1", "0,0", "0,", "gpu0", &many] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_numbers_of_which_one_is_above_0() {
        let parse = |text: &str| text.parse::<Shares>().map(|shares| shares.as_slice().to_vec());
        assert_eq!(parse("3,1"), Ok(vec![3.0, 1.0]));
        assert_eq!(parse("0.5/0"), Ok(vec![0.5, 0.0]));
        for bad in ["", "0", "0,0", "-1,2", "nan", "inf,1", "a"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mode_of_layers_is_a_word() {
        assert_eq!("Layer".parse(), Ok(SplitMode::Layer));
        assert_eq!("none".parse(), Ok(SplitMode::None));
        assert_eq!("tensor".parse(), Ok(SplitMode::Tensor));
        assert!("row".parse::<SplitMode>().unwrap_err().contains("layer or tensor"));
        assert!("2".parse::<SplitMode>().is_err());
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
