// Rows of tables in any format. Twin: crates/rf-kernels/src/params/embed.rs.
#pragma once

#include "rf/params/rows.h"

// x = table[ids[t]] · scale. `embed_rms_norm_*` also computes the norm: x / √(mean(x²) + eps) ·
// norm.
struct RfEmbedParams {
    RfWeight table;      // [vocab_size, columns]
    const unsigned *ids; // [rows]
    float *x;            // [rows, columns]
    const float *norm;   // [columns]; `embed_rms_norm_*` alone has this, out, eps and threads
    RfOperand out;
    float scale;
    float eps;
    unsigned columns;
    unsigned rows;
    unsigned threads; // of the workgroup of `embed_rms_norm_*`: a multiple of 32, at most 1024
    unsigned last_id; // larger ids read this row; unused by `dequantize_*`
};
