// Weight matrices and activations as kernels see them. Twin: crates/rf-kernels/src/params/weight.rs.
#pragma once

// A matrix [rows, columns] in planes, each row after row:
//
//   low    what every block of 32 columns has most of: 16 bytes (8 for Q2_K, Q3_K; 32 for Q8_0 in two planes)
//   high   the bits above those, or the second half of Q8_0
//   scale  per block of 32 columns
//   super  per 256 columns (K-quants)
//
// Behind the last row of every plane is room for 8 more rows: kernels read them, and use nothing of it.
// kernels/include/rf/formats.h says what is in them for each format. F32, F16 and BF16 have `low` alone.
struct RfWeight {
    const void *low;
    const void *high;
    const void *scale;
    const void *super;
};

// Rows of activations as int8, `columns` a multiple of 32. A block of 32 columns has a scale d = m / 127, where m
// is its largest magnitude, and 32 values q with x ≈ d·q.
//
//   q     [rows][2][columns/32][16]: the first 16 of every block, then the last 16 of every block
//   meta  [rows][columns/32][2]: d and d·Σq
struct RfActivations {
    signed char *q;
    float *meta;
};
