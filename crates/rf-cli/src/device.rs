//! Which device computes: the options that say so, and the backend that they lead to.
//!
//! Nothing falls back silently. `--device gpu` without a usable GPU is an error; `auto` takes the CPU then, and
//! says why where a GPU was found.

#[cfg(feature = "gpu")]
pub(crate) mod gpus;
#[cfg(not(feature = "gpu"))]
#[path = "device/no_gpus.rs"]
mod gpus;
#[cfg(feature = "gpu")]
pub(crate) mod probe;

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use clap::Args;
use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::Backend;

use crate::failure::bad_input;

/// Where to compute.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Where to compute: cpu, gpu, auto (a GPU if one is usable), or a number from `rf-cli devices`
    #[arg(
        long,
        value_name = "DEVICE",
        env = "ROCFORGE_DEVICE",
        default_value = "auto",
        hide_env_values = true
    )]
    pub(crate) device: Device,
    /// Layers to put on the GPU, counted from the end, the output being one: a number, auto (what fits) or all
    /// (-ngl)
    #[arg(
        long,
        visible_alias = "n-gpu-layers",
        value_name = "N",
        default_value = "auto",
        allow_negative_numbers = true
    )]
    pub(crate) gpu_layers: GpuLayers,
}

/// What `--device` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU if one is usable, else the CPU.
    Auto,
    Cpu,
    /// The best GPU.
    Gpu,
    /// One GPU, by its number in `rf-cli devices`.
    Number(usize),
}

/// What `-ngl` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuLayers {
    /// As many as fit.
    Auto,
    All,
    /// The last ones, the output counting as one.
    Last(usize),
}

/// The backends that a model may be loaded on.
pub(crate) struct Placement {
    gpu: Option<OpenGpu>,
    cpu: CpuOptions,
    gpu_layers: GpuLayers,
    /// Whether the CPU may take over where the GPU fails.
    is_auto: bool,
}

/// A GPU in use.
pub(crate) struct OpenGpu {
    pub(crate) backend: Box<dyn Backend>,
    /// Its number in `rf-cli devices`.
    pub(crate) number: usize,
    /// Marketing name.
    pub(crate) name: String,
    /// Such as `gfx1100`.
    pub(crate) arch: String,
}

impl DeviceArgs {
    /// Opens the device. `cpu` is how the CPU takes part, if it does.
    pub(crate) fn open(&self, cpu: CpuOptions) -> Result<Placement> {
        let Self { device, gpu_layers } = *self;
        let wants_layers = matches!(gpu_layers, GpuLayers::All | GpuLayers::Last(1..));
        if device == Device::Cpu && wants_layers {
            return Err(bad_input!(
                "-ngl {gpu_layers} needs a GPU and --device cpu rules it out: leave out one of them"
            ));
        }
        let gpu = if gpu_layers == GpuLayers::Last(0) {
            None
        } else {
            match device {
                Device::Cpu => None,
                Device::Gpu => Some(gpus::open(None)?),
                Device::Number(number) => Some(gpus::open(Some(number))?),
                Device::Auto => gpus::open_if_usable(wants_layers),
            }
        };
        Ok(Placement { gpu, cpu, gpu_layers, is_auto: device == Device::Auto })
    }
}

impl Placement {
    /// The GPU, if one takes part.
    pub(crate) fn gpu(&self) -> Option<&OpenGpu> {
        self.gpu.as_ref()
    }

    /// The CPU, with the threads and the instruction set that were asked for.
    pub(crate) fn cpu(&self) -> Result<CpuBackend> {
        Ok(CpuBackend::new(self.cpu)?)
    }

    /// How many layers the GPU is to have.
    pub(crate) fn gpu_layers(&self) -> GpuLayers {
        self.gpu_layers
    }

    /// Whether the CPU may take over where the GPU fails.
    pub(crate) fn is_auto(&self) -> bool {
        self.is_auto
    }
}

impl fmt::Display for OpenGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}, {} ({})", self.number, self.name, self.arch)
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

impl FromStr for GpuLayers {
    type Err = &'static str;

    /// -1 and -2 are llama.cpp's numbers for `auto` and `all`.
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
        // An environment variable that is set to nothing says nothing.
        assert_eq!(parse(""), Ok(Device::Auto));
        assert_eq!(parse("12"), Ok(Device::Number(12)));
        for bad in ["tpu", "-1", "0,1", "gpu0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
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
