//! Steps that write and read the KV cache: RoPE and append, attention.

use std::ops::Range;

use rf_graph::{Attention, Span, ValueId};

use super::matmul::Scratch;
use super::phases::StepPart;
use super::rows::row_ns;
use super::steps::{AttentionStep, RopeAppend};
use super::{Region, rows};
use crate::kv::{store_key, store_value};
use crate::simd::attention::{Attend, AttentionQuery, CachedHead, MAX_ROWS};
use crate::team::{PieceDivision, Share};

/// The keys and values of a batch to append to the cache.
pub(super) struct AppendItem<'a> {
    pub(super) k: ValueId,
    /// `None` in a latent layer.
    pub(super) v: Option<ValueId>,
    pub(super) layer: usize,
    /// Norm weight and eps of the RMS norm of each key head.
    pub(super) k_norm: Option<(&'a [f32], f32)>,
    /// Index of the RoPE table.
    pub(super) rope: Option<usize>,
}

/// The geometry of the work items of attention.
struct AttentionItems {
    /// Heads per item.
    heads: usize,
    /// Tokens per item.
    tokens: usize,
    /// Items per group of heads and tile of tokens.
    per_group: usize,
}

/// The pages that a span writes, as indices into its pages.
fn written(span: &Span<'_>, page_tokens: usize) -> Range<usize> {
    span.past_tokens / page_tokens..span.end().div_ceil(page_tokens)
}

