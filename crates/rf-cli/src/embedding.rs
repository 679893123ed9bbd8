//! Embeddings for the commands: loads a model for the texts that it gets, and computes them.

use anyhow::Result;
use rocmforge::{LoadedModel, OpenModel, Pooling};

use crate::args::{ComputeArgs, DeviceArgs};
use crate::{device, loading};

/// The texts to embed, and how.
pub(crate) struct EmbeddingInput<'a> {
    /// The tokens of each text.
    pub(crate) ids: &'a [Vec<u32>],
    pub(crate) pooling: Pooling,
    /// The value of `-c`.
    pub(crate) ctx_size: Option<usize>,
}

impl EmbeddingInput<'_> {
    /// The tokens of each text, as an engine takes them.
    pub(crate) fn texts(&self) -> Vec<&[u32]> {
        self.ids.iter().map(Vec::as_slice).collect()
    }
}

/// Loads the model for the texts.
pub(crate) fn load(
    open: OpenModel,
    input: &EmbeddingInput<'_>,
    device: &DeviceArgs,
    compute: &ComputeArgs,
) -> Result<LoadedModel> {
    loading::warn_of_context(open.model(), input.ctx_size);
    let open = open.try_with(|loader| {
        let loader = loading::sized(loader, compute, input.ctx_size)?;
        Ok::<_, anyhow::Error>(
            loader.pooling(input.pooling).for_texts(input.ids.iter().map(Vec::len)),
        )
    })?;
    let placement = device::open(device.options(compute.cpu()?))?;
    loading::load(&open, &placement, false, &mut |_| ())
}
