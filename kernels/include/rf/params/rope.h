// Rotary embedding and the writes to the KV cache. Twin: crates/rf-kernels/src/params/rope.rs.
#pragma once

#include "rf/params/batch.h"

// The pairing of the elements of a head: RopeStyle of rf-graph.
enum RfRopeStyle : unsigned { RF_ROPE_NORMAL = 0, RF_ROPE_NEOX = 1 };

// Rotation of heads by position.
struct RfRope {
    const float *table; // [positions][dims / 2][2]: cos and sin, magnitude included
    unsigned dims;      // rotated elements of a head; those from here on pass through
    unsigned style;     // RfRopeStyle
};

// out = rope(x).
struct RfRopeParams {
    RfBatch batch;
    RfRope rope;
    const float *x; // [tokens, num_heads · head_dim]
    float *out;     // the same; may be x
    unsigned num_heads;
    unsigned head_dim; // at most 512
};

// cache ← k, v.
struct RfKvAppendParams {
    RfBatch batch;
    RfKvCache cache; // head_dim is at most 512
    const float *k;  // [tokens, num_kv_heads · head_dim]
    const float *v;  // [tokens, num_kv_heads · head_dim]
};

// Keys and values on their way to the cache, and what is done to queries and keys before attention:
// rope(norm(x)). The norms are per head, x / √(mean(x²) + eps) · w, and optional.
struct RfNewHeads {
    RfRope rope;
    const float *k;      // [tokens, num_kv_heads · head_dim]
    const float *v;      // [tokens, num_kv_heads · head_dim]
    const float *q_norm; // [head_dim] or null
    const float *k_norm; // [head_dim] or null
    float eps;
    unsigned reserved;
};

// q_out = rope(norm(q)); cache ← rope(norm(k)), v.
struct RfRopeAppendParams {
    RfBatch batch;
    RfKvCache cache; // head_dim is at most 512
    RfNewHeads heads;
    const float *q; // [tokens, num_heads · head_dim]
    float *q_out;   // [tokens, num_heads · head_dim]; may be q
    unsigned num_heads;
    unsigned reserved;
};
