// What both kernels of attention do to scores. These are in units of log 2.
#pragma once

#include "rf/params/attention.h"
#include "rf/device.h"

namespace rf {

// Below every score: the largest score of no keys. Not infinite, so that differences are numbers.
constexpr float NO_SCORE = -1e30f;
constexpr float LOG2_E = 1.44269504f;

// The factor on q·k that makes it a score, but for the softcap.
RF_DEVICE float query_factor(const RfAttentionParams &p) {
    return p.softcap > 0.0f ? p.scale / p.softcap : p.scale * LOG2_E;
}
RF_DEVICE float capped(const RfAttentionParams &p, float score) {
    return p.softcap > 0.0f ? tanh(score) * (p.softcap * LOG2_E) : score;
}

// The first key that a query sees.
RF_DEVICE u32 first_seen(const RfAttentionParams &p, u32 position) {
    return p.window != 0 && position >= p.window ? position + 1 - p.window : 0;
}

// The factor on a weighted sum of values that makes it the result: `sum` are the weights 2^(score − m) of all keys,
// to which the head's sink adds its own.
RF_DEVICE float normalisation(const RfAttentionParams &p, u32 head, float m, float sum) {
    if (!p.sinks) return 1.0f / sum;
    float sink = p.sinks[head] * LOG2_E, top = __builtin_fmaxf(m, sink);
    float scale = exp2(m - top);
    return scale / (sum * scale + exp2(sink - top));
}

} // namespace rf
