// Computation of scores, shared by both attention kernels. Scores are in units of log 2.
#pragma once

#include "rf/params/attention.h"
#include "rf/device.h"

namespace rf {

// Less than every score: the largest score of an empty set. Finite, so that differences are not
// NaN.
constexpr float NO_SCORE = -1e30f;
constexpr float LOG2_E = 1.44269504f;

// The factor that scales q·k to a score, before the softcap.
RF_DEVICE float query_factor(const RfAttentionParams &p) {
    return p.softcap > 0.0f ? p.scale / p.softcap : p.scale * LOG2_E;
}
RF_DEVICE float capped(const RfAttentionParams &p, float score) {
    return p.softcap > 0.0f ? tanh(score) * (p.softcap * LOG2_E) : score;
}

// The last key visible to a query: the key of its position, or the last key of its span.
RF_DEVICE u32 last_seen(const RfAttentionParams &p, const RfSpan &span, u32 position) {
    return p.window & RF_BOTH_WAYS ? span.past_tokens + span.num_tokens - 1 : position;
}

// The first key visible to a query.
RF_DEVICE u32 first_seen(const RfAttentionParams &p, u32 position) {
    u32 window = p.window & ~RF_BOTH_WAYS;
    u32 in_window = window != 0 && position >= window ? position + 1 - window : 0;
    u32 in_chunk = position & p.chunk_mask;
    return in_window > in_chunk ? in_window : in_chunk;
}

// The factor that normalises a weighted sum of values. `sum` is the sum of the weights 2^(score −
// m) of all keys, to which the head's sink adds its own weight.
RF_DEVICE float normalisation(const RfAttentionParams &p, u32 head, float m, float sum) {
    if (!p.sinks) return 1.0f / sum;
    float sink = p.sinks[head] * LOG2_E, top = __builtin_fmaxf(m, sink);
    float scale = exp2(m - top);
    return scale / (sum * scale + exp2(sink - top));
}

} // namespace rf
