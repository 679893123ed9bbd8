//! Embeddings for the commands: loads a model for the texts that it gets.

use anyhow::Result;
use rocmforge::{Model, OpenModel, Pooling};

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

/// Loads the model for the texts.
pub(crate) fn load(
    open: OpenModel,
    input: &EmbeddingInput<'_>,
    device: &DeviceArgs,
    compute: &ComputeArgs,
) -> Result<Model> {
    loading::warn_of_context(open.model(), input.ctx_size);
    let open = open.try_with(|loader| {
        let loader = loading::sized(loader, compute, input.ctx_size)?;
        Ok::<_, anyhow::Error>(
            loader.pooling(input.pooling).for_texts(input.ids.iter().map(Vec::len)),
        )
    })?;
    let placement = device::open(device.options(compute.cpu()?))?;
    Ok(loading::load(&open, &placement, false, &mut |_| ())?.start()?)
}
