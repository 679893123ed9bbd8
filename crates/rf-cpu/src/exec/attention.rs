//! Steps that write and read the KV cache: RoPE and append, attention.

use rf_graph::ValueId;

use super::matmul::Scratch;
use super::steps::{AttentionStep, RopeAppend};
use super::{Region, StepIndex, rows};
use crate::kv::{store_key, store_value};
use crate::simd::attention::{Attend, CachedHead, MAX_ROWS, Row};
use crate::team::Member;

/// The keys and values of a batch to append to the cache.
pub(super) struct AppendItem<'a> {
    pub(super) k: ValueId,
    pub(super) v: ValueId,
    pub(super) layer: usize,
    /// Norm weight and eps of the RMS norm of each key head.
    pub(super) k_norm: Option<(&'a [f32], f32)>,
    /// Index of the RoPE table.
    pub(super) rope: Option<usize>,
}

impl Region<'_> {
    pub(super) fn rope_append(&self, member: &Member<'_>, index: StepIndex, op: &RopeAppend) {
        let k_norm = op.qk_norm.map(|n| (self.vector(n.k), n.eps));
        let item = AppendItem { k: op.k, v: op.v, layer: op.layer, k_norm, rope: Some(op.rope) };
        self.append(member, index, &item);

        let q_norm = op.qk_norm.map(|n| (self.vector(n.q), n.eps));
        let (q, out) = (self.rows(op.q), self.rows(op.q_out));
        let table = &self.ropes[op.rope];
        let head_dim = table.rope.head_dim;
        let heads = q.width / head_dim;
        let items = self.tokens() * heads;
        let chunk = (items / (member.threads * 4)).max(1);
        for range in member.dynamic_chunks(index.second_loop(), items, chunk) {
            for item in range {
                let (token, head) = (item / heads, item % heads * head_dim);
                // SAFETY: written before the last barrier.
                let x = unsafe { &q.row(token)[head..head + head_dim] };
                // SAFETY: each head of each token belongs to one member.
                let y = unsafe { out.row_mut(token, head..head + head_dim) };
                match q_norm {
                    Some((weight, eps)) => rows::rms_norm(self.isa, x, weight, eps, y),
                    None => y.copy_from_slice(x),
                }
                table.rotate(self.isa, self.place(token).1, y);
            }
        }
    }

    /// Writes keys and values to the cache. A page of a head belongs to one member, because its
    /// bytes interleave tokens.
    pub(super) fn append(&self, member: &Member<'_>, index: StepIndex, op: &AppendItem<'_>) {
        let kv = &self.kv[op.layer];
        let shape = kv.shape;
        let (k, v) = (self.rows(op.k), self.rows(op.v));
        let page_tokens = shape.page_tokens;
        let mut head_buffer = vec![0.0; shape.head_dim];
        let pages = self.batch.spans.iter().flat_map(|span| {
            let last = span.past_tokens + span.tokens.len();
            (span.past_tokens / page_tokens..last.div_ceil(page_tokens)).map(move |p| (span, p))
        });
        let pages: Vec<_> = pages.collect();
        for range in member.dynamic_chunks(index.first_loop(), pages.len() * shape.heads, 1) {
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
                let last = (span.past_tokens + span.tokens.len()).min((page + 1) * page_tokens);
                let columns = head * shape.head_dim..(head + 1) * shape.head_dim;
                for position in first..last {
                    let token = span.tokens.start + position - span.past_tokens;
                    // SAFETY: written before the last barrier.
                    let k = unsafe { &k.row(token)[columns.clone()] };
                    match op.k_norm {
                        Some((weight, eps)) => {
                            rows::rms_norm(self.isa, k, weight, eps, &mut head_buffer);
                        }
                        None => head_buffer.copy_from_slice(k),
                    }
                    if let Some(rope) = op.rope {
                        self.ropes[rope].rotate(self.isa, position, &mut head_buffer);
                    }
                    store_key(shape, keys, position % page_tokens, &head_buffer);
                    // SAFETY: written before the last barrier.
                    let v = unsafe { &v.row(token)[columns.clone()] };
                    store_value(shape, values, position % page_tokens, v);
                }
            }
        }
    }

    pub(super) fn attention(
        &self,
        member: &Member<'_>,
        index: StepIndex,
        step: &AttentionStep,
        scratch: &mut Scratch,
    ) {
        let a = &step.attention;
        let kv = &self.kv[a.layer];
        let (q, out) = (self.rows(step.q), self.rows(step.out));
        let sinks = a.sinks.map(|s| self.vector(s));
        // SAFETY: the cache was written before the last barrier.
        let keys = unsafe { kv.keys.get(0..kv.keys.len()) };
        // SAFETY: as above.
        let values = unsafe { kv.values.get(0..kv.values.len()) };
        let group = a.num_heads / a.num_kv_heads;
        // A work item is some tokens × some heads of one group, at most MAX_ROWS rows. With more
        // threads than groups, a group is split into several items.
        let splits = member.threads.div_ceil(a.num_kv_heads * self.tokens()).min(group);
        let heads_per_item = group.div_ceil(splits).min(MAX_ROWS);
        let items_per_group = group.div_ceil(heads_per_item);
        let tokens_per_item = MAX_ROWS / heads_per_item;
        let tiles: Vec<_> = self
            .batch
            .spans
            .iter()
            .flat_map(|span| span.tokens.clone().step_by(tokens_per_item).map(move |t| (span, t)))
            .collect();
        let items = tiles.len() * a.num_kv_heads * items_per_group;
        for range in member.dynamic_chunks(index.first_loop(), items, 1) {
            for item in range {
                // Late tiles attend to more positions. They run first, which balances the loop.
                let (span, first) =
                    tiles[tiles.len() - 1 - item / (a.num_kv_heads * items_per_group)];
                let kv_head = item / items_per_group % a.num_kv_heads;
                let first_head = kv_head * group + item % items_per_group * heads_per_item;
                let heads = first_head..(first_head + heads_per_item).min((kv_head + 1) * group);
                let tokens = first..(first + tokens_per_item).min(span.tokens.end);
                let mut rows = Vec::with_capacity(MAX_ROWS);
                let mut outs = Vec::with_capacity(MAX_ROWS);
                let end = span.past_tokens + span.tokens.len();
                for token in tokens {
                    let position = span.past_tokens + token - span.tokens.start;
                    let visible = a.visible(position, end);
                    for head in heads.clone() {
                        let columns = head * a.head_dim..(head + 1) * a.head_dim;
                        rows.push(Row {
                            // SAFETY: written before the last barrier.
                            q: unsafe { &q.row(token)[columns.clone()] },
                            first: visible.start,
                            last: visible.end,
                            sink: sinks.map(|s| s[head]),
                        });
                        // SAFETY: each head of each token belongs to one item.
                        outs.push(unsafe { out.row_mut(token, columns) });
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
            }
        }
    }
}
