// Generated from crates/rf-kernels/src/params/weight.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"

// The planes of a packed matrix `[rows, columns]`, each stored row by row.
//
// After its last row, every plane has space for 8 more rows and at least 528 bytes: kernels
// may read it and ignore its contents. `kernels/include/rf/formats.h` documents the planes of
// each format. F32, F16 and BF16 have only `low`.
struct RfWeight {
    // The low bits of every block of 32 columns: 16 bytes, fewer below four bits.
    const void *low;
    // The remaining bits, or the second half of `Q8_0`.
    const void *high;
    // Scales per block of 32 columns.
    const void *scale;
    // Scales per 256 columns (K-quants and codebook formats), 128 (`Q1_0`) or 64 (`Q2_0`).
    const void *super_scale;
};
static_assert(sizeof(RfWeight) == 32);
static_assert(__builtin_offsetof(RfWeight, low) == 0);
static_assert(__builtin_offsetof(RfWeight, high) == 8);
static_assert(__builtin_offsetof(RfWeight, scale) == 16);
static_assert(__builtin_offsetof(RfWeight, super_scale) == 24);

// Rows of int8 activations with their scales; `columns` is a multiple of 32. A block of 32
// columns has a scale d = m / 127, where m is its largest magnitude, and 32 values q with x ≈
// d·q.
struct RfActivations {
    // `[rows][2][columns / 32][16]`: the first 16 of every block, then the last 16 of every
    // block.
    signed char *q;
    // `[rows][columns / 32][2]`: d and d·Σq.
    float *meta;
};
static_assert(sizeof(RfActivations) == 16);
static_assert(__builtin_offsetof(RfActivations, q) == 0);
static_assert(__builtin_offsetof(RfActivations, meta) == 8);

// Rows of activations as f16, with a scale per row: x = scale · half. `columns` is a multiple
// of 32. The columns of a block of 32 are in the order in which weights are unpacked
// (`kernels/include/rf/halves.h`), or, with `natural`, in their own.
struct RfHalves {
    // `[rows, columns]` f16. The lowest bit is set if the columns are in their own order.
    void *x;
    // `[rows]`.
    float *scale;
};
static_assert(sizeof(RfHalves) == 16);
static_assert(__builtin_offsetof(RfHalves, x) == 0);
static_assert(__builtin_offsetof(RfHalves, scale) == 8);
