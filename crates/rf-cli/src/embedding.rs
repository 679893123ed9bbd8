//! Embeddings for the commands: loads a model for the texts that it gets, and computes them.

use anyhow::Result;
use rf_engine::{EngineOptions, Model, Pooling};
use rf_graph::KvType;

use crate::args::{ComputeArgs, DeviceArgs};
use crate::failure::bad_input;
use crate::loading::{ModelFile, Source};
use crate::{device, loading};

/// The texts to embed and the model that embeds them.
pub(crate) struct Input<'a> {
    pub(crate) file: &'a ModelFile,
    /// The tokens of each text.
    pub(crate) ids: &'a [Vec<u32>],
    pub(crate) pooling: Pooling,
    /// The value of `-c`.
    pub(crate) ctx_size: Option<usize>,
}

/// Loads the model and computes a vector for each text.
pub(crate) fn compute(
    model: Model,
    input: &Input<'_>,
    device: &DeviceArgs,
    compute: &ComputeArgs,
) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<&[u32]> = input.ids.iter().map(Vec::as_slice).collect();
    if let Some(empty) = texts.iter().position(|text| text.is_empty()) {
        return Err(bad_input!("text {} has no tokens: leave out empty texts", empty + 1));
    }
    let options = options(&model, input, compute)?;
    let placement = device::open(device.options(compute.cpu()?))?;
    let source = Source { file: input.file, template: None, quiet: false };
    let mut engine = loading::load(model, &placement, options, source)?.engine;
    Ok(engine.embed(&texts)?)
}

/// The options of the engine: a cache for the longest text, and for the texts of about one batch.
fn options(model: &Model, input: &Input<'_>, compute: &ComputeArgs) -> Result<EngineOptions> {
    let lengths = || input.ids.iter().map(Vec::len);
    let longest = lengths().max().unwrap_or(1);
    let config = model.config();
    let context = match input.ctx_size {
        None => longest,
        Some(0) => config.context_length,
        Some(tokens) => tokens,
    };
    let most = config.max_context_length.map_or(context, |most| context.min(most));
    if let Some((index, length)) = lengths().enumerate().find(|(_, length)| *length > most) {
        return Err(bad_input!(
            "text {} has {length} tokens and there is room for {most}: split it",
            index + 1
        ));
    }
    let options = loading::engine_options(model, compute, Some(context))?;
    // Short texts leave most of a large page empty.
    let page_tokens = 16;
    let in_pages: usize = lengths().map(|length| length.next_multiple_of(page_tokens)).sum();
    Ok(EngineOptions {
        page_tokens,
        // The cache lasts for a batch, so its size matters less than its precision.
        kv_type: compute.kv_type_or(KvType::F32)?,
        kv_tokens: Some(context.max(in_pages.min(2 * options.batch_tokens))),
        pooling: Some(input.pooling),
        ..options
    })
}
