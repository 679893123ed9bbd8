// Matrix multiplication of few rows. Twin: crates/rf-kernels/src/params/skinny.rs.
#pragma once

#include "rf/params/matmul.h"
#include "rf/params/matvec.h"

enum RfSkinnyEpilogue : unsigned {
    RF_SKINNY_NONE = 0,
    RF_SKINNY_NORM = 1, // one projection, whose rows are a multiple of 32
    RF_SKINNY_GLU = 2   // projections gate and up
};

// outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual), all projections of the same x and format. With an epilogue
// also:
//
// norm   the operand of the matmuls after an RMS norm, without its factor per row: out ·
// norm_weight as f16 (and f32), and the sums of squares of 32 columns each, from which a reader
// computes the
//          factor (RfNormIn)
//   gate and up  activation(out₀) · out₁ as f16; neither out₀ nor out₁ is written
struct RfSkinnyParams {
    RfProjection projections[RF_MAX_PROJECTIONS];
    RfHalves x_f16;           // [tokens, columns]
    const float *residual;    // [tokens, rows] or null; one projection only
    RfNormIn norm_in;         // of x: [tokens, count] squares
    RfHalves out;             // [tokens, rows], with a fixed scale; with an epilogue
    const float *norm_weight; // [rows]
    float *out_f32;           // [tokens, rows] or null; norm
    float *squares;           // [tokens, rows / 32]; norm
    float *partials;          // [tiles of rows, parts, tokens of the kernel, 32], with several parts
    unsigned *arrivals;       // [tiles of rows], zero before the first and after every launch
    unsigned num_projections;
    unsigned columns;
    unsigned tokens;
    unsigned parts;      // of the columns, at least 1
    unsigned epilogue;   // RfSkinnyEpilogue
    unsigned activation; // RfActivation
    unsigned waves;      // of a workgroup: 4; on NVIDIA with up to 16 tokens also 8 or 12
    unsigned reserved;
};
