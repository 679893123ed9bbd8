// Generated from crates/rf-kernels/src/params/matvec.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/experts.h"
#include "rf/params/matmul.h"
#include "rf/params/rows.h"
#include "rf/params/weight.h"

// The RMSNorm epilogue of a matmul of 1 to 4 tokens: it writes `w · x` without the factor `1 /
// √(Σ x² / columns + eps)`, and the sums of squares from which the next matmul computes that
// factor, which is common to a row.
struct RfNormOut {
    // `[rows]`.
    const float *weight;
    // `[tokens, rows]`: int8 and f32, each or null.
    RfOperand out;
    // `[tokens, rows / 32]`, or null without this epilogue.
    float *squares;
};
static_assert(sizeof(RfNormOut) == 56);
static_assert(__builtin_offsetof(RfNormOut, weight) == 0);
static_assert(__builtin_offsetof(RfNormOut, out) == 8);
static_assert(__builtin_offsetof(RfNormOut, squares) == 48);

// The factor that a row of x lacks after an RMSNorm epilogue.
struct RfNormIn {
    // `[tokens, count]`, as `NormOut::squares`.
    const float *squares;
    // Number of squares, `columns / 32`; 0 if x is complete.
    unsigned count;
    // The `eps` of the norm.
    float eps;
};
static_assert(sizeof(RfNormIn) == 16);
static_assert(__builtin_offsetof(RfNormIn, squares) == 0);
static_assert(__builtin_offsetof(RfNormIn, count) == 8);
static_assert(__builtin_offsetof(RfNormIn, eps) == 12);

// A matmul of 1 to 8 tokens.
//
// With a route, a matmul of the selected experts: a projection has the matrices of all experts
// one below the other, with `rows` of one expert and a bias `[experts, rows]`, and the
// "tokens" are slots: token t has `used` slots. Slot s of token t is multiplied by the expert
// `route[t][s]`.
struct RfMatvecParams {
    // The first `num_projections` entries are used.
    RfProjection projections[4];
    // `[tokens, columns]`, for quantised formats.
    RfActivations x_q8;
    // `[tokens, columns]`, for float formats.
    const float *x_f32;
    // `[tokens, rows]` or null; with one projection only.
    const float *residual;
    // `[tokens, 2 · used]` or null: `Op::Route` of rf-graph.
    const float *route;
    // Missing factor of x; only for one token, or up to 4 with quantised formats.
    RfNormIn norm_in;
    // RMSNorm epilogue; only for up to 4 tokens, quantised formats and one projection of whole
    // blocks of 32 rows.
    RfNormOut norm_out;
    // Number of projections, 1 to 3.
    unsigned num_projections;
    // Input features.
    unsigned columns;
    // Rows of x: 1 to 8; with a route any number.
    unsigned tokens;
    // Experts per token, with a route.
    unsigned used;
    // With a route: 1 if x has one row per token, 0 if it has one row per slot.
    unsigned shared_x;
    // Waves of a workgroup, from `with_waves`: 4, 8 or 16; 16 with
    // `norm_out`.
    unsigned waves;
    // Groups of rows that a wave computes one after the other, chosen with the waves; 1 with
    // `norm_out` and except on NVIDIA.
    unsigned row_groups;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfMatvecParams) == 400);
static_assert(__builtin_offsetof(RfMatvecParams, projections) == 0);
static_assert(__builtin_offsetof(RfMatvecParams, x_q8) == 256);
static_assert(__builtin_offsetof(RfMatvecParams, x_f32) == 272);
static_assert(__builtin_offsetof(RfMatvecParams, residual) == 280);
static_assert(__builtin_offsetof(RfMatvecParams, route) == 288);
static_assert(__builtin_offsetof(RfMatvecParams, norm_in) == 296);
static_assert(__builtin_offsetof(RfMatvecParams, norm_out) == 312);
static_assert(__builtin_offsetof(RfMatvecParams, num_projections) == 368);
static_assert(__builtin_offsetof(RfMatvecParams, columns) == 372);
static_assert(__builtin_offsetof(RfMatvecParams, tokens) == 376);
static_assert(__builtin_offsetof(RfMatvecParams, used) == 380);
static_assert(__builtin_offsetof(RfMatvecParams, shared_x) == 384);
static_assert(__builtin_offsetof(RfMatvecParams, waves) == 388);
static_assert(__builtin_offsetof(RfMatvecParams, row_groups) == 392);
static_assert(__builtin_offsetof(RfMatvecParams, reserved) == 396);

// `activation(x · Gᵀ (+ bias)) · (x · Uᵀ (+ bias))` of 1 to 4 tokens, or of each slot of a
// route, as f32 and as int8 for the next matmul.
struct RfMatvecGluParams {
    // `[rows, columns]`.
    RfWeight gate;
    // `[rows, columns]`.
    RfWeight up;
    // `[experts, rows]` or null; with a route only.
    const float *gate_bias;
    // `[experts, rows]` or null; with a route only.
    const float *up_bias;
    // `[tokens, columns]`.
    RfActivations x_q8;
    // `[tokens, 2 · used]` or null.
    const float *route;
    // `[slots, rows]` or null.
    float *out_f32;
    // `[slots, rows]` or null.
    RfActivations out_q8;
    // Missing factor of x, as in `MatvecParams`; with a route of one token only.
    RfNormIn norm_in;
    // Output features, of one expert with a route: a multiple of 32.
    unsigned rows;
    // Input features.
    unsigned columns;
    // Rows of x: 1 to 4; with a route any number.
    unsigned tokens;
    // `RfActivation`.
    unsigned activation;
    // Experts per token, with a route.
    unsigned used;
    // With a route: 1 if x has one row per token, 0 if it has one row per slot.
    unsigned shared_x;
    // Waves of a workgroup, from `with_waves`: 8 or 16.
    unsigned waves;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfMatvecGluParams) == 176);
