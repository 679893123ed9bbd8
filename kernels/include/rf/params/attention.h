// Generated from crates/rf-kernels/src/params/attention.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/batch.h"
#include "rf/params/rope.h"
#include "rf/params/rows.h"

// `softmax(scale · q·kᵀ) · v` over the cache of a layer: `rf_oracle::reference::attention`.
//
// Two kernels share a batch: `attention_decode_*` computes spans of at most `short_span`
// tokens, `attention_prefill_*` all others. Neither writes rows of the other.
struct RfAttentionParams {
    // Positions, spans and pages.
    RfBatch batch;
    // The cache of the layer.
    RfKvCache cache;
    // For `Self::decode_launch` of spans of one token: if `k` is not null, `q` is before
    // norm and RoPE, and the launch appends the keys and values of its tokens.
    RfNewHeads heads;
    // `[tokens, num_heads · head_dim]`, rotated.
    const float *q;
    // Attention sinks, `[num_heads]` or null.
    const float *sinks;
    // `[tokens, num_heads · head_dim]`; as int8 where the head size is a multiple of 32.
    RfOperand out;
    // `[tokens, num_heads, splits, head_dim]`; this and the next two for decode with several
    // splits.
    float *partials;
    // `[tokens, num_heads, splits, 2]`.
    float *statistics;
    // `[tokens, num_heads]`, zero before the first and after every launch.
    unsigned *arrivals;
    // Factor on the scores.
    float scale;
    // Softcap on the scores; 0 for none.
    float softcap;
    // A key is visible if query position − key position < window; 0: all keys up to the query
    // are. With the bit `BOTH_WAYS` so are all later keys of its span.
    unsigned window;
    // The bits of a position that select its chunk: a key is visible if it is in the query's
    // chunk; 0 without chunks.
    unsigned chunk_mask;
    // Query heads, a multiple of `cache.num_kv_heads`.
    unsigned num_heads;
    // Decode workgroups over which the keys of a sequence are divided, 1 to 128.
    unsigned splits;
    // Largest number of tokens of a span for the decode kernel; longer spans use the prefill
    // kernel.
    unsigned short_span;
    // Query heads of a decode workgroup: those that share a key and value head; on NVIDIA also
    // a divisor of them, or those of two or four key and value heads.
    unsigned heads_together;
};
static_assert(sizeof(RfAttentionParams) == 288);
static_assert(__builtin_offsetof(RfAttentionParams, batch) == 0);
static_assert(__builtin_offsetof(RfAttentionParams, cache) == 64);
static_assert(__builtin_offsetof(RfAttentionParams, heads) == 120);
static_assert(__builtin_offsetof(RfAttentionParams, q) == 176);
static_assert(__builtin_offsetof(RfAttentionParams, sinks) == 184);
static_assert(__builtin_offsetof(RfAttentionParams, out) == 192);
static_assert(__builtin_offsetof(RfAttentionParams, partials) == 232);
static_assert(__builtin_offsetof(RfAttentionParams, statistics) == 240);
static_assert(__builtin_offsetof(RfAttentionParams, arrivals) == 248);
static_assert(__builtin_offsetof(RfAttentionParams, scale) == 256);
static_assert(__builtin_offsetof(RfAttentionParams, softcap) == 260);
static_assert(__builtin_offsetof(RfAttentionParams, window) == 264);
static_assert(__builtin_offsetof(RfAttentionParams, chunk_mask) == 268);
static_assert(__builtin_offsetof(RfAttentionParams, num_heads) == 272);
static_assert(__builtin_offsetof(RfAttentionParams, splits) == 276);
static_assert(__builtin_offsetof(RfAttentionParams, short_span) == 280);
static_assert(__builtin_offsetof(RfAttentionParams, heads_together) == 284);
