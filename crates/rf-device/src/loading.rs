//! Loading a model on the devices of a placement.

use std::sync::Arc;

use rf_engine::{Engine, EngineOptions, Model};
use rf_graph::Progress;

use crate::error::{Error, Warning, sentence};
use crate::layers::{self, DeviceLayers};
use crate::placement::{LayerPlacement, Placement};

/// A loaded model and where its layers run.
pub struct LoadedModel {
    /// The engine.
    pub engine: Engine,
    /// The backends of the layers.
    pub placement: LayerPlacement,
}

/// A step of loading a model, for callers that show the progress.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LoadEvent<'a> {
    /// An attempt with this placement begins.
    Placed(&'a LayerPlacement),
    /// Weights were loaded.
    Progress(Progress),
    /// The attempt failed and another one follows.
    Warning(&'a Warning),
}

impl Placement {
    /// Loads a model.
    ///
    /// Where the number of layers on the GPU is automatic and memory is short after all, fewer
    /// layers are tried. Where the device is automatic and the GPU fails, the CPU takes over.
    ///
    /// # Errors
    ///
    /// If no attempt succeeds.
    pub fn load(
        &self,
        model: &Arc<Model>,
        options: EngineOptions,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<LoadedModel, Error> {
        if self.gpus().is_empty() {
            return self.load_layers(model, DeviceLayers::default(), options, observe);
        }
        match self.load_with_gpu(model, options, observe) {
            Err(error) if self.is_auto() && error.is_of_device() => {
                let (gpu, reason) = (self.names(), sentence(&error));
                observe(LoadEvent::Warning(&Warning::CpuTakesOver { gpu, reason }));
                self.load_layers(model, DeviceLayers::default(), options, observe)
            }
            outcome => outcome,
        }
    }

    /// Loads a model on the GPU, or its last layers there and the others on the CPU.
    fn load_with_gpu(
        &self,
        model: &Arc<Model>,
        options: EngineOptions,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<LoadedModel, Error> {
        let mut gpu_layers = self.gpu_layers(model, &options)?;
        let expert_layers = if self.fits_experts() { layers::expert_layers(model) } else { 0 };
        loop {
            if gpu_layers.layers == 0 {
                let free_bytes = self.gpu_memory_bytes();
                return Err(Error::NothingFits { gpu: self.names(), free_bytes });
            }
            match self.load_layers(model, gpu_layers, options, observe) {
                // Other programs may take device memory meanwhile.
                Err(error) if self.fits_layers() && error.is_of_memory() => {
                    let reason = sentence(&error);
                    let DeviceLayers { layers, without_experts } = &mut gpu_layers;
                    let warning = if *without_experts < expert_layers {
                        let more = (expert_layers / 8).max(1);
                        *without_experts = (*without_experts + more).min(expert_layers);
                        Warning::MoreExpertsOnCpu { reason, layers: *without_experts }
                    } else {
                        *layers -= (*layers / 8).max(1);
                        Warning::FewerLayers { reason, layers: *layers }
                    };
                    observe(LoadEvent::Warning(&warning));
                }
                Err(error) if error.is_of_memory() => return Err(into_layers_do_not_fit(error)),
                outcome => return outcome,
            }
        }
    }

    /// The GPUs, for messages.
    fn names(&self) -> String {
        let names: Vec<String> = self.gpus().iter().map(ToString::to_string).collect();
        names.join(" and ")
    }

    fn load_layers(
        &self,
        model: &Arc<Model>,
        gpu_layers: DeviceLayers,
        options: EngineOptions,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<LoadedModel, Error> {
        let num_layers = model.config().num_layers();
        let division = self.division(model, &options)?;
        self.with_backend(num_layers, gpu_layers, |backend, placement| {
            let placement = LayerPlacement { division, ..placement };
            observe(LoadEvent::Placed(&placement));
            let progress = &mut |progress| observe(LoadEvent::Progress(progress));
            let engine = Engine::load(Arc::clone(model), backend, options, progress)?;
            Ok(LoadedModel { engine, placement })
        })
    }
}

fn into_layers_do_not_fit(error: Error) -> Error {
    match error {
        Error::Backend(error) | Error::Engine(rf_engine::Error::Backend(error)) => {
            Error::LayersDoNotFit(error)
        }
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rf_cpu::CpuOptions;
    use rf_gguf::{Gguf, GgufWriter, TensorPlan};
    use rf_graph::{Backend, DType};
    use rf_oracle::ReferenceBackend;
    use rf_testing::StubBackend;
    use rf_testing::engine::tiny as model;

    use super::*;
    use crate::options::{Device, GpuLayers, SplitMode};
    use crate::placement::DeviceOptions;

    /// A GPU with an amount of memory.
    pub(crate) fn test_gpu(available_bytes: u64) -> StubBackend {
        StubBackend::new(ReferenceBackend, "GPU", available_bytes)
    }

    const OPTIONS: EngineOptions =
        EngineOptions::DEFAULT.with_context_tokens(Some(32)).with_batch_tokens(8);

    /// Loads the model, and returns the layers on the GPU or the error, and the warnings.
    fn load(
        (available_bytes, failures): (u64, usize),
        device: Device,
        gpu_layers: GpuLayers,
    ) -> (Result<usize, Error>, Vec<Warning>) {
        let gpu = test_gpu(available_bytes).with_failures(failures);
        let options = DeviceOptions { device, gpu_layers, ..DeviceOptions::default() };
        let placement = Placement::with_gpus(vec![Box::new(gpu)], options);
        let mut warnings = Vec::new();
        let outcome = placement.load(&Arc::new(model()), OPTIONS, &mut |event| {
            if let LoadEvent::Warning(warning) = event {
                warnings.push(warning.clone());
            }
        });
        (outcome.map(|loaded| loaded.placement.gpu_layers), warnings)
    }

    fn all_layers() -> usize {
        layers::layer_count(&model())
    }

    #[test]
    fn as_many_layers_as_fit_go_to_the_gpu() {
        let all = all_layers();
        assert!(all >= 3);
        let (layers, warnings) = load((u64::MAX, 0), Device::Gpu, GpuLayers::Auto);
        assert_eq!((layers.unwrap(), warnings.len()), (all, 0));
        let need = model().memory_need(&ReferenceBackend, &OPTIONS).unwrap().total_bytes();
        let (layers, warnings) = load((need - 1, 0), Device::Gpu, GpuLayers::Auto);
        assert_eq!((layers.unwrap(), warnings.len()), (all - 1, 0));
        let (layers, warnings) = load((u64::MAX, 1), Device::Gpu, GpuLayers::Auto);
        assert_eq!(layers.unwrap(), all - 1);
        assert!(
            matches!(&warnings[..], [Warning::FewerLayers { layers, .. }] if *layers == all - 1)
        );
    }

    #[test]
    fn two_gpus_share_the_layers() {
        let need = model().memory_need(&ReferenceBackend, &OPTIONS).unwrap().total_bytes();
        let load = |available_bytes, gpu_layers| {
            let gpu = || test_gpu(available_bytes);
            let options = DeviceOptions { gpu_layers, ..DeviceOptions::default() };
            let gpus: Vec<Box<dyn Backend>> = vec![Box::new(gpu()), Box::new(gpu())];
            let placement = Placement::with_gpus(gpus, options);
            let expected = placement.memory_need(&model(), &OPTIONS).unwrap();
            let loaded = placement.load(&Arc::new(model()), OPTIONS, &mut |_| ()).unwrap();
            assert_eq!(loaded.engine.memory_need(), expected);
            loaded.placement
        };
        let all = all_layers();
        let whole = load(need, GpuLayers::Auto);
        assert_eq!((&*whole.backends, whole.gpu_layers), ("GPU", all));
        let names = whole.to_string();
        let (first, second) = (all / 2, all.div_ceil(2));
        let expected =
            format!("0, Test (gfx0) with {first} layers and GPU 1, Test (gfx0) with {second}");
        assert!(names.contains(&expected), "{names}");
        // Neither has room for the model, and the second one not for its half either: its part has
        // the output matrix.
        let divided = load(need / 2, GpuLayers::Auto);
        assert_eq!((&*divided.backends, divided.gpu_layers < all), ("GPU,CPU", true));
        let with_cpu = load(need, GpuLayers::Last(2));
        assert_eq!((&*with_cpu.backends, with_cpu.gpu_layers), ("GPU,CPU", 2));
    }

    #[test]
    fn two_gpus_compute_layers_together() {
        let gpu = || test_gpu(u64::MAX);
        let options = DeviceOptions::default().with_split(SplitMode::Tensor);
        let gpus: Vec<Box<dyn Backend>> = vec![Box::new(gpu()), Box::new(gpu())];
        let placement = Placement::with_gpus(gpus, options);
        let need = placement.memory_need(&model(), &OPTIONS).unwrap();
        let LoadedModel { engine, placement } =
            placement.load(&Arc::new(model()), OPTIONS, &mut |_| ()).unwrap();
        assert_eq!(engine.memory_need(), need);
        let expected = "running on GPU 0, Test (gfx0) and GPU 1, Test (gfx0)";
        assert_eq!(
            (placement.to_string().as_str(), placement.gpu_layers),
            (expected, all_layers())
        );
        let division = placement.division.unwrap();
        assert!(division.starts_with("2 parts: "), "{division}");
    }

    #[test]
    fn parts_of_the_cpu_compute_layers_together() {
        let options = DeviceOptions::default()
            .with_device(Device::CpuParts(2))
            .with_split(SplitMode::Tensor)
            .with_cpu(CpuOptions::default().with_threads(4));
        let shares = options.with_shares("3,1".parse().unwrap());
        for options in [options, shares] {
            let placement = Placement::open(options).unwrap();
            let need = placement.memory_need(&model(), &OPTIONS).unwrap();
            let LoadedModel { engine, placement } =
                placement.load(&Arc::new(model()), OPTIONS, &mut |_| ()).unwrap();
            assert_eq!(engine.memory_need(), need);
            assert_eq!((&*placement.backends, placement.threads), ("CPU", 4));
            assert!(placement.to_string().starts_with("running on the CPU (2 parts: "));
            assert!(placement.division.unwrap().contains("% of the matrices divided"));
        }
        let layers = Placement::open(options.with_split(SplitMode::Layer)).err();
        assert!(matches!(layers, Some(Error::UndividedParts)), "{layers:?}");
        let wrong = Placement::open(options.with_shares("3,1,1".parse().unwrap())).err();
        let expected =
            "there are 3 shares for 2 devices: give one share per device, in their order";
        assert_eq!(wrong.unwrap().to_string(), expected);
        let whole = Placement::open(options.with_device(Device::Cpu)).unwrap();
        let loaded = whole.load(&Arc::new(model()), OPTIONS, &mut |_| ()).unwrap();
        assert_eq!(loaded.placement.division, None);
    }

    #[test]
    fn the_cpu_takes_over_only_where_the_choice_is_automatic() {
        let (layers, warnings) = load((0, 0), Device::Auto, GpuLayers::Auto);
        assert_eq!(layers.unwrap(), 0);
        assert!(matches!(&warnings[..], [Warning::CpuTakesOver { .. }]), "{warnings:?}");
        let (error, _) = load((0, 0), Device::Gpu, GpuLayers::Auto);
        assert!(matches!(error, Err(Error::NothingFits { .. })), "{error:?}");
    }

    /// A model of two layers with a state space, whose weights are 0.
    pub(crate) fn recurrent() -> Model {
        let mut writer = GgufWriter::new();
        writer.add("general.architecture", "mamba2").unwrap();
        for (key, value) in [
            ("context_length", 64),
            ("embedding_length", 32),
            ("block_count", 2),
            ("feed_forward_length", 0),
            ("attention.head_count", 0),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 32),
            ("ssm.state_size", 16),
            ("ssm.time_step_rank", 1),
            ("ssm.group_count", 1),
        ] {
            writer.add(format!("mamba2.{key}"), value as u32).unwrap();
        }
        writer.add("mamba2.attention.layer_norm_rms_epsilon", 1e-5_f32).unwrap();
        for (key, value) in model().gguf().metadata().iter() {
            if key.starts_with("tokenizer.") {
                writer.add(key, value.clone()).unwrap();
            }
        }
        writer.add_tensor("token_embd.weight", &[32, 272], DType::F32).unwrap();
        writer.add_tensor("output_norm.weight", &[32], DType::F32).unwrap();
        for (name, shape) in [
            ("attn_norm.weight", &[32][..]),
            ("ssm_in.weight", &[32, 97]),
            ("ssm_conv1d.weight", &[4, 64]),
            ("ssm_dt.bias", &[1]),
            ("ssm_a", &[1]),
            ("ssm_d", &[1]),
            ("ssm_norm.weight", &[32]),
            ("ssm_out.weight", &[32, 32]),
        ] {
            for layer in 0..2 {
                writer.add_tensor(format!("blk.{layer}.{name}"), shape, DType::F32).unwrap();
            }
        }
        let mut bytes = Vec::new();
        let zeros = |tensor: &TensorPlan| vec![0; tensor.size_bytes() as usize];
        writer.write_to(&mut bytes, |tensor, out| Ok(out.write_all(&zeros(tensor))?)).unwrap();
        Model::from_gguf(Gguf::from_bytes(bytes).unwrap()).unwrap()
    }

    #[test]
    fn a_recurrent_model_is_placed_as_others_are() {
        let load = |available_bytes, gpu_layers| {
            let gpu = test_gpu(available_bytes);
            let options = DeviceOptions { gpu_layers, ..DeviceOptions::default() };
            let placement = Placement::with_gpus(vec![Box::new(gpu)], options);
            let need = placement.memory_need(&recurrent(), &OPTIONS).unwrap();
            let LoadedModel { engine, placement } =
                placement.load(&Arc::new(recurrent()), OPTIONS, &mut |_| ()).unwrap();
            assert_eq!(engine.memory_need(), need);
            (placement.backends, placement.gpu_layers, need.held.states_bytes)
        };
        let states_bytes: usize = recurrent().config().states().iter().map(|s| s.bytes()).sum();
        let states_bytes = states_bytes as u64;
        let need = recurrent().memory_need(&ReferenceBackend, &OPTIONS).unwrap().total_bytes();
        let whole = ("GPU".to_owned(), 3, states_bytes);
        assert_eq!(load(need, GpuLayers::Auto), whole);
        // Each state is where its layer is.
        for (available_bytes, gpu_layers) in
            [(need - 1, GpuLayers::Auto), (need, GpuLayers::Last(2))]
        {
            let divided = ("GPU,CPU".to_owned(), 2, states_bytes);
            assert_eq!(load(available_bytes, gpu_layers), divided);
        }
    }

    #[test]
    fn layers_that_the_user_asks_for_and_do_not_fit_are_an_error() {
        let all = all_layers();
        for device in [Device::Auto, Device::Gpu] {
            let (error, warnings) = load((1000, 0), device, GpuLayers::All);
            let Err(error @ Error::LayersDoNotFit(_)) = error else { panic!("{error:?}") };
            assert!(error.to_string().contains("automatic placement"), "{error}");
            assert!(warnings.is_empty());
        }
        let (layers, _) = load((u64::MAX, 0), Device::Auto, GpuLayers::Last(2));
        assert_eq!(layers.unwrap(), 2);
        let (layers, _) = load((u64::MAX, 0), Device::Auto, GpuLayers::Last(99));
        assert_eq!(layers.unwrap(), all);
    }
}
