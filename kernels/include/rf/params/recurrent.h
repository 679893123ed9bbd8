// Generated from crates/rf-kernels/src/params/recurrent.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/batch.h"

// One recurrent state of all sequences: f32 matrices, one per page. The page of a span is
// `Batch::pages[Span::first_page]`. What it holds before the first token of a sequence is
// arbitrary.
struct RfState {
    // The matrix of page 0.
    float *first;
    // Distance between pages, in f32.
    unsigned long long page_floats;
};
static_assert(sizeof(RfState) == 16);
static_assert(__builtin_offsetof(RfState, first) == 0);
static_assert(__builtin_offsetof(RfState, page_floats) == 8);

// A causal convolution of each column: `y[t] = Σⱼ filter[j] ⊙ x[t − (taps − 1) + j] (+ bias)`,
// then `SiLU` if `silu`. The state holds the `taps − 1` rows before the next token.
struct RfCausalConvParams {
    // With the pages of states.
    RfBatch batch;
    // `[taps − 1, width]`.
    RfState state;
    // `[tokens, width]`.
    const float *x;
    // `[taps, width]`.
    const float *filter;
    // `[width]` or null.
    const float *bias;
    // `[tokens, width]`.
    float *out;
    // Columns.
    unsigned width;
    // Rows of the filter: 1 to `MAX_TAPS`.
    unsigned taps;
    // 1 if `SiLU` follows.
    unsigned silu;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfCausalConvParams) == 128);
static_assert(__builtin_offsetof(RfCausalConvParams, batch) == 0);
static_assert(__builtin_offsetof(RfCausalConvParams, state) == 64);
static_assert(__builtin_offsetof(RfCausalConvParams, x) == 80);
static_assert(__builtin_offsetof(RfCausalConvParams, filter) == 88);
static_assert(__builtin_offsetof(RfCausalConvParams, bias) == 96);
static_assert(__builtin_offsetof(RfCausalConvParams, out) == 104);
static_assert(__builtin_offsetof(RfCausalConvParams, width) == 112);
static_assert(__builtin_offsetof(RfCausalConvParams, taps) == 116);
static_assert(__builtin_offsetof(RfCausalConvParams, silu) == 120);
static_assert(__builtin_offsetof(RfCausalConvParams, reserved) == 124);

// A selective scan over the tokens of each sequence: `rf_oracle::reference`.
struct RfScanParams {
    // With the pages of states.
    RfBatch batch;
    // `[state_dim, channels]`.
    RfState state;
    // `[tokens, channels]`.
    const float *x;
    // `[tokens, channels]`: the time step, before softplus.
    const float *dt;
    // `[tokens, state_dim]`.
    const float *b;
    // `[tokens, state_dim]`.
    const float *c;
    // `[state_dim, channels]`.
    const float *decay;
    // `[channels]`.
    const float *skip;
    // `[tokens, channels]`.
    float *out;
    // Columns of x.
    unsigned channels;
    // Elements of B and C: at most `MAX_SCAN_DIM`.
    unsigned state_dim;
};
static_assert(sizeof(RfScanParams) == 144);
static_assert(__builtin_offsetof(RfScanParams, batch) == 0);
static_assert(__builtin_offsetof(RfScanParams, state) == 64);
static_assert(__builtin_offsetof(RfScanParams, x) == 80);
static_assert(__builtin_offsetof(RfScanParams, dt) == 88);
static_assert(__builtin_offsetof(RfScanParams, b) == 96);
static_assert(__builtin_offsetof(RfScanParams, c) == 104);
static_assert(__builtin_offsetof(RfScanParams, decay) == 112);
static_assert(__builtin_offsetof(RfScanParams, skip) == 120);
static_assert(__builtin_offsetof(RfScanParams, out) == 128);
static_assert(__builtin_offsetof(RfScanParams, channels) == 136);
static_assert(__builtin_offsetof(RfScanParams, state_dim) == 140);

// A recurrence over the tokens of each sequence, whose state per head is a matrix. For the
// delta rule rows of x are queries, keys and values; for the state space C, B and x.
struct RfRecurrenceParams {
    // With the pages of states.
    RfBatch batch;
    // `[heads][key_dim][value_dim]`.
    RfState state;
    // `[tokens, columns]`.
    const float *x;
    // `[tokens, heads]`: the input of the decay; `[tokens, heads · key_dim]` for decays per
    // channel.
    const float *alpha;
    // `[tokens, heads]`: the share of the correction of a delta rule, otherwise null.
    const float *beta;
    // `[heads]`.
    const float *decay;
    // `[heads]`, or `[heads · key_dim]`.
    const float *decay_bias;
    // `[heads]` for a state space, otherwise null.
    const float *skip;
    // `[tokens, heads · value_dim]`.
    float *out;
    // Width of `x`.
    unsigned columns;
    // First column of the queries, or of C: `[key_heads][key_dim]`.
    unsigned queries;
    // First column of the keys, or of B: `[key_heads][key_dim]`.
    unsigned keys;
    // First column of the values, or of x: `[heads][value_dim]`.
    unsigned values;
    // Heads of values, each with a state.
    unsigned heads;
    // Heads of queries and keys, or groups.
    unsigned key_heads;
    // Elements of a query or key: at most `MAX_KEY_DIM`.
    unsigned key_dim;
    // Elements of a value.
    unsigned value_dim;
    // 1 if head `h` reads key head `h` mod `key_heads`, 0 if it reads `h` / (`heads` /
    // `key_heads`).
    unsigned interleaved;
    // Constant that is added to the squared length of a query or key; delta rule alone.
    float eps;
    // The logarithm of the smallest decay of a channel, 0 if there is none.
    float bound;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfRecurrenceParams) == 184);
static_assert(__builtin_offsetof(RfRecurrenceParams, batch) == 0);
static_assert(__builtin_offsetof(RfRecurrenceParams, state) == 64);
static_assert(__builtin_offsetof(RfRecurrenceParams, x) == 80);
static_assert(__builtin_offsetof(RfRecurrenceParams, alpha) == 88);
static_assert(__builtin_offsetof(RfRecurrenceParams, beta) == 96);
static_assert(__builtin_offsetof(RfRecurrenceParams, decay) == 104);
static_assert(__builtin_offsetof(RfRecurrenceParams, decay_bias) == 112);
static_assert(__builtin_offsetof(RfRecurrenceParams, skip) == 120);
static_assert(__builtin_offsetof(RfRecurrenceParams, out) == 128);
static_assert(__builtin_offsetof(RfRecurrenceParams, columns) == 136);
static_assert(__builtin_offsetof(RfRecurrenceParams, queries) == 140);
static_assert(__builtin_offsetof(RfRecurrenceParams, keys) == 144);
static_assert(__builtin_offsetof(RfRecurrenceParams, values) == 148);
static_assert(__builtin_offsetof(RfRecurrenceParams, heads) == 152);
static_assert(__builtin_offsetof(RfRecurrenceParams, key_heads) == 156);
static_assert(__builtin_offsetof(RfRecurrenceParams, key_dim) == 160);
static_assert(__builtin_offsetof(RfRecurrenceParams, value_dim) == 164);
static_assert(__builtin_offsetof(RfRecurrenceParams, interleaved) == 168);
static_assert(__builtin_offsetof(RfRecurrenceParams, eps) == 172);
static_assert(__builtin_offsetof(RfRecurrenceParams, bound) == 176);
static_assert(__builtin_offsetof(RfRecurrenceParams, reserved) == 180);
