// Latent attention over the paged cache. Twin: crates/rf-kernels/src/params/latent.rs.
#pragma once

#include "rf/params/batch.h"

// out = softmax(scale · q·kᵀ) · v, causal, where all heads attend to the same key and the value is
// its first latent_dim elements: rf_graph::reference::attention.
//
// The rows of a span are the heads of its first token, those of its second token, and so on. A tile
// is 16 consecutive ones. A launch computes the spans of min_span … max_span tokens.
struct RfLatentParams {
    RfBatch batch;
    RfKvCache cache;  // one head; no values
    const float *q;   // [tokens, num_heads · head_dim]
    float *out;       // [tokens, num_heads · latent_dim]
    // Only if splits > 1.
    float *partials;    // [tiles · 16, splits, ⌈latent_dim / 4⌉ · 4]
    float *statistics;  // [tiles · 16, splits, 2]
    unsigned *arrivals; // [tiles], zero before the first and after every launch
    float scale;
    unsigned num_heads;
    unsigned latent_dim; // at most cache.head_dim
    unsigned splits;     // workgroups over which the keys of a tile are divided, at most 128
    unsigned min_span;
    unsigned max_span;
};

// cache ← k.
struct RfLatentAppendParams {
    RfBatch batch;
    RfKvCache cache; // one head; no values
    const float *k;  // [tokens, head_dim]
};
