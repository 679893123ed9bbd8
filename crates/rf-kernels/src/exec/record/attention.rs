//! Attention: the kernel for each span, and the division of a long context.

use std::ops::RangeInclusive;

use rf_graph::{Attention, Graph, Op, RopeAppend, ValueId};

use super::Recorder;
use crate::error::Error;
use crate::exec::analysis::GraphAnalysis;
use crate::params::{
    Address, AttentionParams, Batch, LatentParams, MatvecSumParams, NewHeads, RowMemory, Span,
};

/// Largest number of tokens of a span for the decode kernel, which reads the keys once per token
/// and divides them over the device. Longer spans use the prefill kernel, where a tile of queries
/// reads the keys once.
const SHORT_SPAN: usize = 8;

/// Largest number of partial results: tokens times splits.
const MAX_PARTIALS: usize = 1024;

impl GraphAnalysis {
    /// Floats of partial results: of attention, sums and two statistics per head, token and split;
    /// of latent attention; of a matmul; or of a sum of experts.
    pub(in crate::exec) fn partial_floats(&self) -> usize {
        let attention = MAX_PARTIALS * (self.attention_width + 2 * self.attention_heads);
        let sums = MatvecSumParams::MAX_PARTS * self.sum_width;
        let latents = self.latent_floats();
        attention.max(latents).max(self.matmul_device.partial_floats()).max(sums)
    }

    /// Counters: of attention, one per token and query head; of latent attention; of a matmul;
    /// or of a sum of experts, one per 32 rows.
    pub(in crate::exec) fn arrival_count(&self, max_tokens: usize) -> usize {
        let latents = if self.latent_dim > 0 { LatentParams::MAX_ARRIVALS } else { 0 };
        let attention = latents.max(max_tokens * self.attention_heads);
        attention.max(self.matmul_device.arrivals()).max(self.sum_width / 32)
    }
}

impl GraphAnalysis {
    fn latent_floats(&self) -> usize {
        match self.latent_dim {
            0 => 0,
            width => LatentParams::partial_floats(width) + LatentParams::STATISTIC_FLOATS,
        }
    }
}

impl Recorder<'_> {
    /// Records [`Op::Attention`] over latents: a launch for long spans and
    /// one for short spans, which divides the keys over more workgroups.
    pub(super) fn latent_attention(
        &mut self,
        q: ValueId,
        (a, latent_dim): (&Attention, usize),
        out: ValueId,
    ) {
        let (program, shape) = (self.memory.program, self.memory.shape);
        let (batch, cache) = self.memory.cache(a.layer);
        let partials = program.scratch.partials;
        let sums = LatentParams::partial_floats(program.analysis.latent_dim);
        let params = LatentParams {
            batch,
            cache,
            q: self.memory.address(q),
            out: self.memory.address(out),
            partials,
            statistics: partials + 4 * sums as u64,
            arrivals: program.scratch.arrivals,
            scale: a.scale,
            num_heads: a.num_heads as u32,
            latent_dim: latent_dim as u32,
            ..LatentParams::default()
        };
        let compute_units = program.analysis.matmul_device.compute_units;
        let mut launch = |spans: RangeInclusive<u32>, tokens: usize| {
            let params =
                LatentParams { min_span: *spans.start(), max_span: *spans.end(), ..params }
                    .with_splits(tokens, shape.context, compute_units);
            self.launches.push(params.launch(tokens), params);
        };
        let (short, mut short_tokens) = (SHORT_SPAN as u32, shape.tokens);
        if shape.longest_span > SHORT_SPAN {
            launch(short + 1..=u32::MAX, shape.tokens);
            short_tokens -= shape.longest_span;
        }
        if shape.shortest_span <= SHORT_SPAN {
            launch(0..=short, short_tokens);
        }
    }

    /// Records [`Op::Attention`] over keys and values. If every sequence
    /// has one token, the launch of attention also rotates and appends; otherwise a launch before
    /// it does, since a token may read the keys of others of its span.
    ///
    /// # Errors
    ///
    /// If the length of a chunk is no power of two.
    pub(super) fn attention(
        &mut self,
        append: Option<&RopeAppend>,
        q: ValueId,
        a: &Attention,
        out: ValueId,
    ) -> Result<(), Error> {
        let (program, shape) = (self.memory.program, self.memory.shape);
        let (mut new_heads, mut from) = (NewHeads::default(), q);
        if let Some(heads) = append {
            let params = self.new_heads(heads);
            // The kernel of attention turns a head by the place of its token in the cache.
            let has_kernel = params.has_whole_chunks() && !shape.has_positions;
            if shape.longest_span == 1 && has_kernel {
                (new_heads, from) = (params, heads.q);
            } else {
                self.rope_append(heads, q);
            }
        }
        let max_splits = (MAX_PARTIALS / shape.tokens.max(1)).max(1);
        let partials = program.scratch.partials;
        let short_span =
            if AttentionParams::has_prefill(a.head_dim) { SHORT_SPAN } else { usize::MAX };
        let (batch, cache) = self.memory.cache(a.layer);
        let params = AttentionParams {
            batch,
            cache,
            heads: new_heads,
            q: self.memory.address(from),
            sinks: a.sinks.map_or(0, |sinks| self.memory.vector(sinks)),
            out: self.memory.output(out),
            partials,
            statistics: partials + 4 * (MAX_PARTIALS * program.analysis.attention_width) as u64,
            arrivals: program.scratch.arrivals,
            scale: a.scale,
            softcap: a.softcap.unwrap_or(0.0),
            window: if a.causal {
                a.window.map_or(0, |window| window as u32)
            } else {
                AttentionParams::BOTH_WAYS
            },
            chunk_mask: a.chunk.map_or(Ok(0), chunk_mask)?,
            num_heads: a.num_heads as u32,
            splits: 1,
            short_span: u32::try_from(short_span).unwrap_or(u32::MAX),
            ..AttentionParams::default()
        };
        if shape.longest_span > short_span {
            self.launches.push(params.prefill_launch(program.analysis.matmul_device), params);
        }
        if shape.shortest_span <= short_span {
            let visible = a.reach().map_or(shape.context, |reach| reach.min(shape.context));
            let params = params.with_splits(visible, program.analysis.matmul_device, max_splits);
            self.launches.push(params.decode_launch(), params);
        }
        if a.non_causal_media {
            self.non_causal_media(&params);
        }
        Ok(())
    }

    /// Records launches that compute the rows of pictures once more, so that they see each other
    /// both ways: one for each such span, with its part of the batch.
    fn non_causal_media(&mut self, params: &AttentionParams) {
        for span in self.memory.media.non_causal() {
            let batch = Batch {
                spans: params.batch.spans + SPAN_BYTES * span.index as Address,
                num_spans: 1,
                num_tokens: span.rows as u32,
                ..params.batch
            };
            let params = AttentionParams {
                batch,
                window: params.window | AttentionParams::BOTH_WAYS,
                short_span: 0,
                ..*params
            };
            let device = self.memory.program.analysis.matmul_device;
            self.launches.push(params.prefill_launch(device), params);
        }
    }
}

