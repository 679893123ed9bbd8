//! Attention: which spans go to which kernel, and how a long context is shared out.

use rf_graph::{Attention, DType, Op, ValueId};

use super::super::{DECODE_TOKENS, Facts};
use super::Recorder;
use super::products::is_float;
use crate::error::Error;

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
    pub(super) fn attention(&mut self, q: ValueId, a: &Attention, out: ValueId) -> Result<(), Error> {
        let _ = (q, a, out);
        Err(Error::Unsupported { what: "attention".into() })
    }
}
