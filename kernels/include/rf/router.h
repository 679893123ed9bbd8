// Selection of the experts of a token from the logits of a router.
#pragma once

#include "rf/activation.h"
#include "rf/params/experts.h"
#include "rf/rank.h"

namespace rf {

// Logits that a lane holds in registers, loaded at once: of the experts lane, lane + 32 …
constexpr u32 HELD_LOGITS = 8;

// The router of one token. Every lane has the same.
struct Router {
    const RfRouteParams &p;
    const float *logits;
    float max, sum; // of a softmax

    RF_DEVICE_MEMBER static Router of(const RfRouteParams &p, const float *logits, const float (&held)[HELD_LOGITS]) {
        Router router = {p, logits, -__builtin_inff(), 1.0f};
        if (p.gate == RF_GATE_SIGMOID) return router;
        constexpr u32 HELD = HELD_LOGITS * WAVE;
#pragma unroll
        for (u32 i = 0; i < HELD_LOGITS; i++) router.max = __builtin_fmaxf(router.max, held[i]);
        for (u32 i = HELD + lane(); i < p.experts; i += WAVE) router.max = __builtin_fmaxf(router.max, logits[i]);
        router.max = wave_max(router.max);
        if (p.gate == RF_GATE_SOFTMAX_OF_SELECTED) return router;
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < HELD_LOGITS; i++) sum += lane() + i * WAVE < p.experts ? exp(held[i] - router.max) : 0.0f;
        for (u32 i = HELD + lane(); i < p.experts; i += WAVE) sum += exp(logits[i] - router.max);
        router.sum = wave_sum(sum);
        return router;
    }

    RF_DEVICE_MEMBER float probability(float logit) const {
        return p.gate == RF_GATE_SIGMOID ? sigmoid(logit) : exp(logit - max) / sum;
    }

    RF_DEVICE_MEMBER float biased(u32 expert, float logit) const {
        return p.bias ? probability(logit) + p.bias[expert] : probability(logit);
    }

    // The order of experts. Without a bias it is that of the logits, which do not underflow.
    RF_DEVICE_MEMBER float score(u32 expert, float logit) const { return p.bias ? biased(expert, logit) : logit; }

    // The sum of the two largest scores of a group.
    RF_DEVICE_MEMBER float group_score(u32 group) const {
        u32 size = p.experts / p.groups;
        float best = -__builtin_inff(), second = -__builtin_inff();
        for (u32 i = 0; i < size; i++) {
            u32 expert = group * size + i;
            float score = biased(expert, logits[expert]);
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

// The `used` best of at most HELD_LOGITS · 32 experts, whose orders the lanes hold: lane `slot`
// returns that of the slot. An order of 0 is no candidate.
RF_DEVICE u32 select_held(u32 (&orders)[HELD_LOGITS], u32 used) {
    u32 selected = 0;
    for (u32 slot = 0; slot < used; slot++) {
        u32 best = 0, at = 0;
#pragma unroll
        for (u32 i = 0; i < HELD_LOGITS; i++) {
            at = orders[i] > best ? i : at;
            best = orders[i] > best ? orders[i] : best;
        }
        u32 top = wave_max(best);
        // The lower index wins a tie.
        u32 own = at * WAVE + lane(), expert = ~wave_max(best == top ? ~own : 0u);
        selected = lane() == slot ? expert : selected;
#pragma unroll
        for (u32 i = 0; i < HELD_LOGITS; i++) orders[i] = i * WAVE + lane() == expert ? 0 : orders[i];
    }
    return selected;
}

// The same for any number of experts: each iteration selects the best one below the previous one.
template <typename KeyAt>
RF_DEVICE u32 select_any(u32 experts, u32 used, KeyAt key_at) {
    u32 selected = 0;
    u64 last = ~0ull;
    for (u32 slot = 0; slot < used; slot++) {
        u64 best = NO_KEY;
        for (u32 expert = lane(); expert < experts; expert += WAVE) {
            u64 key = key_at(expert);
            best = key < last ? better(best, key) : best;
        }
        last = wave_best(best);
        selected = lane() == slot ? index_of(last) : selected;
    }
    return selected;
}

// rf_graph::Router::route of one token by one wave; lane `slot` computes the weight of a slot.
// Reads the logits from memory once, or once per slot if there are more than the lanes hold.
RF_DEVICE void route(const RfRouteParams &p, u32 token) {
    const float *logits = p.logits + (u64)token * p.experts;
    float held[HELD_LOGITS];
#pragma unroll
    for (u32 i = 0; i < HELD_LOGITS; i++) {
        u32 expert = lane() + i * WAVE;
        held[i] = expert < p.experts ? logits[expert] : -__builtin_inff();
    }
    Router router = Router::of(p, logits, held);
    u32 groups = router.groups(), group_size = p.groups == 0 ? p.experts : p.experts / p.groups;
    auto is_candidate = [&](u32 expert) {
        return expert < p.experts && (p.groups == 0 || groups >> expert / group_size & 1);
    };
    u32 selected;
    if (p.experts <= HELD_LOGITS * WAVE) {
        u32 orders[HELD_LOGITS];
#pragma unroll
        for (u32 i = 0; i < HELD_LOGITS; i++) {
            u32 expert = lane() + i * WAVE;
            orders[i] = is_candidate(expert) ? order_of(router.score(expert, held[i])) : 0;
        }
        selected = select_held(orders, p.used);
    } else {
        selected = select_any(p.experts, p.used, [&](u32 expert) {
            return is_candidate(expert) ? key_of(router.score(expert, logits[expert]), expert) : NO_KEY;
        });
    }

    bool is_selected = lane() < p.used;
    float probability = is_selected ? router.probability(logits[selected / p.group]) : 0.0f;
    float kept = wave_sum(probability), divisor = 1.0f;
    if (p.gate == RF_GATE_SOFTMAX_OF_SELECTED) {
        divisor = kept;
    } else if (p.normalize) {
        // The smallest normal f16, to avoid a division by zero.
        divisor = __builtin_fmaxf(kept, 6.103515625e-5f);
    }
    if (lane() >= p.slots) return;
    float weight = 1.0f;
    if (is_selected) {
        float scale = p.expert_scale ? p.expert_scale[selected] : 1.0f;
        weight = probability / divisor * p.scale * scale;
    } else {
        selected = p.experts;
        if (p.shared_gate) weight = sigmoid(p.shared_gate[token]);
    }
    float *out = p.out + (u64)token * 2 * p.slots;
    out[lane()] = (float)selected;
    out[p.slots + lane()] = weight;
}

} // namespace rf
