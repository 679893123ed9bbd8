// Routing of tokens to experts, and combination of the experts' outputs.
#include "rf/params/experts.h"
#include "rf/rank.h"

using namespace rf;

constexpr u32 EXPERT_THREADS = 128;
constexpr u32 EXPERT_WAVES = EXPERT_THREADS / WAVE;

// rf_graph::reference::route: a wave per token, four per workgroup (grid: x). The experts are
// distributed over the lanes. Each of `used` iterations selects the best expert below the previous
// one. Reads the logits used + 1 times, from the caches.
RF_KERNEL(EXPERT_THREADS) route_f32(RfRouteParams p) {
    u32 token = group_x() * EXPERT_WAVES + wave();
    if (token >= p.tokens) return;
    const float *logits = p.logits + (u64)token * p.experts;
    float *out = p.out + (u64)token * 2 * p.used;

    float max = -__builtin_inff(), sum = 0.0f;
    for (u32 i = lane(); i < p.experts; i += WAVE) max = __builtin_fmaxf(max, logits[i]);
    max = wave_max(max);
    for (u32 i = lane(); i < p.experts; i += WAVE) sum += exp(logits[i] - max);
    sum = wave_sum(sum);

    // Lane 0 writes the probabilities, then divides them by their sum.
    float kept = 0.0f;
    u64 last = ~0ull;
    for (u32 slot = 0; slot < p.used; slot++) {
        u64 best = NO_KEY;
        for (u32 i = lane(); i < p.experts; i += WAVE) {
            u64 key = key_of(logits[i], i);
            if (key < last) best = better(best, key);
        }
        last = wave_best(best);
        float probability = exp(logit_of(last) - max) / sum;
        kept += probability;
        if (lane() == 0) {
            out[slot] = (float)index_of(last);
            out[p.used + slot] = probability;
        }
    }
    // The smallest normal f16, to avoid a division by zero.
    kept = __builtin_fmaxf(kept, 6.103515625e-5f);
    if (lane() == 0) {
        for (u32 slot = 0; slot < p.used; slot++) out[p.used + slot] /= kept;
    }
}

// rf_graph::reference::combine_experts: a lane per column. Grid: x = 128 columns each, y = token.
// Reads 4 · used bytes per column and writes 4.
RF_KERNEL(EXPERT_THREADS) combine_experts_f32(RfCombineExpertsParams p) {
    u32 column = group_x() * EXPERT_THREADS + thread_x();
    if (column >= p.columns) return;
    u64 token = group_y();
    const float *x = p.x + token * p.used * p.columns + column;
    const float *probabilities = p.route + token * 2 * p.used + p.used;
    float sum = 0.0f;
    for (u32 slot = 0; slot < p.used; slot++) sum = fma(x[(u64)slot * p.columns], probabilities[slot], sum);
    p.out[token * p.columns + column] = sum;
}
