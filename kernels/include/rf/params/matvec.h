// Matrix × few columns, for decode. Twin: crates/rf-kernels/src/params/matvec.rs.
#pragma once

#include "rf/params/experts.h"
#include "rf/params/matmul.h"
#include "rf/params/rows.h"

// The RMS norm between two matmuls of 1 to 4 tokens, x̂ = w · x / √(Σ x² / columns + eps),
// divided between them: the first writes w · x and the sums of squares of each 32 rows; the second
// multiplies its sums by the remaining factor, which is common to all of x̂.
struct RfNormOut {
    const float *weight; // [rows]
    RfOperand out;       // [tokens, rows]
    float *squares;      // [tokens, rows / 32], or null: no norm follows this matmul
};
struct RfNormIn {
    const float *squares; // [tokens, count]
    unsigned count;       // columns / 32, or 0: x is normalised
    float eps;
};

// As RfMatmulParams, with 1 to 8 tokens.
//
// With a route, a projection holds the weight matrices of all experts, concatenated by rows, and
// the "tokens" are slots: token t has `used` slots. Slot s of token t is multiplied by the expert
// route[t][s]; x has one row per slot (`shared_x` 0) or per token (1). A bias is [experts, rows].
struct RfMatvecParams {
    RfProjection projections[RF_MAX_PROJECTIONS];
    RfActivations x_q8;
    const float *x_f32;
    const float *residual;
    const float *route; // [tokens, 2·used] or null: see Op::Route
    RfNormIn norm_in;   // with one token, or up to 4 of quantised formats
    RfNormOut norm_out; // with up to 4 tokens and one quantised projection whose rows are a multiple of 32
    unsigned num_projections;
    unsigned columns;
    unsigned tokens;
    unsigned used;
    unsigned shared_x;
    unsigned waves;      // of a workgroup: 4, 8 or 16; 16 with norm_out
    unsigned row_groups; // of a wave, one after the other; 1 with norm_out and except on NVIDIA
    unsigned reserved;
};

enum RfActivation : unsigned { RF_SILU = 0, RF_GELU_TANH = 1, RF_CLAMPED_SWIGLU = 2 };

// out = activation(x · Gᵀ (+ bias)) · (x · Uᵀ (+ bias)): the gated unit of 1 to 4 tokens, as
// f32 and as int8 for the next matmul. With a route as in RfMatvecParams, of each slot; `rows` is
// that of one expert. Only experts have biases.
struct RfMatvecGluParams {
    RfWeight gate;          // [rows, columns]
    RfWeight up;            // the same
    const float *gate_bias; // [experts, rows] or null
    const float *up_bias;   // the same
    RfActivations x_q8;
    const float *route;   // [tokens, 2·used] or null
    float *out_f32;       // [slots, rows] or null
    RfActivations out_q8; // the same or null
    RfNormIn norm_in;
    unsigned rows;
    unsigned columns;
    unsigned tokens;
    unsigned activation; // RfActivation
    unsigned used;
    unsigned shared_x;
    unsigned waves; // of a workgroup: 8 or 16
    unsigned reserved;
};

// out = Σ p·(x · Wᵀ (+ bias)) (+ residual) of one token over the slots of a route, in their order;
// `projection` as in RfMatvecParams with a route, but for out: [1, rows].
struct RfMatvecSumParams {
    RfProjection projection; // rows: a multiple of 32
    RfActivations x_q8;      // [used, columns]
    const float *route;      // [1, 2·used]
    const float *residual;   // [1, rows] or null
    RfNormOut norm_out;
    float *partials;    // [parts, rows]; unused with one part
    unsigned *arrivals; // [rows / 32], zero before the first and after every launch; as partials
    unsigned columns;
    unsigned used;  // at most 32
    unsigned parts; // of the slots: at most `used`
    unsigned reserved;
};

// The logits x · Wᵀ (+ bias) of one token, and the selection of its experts by them.
struct RfRouterParams {
    const void *weight; // [experts, columns]
    const float *bias;  // [experts] or null
    // [1, columns] or null: the gate of the shared expert, whose product is route.shared_gate.
    const void *shared_weight;
    const float *x;     // [1, columns]
    RfNormIn norm_in;
    unsigned *arrivals; // zero before the first and after every launch
    RfRouteParams route;
    unsigned columns;
    unsigned rows; // of both weights
};
