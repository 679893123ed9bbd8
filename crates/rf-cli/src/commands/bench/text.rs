//! Decode of a real text, without and with drafts.

use std::path::Path;

use anyhow::Result;
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::{GenerateExtras, GenerateOptions, Model, Speculation, SyntheticFeeder};

use super::record::DraftCounts;
use crate::commands::answer::flow;
use crate::failure::bad_input;
use crate::interrupt::Watch;
use crate::sources;

/// The text and the source of its drafts.
pub(super) struct BenchText {
    pub(super) ids: Vec<u32>,
    pub(super) speculation: Option<Speculation>,
}

/// The tokens of the text in a file.
pub(super) fn ids(file: Option<&Path>, model: &Model) -> Result<Option<Vec<u32>>> {
    let Some(file) = file else { return Ok(None) };
    let ids = model.text_ids(&sources::file_text(file)?);
    if ids.is_empty() {
        return Err(bad_input!("{} has no tokens: give a longer text", sources::named(file)));
    }
    Ok(Some(ids))
}

/// Decodes `n_gen` tokens after a text, once for each repetition, and returns the nanoseconds of
/// each.
pub(super) fn decode(
    feeder: &mut SyntheticFeeder,
    ids: &[u32],
    mut speculation: Option<&mut Speculation>,
    n_gen: usize,
    repetitions: usize,
) -> Result<(Vec<u64>, DraftCounts)> {
    let watch = Watch::new();
    let options = GenerateOptions::default()
        .with_sampler(SamplerConfig::greedy())
        // The prompt gives the first token.
        .with_max_tokens(n_gen + 1)
        .with_ignore_eos(true);
    let mut drafted = DraftCounts { is_on: speculation.is_some(), ..DraftCounts::default() };
    let mut samples_ns = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let speculation = speculation.as_deref_mut();
        let extras = GenerateExtras::default().with_speculation(speculation);
        let session = &mut feeder.sessions[0];
        let on_text = &mut |_: &str| flow(&watch);
        let outcome = feeder.engine.generate_with(session, ids, &options, extras, on_text)?;
        watch.check()?;
        let timings = outcome.timings;
        samples_ns.push(timings.decode_us.saturating_mul(1000).max(1));
        drafted.drafted_tokens += timings.drafted_tokens;
        drafted.accepted_tokens += timings.accepted_tokens;
    }
    Ok((samples_ns, drafted))
}
