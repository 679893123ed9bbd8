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
    float half_unit;    // f16 operands: the power of two by which weights are multiplied as f16
    unsigned reserved;
};

// A tile of a matmul of experts: slots of one expert.
struct RfExpertTile {
    unsigned expert;
    unsigned first; // index of its first slot in RfExpertGroups.slots
    unsigned count; // 0: no tile
    unsigned reserved;
};

// The slots of a batch, grouped by expert: slot t · used + s is the s-th expert of token t.
struct RfExpertGroups {
    RfExpertTile *tiles;
    unsigned *slots; // [tokens · used], in the order of their experts
};

// The projections that a launch can have.
constexpr unsigned RF_MAX_PROJECTIONS = 4;

// outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual), all projections of the same x.
//
// With groups, a projection holds the weight matrices of all experts, concatenated by rows, with
// `rows` of one expert and a bias [experts, rows]; the "tokens" are slots. The groups are those of
// a tile of the kernel's width. Slot s reads row s / slots_per_row of x and writes row s of out.
//
// With several parts, workgroup z of a tile of rows sums part z of the columns, and the last one
// adds the sums in the order of the parts. There is one tile of tokens then.
struct RfMatmulParams {
    RfProjection projections[RF_MAX_PROJECTIONS];
    RfActivations x_q8;    // quantised formats: [tokens, columns]
    const float *x_f32;    // float formats: [tokens, columns]
    const float *residual; // [tokens, rows] or null; one projection only, without groups
    RfExpertGroups groups; // null: no experts
    unsigned num_projections;
    unsigned columns;
    unsigned tokens;
    unsigned slots_per_row;
    float *partials;    // [tiles of rows, parts, sums of a workgroup], with several parts
    unsigned *arrivals; // [tiles of rows], zero before the first and after every launch
    unsigned parts;     // of the columns: the extent of the grid in z
    // For f16 operands:
    unsigned streams;     // the workgroups, which share all tiles
    RfHalves x_f16;       // [tokens, columns]
    unsigned rounds;      // whole tiles of each workgroup; rounds · streams is at most the number of tiles
    unsigned token_tiles; // ⌈tokens / TOKENS⌉, or the tiles of the groups
    // [tokens, rows] or null: in place of out, the gated unit of projections 0 (gate) and 1 (up),
    // with scale FIXED_HALF_SCALE. Both have no bias, and num_projections is 1 then.
    RfHalves glu;
    unsigned activation;  // of the gated unit
    unsigned sharers;     // the workgroups that share the tiles left after the rounds
};
