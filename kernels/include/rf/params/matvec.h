// Matrix × few columns: decode. Twin: crates/rf-kernels/src/params/matvec.rs.
#pragma once

#include "rf/params/matmul.h"

// The RMS norm between two products of one token, x̂ = w · x / √(Σ x² / columns + eps), shared out among them: the
// first writes w · x as int8 and the sums of squares of each 32 rows, the second multiplies its rows by what is one
// factor for all of x̂.
struct RfNormOut {
    const float *weight; // [rows]
    RfActivations out;   // [1, rows]
    float *squares;      // [rows / 32], or null: no norm behind this product
};
struct RfNormIn {
    const float *squares; // [count]
    unsigned count;       // columns / 32, or 0: x is complete
    float eps;
};

// As RfMatmulParams, with 1 to 8 tokens.
//
// With a route the weight matrices of a mixture's experts stand one below the other in projections[0], and the
// "tokens" are slots: token t has `used` of them. Slot s of token t is multiplied by the expert of route[t][s],
// x has one row per slot (`shared_x` 0) or per token (1).
struct RfMatvecParams {
    RfProjection projections[3];
    RfActivations x_q8;
    const float *x_f32;
    const float *residual;
    const float *route; // [tokens, 2·used] or null: see Op::Route
    RfNormIn norm_in;   // with one token of quantised formats only, as is norm_out
    RfNormOut norm_out; // with one projection of whole blocks of 32 rows
    unsigned num_projections;
    unsigned columns;
    unsigned tokens;
    unsigned used;
    unsigned shared_x;
    unsigned waves; // of a workgroup: 8, or 16 with norm_out
};

enum RfActivation : unsigned { RF_SILU = 0, RF_GELU_TANH = 1 };

// out = activation(x · Gᵀ) · (x · Uᵀ): the gated unit, as f32 and quantised for the product that follows.
struct RfMatvecGluParams {
    RfWeight gate; // [rows, columns]
    RfWeight up;   // the same
    RfActivations x_q8;
    const float *x_f32;
    float *out_f32;       // [tokens, rows] or null
    RfActivations out_q8; // the same or null
    RfNormIn norm_in;
    unsigned rows;
    unsigned columns;
    unsigned tokens;
    unsigned activation; // RfActivation
};
