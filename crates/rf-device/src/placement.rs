//! The backends that a model may be loaded on, and which layers each gets.

use std::fmt;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::{EngineOptions, Model};
use rf_graph::tensor::{self, TensorBackend};
use rf_graph::{Backend, Layout, MemoryNeed};

use crate::cpu_parts::CpuParts;
use crate::error::{Error, Warning};
use crate::hybrid::HybridBackend;
use crate::layers::{DeviceLayers, expert_layers, layer_count, layers_that_fit};
use crate::open_gpu::OpenGpu;
use crate::options::{Device, GpuLayers, Graphs, Shares, SplitMode};
use crate::{Prober, gpu};

/// The devices that a model may use.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// The device.
    pub device: Device,
    /// Layers on the GPU.
    pub gpu_layers: GpuLayers,
    /// The split of the model over several devices.
    pub split: SplitMode,
    /// The shares of the devices in the model; with any, all usable GPUs are used.
    pub shares: Shares,
    /// Layers on the GPU that are among the first N of the model have their experts on the
    /// CPU. By default, none if the number of layers is given, else as few as memory needs.
    pub cpu_experts: Option<usize>,
    /// Threads and instruction set of the CPU, for the layers that it gets.
    pub cpu: CpuOptions,
    /// The use of captured graphs on the GPU.
    pub graphs: Graphs,
    /// Lists the GPUs in child processes. Without it, this process loads every driver, and one that
    /// crashes takes it down.
    pub prober: Option<&'static Prober>,
}

impl DeviceOptions {
    /// Sets [`device`](Self::device).
    #[must_use]
    pub const fn with_device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets [`gpu_layers`](Self::gpu_layers).
    #[must_use]
    pub const fn with_gpu_layers(mut self, gpu_layers: GpuLayers) -> Self {
        self.gpu_layers = gpu_layers;
        self
    }

    /// Sets [`split`](Self::split).
    #[must_use]
    pub const fn with_split(mut self, split: SplitMode) -> Self {
        self.split = split;
        self
    }

    /// Sets [`shares`](Self::shares).
    #[must_use]
    pub const fn with_shares(mut self, shares: Shares) -> Self {
        self.shares = shares;
        self
    }

    /// Sets [`cpu_experts`](Self::cpu_experts).
    #[must_use]
    pub fn with_cpu_experts(mut self, cpu_experts: impl Into<Option<usize>>) -> Self {
        self.cpu_experts = cpu_experts.into();
        self
    }

    /// Sets [`cpu`](Self::cpu).
    #[must_use]
    pub const fn with_cpu(mut self, cpu: CpuOptions) -> Self {
        self.cpu = cpu;
        self
    }

    /// Sets [`graphs`](Self::graphs).
    #[must_use]
    pub const fn with_graphs(mut self, graphs: Graphs) -> Self {
        self.graphs = graphs;
        self
    }

    /// Sets [`prober`](Self::prober).
    #[must_use]
    pub fn with_prober(mut self, prober: impl Into<Option<&'static Prober>>) -> Self {
        self.prober = prober.into();
        self
    }
}

/// The backends that a model may be loaded on.
pub struct Placement {
    gpus: Vec<OpenGpu>,
    /// The shares of the GPUs in the model, as parts of their sum.
    pub(crate) shares: Vec<f32>,
    /// The shares of the parts of the CPU; none if the CPU is one device.
    cpu_shares: Vec<f32>,
    split: SplitMode,
    cpu: CpuOptions,
    gpu_layers: GpuLayers,
    cpu_experts: Option<usize>,
    is_auto: bool,
    warnings: Vec<Warning>,
}

