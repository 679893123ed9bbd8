//! The step of latent attention.

use super::Region;
use super::matmul::Scratch;
use super::steps::AttentionStep;
use crate::simd::LANES;
use crate::simd::attention::CachedHead;
use crate::simd::latent::{AttendLatent, MAX_QUERIES, Query};
use crate::team::{PieceDivision, Share};

impl Region<'_> {
    /// Queries of a work item: a query is a head of a token. Two vectors of them share each row of
    /// the cache if all threads have work nevertheless.
    fn latent_queries(&self, heads: usize) -> usize {
        let vectors = self.batch.spans.iter().map(|s| (s.tokens.len() * heads).div_ceil(LANES));
        if vectors.sum::<usize>() >= 2 * self.threads { MAX_QUERIES } else { LANES }
    }

    /// Deals the queries of latent attention in pieces.
    pub(super) fn latent_deal(&self, step: &AttentionStep) -> PieceDivision {
        let a = &step.attention;
        let per_item = self.latent_queries(a.num_heads);
        let (mut items, mut rows) = (0, 0);
        for span in self.batch.spans {
            let tiles = (span.tokens.len() * a.num_heads).div_ceil(per_item);
            items += tiles;
            rows += tiles * (span.past_tokens + span.tokens.len());
        }
        // Keys and values, 16 products in a nanosecond.
        let ns = rows * per_item * (a.head_dim + a.value_dim()) / 16;
        PieceDivision::new(items, ns / items.max(1), self.threads)
    }

    pub(super) fn latent_attention(
        &self,
        share: &mut Share<'_>,
        step: &AttentionStep,
        scratch: &mut Scratch,
    ) {
        let a = &step.attention;
        let kv = &self.kv[a.layer];
        let (q, out) = (self.rows(step.q), self.rows(step.out));
        // SAFETY: the cache was written in an earlier phase.
        let keys = unsafe { kv.keys.get(0..kv.keys.len()) };
        let (heads, value_dim) = (a.num_heads, a.value_dim());
        let per_item = self.latent_queries(heads);
        let tiles = self.batch.spans.iter().flat_map(|span| {
            (0..span.tokens.len() * heads).step_by(per_item).map(move |first| (span, first))
        });
        let tiles: Vec<_> = tiles.collect();
        for item in share.flatten() {
            // Late tiles attend to more positions. They run first, which balances the loop.
            let (span, first) = tiles[tiles.len() - 1 - item];
            let mut transformed = Vec::new();
            let mut queries = Vec::with_capacity(MAX_QUERIES);
            let mut outs = Vec::with_capacity(MAX_QUERIES);
            for query in first..(first + per_item).min(span.tokens.len() * heads) {
                let (token, head) = (query / heads, query % heads);
                let columns = head * a.head_dim..(head + 1) * a.head_dim;
                // SAFETY: written in an earlier phase.
                let q = unsafe { &q.row(span.tokens.start + token)[columns] };
                queries.push(Query { q, positions: span.past_tokens + token + 1 });
                let columns = head * value_dim..(head + 1) * value_dim;
                // SAFETY: each head of each token belongs to one item.
                outs.push(unsafe { out.row_mut(span.tokens.start + token, columns) });
            }
            if kv.shape.is_transformed() {
                for query in &queries {
                    transformed.extend_from_slice(query.q);
                }
                kv.shape.transform(&mut transformed);
                for (query, q) in queries.iter_mut().zip(transformed.chunks_exact(a.head_dim)) {
                    query.q = q;
                }
            }
            let pages = span.pages_of(kv.group);
            self.isa.run(AttendLatent {
                cache: CachedHead { shape: kv.shape, keys, values: &[], head: 0, pages },
                latent_dim: value_dim,
                scale: a.scale,
                queries: &queries,
                out: &mut outs,
                scratch: &mut scratch.latent,
            });
            if kv.shape.is_transformed() {
                for out in &mut outs {
                    kv.shape.transform(out);
                }
            }
        }
    }
}
