// Row-wise operations. Twin: crates/rf-kernels/src/params/rows.rs.
#pragma once

#include "rf/params/batch.h"
#include "rf/params/weight.h"

// An operand of a matmul, computed once per row: as int8, as f32 or both; a null pointer disables a
// form. For int8 `columns` is a multiple of 32, otherwise of 4.
struct RfOperand {
    RfActivations q8; // [rows, columns]
    float *f32;       // [rows, columns]
};

// out = x.
struct RfQuantizeParams {
    const float *x; // [rows, columns]
    RfOperand out;
    unsigned columns;
    unsigned rows;
};

// s = x (+ residual); out = s / √(mean(s²) + eps) · weight. With a residual s is stored in `sum`,
// which may be x.
struct RfRmsNormParams {
    const float *x;        // [rows, columns]
    const float *residual; // [rows, columns] or null
    float *sum;            // [rows, columns]; null without a residual
    const float *weight;   // [columns]
    RfOperand out;
    float eps;
    unsigned columns;
    unsigned rows;
    unsigned threads; // of the workgroup: a multiple of 32, at most 1024
};

// out = activation(gate) · up.
struct RfGluParams {
    const float *gate; // [rows, columns]
    const float *up;   // [rows, columns]
    RfOperand out;
    unsigned columns;
    unsigned rows;
    unsigned activation; // RfActivation
    unsigned reserved;
};

// out = x / √(mean(x²) + eps) · weight over groups of consecutive columns; `group` divides the
// width.
struct RfGroupNormParams {
    const float *x;      // [groups, group]
    const float *weight; // [group]
    float *out;          // [groups, group]
    float eps;
    unsigned group;
    unsigned groups; // rows · width / group
    unsigned reserved;
};

// out = (a + b) · factor; out = a · factor without b. `out` may be an operand.
struct RfAddScaleParams {
    const float *a; // [count]
    const float *b; // [count] or null
    float *out;     // [count]
    unsigned long long count;
    float factor;
    unsigned reserved;
};

// Row r of out is row output_rows[r] of x.
struct RfSelectRowsParams {
    const float *x; // [tokens, columns]
    const unsigned *output_rows; // [rows]
    float *out;     // [rows, columns]
    unsigned columns;
    unsigned rows;
};