/// Which backends run which layers of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerPlacement {
    /// Names of the backends: `CPU`, `GPU` or `GPU,CPU`.
    pub backends: String,
    /// Threads of the CPU; 1, which drives the GPU, where the CPU has no layers.
    pub threads: usize,
    /// Instruction set and threads of the CPU, if it has layers.
    pub cpu: Option<String>,
    /// Number, name and architecture of the GPU, if it has layers; of several, with their layers.
    pub gpu: Option<String>,
    /// Marketing name of the GPU, if it has layers.
    pub gpu_name: Option<String>,
    /// Layers on the GPU, counted from the end, with the output as one.
    pub gpu_layers: usize,
    /// Layers of the model, counted from the first one, whose experts are on the CPU.
    pub cpu_expert_layers: usize,
    /// Layers of the model, without the output.
    pub num_layers: usize,
    /// A description of the matrices that are divided over the devices, and of those that each
    /// device has whole. `None` if the devices do not compute layers together.
    pub division: Option<String>,
}

impl Placement {
    /// Opens the devices that the options allow.
    ///
    /// With [`Device::Auto`] a GPU that cannot be used is a [`Warning`], and the CPU is used,
    /// except with [`GpuLayers::All`].
    ///
    /// # Errors
    ///
    /// If the options contradict each other, or the GPU that they name cannot be used.
    pub fn open(options: DeviceOptions) -> Result<Self, Error> {
        let DeviceOptions { device, gpu_layers, cpu_experts, cpu, graphs, prober, .. } = options;
        let is_cpu = matches!(device, Device::Cpu | Device::CpuParts(_));
        if is_cpu && gpu_layers.requires_gpu() {
            return Err(Error::LayersWithoutGpu { layers: gpu_layers });
        }
        let mut warnings = Vec::new();
        let mut gpus: Vec<OpenGpu> = match device {
            _ if gpu_layers == GpuLayers::Last(0) => Vec::new(),
            Device::Cpu | Device::CpuParts(_) => Vec::new(),
            Device::Gpu => vec![gpu::open(None, prober, graphs)?],
            Device::Numbers(numbers) => {
                let open = |number| gpu::open(Some(number), prober, graphs);
                numbers.iter().map(open).collect::<Result<_, _>>()?
            }
            // Everything on the GPU, or an error.
            Device::Auto if gpu_layers == GpuLayers::All => vec![gpu::open(None, prober, graphs)?],
            Device::Auto => {
                let required = gpu_layers.requires_gpu();
                let gpu = gpu::open_if_usable(required, prober, graphs, &mut warnings);
                gpu.into_iter().collect()
            }
        };
        let given = options.shares.as_slice();
        let is_shared = options.split != SplitMode::None || !given.is_empty();
        if let (true, Device::Gpu | Device::Auto, [gpu]) = (is_shared, device, &gpus[..]) {
            let others = gpu::open_others(gpu, prober, graphs, &mut warnings)?;
            gpus.extend(others);
            gpus.sort_by_key(|gpu| gpu.number);
        }
        let cpu_shares = match device {
            Device::CpuParts(2..) if options.split != SplitMode::Tensor => {
                return Err(Error::UndividedParts);
            }
            Device::CpuParts(count) if given.is_empty() => vec![1.0; usize::from(count)],
            Device::CpuParts(_) => given.to_vec(),
            _ => Vec::new(),
        };
        let devices = match device {
            Device::CpuParts(count) => usize::from(count),
            _ => gpus.len(),
        };
        if !given.is_empty() && devices > 0 && given.len() != devices {
            return Err(Error::ShareCount { shares: given.len(), devices });
        }
        let free = |gpu: &OpenGpu| gpu.backend.available_memory_bytes().unwrap_or(1) as f32;
        let shares =
            if given.is_empty() { gpus.iter().map(free).collect() } else { given.to_vec() };
        let is_auto = device == Device::Auto && gpu_layers != GpuLayers::All;
        let split = options.split;
        Ok(Self {
            gpus,
            shares,
            cpu_shares,
            split,
            cpu,
            gpu_layers,
            cpu_experts,
            is_auto,
            warnings,
        })
    }

