// Attention over the paged cache. Twin: crates/rf-kernels/src/params/attention.rs.
#pragma once

#include "rf/params/batch.h"
#include "rf/params/rows.h"

// out = softmax(scale · q·kᵀ) · v, as rf_graph::reference::attention has it.
//
// Two kernels share a batch: spans of at most `short_span` tokens are those of attention_decode, the others those
// of attention_prefill. Each leaves the rows of the other alone.
struct RfAttentionParams {
    RfBatch batch;
    RfKvCache cache;
    const float *q;     // [tokens, num_heads · head_dim]
    const float *sinks; // [num_heads] or null
    RfOperand out;      // [tokens, num_heads · head_dim]; as int8 where head_dim is a multiple of 32
    // Decode only, where splits > 1.
    float *partials;    // [tokens, num_heads, splits, head_dim]
    float *statistics;  // [tokens, num_heads, splits, 2]
    unsigned *arrivals; // [tokens, num_kv_heads], zero before the first launch; every launch leaves zeros
    float scale;
    float softcap;       // 0: none
    unsigned window;     // a key is seen if query position − key position < window; 0: all are
    unsigned num_heads;  // a multiple of cache.num_kv_heads
    unsigned splits;     // decode: workgroups that a sequence's keys are shared out to, at most 128
    unsigned short_span; // tokens
};
