// Parameters of kernels with recurrent states. Twin: crates/rf-kernels/src/params/recurrent.rs.
#pragma once

#include "rf/params/batch.h"

// One recurrent state of all sequences: f32 matrices, one per page. The page of a span is
// RfBatch::pages[RfSpan::first_page]. What it holds before the first token of a sequence is
// arbitrary.
struct RfState {
    float *first; // of page 0
    unsigned long long page_floats;
};

// y[t] = Σⱼ filter[j] ⊙ x[t − (taps − 1) + j] (+ bias), then SiLU if `silu`. The state holds the
// `taps − 1` rows before the next token.
struct RfCausalConvParams {
    RfBatch batch; // with the pages of states
    RfState state; // [taps − 1, width]
    const float *x;      // [tokens, width]
    const float *filter; // [taps, width]
    const float *bias;   // [width] or null
    float *out;          // [tokens, width]
    unsigned width;
    unsigned taps; // 1 to 4
    unsigned silu;
    unsigned reserved;
};

// A recurrence over the tokens of each sequence, whose state per head is a matrix. For the delta
// rule rows of x are queries, keys and values; for the state space C, B and x.
struct RfRecurrenceParams {
    RfBatch batch; // with the pages of states
    RfState state; // [heads][key_dim][value_dim]
    const float *x;          // [tokens, columns]
    const float *alpha;      // [tokens, heads]: the input of the decay
    const float *beta;       // [tokens, heads]: the share of the correction; delta rule alone
    const float *decay;      // [heads]
    const float *decay_bias; // [heads]
    const float *skip;       // [heads]; state space alone
    float *out;              // [tokens, heads · value_dim]
    unsigned columns;
    // First columns of x.
    unsigned queries; // [key_heads][key_dim]
    unsigned keys;    // [key_heads][key_dim]
    unsigned values;  // [heads][value_dim]
    unsigned heads;
    unsigned key_heads;
    unsigned key_dim;
    unsigned value_dim;
    unsigned interleaved; // head h reads key head h mod key_heads, otherwise h / (heads / key_heads)
    float eps;            // added to the squared length of a query or key; delta rule alone
};
