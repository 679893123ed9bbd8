// Generated from crates/rf-kernels/src/params/sampling.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"

// The best token of each row: the largest logit, the lowest id among equals; NaN counts as −∞.
struct RfArgmaxParams {
    // `[rows, vocab_size]`.
    const float *logits;
    // `[rows]` in host memory.
    unsigned *ids;
    // `[rows]` in host memory: their logits.
    float *values;
    // `[rows, parts]`.
    unsigned long long *scratch;
    // `[rows]`: 0 before and after.
    unsigned *counters;
    // The stamp of the step: see `LoadStepParams`.
    const unsigned *stamp;
    // `[rows]` in host memory: the stamp, after the results of a row.
    unsigned *stamps;
    // Number of rows.
    unsigned rows;
    // Logits per row.
    unsigned vocab_size;
    // Workgroups per row, from `argmax_parts`.
    unsigned parts;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfArgmaxParams) == 72);
static_assert(__builtin_offsetof(RfArgmaxParams, logits) == 0);
static_assert(__builtin_offsetof(RfArgmaxParams, ids) == 8);
static_assert(__builtin_offsetof(RfArgmaxParams, values) == 16);
static_assert(__builtin_offsetof(RfArgmaxParams, scratch) == 24);
static_assert(__builtin_offsetof(RfArgmaxParams, counters) == 32);
static_assert(__builtin_offsetof(RfArgmaxParams, stamp) == 40);
static_assert(__builtin_offsetof(RfArgmaxParams, stamps) == 48);
static_assert(__builtin_offsetof(RfArgmaxParams, rows) == 56);
static_assert(__builtin_offsetof(RfArgmaxParams, vocab_size) == 60);
static_assert(__builtin_offsetof(RfArgmaxParams, parts) == 64);
static_assert(__builtin_offsetof(RfArgmaxParams, reserved) == 68);

// The `k` largest logits of each row in the order of `ArgmaxParams`, and their softmax.
struct RfTopKParams {
    // `[rows, vocab_size]`.
    const float *logits;
    // `[rows, k]` in host memory.
    unsigned *ids;
    // `[rows, k]` in host memory: their logits.
    float *values;
    // `[rows, k]`: softmax of `values / temperature`.
    float *probabilities;
    // `[rows, parts, k]`.
    unsigned long long *scratch;
    // `[rows]`: 0 before and after.
    unsigned *counters;
    // The stamp of the step: see `LoadStepParams`.
    const unsigned *stamp;
    // `[rows]` in host memory: the stamp, after the results of a row.
    unsigned *stamps;
    // Number of rows.
    unsigned rows;
    // Logits per row, at most 2²⁰.
    unsigned vocab_size;
    // Selected logits per row, at most `MAX_TOP_K` and `vocab_size`.
    unsigned k;
    // Workgroups per row, from `top_k_parts`: at most 64, each with at most 16384 logits.
    unsigned parts;
    // Temperature of the softmax, above 0.
    float temperature;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfTopKParams) == 88);
static_assert(__builtin_offsetof(RfTopKParams, logits) == 0);
static_assert(__builtin_offsetof(RfTopKParams, ids) == 8);
static_assert(__builtin_offsetof(RfTopKParams, values) == 16);
static_assert(__builtin_offsetof(RfTopKParams, probabilities) == 24);
static_assert(__builtin_offsetof(RfTopKParams, scratch) == 32);
static_assert(__builtin_offsetof(RfTopKParams, counters) == 40);
static_assert(__builtin_offsetof(RfTopKParams, stamp) == 48);
static_assert(__builtin_offsetof(RfTopKParams, stamps) == 56);
static_assert(__builtin_offsetof(RfTopKParams, rows) == 64);
static_assert(__builtin_offsetof(RfTopKParams, vocab_size) == 68);
static_assert(__builtin_offsetof(RfTopKParams, k) == 72);
static_assert(__builtin_offsetof(RfTopKParams, parts) == 76);
static_assert(__builtin_offsetof(RfTopKParams, temperature) == 80);
static_assert(__builtin_offsetof(RfTopKParams, reserved) == 84);
