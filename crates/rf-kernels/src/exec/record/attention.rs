//! Attention: which spans go to which kernel, and how a long context is shared out.

use rf_graph::{Attention, DType, Op, ValueId};

use super::super::Facts;
use super::products::is_float;
use super::{Ready, Recorder};
use crate::error::Error;
use crate::params::{Activations, AttentionParams, NormIn, Operand};

/// Spans up to that many tokens are decode's, which reads the keys once per token but shares them out over the
/// device; in longer ones a tile of queries reads them once.
const SHORT_SPAN: usize = 8;

/// Tokens times splits for which there is room for partial results.
const MAX_PARTIALS: usize = 1024;

impl Facts {
    /// Floats of partial results: sums and two statistics per head, token and split.
    pub(in crate::exec) fn partial_floats(&self) -> usize {
        MAX_PARTIALS * (self.attention_width + 2 * self.attention_heads)
    }

    /// Counters: one per token and key/value head.
    pub(in crate::exec) fn arrival_count(&self, max_tokens: usize) -> usize {
        max_tokens * self.attention_kv_heads
    }
}

impl Recorder<'_> {
    /// [`Op::Attention`].
    pub(super) fn attention(
        &mut self,
        q: ValueId,
        a: &Attention,
        out: ValueId,
    ) -> Result<(), Error> {
        let facts = &self.exec.facts;
        let reader = facts.reader_of[self.op].filter(|_| a.head_dim.is_multiple_of(32));
        let mut operand = Operand { q8: Activations::default(), f32: self.at(out) };
        if let Some(reader) = reader
            && let Op::MatMul(m) = &self.exec.graph.ops()[reader]
        {
            let dtypes: Vec<DType> =
                m.projections.iter().map(|p| self.exec.weights.place(p.weight).dtype).collect();
            if dtypes.iter().any(|dtype| !is_float(*dtype)) {
                operand.q8 = self.next_q8();
                if !dtypes.iter().any(|dtype| is_float(*dtype)) {
                    operand.f32 = 0;
                }
                self.ready = Some(Ready { reader, operand, norm: NormIn::default() });
            }
        }
        let most_splits = (MAX_PARTIALS / self.shape.tokens.max(1)).max(1);
        let partials = self.exec.work.partials.address();
        let params = AttentionParams {
            batch: self.batch,
            cache: self.exec.kv.layer(a.layer),
            q: self.at(q),
            sinks: a.sinks.map_or(0, |sinks| self.exec.weights.vector(sinks)),
            out: operand,
            partials,
            statistics: partials + 4 * (MAX_PARTIALS * self.exec.facts.attention_width) as u64,
            arrivals: self.exec.work.arrivals.address(),
            scale: a.scale,
            softcap: a.softcap.unwrap_or(0.0),
            window: a.window.map_or(0, |window| window as u32),
            num_heads: a.num_heads as u32,
            splits: 1,
            short_span: SHORT_SPAN as u32,
        };
        if self.shape.longest_span > SHORT_SPAN {
            self.push(params.prefill_launch(), params)?;
        }
        if self.shape.shortest_span <= SHORT_SPAN {
            let seen = a.window.map_or(self.shape.context, |window| window.min(self.shape.context));
            let params = params.with_splits(seen, self.exec.facts.compute_units, most_splits);
            self.push(params.decode_launch(), params)?;
        }
        Ok(())
    }
}
