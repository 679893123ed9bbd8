// Generated from crates/rf-kernels/src/params/matmul.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/weight.h"

// One weight matrix of a matmul.
struct RfProjection {
    // `[rows, columns]`.
    RfWeight weight;
    // `[rows]` or null.
    const float *bias;
    // `[tokens, rows]`.
    float *out;
    // Output features.
    unsigned rows;
    // Number of the format: its index in `DType::ALL`.
    unsigned format;
    // Of a matmul with f16 operands: the power of two by which the weights are multiplied
    // before they become f16.
    float half_unit;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfProjection) == 64);
static_assert(__builtin_offsetof(RfProjection, weight) == 0);
static_assert(__builtin_offsetof(RfProjection, bias) == 32);
static_assert(__builtin_offsetof(RfProjection, out) == 40);
static_assert(__builtin_offsetof(RfProjection, rows) == 48);
static_assert(__builtin_offsetof(RfProjection, format) == 52);
static_assert(__builtin_offsetof(RfProjection, half_unit) == 56);
static_assert(__builtin_offsetof(RfProjection, reserved) == 60);

// A tile of a matmul of experts, in device memory: slots of one expert.
struct RfExpertTile {
    // The expert.
    unsigned expert;
    // Index of its first slot in `ExpertGroups::slots`.
    unsigned first;
    // Number of slots; 0 for no tile.
    unsigned count;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfExpertTile) == 16);
static_assert(__builtin_offsetof(RfExpertTile, expert) == 0);
static_assert(__builtin_offsetof(RfExpertTile, first) == 4);
static_assert(__builtin_offsetof(RfExpertTile, count) == 8);
static_assert(__builtin_offsetof(RfExpertTile, reserved) == 12);

// The slots of a batch, grouped by expert: slot t · used + s is the s-th expert of token t.
struct RfExpertGroups {
    // `ExpertTile`s: as many as `Self::num_tiles`.
    RfExpertTile *tiles;
    // `[tokens · used]`, in the order of their experts.
    unsigned *slots;
};
static_assert(sizeof(RfExpertGroups) == 16);
static_assert(__builtin_offsetof(RfExpertGroups, tiles) == 0);
static_assert(__builtin_offsetof(RfExpertGroups, slots) == 8);

// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)`, all projections of the same x.
//
// With groups, the rows of x are slots of a mixture of experts. A projection has the matrices
// of all experts one below the other, with `rows` of one expert and a bias `[experts, rows]`.
// The groups are those of a tile of the kernel's width. Slot s reads row s / `slots_per_row`
// of x and writes row s of out.
//
// With several parts, workgroup z of a tile of rows sums part z of the columns, and the last
// one adds the sums in the order of the parts. There is one tile of tokens then.
struct RfMatmulParams {
    // The first `num_projections` entries are used.
    RfProjection projections[4];
    // `[tokens, columns]`, for quantised formats.
    RfActivations x_q8;
    // `[tokens, columns]`, for float formats.
    const float *x_f32;
    // `[tokens, rows]` or null; with one projection only, and without groups.
    const float *residual;
    // The groups of a mixture of experts; null without.
    RfExpertGroups groups;
    // Number of projections, 1 to 3.
    unsigned num_projections;
    // Input features.
    unsigned columns;
    // Rows of the output.
    unsigned tokens;
    // With groups: slots that read one row of x.
    unsigned slots_per_row;
    // `[tiles of rows, parts, sums of a workgroup]`, at most `MatmulDevice::partial_floats`;
    // with several parts.
    float *partials;
    // `[tiles of rows]`, zero before the first and after every launch: at most
    // `MatmulDevice::arrivals`.
    unsigned *arrivals;
    // Parts of the columns, from `divided`: the extent of the grid in z. 0
    // and 1 are the whole.
    unsigned parts;
    // Workgroups of an f16 matmul, which share all tiles (`halves`).
    unsigned streams;
    // `[tokens, columns]`, for f16 matmuls.
    RfHalves x_f16;
    // Tiles of an f16 matmul that each workgroup computes alone; rounds · streams is at most
    // the number of tiles.
    unsigned rounds;
    // Tiles of an f16 matmul along the tokens, or the most of the groups.
    unsigned token_tiles;
    // `[tokens, rows]` or null: instead of its own output, an f16 matmul writes the gated unit
    // of projections 0 (gate) and 1 (up), with scale `FIXED_HALF_SCALE`.
    // `num_projections` is 1 then.
    RfHalves glu;
    // The activation of the gated unit: `RfActivation`.
    unsigned activation;
    // Workgroups that share the remaining tiles of an f16 matmul after the full rounds.
    unsigned sharers;
};
static_assert(sizeof(RfMatmulParams) == 392);
static_assert(__builtin_offsetof(RfMatmulParams, projections) == 0);
static_assert(__builtin_offsetof(RfMatmulParams, x_q8) == 256);
static_assert(__builtin_offsetof(RfMatmulParams, x_f32) == 272);
static_assert(__builtin_offsetof(RfMatmulParams, residual) == 280);
static_assert(__builtin_offsetof(RfMatmulParams, groups) == 288);
static_assert(__builtin_offsetof(RfMatmulParams, num_projections) == 304);
static_assert(__builtin_offsetof(RfMatmulParams, columns) == 308);
static_assert(__builtin_offsetof(RfMatmulParams, tokens) == 312);
static_assert(__builtin_offsetof(RfMatmulParams, slots_per_row) == 316);
static_assert(__builtin_offsetof(RfMatmulParams, partials) == 320);
static_assert(__builtin_offsetof(RfMatmulParams, arrivals) == 328);
static_assert(__builtin_offsetof(RfMatmulParams, parts) == 336);
static_assert(__builtin_offsetof(RfMatmulParams, streams) == 340);
static_assert(__builtin_offsetof(RfMatmulParams, x_f16) == 344);
static_assert(__builtin_offsetof(RfMatmulParams, rounds) == 360);
static_assert(__builtin_offsetof(RfMatmulParams, token_tiles) == 364);
static_assert(__builtin_offsetof(RfMatmulParams, glu) == 368);
static_assert(__builtin_offsetof(RfMatmulParams, activation) == 384);
static_assert(__builtin_offsetof(RfMatmulParams, sharers) == 388);
