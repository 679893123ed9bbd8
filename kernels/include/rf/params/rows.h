// Generated from crates/rf-kernels/src/params/rows.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/weight.h"

// The left operand of a matmul as int8, f16, f32 or several of them; null disables a form. The
// number of columns is a multiple of 32 for int8 and f16, otherwise of 4.
struct RfOperand {
    // `[rows, columns]`.
    RfActivations q8;
    // `[rows, columns]`.
    float *f32;
    // `[rows, columns]`.
    RfHalves f16;
};
static_assert(sizeof(RfOperand) == 40);
static_assert(__builtin_offsetof(RfOperand, q8) == 0);
static_assert(__builtin_offsetof(RfOperand, f32) == 16);
static_assert(__builtin_offsetof(RfOperand, f16) == 24);

// `out = x`, quantised.
struct RfQuantizeParams {
    // `[rows, columns]`.
    const float *x;
    // `[rows, columns]`.
    RfOperand out;
    // Width.
    unsigned columns;
    // Number of rows.
    unsigned rows;
};
static_assert(sizeof(RfQuantizeParams) == 56);
static_assert(__builtin_offsetof(RfQuantizeParams, x) == 0);
static_assert(__builtin_offsetof(RfQuantizeParams, out) == 8);
static_assert(__builtin_offsetof(RfQuantizeParams, columns) == 48);
static_assert(__builtin_offsetof(RfQuantizeParams, rows) == 52);

// `s = x (+ residual)`; `out = s / √(mean(s²) + eps) · weight` over whole rows. With a
// residual s is stored in `sum`.
struct RfRmsNormParams {
    // `[rows, columns]`.
    const float *x;
    // `[rows, columns]` or null.
    const float *residual;
    // Destination of `s` with a residual, otherwise null; may be `x`.
    float *sum;
    // `[columns]`.
    const float *weight;
    // `[rows, columns]`.
    RfOperand out;
    // Constant that is added to the mean square.
    float eps;
    // Width: a multiple of 4.
    unsigned columns;
    // Number of rows.
    unsigned rows;
    // Threads of a workgroup, from `rms_norm_threads`: a multiple of 32, at most 1024.
    unsigned threads;
};
static_assert(sizeof(RfRmsNormParams) == 88);
static_assert(__builtin_offsetof(RfRmsNormParams, x) == 0);
static_assert(__builtin_offsetof(RfRmsNormParams, residual) == 8);
static_assert(__builtin_offsetof(RfRmsNormParams, sum) == 16);
static_assert(__builtin_offsetof(RfRmsNormParams, weight) == 24);
static_assert(__builtin_offsetof(RfRmsNormParams, out) == 32);
static_assert(__builtin_offsetof(RfRmsNormParams, eps) == 72);
static_assert(__builtin_offsetof(RfRmsNormParams, columns) == 76);
static_assert(__builtin_offsetof(RfRmsNormParams, rows) == 80);
static_assert(__builtin_offsetof(RfRmsNormParams, threads) == 84);

// `out = activation(gate) · up`, or `activation(gate) · rms_norm(up)` over groups of
// `GATED_NORM_GROUP` columns.
struct RfGluParams {
    // `[rows, columns]`.
    const float *gate;
    // `[rows, columns]`.
    const float *up;
    // `[GATED_NORM_GROUP]`, or null without a norm; `glu_f32_q8` alone.
    const float *norm;
    // `[rows, columns]`; f32 only if the columns are not a multiple of 4.
    RfOperand out;
    // Width.
    unsigned columns;
    // Number of rows.
    unsigned rows;
    // `RfActivation`.
    unsigned activation;
    // Constant that is added to the mean square.
    float eps;
};
static_assert(sizeof(RfGluParams) == 80);
static_assert(__builtin_offsetof(RfGluParams, gate) == 0);
static_assert(__builtin_offsetof(RfGluParams, up) == 8);
static_assert(__builtin_offsetof(RfGluParams, norm) == 16);
static_assert(__builtin_offsetof(RfGluParams, out) == 24);
static_assert(__builtin_offsetof(RfGluParams, columns) == 64);
static_assert(__builtin_offsetof(RfGluParams, rows) == 68);
static_assert(__builtin_offsetof(RfGluParams, activation) == 72);
static_assert(__builtin_offsetof(RfGluParams, eps) == 76);

// `out = x / √(mean(x²) + eps) · weight`, or the layer norm with a bias, over groups of
// adjacent columns; `group` divides the width. Group `i` has row `i` mod `weights` of the
// weights.
struct RfGroupNormParams {
    // `[groups, group]`.
    const float *x;
    // `[weights, group]`.
    const float *weight;
    // Bias, `[group]` or null; only for a layer norm.
    const float *bias;
    // `[groups, group]`; may be `x`.
    float *out;
    // Constant that is added to the mean square.
    float eps;
    // Columns of a group.
    unsigned group;
    // Number of groups of all rows.
    unsigned groups;
    // 1, or the number of groups of a row; 1 for a layer norm.
    unsigned weights;
};
static_assert(sizeof(RfGroupNormParams) == 48);
static_assert(__builtin_offsetof(RfGroupNormParams, x) == 0);
static_assert(__builtin_offsetof(RfGroupNormParams, weight) == 8);
static_assert(__builtin_offsetof(RfGroupNormParams, bias) == 16);
static_assert(__builtin_offsetof(RfGroupNormParams, out) == 24);
static_assert(__builtin_offsetof(RfGroupNormParams, eps) == 32);
static_assert(__builtin_offsetof(RfGroupNormParams, group) == 36);
static_assert(__builtin_offsetof(RfGroupNormParams, groups) == 40);
static_assert(__builtin_offsetof(RfGroupNormParams, weights) == 44);

