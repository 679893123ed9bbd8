// Generated from crates/rf-kernels/src/params/sums.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/matvec.h"

// The summand of one part.
struct RfPartSummand {
    // `[rows, columns]`.
    const float *x;
    // The signal that follows the last write to `x`, or null.
    const unsigned *signal;
    // The number of the signal.
    unsigned number;
    // Unused.
    unsigned reserved;
};
static_assert(sizeof(RfPartSummand) == 24);
static_assert(__builtin_offsetof(RfPartSummand, x) == 0);
static_assert(__builtin_offsetof(RfPartSummand, signal) == 8);
static_assert(__builtin_offsetof(RfPartSummand, number) == 16);
static_assert(__builtin_offsetof(RfPartSummand, reserved) == 20);

// The end of the writes to a summand.
struct RfSignalParams {
    // Written with `number`.
    unsigned *signal;
    // The number.
    unsigned number;
    // Unused.
    unsigned reserved;
};
static_assert(sizeof(RfSignalParams) == 16);
static_assert(__builtin_offsetof(RfSignalParams, signal) == 0);
static_assert(__builtin_offsetof(RfSignalParams, number) == 8);
static_assert(__builtin_offsetof(RfSignalParams, reserved) == 12);

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
static_assert(sizeof(RfSumPartsParams) == 280);
static_assert(__builtin_offsetof(RfSumPartsParams, summands) == 0);
static_assert(__builtin_offsetof(RfSumPartsParams, residual) == 192);
static_assert(__builtin_offsetof(RfSumPartsParams, out) == 200);
static_assert(__builtin_offsetof(RfSumPartsParams, norm_out) == 208);
static_assert(__builtin_offsetof(RfSumPartsParams, count) == 264);
static_assert(__builtin_offsetof(RfSumPartsParams, num_summands) == 272);
static_assert(__builtin_offsetof(RfSumPartsParams, columns) == 276);
