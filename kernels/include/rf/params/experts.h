// Mixtures of experts. Twin: crates/rf-kernels/src/params/experts.rs.
#pragma once

#include "rf/params/matmul.h"

// The probability of an expert: GateFunction of rf-graph.
enum RfGate : unsigned { RF_GATE_SOFTMAX = 0, RF_GATE_SIGMOID = 1, RF_GATE_SOFTMAX_OF_SELECTED = 2 };

// out[t] = the `slots` experts of token t, as f32, followed by their weights: Router of rf-graph.
// `used` is experts_per_token; `slots` is one more with a shared expert, whose number is `experts`.
struct RfRouteParams {
    const float *logits;       // [tokens, experts]
    const float *bias;         // [experts] or null: is added for the selection
    const float *expert_scale; // [experts] or null
    const float *shared_gate;  // [tokens] or null: the weight of the shared expert before the sigmoid
    float *out;                // [tokens, 2 · slots]
    unsigned tokens;
    unsigned experts;
    unsigned used;            // at most `experts`
    unsigned slots;           // at most 32
    unsigned gate;            // RfGate
    unsigned normalize;       // 1: weights are divided by their sum
    unsigned groups;          // at most 32; 0: all experts
    unsigned selected_groups; // at most `groups`
    float scale;
    unsigned reserved;
};

// The slots of a batch by expert, those of an expert in ascending order, and tiles of at most
// tile_slots of them. Tiles of expert e start at index ⌊first slot of e / tile_slots⌋ + e; unused
// entries have a count of 0.
struct RfGroupExpertsParams {
    const float *route;    // [tokens, 2 · used]
    RfExpertGroups groups; // tiles: [⌊tokens · used / tile_slots⌋ + experts]
    unsigned tokens;
    unsigned experts;
    unsigned used;
    unsigned tile_slots;
};

// The experts' outputs x[t][s] and their weights p = route[t][used + s], slots s in order.
struct RfExpertRowsParams {
    const float *x;        // [tokens, used · columns]
    const float *route;    // [tokens, 2 · used]
    const float *residual; // `combine_*`: [tokens, columns] or null
    float *out;            // `combine_*`: Σₛ p·x (+ residual), [tokens, columns]; `scale_*`: p·x, as x
    unsigned tokens;
    unsigned columns;
    unsigned used;
    unsigned reserved;
};