// `out = a + b`, or `a · b`.
struct RfPairParams {
    // `[count]`.
    const float *a;
    // `[count]`.
    const float *b;
    // `[count]`; may be `a` or `b`.
    float *out;
    // Number of elements.
    unsigned long long count;
};
static_assert(sizeof(RfPairParams) == 32);
static_assert(__builtin_offsetof(RfPairParams, a) == 0);
static_assert(__builtin_offsetof(RfPairParams, b) == 8);
static_assert(__builtin_offsetof(RfPairParams, out) == 16);
static_assert(__builtin_offsetof(RfPairParams, count) == 24);

// `out = function(x)`, element by element.
struct RfMapParams {
    // `[rows, columns]`.
    const float *x;
    // `[rows, gate_columns]`, for a gate.
    const float *gate;
    // `[rows]`, for a scale by position.
    const unsigned *positions;
    // `[rows, columns]`; may be `x`.
    float *out;
    // Width.
    unsigned columns;
    // Number of rows.
    unsigned rows;
    // `RfActivation` or `RfFunction`.
    unsigned function;
    // The factor, the cap, the bound, αₚ, or the factor of the logarithm of a position.
    float parameter;
    // Width of the gate; divides `columns`.
    unsigned gate_columns;
    // `rf_graph::PositionScale::period`.
    unsigned period;
    // `rf_graph::PositionScale::offset`.
    unsigned offset;
    // `rf_graph::Xielu::alpha_n`.
    float alpha_n;
    // `rf_graph::Xielu::beta`.
    float beta;
    // `rf_graph::Xielu::eps`.
    float eps;
    // The largest result of a clamp, whose smallest is `parameter`.
    float limit;
    // Columns for each column of the gate.
    unsigned gate_group;
};
static_assert(sizeof(RfMapParams) == 80);
static_assert(__builtin_offsetof(RfMapParams, x) == 0);
static_assert(__builtin_offsetof(RfMapParams, gate) == 8);
static_assert(__builtin_offsetof(RfMapParams, positions) == 16);
static_assert(__builtin_offsetof(RfMapParams, out) == 24);
static_assert(__builtin_offsetof(RfMapParams, columns) == 32);
static_assert(__builtin_offsetof(RfMapParams, rows) == 36);
static_assert(__builtin_offsetof(RfMapParams, function) == 40);
static_assert(__builtin_offsetof(RfMapParams, parameter) == 44);
static_assert(__builtin_offsetof(RfMapParams, gate_columns) == 48);
static_assert(__builtin_offsetof(RfMapParams, period) == 52);
static_assert(__builtin_offsetof(RfMapParams, offset) == 56);
static_assert(__builtin_offsetof(RfMapParams, alpha_n) == 60);
static_assert(__builtin_offsetof(RfMapParams, beta) == 64);
static_assert(__builtin_offsetof(RfMapParams, eps) == 68);
static_assert(__builtin_offsetof(RfMapParams, limit) == 72);
static_assert(__builtin_offsetof(RfMapParams, gate_group) == 76);

// Row `r` of `out` has `part` columns of each group of columns of row `indices[r]` of `x`.
struct RfCopyRowsParams {
    // `[any, x_columns]`.
    const float *x;
    // `[rows]`, or null for row `r`.
    const unsigned *indices;
    // `[rows, columns]`.
    float *out;
    // Width of `x`.
    unsigned x_columns;
    // Columns of a group of `x`.
    unsigned group;
    // The first column of a group.
    unsigned start;
    // Columns of `out` per group.
    unsigned part;
    // Width of `out`.
    unsigned columns;
    // Number of rows.
    unsigned rows;
};
static_assert(sizeof(RfCopyRowsParams) == 48);
static_assert(__builtin_offsetof(RfCopyRowsParams, x) == 0);
static_assert(__builtin_offsetof(RfCopyRowsParams, indices) == 8);
static_assert(__builtin_offsetof(RfCopyRowsParams, out) == 16);
static_assert(__builtin_offsetof(RfCopyRowsParams, x_columns) == 24);
static_assert(__builtin_offsetof(RfCopyRowsParams, group) == 28);
static_assert(__builtin_offsetof(RfCopyRowsParams, start) == 32);
static_assert(__builtin_offsetof(RfCopyRowsParams, part) == 36);
static_assert(__builtin_offsetof(RfCopyRowsParams, columns) == 40);
static_assert(__builtin_offsetof(RfCopyRowsParams, rows) == 44);

// Row `r` of `out` has `a_part` columns of row `r` of `a` and then `b_part` columns of row `r`
// of `b`, `groups` times, from successive columns of both.
struct RfJoinParams {
    // `[rows, groups · a_part]`.
    const float *a;
    // `[rows, groups · b_part]`.
    const float *b;
    // `[rows, groups · (a_part + b_part)]`.
    float *out;
    // Columns of `a` per group.
    unsigned a_part;
    // Columns of `b` per group.
    unsigned b_part;
    // Groups of a row.
    unsigned groups;
    // Number of rows.
    unsigned rows;
};
static_assert(sizeof(RfJoinParams) == 40);
static_assert(__builtin_offsetof(RfJoinParams, a) == 0);
static_assert(__builtin_offsetof(RfJoinParams, b) == 8);
static_assert(__builtin_offsetof(RfJoinParams, out) == 16);
static_assert(__builtin_offsetof(RfJoinParams, a_part) == 24);
static_assert(__builtin_offsetof(RfJoinParams, b_part) == 28);
static_assert(__builtin_offsetof(RfJoinParams, groups) == 32);
static_assert(__builtin_offsetof(RfJoinParams, rows) == 36);