static_assert(__builtin_offsetof(RfMatvecGluParams, gate) == 0);
static_assert(__builtin_offsetof(RfMatvecGluParams, up) == 32);
static_assert(__builtin_offsetof(RfMatvecGluParams, gate_bias) == 64);
static_assert(__builtin_offsetof(RfMatvecGluParams, up_bias) == 72);
static_assert(__builtin_offsetof(RfMatvecGluParams, x_q8) == 80);
static_assert(__builtin_offsetof(RfMatvecGluParams, route) == 96);
static_assert(__builtin_offsetof(RfMatvecGluParams, out_f32) == 104);
static_assert(__builtin_offsetof(RfMatvecGluParams, out_q8) == 112);
static_assert(__builtin_offsetof(RfMatvecGluParams, norm_in) == 128);
static_assert(__builtin_offsetof(RfMatvecGluParams, rows) == 144);
static_assert(__builtin_offsetof(RfMatvecGluParams, columns) == 148);
static_assert(__builtin_offsetof(RfMatvecGluParams, tokens) == 152);
static_assert(__builtin_offsetof(RfMatvecGluParams, activation) == 156);
static_assert(__builtin_offsetof(RfMatvecGluParams, used) == 160);
static_assert(__builtin_offsetof(RfMatvecGluParams, shared_x) == 164);
static_assert(__builtin_offsetof(RfMatvecGluParams, waves) == 168);
static_assert(__builtin_offsetof(RfMatvecGluParams, reserved) == 172);

// `Σₛ pₛ · (xₛ · Wₑᵀ (+ bias)) (+ residual)` of one token over the slots `s` of a route in
// their order, with an RMSNorm epilogue as in `MatvecParams`.
struct RfMatvecSumParams {
    // The matrices of all experts one below the other, with `rows` of one expert, a multiple
    // of 32, and a bias `[experts, rows]`; `out` is `[1, rows]`.
    RfProjection projection;
    // `[used, columns]`.
    RfActivations x_q8;
    // `[1, 2 · used]`.
    const float *route;
    // `[1, rows]` or null.
    const float *residual;
    // RMSNorm epilogue.
    RfNormOut norm_out;
    // `[parts, rows]`; unused with one part.
    float *partials;
    // `[rows / 32]`, zero before the first and after every launch; as partials.
    unsigned *arrivals;
    // Input features.
    unsigned columns;
    // Experts per token, at most 32.
    unsigned used;
    // Parts of the slots, from `divided`: at most `used`.
    unsigned parts;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfMatvecSumParams) == 184);
static_assert(__builtin_offsetof(RfMatvecSumParams, projection) == 0);
static_assert(__builtin_offsetof(RfMatvecSumParams, x_q8) == 64);
static_assert(__builtin_offsetof(RfMatvecSumParams, route) == 80);
static_assert(__builtin_offsetof(RfMatvecSumParams, residual) == 88);
static_assert(__builtin_offsetof(RfMatvecSumParams, norm_out) == 96);
static_assert(__builtin_offsetof(RfMatvecSumParams, partials) == 152);
static_assert(__builtin_offsetof(RfMatvecSumParams, arrivals) == 160);
static_assert(__builtin_offsetof(RfMatvecSumParams, columns) == 168);
static_assert(__builtin_offsetof(RfMatvecSumParams, used) == 172);
static_assert(__builtin_offsetof(RfMatvecSumParams, parts) == 176);
static_assert(__builtin_offsetof(RfMatvecSumParams, reserved) == 180);

// `route(x · Wᵀ (+ bias))` of one token: the logits of a router with float weights, then the
// selection of experts.
struct RfRouterParams {
    // `[experts, columns]`.
    const void *weight;
    // `[experts]` or null.
    const float *bias;
    // `[1, columns]` or null: the gate of the shared expert, whose product is
    // `route.shared_gate`.
    const void *shared_weight;
    // `[1, columns]`.
    const float *x;
    // Missing factor of x.
    RfNormIn norm_in;
    // A counter, zero before the first and after every launch.
    unsigned *arrivals;
    // The selection; the kernel also writes the logits and the gate of the shared expert.
    RfRouteParams route;
    // Input features.
    unsigned columns;
    // Rows of both weights.
    unsigned rows;
};
static_assert(sizeof(RfRouterParams) == 144);
static_assert(__builtin_offsetof(RfRouterParams, weight) == 0);
static_assert(__builtin_offsetof(RfRouterParams, bias) == 8);
static_assert(__builtin_offsetof(RfRouterParams, shared_weight) == 16);
static_assert(__builtin_offsetof(RfRouterParams, x) == 24);
static_assert(__builtin_offsetof(RfRouterParams, norm_in) == 32);
static_assert(__builtin_offsetof(RfRouterParams, arrivals) == 48);
static_assert(__builtin_offsetof(RfRouterParams, route) == 56);
static_assert(__builtin_offsetof(RfRouterParams, columns) == 136);
static_assert(__builtin_offsetof(RfRouterParams, rows) == 140);
