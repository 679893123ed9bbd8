// Generated from crates/rf-kernels/src/params/sums.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/matvec.h"

// The summand of one part.
struct RfPartSummand {
    // `[rows, columns]`.
    const float *x;
};
static_assert(sizeof(RfPartSummand) == 8);
static_assert(__builtin_offsetof(RfPartSummand, x) == 0);

// `out = Σₚ xₚ (+ residual)` in the order of the summands.
struct RfSumPartsParams {
    // The first `num_summands` entries are used.
    RfPartSummand summands[8];
    // `[rows, columns]` or null.
    const float *residual;
    // `[rows, columns]`; may be the first summand.
    float *out;
    // RMSNorm epilogue, also with f16; only for columns that are a multiple of 32.
    RfNormOut norm_out;
    // Number of elements, rows · columns.
    unsigned long long count;
    // Number of summands.
    unsigned num_summands;
    // Width.
    unsigned columns;
};
static_assert(sizeof(RfSumPartsParams) == 152);
static_assert(__builtin_offsetof(RfSumPartsParams, summands) == 0);
static_assert(__builtin_offsetof(RfSumPartsParams, residual) == 64);
static_assert(__builtin_offsetof(RfSumPartsParams, out) == 72);
static_assert(__builtin_offsetof(RfSumPartsParams, norm_out) == 80);
static_assert(__builtin_offsetof(RfSumPartsParams, count) == 136);
static_assert(__builtin_offsetof(RfSumPartsParams, num_summands) == 144);
static_assert(__builtin_offsetof(RfSumPartsParams, columns) == 148);
