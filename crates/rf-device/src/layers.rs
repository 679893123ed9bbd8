//! The layers of a model that a device has room for.
//!
//! Layers on the GPU are counted as llama.cpp counts them for `-ngl`: from the end, with the output
//! (its norm and matrix) as one. A model of `num_layers` therefore has `num_layers + 1`.

use rf_engine::{EngineOptions, Error, Model};
use rf_graph::BackendError::DoesNotFit;
use rf_graph::{Backend, Layout, Split, SplitError, split};

/// Layers of a model as `-ngl` counts them: the output is one.
pub(crate) fn layer_count(model: &Model) -> usize {
    model.config().num_layers() + 1
}

/// The layers of a model on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceLayers {
    /// Layers, counted from the end, with the output as one: see [`layer_count`].
    pub(crate) layers: usize,
    /// Layers, counted from the first one of the model, whose experts another backend runs.
    pub(crate) without_experts: usize,
}

/// Chooses the largest part of a model that fits in `free_bytes` of a backend's memory: the whole
/// model; else all layers, but as few as possible without their experts; else as many layers as
/// fit without their experts, 0 if not even the output does.
///
/// Some number of layers `without_experts` is kept.
///
/// # Errors
///
/// If an option is invalid, tensors are missing, or the backend does not support the model.
pub(crate) fn layers_that_fit(
    model: &Model,
    options: &EngineOptions,
    backend: &dyn Backend,
    free_bytes: u64,
    without_experts: Option<usize>,
) -> Result<DeviceLayers, Error> {
    let program = model.program(options)?;
    let all = layer_count(model);
    let fits = |layers, without_experts| -> Result<bool, Error> {
        let layout = Layout { layers: all - layers, expert_layers: without_experts };
        let part = match split(program.clone(), layout) {
            Ok(Split { second, .. }) => second,
            Err(SplitError::Undivided) if layers == all => program.clone(),
            Err(_) => return Ok(false),
        };
        let part = part.fused_for(backend);
        let is_small = backend.memory_need(&part)?.total_bytes() <= free_bytes;
        // Of several devices, each has its own memory.
        let fits = is_small && !matches!(backend.check_memory(&part), Err(DoesNotFit { .. }));
        Ok(fits)
    };
    let [least, most] = without_experts.map_or([0, expert_layers(model)], |layers| [layers; 2]);
    if fits(all, most)? {
        // The more experts are elsewhere, the smaller is the part.
        let (mut low, mut high) = (least, most);
        while low < high {
            let middle = low.midpoint(high);
            if fits(all, middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return Ok(DeviceLayers { layers: all, without_experts: high });
    }
    for layers in (1..all).rev() {
        if fits(layers, most)? {
            return Ok(DeviceLayers { layers, without_experts: most });
        }
    }
    Ok(DeviceLayers::default())
}

/// Layers of a model up to the last one with experts; 0 for a model without experts.
pub(crate) fn expert_layers(model: &Model) -> usize {
    let layers = &model.config().layers;
    layers.iter().rposition(|layer| layer.experts.is_some()).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use rf_engine::Engine;
    use rf_testing::engine::{cpu, demo, golden};

    use crate::hybrid::HybridBackend;

    use super::*;

    fn options() -> EngineOptions {
        EngineOptions::default()
            .with_context_tokens(Some(96))
            .with_batch_tokens(24)
            .with_page_tokens(32)
            .with_kv_tokens(Some(2 * 96))
            .with_sequences(2)
    }

    #[test]
    fn as_many_layers_as_fit_are_chosen() {
        let (model, cpu) = (demo(), cpu(1));
        let fit = |free_bytes| {
            let fit = layers_that_fit(&model, &options(), &cpu, free_bytes, None).unwrap();
            assert_eq!(fit.without_experts, 0);
            fit.layers
        };
        let all = layer_count(&model);
        assert_eq!(all, model.config().num_layers() + 1);
        assert_eq!(fit(u64::MAX), all);
        assert_eq!(fit(0), 0);
        let mut seen: Vec<usize> = (0..500).map(|step| fit(step * (32 << 10))).collect();
        assert!(seen.is_sorted());
        seen.dedup();
        // The output's matrix is the embedding, so one layer costs more than the step and none is
        // skipped.
        assert_eq!(seen.first(), Some(&0));
        assert_eq!(seen.last(), Some(&all));
        assert!(seen.len() > all / 2, "{seen:?}");
    }

    #[test]
    fn layers_that_share_caches_are_placed_one_by_one() {
        let (model, first, second) = (golden("gemma4_e4b"), cpu(1), cpu(1));
        let all = layer_count(&model);
        let fit =
            |free_bytes| layers_that_fit(&model, &options(), &second, free_bytes, None).unwrap();
        let mut seen: Vec<usize> = (0..500).map(|step| fit(step * (8 << 10)).layers).collect();
        seen.dedup();
        assert!(seen.is_sorted() && seen.len() > all / 2, "{seen:?}");
        // The plan counts what is handed over and the caches that both parts have.
        let backend =
            HybridBackend::new(&first, &second, Layout { layers: all - 2, expert_layers: 0 });
        let need = model.memory_need(&backend, &options()).unwrap();
        let engine = Engine::load(model, &backend, options(), &mut |_| ()).unwrap();
        assert_eq!(engine.memory(), need.held);
    }

    #[test]
    fn experts_leave_before_layers_do() {
        let (model, cpu) = (golden("gptoss_mxfp4"), cpu(1));
        let fit = |free_bytes, without_experts| {
            layers_that_fit(&model, &options(), &cpu, free_bytes, without_experts).unwrap()
        };
        let (all, experts) = (layer_count(&model), expert_layers(&model));
        assert_eq!(experts, all - 1);
        let whole = DeviceLayers { layers: all, without_experts: 0 };
        assert_eq!(fit(u64::MAX, None), whole);
        assert_eq!(fit(0, None), DeviceLayers::default());
        let mut seen: Vec<DeviceLayers> =
            (0..2000).map(|step| fit(step * (4 << 10), None)).collect();
        seen.dedup();
        let first = seen.iter().position(|fit| fit.layers == all).unwrap();
        // Fewer layers have none of their experts; all layers have more and more of them.
        assert!(seen[1..first].iter().all(|fit| fit.without_experts == experts), "{seen:?}");
        let elsewhere: Vec<usize> = seen[first..].iter().map(|fit| fit.without_experts).collect();
        assert_eq!(elsewhere, (0..=experts).rev().collect::<Vec<_>>());
        let given = fit(u64::MAX, Some(1));
        assert_eq!(given, DeviceLayers { layers: all, without_experts: 1 });
    }
}
