//! The size of a KV cache that many sequences share.

use rf_engine::{EngineOptions, Model};
use rf_graph::Backend;

use crate::error::Error;
use crate::layers::{DeviceLayers, layer_count};
use crate::placement::Placement;

/// The largest cache on a CPU, in contexts: it has no use for more sequences at a time.
const CPU_CONTEXTS: usize = 8;
/// The share of the memory besides the weights that recurrent states may take.
const STATES_SHARE: u64 = 8;
/// The most host memory for pages and states, unless the user says otherwise.
const MOST_HOST_STATES: u64 = 8 << 30;
/// The largest cache of a model that is divided between devices, in contexts: every layer that the
/// cache displaces from the GPU costs more than it gains.
const DIVIDED_CONTEXTS: usize = 4;

impl Placement {
    /// Free memory of the device that models go to first, in bytes: the GPU, or the machine.
    /// `None` if it is unknown.
    ///
    /// # Errors
    ///
    /// If the threads of the CPU cannot be started.
    pub fn available_memory_bytes(&self) -> Result<Option<u64>, Error> {
        match self.gpu() {
            Some(_) => Ok(self.gpu_memory_bytes()),
            None => Ok(self.cpu()?.available_memory_bytes()),
        }
    }

    /// Computes how many recurrent states fit into an eighth of what the weights leave free on the
    /// device that models go to first: at least one and at most `most`. A model without recurrent
    /// layers gets `most`.
    ///
    /// # Errors
    ///
    /// If the threads of the CPU cannot be started.
    pub fn states_that_fit(&self, model: &Model, most: usize) -> Result<usize, Error> {
        let bytes: u64 = model.config().states().iter().map(|state| state.bytes() as u64).sum();
        if bytes == 0 {
            return Ok(most);
        }
        let free = self.available_memory_bytes()?.unwrap_or(u64::MAX);
        let room = free.saturating_sub(model.gguf().file_bytes()) / STATES_SHARE;
        let fits = usize::try_from(room / bytes).unwrap_or(usize::MAX);
        Ok(fits.min(most).max(1))
    }

    /// Computes the default bytes of host memory for pages and states that a GPU has no room for:
    /// an eighth of what the model's file leaves free, at most 8 GiB, for a model with recurrent
    /// states. 0 without a GPU, where the pages are in host memory, and for other models.
    ///
    /// # Errors
    ///
    /// If the threads of the CPU cannot be started.
    pub fn host_cache_bytes(&self, model: &Model) -> Result<u64, Error> {
        if self.gpu().is_none() || !model.config().is_recurrent() {
            return Ok(0);
        }
        let free = self.cpu()?.available_memory_bytes().unwrap_or(0);
        let room = free.saturating_sub(model.gguf().file_bytes());
        Ok((room / STATES_SHARE).min(MOST_HOST_STATES))
    }

    /// Computes the tokens of a KV cache that fits into the free memory together with the model: at
    /// least one context and at most `most_tokens`.
    ///
    /// A model that is on the GPU as a whole leaves a tenth of the rest free. On the CPU, the cache
    /// takes at most a quarter of the rest, and eight contexts. A model on both gets four contexts.
    ///
    /// # Errors
    ///
    /// The errors of [`memory_need`](Self::memory_need).
    pub fn kv_tokens_that_fit(
        &self,
        model: &Model,
        options: &EngineOptions,
        most_tokens: usize,
    ) -> Result<usize, Error> {
        let context = model.context_tokens(options);
        let with = |kv_tokens| options.with_kv_tokens(Some(kv_tokens));
        let layers = self.gpu_layers(model, &with(context))?;
        let (most_tokens, share) = match layers {
            DeviceLayers { layers: 0, .. } => (most_tokens.min(contexts(context, CPU_CONTEXTS)), 4),
            DeviceLayers { layers, without_experts: 0 } if layers == layer_count(model) => {
                (most_tokens, 1)
            }
            _ => return Ok(contexts(context, DIVIDED_CONTEXTS).min(most_tokens).max(context)),
        };
        // A model without a GPU may have one all the same, which it does not fit on.
        let free = match self.gpu().filter(|_| layers.layers > 0) {
            Some(_) => self.gpu_memory_bytes().map(|bytes| bytes / 10 * 9),
            None => self.cpu()?.available_memory_bytes(),
        };
        let Some(free) = free else { return Ok(context) };
        let need = |kv_tokens| {
            self.with_backend(model.config().num_layers(), layers, |backend, _| {
                Ok(model.memory_need(backend, &with(kv_tokens))?.total_bytes())
            })
        };
        let one = need(context)?;
        let room = one.saturating_add(free.saturating_sub(one) / share);
        // The need is not proportional to the tokens where layers have a sliding window.
        let page_tokens = options.page_tokens.max(1);
        let (mut fits, mut most) = (context / page_tokens, most_tokens / page_tokens);
        most = most.min(u32::MAX as usize);
        while fits < most {
            let pages = most - (most - fits) / 2;
            if need(pages * page_tokens)? <= room {
                fits = pages;
            } else {
                most = pages - 1;
            }
        }
        Ok((fits * page_tokens).max(context))
    }
}

