// Weight matrices and activations as kernel parameters. Twin:
// crates/rf-kernels/src/params/weight.rs.
#pragma once

// A matrix [rows, columns], divided into planes that are stored row by row:
//
//   low    the low bits of every block of 32 columns: 16 bytes, fewer below four bits
//   high   the remaining bits, or the second half of Q8_0
//   scale  per block of 32 columns
//   super  per 256 columns (K-quants and codebook formats)
//
// After its last row, every plane has space for 8 more rows and at least 528 bytes: kernels may
// read it and ignore its contents. kernels/include/rf/formats.h documents the planes of each
// format. F32, F16 and BF16 have only `low`.
struct RfWeight {
    const void *low;
    const void *high;
    const void *scale;
    const void *super;
};

// Rows of int8 activations; `columns` is a multiple of 32. A block of 32 columns has a scale d = m
// / 127, where m is its largest magnitude, and 32 values q with x ≈ d·q.
//
//   q     [rows][2][columns/32][16]: the first 16 of every block, then the last 16 of every block
//   meta  [rows][columns/32][2]: d and d·Σq
struct RfActivations {
    signed char *q;
    float *meta;
};

// Rows of activations as f16 words, in the order that rf/halves.h describes; x = scale · half.
// `columns` is a multiple of 32.
struct RfHalves {
    void *x;      // [rows, columns] f16; where they are stored the lowest bit selects the order
    float *scale; // [rows]
};
