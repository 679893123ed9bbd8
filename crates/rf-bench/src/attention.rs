//! Attention over the paged cache: of whole prompts, and of single tokens behind many others.
//!
//! The graph has one attention, causal, and backends one form of it: scores, softmax and values of a query in one pass
//! over the pages ("flash"). What it is held against, all scores written down and no mask, is in [`crate::standard`].

use rf_graph::{Attention, KvLayout, KvType, OpCost};

use crate::program::{Net, OpProgram, OwnedBatch, PAGE_TOKENS, Timed, cold_copies};
use crate::{Error, Prepared, Suite, Target, Task, Workload};

/// Attention of some tokens of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Attend {
    pub(crate) layer: AttentionLayer,
    pub(crate) kv: KvType,
    /// Queries.
    pub(crate) tokens: usize,
    /// What the cache holds before them.
    pub(crate) past_tokens: usize,
}

/// What a layer of a model asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionLayer {
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
}

/// Of Llama 2 7B, Llama 3.2 1B, Llama 3 8B and Qwen2.5 0.5B.
pub(crate) const LAYERS: [AttentionLayer; 4] = [
    AttentionLayer { num_heads: 32, num_kv_heads: 32, head_dim: 128 },
    AttentionLayer { num_heads: 32, num_kv_heads: 8, head_dim: 64 },
    AttentionLayer { num_heads: 32, num_kv_heads: 8, head_dim: 128 },
    AttentionLayer { num_heads: 14, num_kv_heads: 2, head_dim: 64 },
];

/// Which of them stands for all in the quick subset, and for types of caches beyond the usual.
pub(crate) const USUAL: usize = 2;

pub(crate) fn workloads() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for (i, layer) in LAYERS.into_iter().enumerate() {
        for tokens in [32, 64, 128, 256, 512] {
            let attend = Attend { layer, kv: KvType::F16, tokens, past_tokens: 0 };
            workloads.push(attend.workload(i == USUAL && [128, 512].contains(&tokens)));
        }
    }
    for (i, layer) in LAYERS.into_iter().enumerate() {
        let all = &KvType::ALL[..];
        for &kv in if i == USUAL { all } else { &[KvType::F16, KvType::Q8_0] } {
            for past_tokens in [512, 4096] {
                let attend = Attend { layer, kv, tokens: 1, past_tokens };
                let usual = i == USUAL && [KvType::F16, KvType::Q8_0].contains(&kv);
                workloads.push(attend.workload(usual && past_tokens == 4096));
            }
        }
    }
    workloads
}

impl Attend {
    fn workload(self, quick: bool) -> Workload {
        Workload::new(self, quick)
    }

    /// Of one layer.
    fn cache_bytes(&self) -> usize {
        let per_token = 2 * self.layer.num_kv_heads * self.kv.head_bytes(self.layer.head_dim);
        (self.past_tokens + self.tokens) * per_token
    }

    /// In decode each layer of a model has a cache of its own, which is read once per token; so it is here.
    pub(crate) fn program(&self) -> OpProgram {
        let is_decode = self.past_tokens > 0;
        self.program_of(if is_decode { cold_copies(self.cache_bytes()) } else { 1 })
    }

    /// With so many layers.
    fn program_of(&self, layers: usize) -> OpProgram {
        /// Rows of the tables that queries, keys and values are of.
        const VOCAB_SIZE: usize = 512;
        let AttentionLayer { num_heads, num_kv_heads, head_dim } = self.layer;
        let mut net = Net::new();
        let [q, k, v] = [num_heads, num_kv_heads, num_kv_heads]
            .map(|heads| net.rows_of_table(VOCAB_SIZE, heads * head_dim));
        let mut out = q;
        for layer in 0..layers {
            let attention = Attention::new(layer, num_heads, num_kv_heads, head_dim);
            out = net.g.attention(q, k, v, &attention);
        }
        let num_pages = (self.past_tokens + self.tokens).div_ceil(PAGE_TOKENS);
        let kv = KvLayout {
            layers: vec![(num_kv_heads, head_dim); layers],
            page_tokens: PAGE_TOKENS,
            num_pages,
            dtype: self.kv,
        };
        let fill: Vec<_> = (0..self.past_tokens.div_ceil(PAGE_TOKENS) as u32)
            .collect::<Vec<_>>()
            .chunks(VOCAB_SIZE / PAGE_TOKENS)
            .map(|pages| {
                let pages = pages[0]..pages[0] + pages.len() as u32;
                OwnedBatch::of_pages(pages, VOCAB_SIZE, PAGE_TOKENS)
            })
            .collect();
        let batch = OwnedBatch::of_sequence(self.tokens, self.past_tokens, VOCAB_SIZE, PAGE_TOKENS);
        let max_tokens = fill.iter().map(OwnedBatch::tokens).fold(self.tokens, usize::max);
        OpProgram {
            program: net.finish(out, kv, max_tokens),
            batch,
            fill,
            timed: Timed::Op("attention", layers as u32),
        }
    }
}

impl Task for Attend {
    fn name(&self) -> String {
        let Self { layer: AttentionLayer { num_heads, num_kv_heads, head_dim }, kv, .. } = self;
        let what = if self.past_tokens == 0 {
            format!("prefill/tokens={}", self.tokens)
        } else {
            format!("decode/depth={}", self.past_tokens)
        };
        format!("attention/heads={num_heads}:{num_kv_heads}x{head_dim}/{kv}/{what}")
    }

    fn suite(&self) -> Suite {
        Suite::Attention
    }

    fn cost(&self) -> OpCost {
        let AttentionLayer { num_heads, head_dim, .. } = self.layer;
        // A query sees all keys up to its own: a product with each, and a share of each value.
        let seen: usize = (self.past_tokens + 1..=self.past_tokens + self.tokens).sum();
        let queries = self.tokens * num_heads * head_dim;
        OpCost {
            bytes: (self.cache_bytes() + 2 * size_of::<f32>() * queries) as u64,
            f32_operations: (4 * num_heads * head_dim * seen) as u64,
            int8_operations: 0,
        }
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        self.program().prepare(target)
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::conformance::Bound;

    use super::*;
    use crate::program::agreement;

    const SMALL: AttentionLayer = AttentionLayer { num_heads: 4, num_kv_heads: 2, head_dim: 32 };

    #[test]
    fn decode_reads_the_whole_cache_and_prefill_half_of_all_pairs() {
        let layer = LAYERS[USUAL];
        let decode =
            Attend { layer, kv: KvType::F16, tokens: 1, past_tokens: 4096 }.workload(false);
        // 4097 tokens of 8 heads of 128, keys and values, 2 bytes each; a query of 32 · 128 floats in and out.
        assert_eq!(decode.cost.bytes, 4097 * 4096 + 2 * 16_384);
        assert_eq!(decode.cost.f32_operations, 4 * 4096 * 4097);
        let prefill =
            Attend { layer, kv: KvType::F16, tokens: 512, past_tokens: 0 }.workload(false);
        // 512 · 513 / 2 pairs.
        assert_eq!(prefill.cost.f32_operations, 4 * 4096 * 131_328);
    }

    #[test]
    fn programs_compute_the_attention_that_their_name_says() {
        for kv in KvType::ALL {
            for (tokens, past_tokens) in [(40, 0), (1, 96), (1, 600)] {
                let attend = Attend { layer: SMALL, kv, tokens, past_tokens };
                let cost = agreement(attend.program_of(2), Bound::of_cache(kv, false));
                assert_eq!(cost, attend.cost());
            }
        }
    }
}