    /// A placement with GPUs of a test.
    #[cfg(test)]
    pub(crate) fn with_gpus(backends: Vec<Box<dyn Backend>>, options: DeviceOptions) -> Self {
        let open = |(number, backend)| OpenGpu {
            backend,
            number,
            name: "Test".into(),
            arch: "gfx0".into(),
            untuned: None,
        };
        let gpus: Vec<OpenGpu> = (0..).zip(backends).map(open).collect();
        Self {
            shares: vec![1.0; gpus.len()],
            cpu_shares: Vec::new(),
            split: options.split,
            gpus,
            cpu: options.cpu,
            gpu_layers: options.gpu_layers,
            cpu_experts: options.cpu_experts,
            is_auto: options.device == Device::Auto && options.gpu_layers != GpuLayers::All,
            warnings: Vec::new(),
        }
    }

    /// Warnings about the choice of devices.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The GPU, if one is used; of several, the one with the first layers.
    pub fn gpu(&self) -> Option<&OpenGpu> {
        self.gpus.first()
    }

    /// The GPUs that are used, in the order of their layers.
    pub fn gpus(&self) -> &[OpenGpu] {
        &self.gpus
    }

    /// Bytes that a model may take on the GPUs together if each gets its share. `None` without a
    /// GPU, or if the memory of one is unknown.
    pub(crate) fn gpu_memory_bytes(&self) -> Option<u64> {
        let all: f32 = self.shares.iter().sum();
        let parts = self.gpus.iter().zip(&self.shares).filter(|(_, share)| **share > 0.0);
        let most = parts.map(|(gpu, share)| {
            let free = gpu.backend.available_memory_bytes()?;
            // One GPU has all, to the byte.
            Some(if *share < all { (free as f64 * f64::from(all / share)) as u64 } else { free })
        });
        most.collect::<Option<Vec<u64>>>()?.into_iter().min()
    }

    /// The names of the GPUs in use, for messages; of several, with `layers` dealt over them.
    pub(crate) fn gpu_names(&self, layers: usize) -> String {
        match &self.gpus[..] {
            [gpu] => gpu.to_string(),
            gpus if self.split == SplitMode::Tensor => {
                gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
            }
            gpus => {
                let counts = HybridBackend::deal(layers, &self.shares);
                let name = |(gpu, count)| match count {
                    1 => format!("{gpu} with 1 layer"),
                    _ => format!("{gpu} with {count} layers"),
                };
                gpus.iter().zip(counts).map(name).collect::<Vec<_>>().join(" and ")
            }
        }
    }

    /// Calls `run` with the backend of all GPUs; there is at least one.
    fn with_gpus_as_one<R>(&self, run: impl FnOnce(&dyn Backend) -> R) -> R {
        let parts = self.gpus.iter().zip(&self.shares);
        let parts: Vec<_> = parts.map(|(gpu, share)| (&*gpu.backend, *share)).collect();
        if self.split == SplitMode::Tensor
            && parts.len() > 1
            && let Some(tensor) = TensorBackend::new(&parts)
        {
            return run(&tensor);
        }
        match HybridBackend::dealt(&parts) {
            Some(hybrid) => run(&hybrid),
            None => run(parts[0].0),
        }
    }

    /// Calls `run` with the CPU, or with all its parts as one.
    fn with_cpu<R>(
        &self,
        placement: LayerPlacement,
        run: impl FnOnce(&dyn Backend, LayerPlacement) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if self.cpu_shares.len() > 1 {
            let parts = CpuParts::start(self.cpu, &self.cpu_shares)?;
            if let Some(tensor) = parts.as_one() {
                let placement = LayerPlacement {
                    backends: "CPU".to_owned(),
                    threads: parts.threads(),
                    cpu: Some(parts.description()),
                    ..placement
                };
                return run(&tensor, placement);
            }
        }
        let cpu = self.cpu()?;
        let placement = placement.on_cpu(&cpu);
        run(&cpu, placement)
    }

    /// Describes the matrices of a model that are divided over the devices; `None` if the devices
    /// do not compute layers together.
    pub(crate) fn division(
        &self,
        model: &Model,
        options: &EngineOptions,
    ) -> Result<Option<String>, Error> {
        let shares = if self.gpus.is_empty() { &self.cpu_shares } else { &self.shares };
        let shares: Vec<f32> = shares.iter().copied().filter(|share| *share > 0.0).collect();
        if self.split != SplitMode::Tensor || shares.len() < 2 {
            return Ok(None);
        }
        let program = model.program(options)?;
        Ok(Some(tensor::divide(&program, &shares).division.to_string()))
    }