fn contexts(context: usize, count: usize) -> usize {
    context.saturating_mul(count)
}

#[cfg(test)]
mod tests {
    use rf_oracle::ReferenceBackend;
    use rf_testing::engine::tiny as model;

    use super::*;
    use crate::loading::tests::{recurrent, test_gpu};
    use crate::options::Device;
    use crate::placement::DeviceOptions;

    const OPTIONS: EngineOptions =
        EngineOptions::DEFAULT.with_context_tokens(Some(64)).with_batch_tokens(8);

    #[test]
    fn the_cache_of_a_gpu_takes_what_the_model_leaves() {
        let model = model();
        let need = |kv_tokens| {
            let options = OPTIONS.with_kv_tokens(Some(kv_tokens));
            model.memory_need(&ReferenceBackend, &options).unwrap().total_bytes()
        };
        let tokens = |available_bytes| {
            let gpu = test_gpu(available_bytes);
            let options = DeviceOptions { device: Device::Gpu, ..DeviceOptions::default() };
            let placement = Placement::with_gpus(vec![Box::new(gpu)], options);
            placement.kv_tokens_that_fit(&model, &OPTIONS, 4096).unwrap()
        };
        assert_eq!(tokens(u64::MAX / 100), 4096);
        assert_eq!(tokens(need(64) + 1), 64);
        let found = tokens(need(640));
        assert!(need(found) <= need(640) / 10 * 9 && found > 64 && found % 32 == 0, "{found}");
        // The model is divided, so the cache is as small as it was always.
        assert_eq!(tokens(need(64) - 1), 256);
    }

    #[test]
    fn states_take_an_eighth_of_what_the_weights_leave_on_the_gpu() {
        let model = recurrent();
        let state: usize = model.config().states().iter().map(|state| state.bytes()).sum();
        let states = |room_bytes| {
            let available_bytes = model.gguf().file_bytes() + room_bytes;
            let gpu = test_gpu(available_bytes);
            let placement = Placement::with_gpus(vec![Box::new(gpu)], DeviceOptions::default());
            placement.states_that_fit(&model, 64).unwrap()
        };
        let eight = 8 * state as u64;
        assert_eq!([0, 5 * eight, 6 * eight - 1, 100 * eight].map(states), [1, 5, 5, 64]);
    }

    #[test]
    fn states_of_a_gpu_take_a_part_of_host_memory() {
        let bytes = |model: &Model, is_gpu| {
            let gpu = test_gpu(u64::MAX / 100);
            let cpu = DeviceOptions { device: Device::Cpu, ..DeviceOptions::default() };
            let placement = if is_gpu {
                Placement::with_gpus(vec![Box::new(gpu)], DeviceOptions::default())
            } else {
                Placement::open(cpu).unwrap()
            };
            placement.host_cache_bytes(model).unwrap()
        };
        let most = bytes(&recurrent(), true);
        assert!(most > 0 && most <= 8 << 30, "{most}");
        assert_eq!((bytes(&recurrent(), false), bytes(&model(), true)), (0, 0));
    }

    #[test]
    fn the_cache_of_a_cpu_has_at_most_eight_contexts() {
        let options = DeviceOptions { device: Device::Cpu, ..DeviceOptions::default() };
        let placement = Placement::open(options).unwrap();
        let tokens = |most| placement.kv_tokens_that_fit(&model(), &OPTIONS, most).unwrap();
        assert_eq!(tokens(usize::MAX), 8 * 64);
        assert_eq!(tokens(150), 128);
        assert_eq!(tokens(1), 64);
    }
}
