// Generated from crates/rf-kernels/src/params/latent.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/batch.h"

// Attention of all heads over one key per position, whose first elements are the value;
// causal.
//
// The rows of a span are the heads of its first token, those of its second token, and so on. A
// tile is 16 consecutive ones. A launch computes the spans of `min_span` to `max_span` tokens.
struct RfLatentParams {
    // Positions, spans and pages.
    RfBatch batch;
    // The cache of the layer: one head and no values.
    RfKvCache cache;
    // `[tokens, num_heads · head_dim]`.
    const float *q;
    // `[tokens, num_heads · latent_dim]`.
    float *out;
    // `[tiles · 16, splits, ⌈latent_dim / 4⌉ · 4]`; this and the next two with several splits.
    float *partials;
    // `[tiles · 16, splits, 2]`.
    float *statistics;
    // `[tiles]`, zero before the first and after every launch.
    unsigned *arrivals;
    // Factor on the scores.
    float scale;
    // Query heads.
    unsigned num_heads;
    // Elements of the value, at most `cache.head_dim`.
    unsigned latent_dim;
    // Workgroups over which the keys of a tile are divided, 1 to 128.
    unsigned splits;
    // Tokens of the shortest span that the launch computes.
    unsigned min_span;
    // Tokens of the longest span that the launch computes.
    unsigned max_span;
};
static_assert(sizeof(RfLatentParams) == 184);
static_assert(__builtin_offsetof(RfLatentParams, batch) == 0);
static_assert(__builtin_offsetof(RfLatentParams, cache) == 64);
static_assert(__builtin_offsetof(RfLatentParams, q) == 120);
static_assert(__builtin_offsetof(RfLatentParams, out) == 128);
static_assert(__builtin_offsetof(RfLatentParams, partials) == 136);
static_assert(__builtin_offsetof(RfLatentParams, statistics) == 144);
static_assert(__builtin_offsetof(RfLatentParams, arrivals) == 152);
static_assert(__builtin_offsetof(RfLatentParams, scale) == 160);
static_assert(__builtin_offsetof(RfLatentParams, num_heads) == 164);
static_assert(__builtin_offsetof(RfLatentParams, latent_dim) == 168);
static_assert(__builtin_offsetof(RfLatentParams, splits) == 172);
static_assert(__builtin_offsetof(RfLatentParams, min_span) == 176);
static_assert(__builtin_offsetof(RfLatentParams, max_span) == 180);

// Stores the keys of latent attention in the cache of a layer.
struct RfLatentAppendParams {
    // Positions and pages.
    RfBatch batch;
    // The layer: one head and no values.
    RfKvCache cache;
    // `[tokens, head_dim]`.
    const float *k;
};
static_assert(sizeof(RfLatentAppendParams) == 128);
static_assert(__builtin_offsetof(RfLatentAppendParams, batch) == 0);
static_assert(__builtin_offsetof(RfLatentAppendParams, cache) == 64);
static_assert(__builtin_offsetof(RfLatentAppendParams, k) == 120);