    /// Starts the CPU backend with the threads and the instruction set of the options.
    ///
    /// # Errors
    ///
    /// If the threads cannot be started.
    pub fn cpu(&self) -> Result<CpuBackend, Error> {
        Ok(CpuBackend::new(self.cpu)?)
    }

    /// Returns true if the CPU may take over where the GPU fails.
    pub(crate) fn is_auto(&self) -> bool {
        self.is_auto
    }

    /// Returns true if the number of layers on the GPU is computed from its free memory.
    pub(crate) fn fits_layers(&self) -> bool {
        self.gpu_layers == GpuLayers::Auto
    }

    /// Returns true if the number of layers whose experts are on the CPU is computed, too.
    pub(crate) fn fits_experts(&self) -> bool {
        self.fits_layers() && self.cpu_experts.is_none()
    }

    /// Computes which layers of a model the GPU gets: from its free memory with
    /// [`GpuLayers::Auto`].
    ///
    /// # Errors
    ///
    /// The errors of [`Self::memory_need`].
    pub(crate) fn gpu_layers(
        &self,
        model: &Model,
        options: &EngineOptions,
    ) -> Result<DeviceLayers, Error> {
        if self.gpus.is_empty() {
            return Ok(DeviceLayers::default());
        }
        let all = layer_count(model);
        let cpu_experts = self.cpu_experts.map(|layers| layers.min(expert_layers(model)));
        let layers = match self.gpu_layers {
            GpuLayers::All => all,
            GpuLayers::Last(count) => count.min(all),
            GpuLayers::Auto => {
                let free_bytes = self.gpu_memory_bytes().unwrap_or(u64::MAX);
                return self.with_gpus_as_one(|gpu| {
                    Ok(layers_that_fit(model, options, gpu, free_bytes, cpu_experts)?)
                });
            }
        };
        Ok(DeviceLayers { layers, without_experts: cpu_experts.unwrap_or(0) })
    }

    /// Computes the memory that a model takes on all devices together.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, or the backend does not support the model.
    pub fn memory_need(&self, model: &Model, options: &EngineOptions) -> Result<MemoryNeed, Error> {
        let gpu_layers = self.gpu_layers(model, options)?;
        self.with_backend(model.config().num_layers(), gpu_layers, |backend, _| {
            Ok(model.memory_need(backend, options)?)
        })
    }

    /// Calls `run` with the backend that has some layers on the GPUs and all others on the CPU.
    pub(crate) fn with_backend<R>(
        &self,
        num_layers: usize,
        gpu_layers: DeviceLayers,
        run: impl FnOnce(&dyn Backend, LayerPlacement) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let DeviceLayers { layers, without_experts } = gpu_layers;
        let placement =
            LayerPlacement { gpu_layers: layers, num_layers, ..LayerPlacement::default() };
        let Some(gpu) = self.gpu().filter(|_| layers > 0) else {
            return self.with_cpu(placement, run);
        };
        let placement = LayerPlacement {
            gpu: Some(self.gpu_names(layers)),
            gpu_name: Some(gpu.name.clone()),
            ..placement
        };
        let first_layers = (num_layers + 1).saturating_sub(layers);
        if first_layers == 0 && without_experts == 0 {
            let backends = gpu.backend.name().to_owned();
            let placement = LayerPlacement { backends, threads: 1, ..placement };
            return self.with_gpus_as_one(|gpu| run(gpu, placement));
        }
        let cpu = self.cpu()?;
        let mut placement = placement.on_cpu(&cpu);
        placement.backends = format!("{},{}", gpu.backend.name(), cpu.name());
        placement.cpu_expert_layers = without_experts;
        let layout = Layout { layers: first_layers, expert_layers: without_experts };
        self.with_gpus_as_one(|gpu| run(&HybridBackend::new(&cpu, gpu, layout), placement))
    }
}

impl LayerPlacement {
    fn on_cpu(self, cpu: &CpuBackend) -> Self {
        Self {
            backends: cpu.name().to_owned(),
            threads: cpu.threads(),
            cpu: Some(cpu.description()),
            ..self
        }
    }
}

