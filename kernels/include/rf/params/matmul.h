// Matrix multiplication. Twin: crates/rf-kernels/src/params/matmul.rs.
#pragma once

#include "rf/params/weight.h"

// One weight matrix of a matmul.
struct RfProjection {
    RfWeight weight;    // [rows, columns]
    const float *bias;  // [rows] or null
    float *out;         // [tokens, rows]
    unsigned rows;
    unsigned format;    // number of the format: DType::ALL of rf-quant
};

// outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual), all projections of the same x.
struct RfMatmulParams {
    RfProjection projections[3];
    RfActivations x_q8;    // quantised formats: [tokens, columns]
    const float *x_f32;    // float formats: [tokens, columns]
    const float *residual; // [tokens, rows] or null; one projection only
    unsigned num_projections;
    unsigned columns;
    unsigned tokens;
    unsigned reserved;
};