impl Region<'_> {
    /// The pieces of [`Self::rope_append`]: the heads of pages, then those of queries.
    pub(super) fn rope_append_deals(&self, op: &RopeAppend) -> [PieceDivision; 2] {
        let (elements, head_dim) = (self.rows(op.q).data.len(), self.ropes[op.rope].rope.head_dim);
        let queries = PieceDivision::new(elements / head_dim, row_ns(head_dim), self.threads);
        [self.append_deal(op.k, op.layer), queries]
    }

    /// Appends keys and values, then rotates queries.
    pub(super) fn rope_append(&self, share: &mut Share<'_>, part: StepPart, op: &RopeAppend) {
        if part == StepPart::First {
            let k_norm = op.qk_norm.map(|n| (self.vector(n.k), n.eps));
            let (k, v, layer) = (op.k, Some(op.v), op.layer);
            self.append(share, &AppendItem { k, v, layer, k_norm, rope: Some(op.rope) });
            return;
        }
        let q_norm = op.qk_norm.map(|n| (self.vector(n.q), n.eps));
        let (q, out) = (self.rows(op.q), self.rows(op.q_out));
        let table = &self.ropes[op.rope];
        let head_dim = table.rope.head_dim;
        let heads = q.width / head_dim;
        let mut buffer = Vec::new();
        for range in share {
            for item in range {
                let (token, head) = (item / heads, item % heads * head_dim);
                // SAFETY: written in an earlier phase.
                let x = unsafe { &q.row(token)[head..head + head_dim] };
                // SAFETY: each head of each token belongs to one piece.
                let y = unsafe { out.row_mut(token, head..head + head_dim) };
                match q_norm {
                    Some((weight, eps)) => rows::rms_norm(self.isa, x, weight, eps, y),
                    None => y.copy_from_slice(x),
                }
                table.rotate(self.isa, self.position(token), &mut buffer, y);
            }
        }
    }

    /// The pieces of [`Self::append`]: the heads of the pages that the batch writes.
    pub(super) fn append_deal(&self, k: ValueId, layer: usize) -> PieceDivision {
        let shape = self.kv[layer].shape;
        let pages = self.batch.spans.iter().map(|span| written(span, shape.page_tokens).len());
        let items = pages.sum::<usize>() * shape.heads;
        let elements = 2 * self.rows(k).data.len();
        PieceDivision::new(items, row_ns(elements) / items.max(1), self.threads)
    }

    /// Writes keys and values to the cache. A head of a page is one item, because its bytes
    /// interleave tokens.
    pub(super) fn append(&self, share: &mut Share<'_>, op: &AppendItem<'_>) {
        let kv = &self.kv[op.layer];
        let shape = kv.shape;
        let (k, v) = (self.rows(op.k), op.v.map(|v| self.rows(v)));
        let page_tokens = shape.page_tokens;
        let mut head_buffer = vec![0.0; shape.head_dim];
        let mut cos_sin = Vec::new();
        let pages = self
            .batch
            .spans
            .iter()
            .flat_map(|span| written(span, page_tokens).map(move |page| (span, page)));
        let pages: Vec<_> = pages.collect();
        for range in share {
            for item in range {
                let ((span, page), head) = (pages[item / shape.heads], item % shape.heads);
                let place = span.pages_of(kv.group)[page].index() * shape.heads + head;
                let bytes = shape.key_head_bytes();
                // SAFETY: each head of each page belongs to one item.
                let keys = unsafe { kv.keys.get_mut(place * bytes..(place + 1) * bytes) };
                let bytes = shape.value_head_bytes();
                // SAFETY: as above.
                let values = unsafe { kv.values.get_mut(place * bytes..(place + 1) * bytes) };
                let first = span.past_tokens.max(page * page_tokens);
                let last = span.end().min((page + 1) * page_tokens);
                let columns = head * shape.head_dim..(head + 1) * shape.head_dim;
                for position in first..last {
                    let token = span.tokens.start + position - span.past_tokens;
                    // SAFETY: written in an earlier phase.
                    let k = unsafe { &k.row(token)[columns.clone()] };
                    match op.k_norm {
                        Some((weight, eps)) => {
                            rows::rms_norm(self.isa, k, weight, eps, &mut head_buffer);
                        }
                        None => head_buffer.copy_from_slice(k),
                    }
                    if let Some(rope) = op.rope {
                        let position = span.position(position - span.past_tokens);
                        let rope = &self.ropes[rope];
                        rope.rotate(self.isa, position, &mut cos_sin, &mut head_buffer);
                    }
                    shape.transform(&mut head_buffer);
                    let Some(v) = v else {
                        store_value(shape, keys, position % page_tokens, &head_buffer);
                        continue;
                    };
                    store_key(shape, keys, position % page_tokens, &head_buffer);
                    // SAFETY: written in an earlier phase.
                    let mut v = unsafe { &v.row(token)[columns.clone()] };
                    if shape.is_transformed() {
                        head_buffer.copy_from_slice(v);
                        shape.transform(&mut head_buffer);
                        v = &head_buffer;
                    }
                    store_value(shape, values, position % page_tokens, v);
                }
            }
        }
    }

    /// How the rows of attention are divided into work items: some tokens × some heads of a group,
    /// at most [`MAX_ROWS`]. With more threads than groups, a group is split into several items.
    fn attention_items(&self, a: &Attention) -> AttentionItems {
        let group = a.num_heads / a.num_kv_heads;
        let splits = self.threads.div_ceil(a.num_kv_heads * self.tokens()).min(group);
        let heads = group.div_ceil(splits).min(MAX_ROWS);
        AttentionItems { heads, tokens: MAX_ROWS / heads, per_group: group.div_ceil(heads) }
    }

    /// Deals the heads and tokens of attention in pieces.
    pub(super) fn attention_deal(&self, step: &AttentionStep) -> PieceDivision {
        let a = &step.attention;
        let item = self.attention_items(a);
        let (mut tiles, mut products) = (0, 0);
        for span in self.batch.spans {
            tiles += span.tokens.len().div_ceil(item.tokens);
            products += span.tokens.len() * (span.past_tokens + span.tokens.len());
        }
        let items = tiles * a.num_kv_heads * item.per_group;
        // Keys and values, 8 products in a nanosecond.
        let ns = products * 2 * a.num_heads * a.head_dim / 8;
        PieceDivision::new(items, ns / items.max(1), self.threads)
    }

    pub(super) fn attention(
        &self,
        share: &mut Share<'_>,
        step: &AttentionStep,
        scratch: &mut Scratch,
    ) {
        let a = &step.attention;
        let kv = &self.kv[a.layer];
        let (q, out) = (self.rows(step.q), self.rows(step.out));
        let sinks = a.sinks.map(|s| self.vector(s));
        // SAFETY: the cache was written in an earlier phase.
        let keys = unsafe { kv.keys.get(0..kv.keys.len()) };
        // SAFETY: as above.
        let values = unsafe { kv.values.get(0..kv.values.len()) };
        let group = a.num_heads / a.num_kv_heads;
        let AttentionItems { heads: heads_per_item, tokens: tokens_per_item, per_group } =
            self.attention_items(a);
        let tiles: Vec<_> = self
            .batch
            .spans
            .iter()
            .flat_map(|span| span.tokens.clone().step_by(tokens_per_item).map(move |t| (span, t)))
            .collect();
        for range in share {
            for item in range {
                // Late tiles attend to more positions. They run first, which balances the loop.
                let (span, first) = tiles[tiles.len() - 1 - item / (a.num_kv_heads * per_group)];
                let kv_head = item / per_group % a.num_kv_heads;
                let first_head = kv_head * group + item % per_group * heads_per_item;
                let heads = first_head..(first_head + heads_per_item).min((kv_head + 1) * group);
                let tokens = first..(first + tokens_per_item).min(span.tokens.end);
                let mut transformed = Vec::new();
                let mut rows = Vec::with_capacity(MAX_ROWS);
                let mut outs = Vec::with_capacity(MAX_ROWS);
                for token in tokens {
                    let position = span.past_tokens + token - span.tokens.start;
                    let visible = a.visible(position, span.end(), span.is_non_causal());
                    for head in heads.clone() {
                        let columns = head * a.head_dim..(head + 1) * a.head_dim;
                        rows.push(AttentionQuery {
                            // SAFETY: written in an earlier phase.
                            q: unsafe { &q.row(token)[columns.clone()] },
                            first: visible.start,
                            last: visible.end,
                            position,
                            slope: a.alibi.map(|_| a.slope(head)),
                            sink: sinks.map(|s| s[head]),
                        });
                        // SAFETY: each head of each token belongs to one item.
                        outs.push(unsafe { out.row_mut(token, columns) });
                    }
                }
                if kv.shape.is_transformed() {
                    for row in &rows {
                        transformed.extend_from_slice(row.q);
                    }
                    kv.shape.transform(&mut transformed);
                    for (row, q) in rows.iter_mut().zip(transformed.chunks_exact(a.head_dim)) {
                        row.q = q;
                    }
                }
                self.isa.run(Attend {
                    cache: CachedHead {
                        shape: kv.shape,
                        keys,
                        values,
                        head: kv_head,
                        pages: span.pages_of(kv.group),
                    },
                    scale: a.scale,
                    softcap: a.softcap,
                    rows: &rows,
                    out: &mut outs,
                    scratch: &mut scratch.attention,
                });
                if kv.shape.is_transformed() {
                    for out in &mut outs {
                        kv.shape.transform(out);
                    }
                }
            }
        }
    }
}