/// A sentence for users: `running layers 3 to 6 and the output on GPU 0, …`.
impl fmt::Display for LayerPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = (self.num_layers + 1).saturating_sub(self.gpu_layers);
        match (&self.gpu, &self.cpu) {
            (Some(gpu), Some(cpu)) => {
                let experts = first..self.cpu_expert_layers;
                let experts = (!experts.is_empty())
                    .then(|| format!("the experts of {}", layer_range(experts.start, experts.end)));
                if first == 0 {
                    let experts = experts.unwrap_or_default();
                    return write!(f, "running on {gpu}, {experts} on the CPU ({cpu})");
                }
                let and = experts.map_or_else(String::new, |experts| format!(" and {experts}"));
                let rest = format!("the embedding{and}");
                write!(
                    f,
                    "running {} on {gpu}, {} on the CPU ({cpu})",
                    layer_names(first, self.num_layers, "the output"),
                    layer_names(0, first, &rest)
                )
            }
            (Some(gpu), None) => write!(f, "running on {gpu}"),
            (None, cpu) => write!(f, "running on the CPU ({})", cpu.as_deref().unwrap_or_default()),
        }
    }
}

/// `layers 3 to 6 and the output`.
fn layer_names(first: usize, end: usize, rest: &str) -> String {
    match end - first {
        0 => rest.to_owned(),
        _ => format!("{} and {rest}", layer_range(first, end)),
    }
}

/// `layers 3 to 6`.
fn layer_range(first: usize, end: usize) -> String {
    match end - first {
        1 => format!("layer {first}"),
        _ => format!("layers {first} to {}", end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_names_the_layers_of_each_device() {
        let both = LayerPlacement {
            gpu: Some("GPU 0, Radeon (gfx1100)".into()),
            cpu: Some("AVX2, 8 threads".into()),
            gpu_layers: 3,
            num_layers: 8,
            ..LayerPlacement::default()
        };
        assert_eq!(
            both.to_string(),
            "running layers 6 to 7 and the output on GPU 0, Radeon (gfx1100), \
             layers 0 to 5 and the embedding on the CPU (AVX2, 8 threads)"
        );
        let output = LayerPlacement { gpu_layers: 1, num_layers: 1, ..both.clone() };
        assert_eq!(
            output.to_string(),
            "running the output on GPU 0, Radeon (gfx1100), \
             layer 0 and the embedding on the CPU (AVX2, 8 threads)"
        );
        let experts = LayerPlacement { gpu_layers: 9, cpu_expert_layers: 4, ..both.clone() };
        assert_eq!(
            experts.to_string(),
            "running on GPU 0, Radeon (gfx1100), \
             the experts of layers 0 to 3 on the CPU (AVX2, 8 threads)"
        );
        let mixed = LayerPlacement { gpu_layers: 7, cpu_expert_layers: 3, ..both.clone() };
        assert_eq!(
            mixed.to_string(),
            "running layers 2 to 7 and the output on GPU 0, Radeon (gfx1100), layers 0 to 1 and \
             the embedding and the experts of layer 2 on the CPU (AVX2, 8 threads)"
        );
        let gpu = LayerPlacement { cpu: None, gpu_layers: 9, ..both };
        assert_eq!(gpu.to_string(), "running on GPU 0, Radeon (gfx1100)");
    }

    #[test]
    fn layers_on_a_gpu_and_no_gpu_contradict_each_other() {
        for layers in [GpuLayers::All, GpuLayers::Last(3)] {
            let options =
                DeviceOptions { device: Device::Cpu, gpu_layers: layers, ..Default::default() };
            let error = Placement::open(options).err();
            assert!(matches!(error, Some(Error::LayersWithoutGpu { .. })), "{error:?}");
        }
        let none = DeviceOptions { gpu_layers: GpuLayers::Last(0), ..Default::default() };
        let placement = Placement::open(none).unwrap();
        assert!(placement.gpu().is_none() && placement.warnings().is_empty());
    }
}
