// Generated from crates/rf-kernels/src/params/embed.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/rows.h"
#include "rf/params/weight.h"

// Embedding from a table of any format, with an optional norm: the kernels `embed_*` and
// `embed_rms_norm_*`.
struct RfEmbedParams {
    // `[vocab_size, columns]`.
    RfWeight table;
    // `[rows]`.
    const unsigned *ids;
    // `[rows, columns]`: `table[ids[t]] · scale`.
    float *x;
    // Norm weight, `[columns]`; with a norm.
    const float *norm;
    // `[rows, columns]`: `x / √(mean(x²) + eps) · norm`; with a norm.
    RfOperand out;
    // Factor on every element.
    float scale;
    // Constant that is added to the mean square.
    float eps;
    // Width; with a norm a multiple of 4.
    unsigned columns;
    // Number of rows.
    unsigned rows;
    // Threads of a workgroup, from `embed_rms_norm_threads`: a multiple of 32, at most 1024;
    // with a norm.
    unsigned threads;
    // Larger ids read this row.
    unsigned last_id;
};
static_assert(sizeof(RfEmbedParams) == 120);
static_assert(__builtin_offsetof(RfEmbedParams, table) == 0);
static_assert(__builtin_offsetof(RfEmbedParams, ids) == 32);
static_assert(__builtin_offsetof(RfEmbedParams, x) == 40);
static_assert(__builtin_offsetof(RfEmbedParams, norm) == 48);
static_assert(__builtin_offsetof(RfEmbedParams, out) == 56);
static_assert(__builtin_offsetof(RfEmbedParams, scale) == 96);
static_assert(__builtin_offsetof(RfEmbedParams, eps) == 100);
static_assert(__builtin_offsetof(RfEmbedParams, columns) == 104);
static_assert(__builtin_offsetof(RfEmbedParams, rows) == 108);
static_assert(__builtin_offsetof(RfEmbedParams, threads) == 112);
static_assert(__builtin_offsetof(RfEmbedParams, last_id) == 116);