/// Bytes of the record of a span.
const SPAN_BYTES: Address = size_of::<Span>() as Address;

/// Checks that the attention of a program has kernels, before its weights are loaded.
///
/// # Errors
///
/// If it has `ALiBi`, or a window in both directions.
pub(in crate::exec) fn check(graph: &Graph) -> Result<(), Error> {
    for op in graph.ops() {
        let Op::Attention { attention, .. } = op else { continue };
        let what = match attention.window.filter(|_| !attention.causal) {
            _ if attention.alibi.is_some() => "attention with ALiBi".into(),
            None => continue,
            Some(window) => {
                let most = window / 2 + 1;
                format!(
                    "a window of {window} tokens in both directions (a context of at most {most} \
                     tokens needs none)"
                )
            }
        };
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

/// The bits of a position that select its chunk.
fn chunk_mask(chunk: usize) -> Result<u32, Error> {
    match u32::try_from(chunk) {
        Ok(chunk) if chunk.is_power_of_two() => Ok(!(chunk - 1)),
        _ => {
            let what =
                format!("attention in chunks of {chunk} tokens, which is not a power of two");
            Err(Error::Unsupported { what })
        }
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::GraphBuilder;

    use super::*;

    #[test]
    fn windows_in_both_directions_are_refused_with_the_context_that_needs_none() {
        let graph = |causal| {
            let mut g = GraphBuilder::new();
            let x = g.input(64);
            let attention = Attention { causal, window: Some(8), ..Attention::new(0, 1, 1, 64) };
            let y = g.attention(x, x, x, &attention);
            g.finish(y).0
        };
        assert!(check(&graph(true)).is_ok());
        let error = check(&graph(false)).unwrap_err().to_string();
        assert!(error.contains("a window of 8 tokens in both directions"), "{error}");
        assert!(error.contains("a context of at most 5 tokens"), "{error}");
    }

    #[test]
    fn chunks_are_powers_of_two() {
        assert_eq!(chunk_mask(8192).unwrap(), 0xffff_e000);
        for other in [0, 100, 1 << 32] {
            let error = chunk_mask(other).unwrap_err();
            assert!(error.to_string().contains(&format!("chunks of {other} tokens")), "{error}");
        }
    }
}
