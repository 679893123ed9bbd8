// Generated from crates/rf-kernels/src/params/skinny.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/matmul.h"
#include "rf/params/matvec.h"
#include "rf/params/weight.h"

// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)` for 2 to `FEW_TOKENS` rows of f16, all projections
// of the same x and format, with an epilogue:
//
// - norm: the operand of the matmuls after an RMSNorm, without its factor per row: out ·
//   `norm_weight` as f16 (and f32), and the sums of squares of 32 columns each, from which a
//   reader computes the factor (`NormIn`);
// - gated unit: activation(out₀) · out₁ as f16; neither out₀ nor out₁ is written.
struct RfSkinnyParams {
    // The first `num_projections` entries are used; all have one
    // format.
    RfProjection projections[4];
    // `[tokens, columns]`.
    RfHalves x_f16;
    // `[tokens, rows]` or null; with one projection only.
    const float *residual;
    // The factor that the rows of x lack: `[tokens, count]` squares.
    RfNormIn norm_in;
    // `[tokens, rows]`: the result of the epilogue, with a fixed scale.
    RfHalves out;
    // `[rows]`; norm.
    const float *norm_weight;
    // `[tokens, rows]` or null: the result of the norm as f32.
    float *out_f32;
    // `[tokens, rows / 32]`; norm.
    float *squares;
    // `[tiles of rows, parts, tokens of the kernel, 32]`, with several parts.
    float *partials;
    // `[tiles of rows]`, zero before the first and after every launch.
    unsigned *arrivals;
    // Number of projections, 1 to 4.
    unsigned num_projections;
    // Input features.
    unsigned columns;
    // Rows of the output.
    unsigned tokens;
    // Parts of the columns, at least 1, from `with_epilogue`.
    unsigned parts;
    // `RfSkinnyEpilogue`.
    unsigned epilogue;
    // `RfActivation`.
    unsigned activation;
    // Waves of a workgroup, from `with_epilogue`: 4; on NVIDIA with up
    // to 16 tokens also 8 or 12.
    unsigned waves;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfSkinnyParams) == 384);
static_assert(__builtin_offsetof(RfSkinnyParams, projections) == 0);
static_assert(__builtin_offsetof(RfSkinnyParams, x_f16) == 256);
static_assert(__builtin_offsetof(RfSkinnyParams, residual) == 272);
static_assert(__builtin_offsetof(RfSkinnyParams, norm_in) == 280);
static_assert(__builtin_offsetof(RfSkinnyParams, out) == 296);
static_assert(__builtin_offsetof(RfSkinnyParams, norm_weight) == 312);
static_assert(__builtin_offsetof(RfSkinnyParams, out_f32) == 320);
static_assert(__builtin_offsetof(RfSkinnyParams, squares) == 328);
static_assert(__builtin_offsetof(RfSkinnyParams, partials) == 336);
static_assert(__builtin_offsetof(RfSkinnyParams, arrivals) == 344);
static_assert(__builtin_offsetof(RfSkinnyParams, num_projections) == 352);
static_assert(__builtin_offsetof(RfSkinnyParams, columns) == 356);
static_assert(__builtin_offsetof(RfSkinnyParams, tokens) == 360);
static_assert(__builtin_offsetof(RfSkinnyParams, parts) == 364);
static_assert(__builtin_offsetof(RfSkinnyParams, epilogue) == 368);
static_assert(__builtin_offsetof(RfSkinnyParams, activation) == 372);
static_assert(__builtin_offsetof(RfSkinnyParams, waves) == 376);
static_assert(__builtin_offsetof(RfSkinnyParams, reserved) == 380);
