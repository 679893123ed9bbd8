// Generated from crates/rf-kernels/src/params/experts.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"
#include "rf/params/matmul.h"

// Selection and weighting of the experts of each token, `rf_graph::Router`. A shared expert
// is one more slot, whose number is `experts`.
struct RfRouteParams {
    // `[tokens, experts]`.
    const float *logits;
    // `[experts]` or null: is added to the probabilities for the selection.
    const float *bias;
    // `[experts]` or null: factors on the weights.
    const float *expert_scale;
    // `[tokens]` or null: the weight of the shared expert before the sigmoid.
    const float *shared_gate;
    // `[tokens, 2 · slots]`: indices, then weights.
    float *out;
    // Number of tokens.
    unsigned tokens;
    // Number of experts, without the shared one.
    unsigned experts;
    // Selected experts per token, at most `experts`.
    unsigned used;
    // Experts per token with the shared one, at most `MAX_SLOTS`.
    unsigned slots;
    // Probability of an expert: `RfGate`.
    unsigned gate;
    // 1 if the weights are divided by their sum.
    unsigned normalize;
    // Number of groups, at most `MAX_EXPERT_GROUPS`; 0 for none.
    unsigned groups;
    // Groups from which experts are selected, at most `groups`.
    unsigned selected_groups;
    // Factor on the weights.
    float scale;
    // The weight of expert e is that of expert e / `group`: 1 for its own.
    unsigned group;
};
static_assert(sizeof(RfRouteParams) == 80);
static_assert(__builtin_offsetof(RfRouteParams, logits) == 0);
static_assert(__builtin_offsetof(RfRouteParams, bias) == 8);
static_assert(__builtin_offsetof(RfRouteParams, expert_scale) == 16);
static_assert(__builtin_offsetof(RfRouteParams, shared_gate) == 24);
static_assert(__builtin_offsetof(RfRouteParams, out) == 32);
static_assert(__builtin_offsetof(RfRouteParams, tokens) == 40);
static_assert(__builtin_offsetof(RfRouteParams, experts) == 44);
static_assert(__builtin_offsetof(RfRouteParams, used) == 48);
static_assert(__builtin_offsetof(RfRouteParams, slots) == 52);
static_assert(__builtin_offsetof(RfRouteParams, gate) == 56);
static_assert(__builtin_offsetof(RfRouteParams, normalize) == 60);
static_assert(__builtin_offsetof(RfRouteParams, groups) == 64);
static_assert(__builtin_offsetof(RfRouteParams, selected_groups) == 68);
static_assert(__builtin_offsetof(RfRouteParams, scale) == 72);
static_assert(__builtin_offsetof(RfRouteParams, group) == 76);

// The slots of a batch by expert, those of an expert in ascending order, and tiles of at most
// `tile_slots` of them. Tiles of expert e start at index ⌊first slot of e / `tile_slots`⌋ + e;
// unused entries have a count of 0.
struct RfGroupExpertsParams {
    // `[tokens, 2 · used]`.
    const float *route;
    // The tiles and the slots that the kernel writes; tiles: `[⌊tokens · used / tile_slots⌋ +
    // experts]`.
    RfExpertGroups groups;
    // Number of tokens.
    unsigned tokens;
    // Number of experts.
    unsigned experts;
    // Experts per token.
    unsigned used;
    // Slots of a tile.
    unsigned tile_slots;
};
static_assert(sizeof(RfGroupExpertsParams) == 40);
static_assert(__builtin_offsetof(RfGroupExpertsParams, route) == 0);
static_assert(__builtin_offsetof(RfGroupExpertsParams, groups) == 8);
static_assert(__builtin_offsetof(RfGroupExpertsParams, tokens) == 24);
static_assert(__builtin_offsetof(RfGroupExpertsParams, experts) == 28);
static_assert(__builtin_offsetof(RfGroupExpertsParams, used) == 32);
static_assert(__builtin_offsetof(RfGroupExpertsParams, tile_slots) == 36);

// The outputs of the experts and their weights `p = route[t][used + s]`, slots s in order: the
// kernels `combine_*` and `scale_*`.
struct RfExpertRowsParams {
    // `[tokens, used · columns]`.
    const float *x;
    // `[tokens, 2 · used]`.
    const float *route;
    // `[tokens, columns]` or null; `combine_*` alone.
    const float *residual;
    // `combine_*`: Σₛ p·x (+ residual), `[tokens, columns]`; `scale_*`: p·x, as x.
    float *out;
    // Number of tokens.
    unsigned tokens;
    // Width of a slot.
    unsigned columns;
    // Experts per token.
    unsigned used;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfExpertRowsParams) == 48);
static_assert(__builtin_offsetof(RfExpertRowsParams, x) == 0);
static_assert(__builtin_offsetof(RfExpertRowsParams, route) == 8);
static_assert(__builtin_offsetof(RfExpertRowsParams, residual) == 16);
static_assert(__builtin_offsetof(RfExpertRowsParams, out) == 24);
static_assert(__builtin_offsetof(RfExpertRowsParams, tokens) == 32);
static_assert(__builtin_offsetof(RfExpertRowsParams, columns) == 36);
static_assert(__builtin_offsetof(RfExpertRowsParams, used) == 40);
static_assert(__builtin_offsetof(RfExpertRowsParams, reserved) == 44);
