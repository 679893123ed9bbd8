// Generated from crates/rf-kernels/src/params/rope.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/batch.h"

// The rotation of heads by position.
struct RfRopeTable {
    // `[rows][dims / 2][2]`: cos and sin, magnitude included. The first rows are the positions
    // of text.
    const float *table;
    // Rotated elements of a head; those from here on pass through.
    unsigned dims;
    // Pairing of elements: `RfRopeStyle`.
    unsigned style;
};
static_assert(sizeof(RfRopeTable) == 16);
static_assert(__builtin_offsetof(RfRopeTable, table) == 0);
static_assert(__builtin_offsetof(RfRopeTable, dims) == 8);
static_assert(__builtin_offsetof(RfRopeTable, style) == 12);

// `out = rope(x)`.
struct RfRopeParams {
    // Positions.
    RfBatch batch;
    // The RoPE.
    RfRopeTable rope;
    // `[tokens]`: the row of the table for each token.
    const unsigned *rows;
    // `[tokens, num_heads · head_dim]`.
    const float *x;
    // `[tokens, num_heads · head_dim]`; may be `x`.
    float *out;
    // Number of heads per token.
    unsigned num_heads;
    // Elements of a head, at most `MAX_HEAD_DIM`.
    unsigned head_dim;
};
static_assert(sizeof(RfRopeParams) == 112);
static_assert(__builtin_offsetof(RfRopeParams, batch) == 0);
static_assert(__builtin_offsetof(RfRopeParams, rope) == 64);
static_assert(__builtin_offsetof(RfRopeParams, rows) == 80);
static_assert(__builtin_offsetof(RfRopeParams, x) == 88);
static_assert(__builtin_offsetof(RfRopeParams, out) == 96);
static_assert(__builtin_offsetof(RfRopeParams, num_heads) == 104);
static_assert(__builtin_offsetof(RfRopeParams, head_dim) == 108);

// Stores keys and values in the cache of a layer.
struct RfKvAppendParams {
    // Positions and pages.
    RfBatch batch;
    // The layer; its `head_dim` at most `MAX_HEAD_DIM`.
    RfKvCache cache;
    // `[tokens, num_kv_heads · head_dim]`.
    const float *k;
    // `[tokens, num_kv_heads · head_dim]`.
    const float *v;
};
static_assert(sizeof(RfKvAppendParams) == 136);
static_assert(__builtin_offsetof(RfKvAppendParams, batch) == 0);
static_assert(__builtin_offsetof(RfKvAppendParams, cache) == 64);
static_assert(__builtin_offsetof(RfKvAppendParams, k) == 120);
static_assert(__builtin_offsetof(RfKvAppendParams, v) == 128);

// Keys and values to append to the cache, and what is done to queries and keys before
// attention: rope(norm(x)). The norms are per head, x / √(mean(x²) + eps) · w, and optional.
struct RfNewHeads {
    // The RoPE.
    RfRopeTable rope;
    // `[tokens, num_kv_heads · head_dim]`.
    const float *k;
    // `[tokens, num_kv_heads · head_dim]`.
    const float *v;
    // `[head_dim]` or null.
    const float *q_norm;
    // `[head_dim]` or null.
    const float *k_norm;
    // Constant that is added to the mean squares.
    float eps;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfNewHeads) == 56);
static_assert(__builtin_offsetof(RfNewHeads, rope) == 0);
static_assert(__builtin_offsetof(RfNewHeads, k) == 16);
static_assert(__builtin_offsetof(RfNewHeads, v) == 24);
static_assert(__builtin_offsetof(RfNewHeads, q_norm) == 32);
static_assert(__builtin_offsetof(RfNewHeads, k_norm) == 40);
static_assert(__builtin_offsetof(RfNewHeads, eps) == 48);
static_assert(__builtin_offsetof(RfNewHeads, reserved) == 52);

// `q_out = rope(norm(q))`, and rope(norm(k)) and v into the cache.
struct RfRopeAppendParams {
    // Positions and pages.
    RfBatch batch;
    // The layer; its `head_dim` at most `MAX_HEAD_DIM`.
    RfKvCache cache;
    // The keys and values.
    RfNewHeads heads;
    // `[tokens]`: the row of the table of RoPE for each token.
    const unsigned *rows;
    // `[tokens, num_heads · head_dim]`.
    const float *q;
    // `[tokens, num_heads · head_dim]`; may be `q`.
    float *q_out;
    // Query heads.
    unsigned num_heads;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfRopeAppendParams) == 208);
static_assert(__builtin_offsetof(RfRopeAppendParams, batch) == 0);
static_assert(__builtin_offsetof(RfRopeAppendParams, cache) == 64);
static_assert(__builtin_offsetof(RfRopeAppendParams, heads) == 120);
static_assert(__builtin_offsetof(RfRopeAppendParams, rows) == 176);
static_assert(__builtin_offsetof(RfRopeAppendParams, q) == 184);
static_assert(__builtin_offsetof(RfRopeAppendParams, q_out) == 192);
static_assert(__builtin_offsetof(RfRopeAppendParams, num_heads) == 200);
static_assert(__builtin_offsetof(RfRopeAppendParams, reserved) == 204);
