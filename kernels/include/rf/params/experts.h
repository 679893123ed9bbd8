// Mixtures of experts. Twin: crates/rf-kernels/src/params/experts.rs.
#pragma once

// out[t] = the `used` most probable experts of token t, as f32, followed by their probabilities,
// normalised to sum 1. `used` is experts_per_token.
struct RfRouteParams {
    const float *logits; // [tokens, experts]
    float *out;          // [tokens, 2 · used]
    unsigned tokens;
    unsigned experts;
    unsigned used; // at most `experts`
    unsigned reserved;
};

// out[t] = Σₛ route[t][used + s] · x[t][s], slots in order.
struct RfCombineExpertsParams {
    const float *x;     // [tokens, used · columns]
    const float *route; // [tokens, 2 · used]
    float *out;         // [tokens, columns]
    unsigned tokens;
    unsigned columns;
    unsigned used;
    unsigned reserved;
};
