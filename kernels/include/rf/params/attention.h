// Attention over the paged cache. Twin: crates/rf-kernels/src/params/attention.rs.
#pragma once

#include "rf/params/batch.h"
#include "rf/params/rope.h"
#include "rf/params/rows.h"

// The window of attention that is not causal.
constexpr unsigned RF_BOTH_DIRECTIONS = 0xFFFFFFFF;

// out = softmax(scale · q·kᵀ) · v: rf_graph::reference::attention.
//
// Two kernels share a batch: attention_decode computes spans of at most `short_span` tokens,
// attention_prefill all others. Neither writes rows of the other.
struct RfAttentionParams {
    RfBatch batch;
    RfKvCache cache;
    // Decode of spans of one token only: if heads.k is not null, q is before norm and RoPE, and the
    // launch writes the keys and values of its tokens to the cache.
    RfNewHeads heads;
    const float *q;     // [tokens, num_heads · head_dim]
    const float *sinks; // [num_heads] or null
    RfOperand out;      // [tokens, num_heads · head_dim]; as int8 where head_dim is a multiple of 32
    // Decode only, if splits > 1.
    float *partials;    // [tokens, num_heads, splits, head_dim]
    float *statistics;  // [tokens, num_heads, splits, 2]
    unsigned *arrivals; // [tokens, num_heads], zero before the first and after every launch
    float scale;
    float softcap;       // 0: none
    // A key is visible if query position − key position < window; 0: all keys up to the query are;
    // RF_BOTH_DIRECTIONS: all keys of its span are, too.
    unsigned window;
    // The bits of a position that select its chunk, whose keys alone are visible; 0: no chunks.
    unsigned chunk_mask;
    unsigned num_heads;  // a multiple of cache.num_kv_heads
    unsigned splits;     // decode: number of workgroups per sequence, at most 128
    unsigned short_span; // tokens
    // Decode: query heads of a workgroup, those of a key/value head. On NVIDIA also a divisor of
    // them, or those of two or four key/value heads, if each has as many as a wave.
    unsigned heads_together;
};
