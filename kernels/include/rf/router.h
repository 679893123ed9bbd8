// Selection of the experts of a token from the logits of a router.
#pragma once

#include "rf/activation.h"
#include "rf/params/experts.h"
#include "rf/rank.h"

namespace rf {

// The router of one token. Every lane has the same.
struct Router {
    const RfRouteParams &p;
    const float *logits;
    float max, sum; // of a softmax

    RF_DEVICE_MEMBER static Router of(const RfRouteParams &p, u32 token) {
        Router router = {p, p.logits + (u64)token * p.experts, -__builtin_inff(), 1.0f};
        if (p.gate == RF_GATE_SIGMOID) return router;
        for (u32 i = lane(); i < p.experts; i += WAVE) router.max = __builtin_fmaxf(router.max, router.logits[i]);
        router.max = wave_max(router.max);
        if (p.gate == RF_GATE_SOFTMAX_OF_SELECTED) return router;
        float sum = 0.0f;
        for (u32 i = lane(); i < p.experts; i += WAVE) sum += exp(router.logits[i] - router.max);
        router.sum = wave_sum(sum);
        return router;
    }

    RF_DEVICE_MEMBER float probability(u32 expert) const {
        float logit = logits[expert];
        return p.gate == RF_GATE_SIGMOID ? sigmoid(logit) : exp(logit - max) / sum;
    }

    RF_DEVICE_MEMBER float biased(u32 expert) const {
        return p.bias ? probability(expert) + p.bias[expert] : probability(expert);
    }

    // The order of experts. Without a bias it is that of the logits, which do not underflow.
    RF_DEVICE_MEMBER float score(u32 expert) const { return p.bias ? biased(expert) : logits[expert]; }

    // The sum of the two largest scores of a group.
    RF_DEVICE_MEMBER float group_score(u32 group) const {
        u32 size = p.experts / p.groups;
        float best = -__builtin_inff(), second = -__builtin_inff();
        for (u32 i = 0; i < size; i++) {
            float score = biased(group * size + i);
            second = __builtin_fmaxf(second, __builtin_fminf(best, score));
            best = __builtin_fmaxf(best, score);
        }
        return size > 1 ? best + second : best;
    }

    // The selected groups, a bit each: at most 32. A lane computes the score of one group.
    RF_DEVICE_MEMBER u32 groups() const {
        if (p.groups == 0) return ~0u;
        u64 own = lane() < p.groups ? key_of(group_score(lane()), lane()) : NO_KEY, last = ~0ull;
        u32 mask = 0;
        for (u32 i = 0; i < p.selected_groups; i++) {
            last = wave_best(own < last ? own : NO_KEY);
            mask |= 1u << index_of(last);
        }
        return mask;
    }
};

// rf_graph::reference::route of one token by one wave. Lane l holds the keys of the experts l,
// l + 32 … in registers. Each of `used` iterations selects the best expert below the previous one,
// for which lane `slot` then computes the weight. Reads the logits from memory once, and once more
// for every HELD · 32 experts beyond the first.
RF_DEVICE void route(const RfRouteParams &p, u32 token) {
    constexpr u32 HELD = 8;
    Router router = Router::of(p, token);
    u32 groups = router.groups(), group_size = p.groups == 0 ? p.experts : p.experts / p.groups;
    auto key_at = [&](u32 expert) {
        bool is_candidate = expert < p.experts && groups >> expert / group_size & 1;
        return is_candidate ? key_of(router.score(expert), expert) : NO_KEY;
    };
    u64 keys[HELD];
#pragma unroll
    for (u32 i = 0; i < HELD; i++) keys[i] = key_at(lane() + i * WAVE);

    u32 selected = 0;
    u64 last = ~0ull;
    for (u32 slot = 0; slot < p.used; slot++) {
        u64 best = NO_KEY;
#pragma unroll
        for (u32 i = 0; i < HELD; i++) best = keys[i] < last ? better(best, keys[i]) : best;
        for (u32 expert = lane() + HELD * WAVE; expert < p.experts; expert += WAVE) {
            u64 key = key_at(expert);
            best = key < last ? better(best, key) : best;
        }
        last = wave_best(best);
        selected = lane() == slot ? index_of(last) : selected;
    }

    bool is_slot = lane() < p.used;
    float probability = is_slot ? router.probability(selected) : 0.0f;
    float kept = wave_sum(probability), divisor = 1.0f;
    if (p.gate == RF_GATE_SOFTMAX_OF_SELECTED) {
        divisor = kept;
    } else if (p.normalize) {
        // The smallest normal f16, to avoid a division by zero.
        divisor = __builtin_fmaxf(kept, 6.103515625e-5f);
    }
    if (!is_slot) return;
    float scale = p.expert_scale ? p.expert_scale[selected] : 1.0f;
    float *out = p.out + (u64)token * 2 * p.used;
    out[lane()] = (float)selected;
    out[p.used + lane()] = probability / divisor * p.scale * scale;
}

} // namespace rf
