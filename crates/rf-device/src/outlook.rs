//! What a model would take on the devices, and the work of a decode step on each, from its metadata
//! alone.

use rf_engine::{EngineOptions, Error as EngineError, Model};
use rf_graph::BackendError::DoesNotFit;
use rf_graph::{Backend, Batch, Costs, Layout, MemoryNeed, OpCost, Program, Span, Split, split};

use crate::error::Error;
use crate::hybrid::HybridBackend;
use crate::layers::{DeviceLayers, layer_count};
use crate::placement::{LayerPlacement, Placement};

/// What a model would take on the devices of a placement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outlook {
    /// The backends of the layers.
    pub layers: LayerPlacement,
    /// The memory on all devices together.
    pub need: MemoryNeed,
    /// False if a device has less free memory than its part takes.
    pub fits: bool,
    /// The work of a decode step on the CPU.
    pub cpu: StepWork,
    /// The work of a decode step on the GPUs.
    pub gpu: StepWork,
    /// The share of each GPU of the placement in the work on GPUs.
    pub gpu_shares: Vec<f64>,
}

/// The work of a decode step: that of a batch of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// The memory traffic and the arithmetic.
    pub cost: OpCost,
    /// The ops.
    pub ops: usize,
}

impl StepWork {
    /// The work of a program that is fused already, after `past_tokens` tokens.
    fn of(program: &Program, past_tokens: usize) -> Self {
        let costs = Costs::new(program);
        let spans = [Span { tokens: 0..1, past_tokens, ..Span::default() }];
        let batch = Batch { ids: &[0], spans: &spans, output_rows: &[0], input: None };
        let ops = program.graph.ops();
        Self {
            cost: ops.iter().map(|op| costs.of(&program.graph, op, &batch)).sum(),
            ops: ops.len(),
        }
    }
}

impl Placement {
    /// Computes what a model would take on these devices, and the work of a decode step after
    /// `past_tokens` tokens. Reads no weight and allocates nothing.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, or a backend does not support the model.
    pub fn outlook(
        &self,
        model: &Model,
        options: &EngineOptions,
        past_tokens: usize,
    ) -> Result<Outlook, Error> {
        let program = model.program(options)?;
        let layers = self.gpu_layers(model, options)?;
        let (cpu, gpu) = self.work(&program, layer_count(model), layers, past_tokens)?;
        let gpu_shares = self.gpu_shares(layers.layers);
        self.with_backend(model.config().num_layers(), layers, |backend, layers| {
            let program = program.fused_for(backend);
            let need = backend.memory_need(&program).map_err(EngineError::from)?;
            let fits = match backend.check_memory(&program) {
                Ok(()) => true,
                Err(DoesNotFit { .. }) => false,
                Err(error) => return Err(EngineError::from(error).into()),
            };
            Ok(Outlook { layers, need, fits, cpu, gpu, gpu_shares })
        })
    }

    /// The work of a decode step on the CPU and on the GPUs.
    fn work(
        &self,
        program: &Program,
        all: usize,
        DeviceLayers { layers, without_experts }: DeviceLayers,
        past_tokens: usize,
    ) -> Result<(StepWork, StepWork), Error> {
        let of = |program: Program, backend: &dyn Backend| {
            StepWork::of(&program.fused_for(backend), past_tokens)
        };
        let Some(gpu) = self.gpu().filter(|_| layers > 0) else {
            return Ok((of(program.clone(), &self.cpu()?), StepWork::default()));
        };
        let layout = Layout { layers: all - layers, expert_layers: without_experts };
        if layout == Layout::default() {
            return Ok((StepWork::default(), of(program.clone(), &*gpu.backend)));
        }
        let Split { first, second, .. } = split(program.clone(), layout).map_err(|error| {
            let (backend, what) = ("hybrid", format!("it: {error}"));
            EngineError::from(rf_graph::BackendError::Unsupported { backend, what })
        })?;
        Ok((of(first, &self.cpu()?), of(second, &*gpu.backend)))
    }

    /// The share of each GPU in `layers` layers.
    fn gpu_shares(&self, layers: usize) -> Vec<f64> {
        let counts = HybridBackend::deal(layers, &self.shares);
        let of_count = |count: usize| count as f64 / layers.max(1) as f64;
        counts.into_iter().take(self.gpus().len()).map(of_count).collect()
    }
}

#[cfg(test)]
mod tests {
    use rf_testing::engine::tiny;

    use super::*;
    use crate::loading::tests::test_gpu;
    use crate::options::{Device, GpuLayers};
    use crate::placement::DeviceOptions;

    const OPTIONS: EngineOptions =
        EngineOptions::DEFAULT.with_context_tokens(Some(64)).with_batch_tokens(8);

    fn outlook(gpu_bytes: Option<u64>, gpu_layers: GpuLayers, past_tokens: usize) -> Outlook {
        let placement = if let Some(bytes) = gpu_bytes {
            let options = DeviceOptions { gpu_layers, ..DeviceOptions::default() };
            Placement::with_gpus(vec![Box::new(test_gpu(bytes))], options)
        } else {
            let options = DeviceOptions { device: Device::Cpu, ..DeviceOptions::default() };
            Placement::open(options).unwrap()
        };
        placement.outlook(&tiny(), &OPTIONS, past_tokens).unwrap()
    }

    #[test]
    fn a_step_reads_every_weight_once_and_the_cache() {
        let on_cpu = outlook(None, GpuLayers::Auto, 0);
        assert!(on_cpu.fits && on_cpu.gpu == StepWork::default());
        assert_eq!(on_cpu.layers.gpu_layers, 0);
        let model = tiny();
        let tensors = model.gguf().tensors().iter();
        let matrices = tensors.filter(|tensor| tensor.shape().len() == 2);
        let bytes: u64 = matrices.map(|tensor| tensor.size_bytes() as u64).sum();
        let read = on_cpu.cpu.cost.bytes;
        assert!(read > bytes && read < bytes * 3 / 2, "{read} of {bytes}");
        let later = outlook(None, GpuLayers::Auto, 40);
        let kv = model.kv_bytes_per_token(OPTIONS.kv_type) as u64;
        assert_eq!(later.cpu.cost.bytes - read, 40 * kv);
        assert_eq!(later.cpu.ops, on_cpu.cpu.ops);
    }

    #[test]
    fn each_device_has_the_work_of_its_layers() {
        let whole = outlook(Some(u64::MAX / 100), GpuLayers::Auto, 0);
        let need = whole.need.total_bytes();
        assert_eq!(
            (whole.fits, whole.cpu, &whole.gpu_shares[..]),
            (true, StepWork::default(), &[1.0][..])
        );
        let divided = outlook(Some(need - 1), GpuLayers::Auto, 0);
        assert!(divided.fits && divided.layers.gpu_layers > 0, "{:?}", divided.layers);
        let (cpu, gpu) = (divided.cpu.cost.bytes, divided.gpu.cost.bytes);
        assert!(cpu > 0 && gpu > 0 && cpu + gpu >= whole.gpu.cost.bytes);
        assert_eq!(
            divided.cpu.cost.operations() + divided.gpu.cost.operations(),
            whole.gpu.cost.operations()
        );
        let forced = outlook(Some(need / 2), GpuLayers::All, 0);
        assert!(!forced.fits);
        assert_eq!(forced.gpu, whole.gpu);
    }
}
