//! Embeddings for the commands: loads a model for the texts that it gets, and computes them.

use anyhow::Result;
use rocmforge::{OpenModel, Pooling};

use crate::args::{ComputeArgs, DeviceArgs};
use crate::{device, loading};

/// The texts to embed, and how.
pub(crate) struct Input<'a> {
    /// The tokens of each text.
    pub(crate) ids: &'a [Vec<u32>],
    pub(crate) pooling: Pooling,
    /// The value of `-c`.
    pub(crate) ctx_size: Option<usize>,
}

/// Loads the model and computes a vector for each text.
pub(crate) fn compute(
    open: OpenModel,
    input: &Input<'_>,
    device: &DeviceArgs,
    compute: &ComputeArgs,
) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<&[u32]> = input.ids.iter().map(Vec::as_slice).collect();
    loading::warn_of_context(open.model(), input.ctx_size);
    let open = open.try_with(|loader| {
        let loader = loading::sized(loader, compute, input.ctx_size)?;
        Ok::<_, anyhow::Error>(
            loader.pooling(input.pooling).for_texts(texts.iter().map(|text| text.len())),
        )
    })?;
    let placement = device::open(device.options(compute.cpu()?))?;
    let mut engine = loading::load(&open, &placement, false, &mut |_| ())?.engine;
    Ok(engine.embed(&texts)?)
}
