// Routing of tokens to experts, and combination of the experts' outputs.
#include "rf/activation.h"
#include "rf/lanes.h"
#include "rf/params/experts.h"
#include "rf/rank.h"

using namespace rf;

constexpr u32 EXPERT_THREADS = 128;
constexpr u32 EXPERT_WAVES = EXPERT_THREADS / WAVE;
constexpr u32 GROUP_THREADS = 256;
constexpr u32 GROUP_WAVES = GROUP_THREADS / WAVE;

namespace {

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

RF_DEVICE u32 selected_expert(const RfGroupExpertsParams &p, u32 slot) {
    // A token has `used` experts and `used` weights.
    return (u32)p.route[slot + slot / p.used * p.used];
}

} // namespace

// rf_graph::reference::route: a wave per token, four per workgroup (grid: x). Lane l holds the keys
// of the experts l, l + 32 … in registers. Each of `used` iterations selects the best expert below
// the previous one, for which lane `slot` then computes the weight. Reads the logits from memory
// once, and once more for every HELD · 32 experts beyond the first.
RF_KERNEL(EXPERT_THREADS) route_f32(RfRouteParams p) {
    constexpr u32 HELD = 8;
    u32 token = group_x() * EXPERT_WAVES + wave();
    if (token >= p.tokens) return;
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

// Groups the slots of a batch by expert, for a matmul of every expert in one launch. A workgroup
// per expert (grid: x) counts the slots of lower experts and its own, then writes its own in order.
// Each wave has a range of slots. Reads the selected experts twice per expert from the caches:
// 8 · tokens · used · experts bytes.
RF_KERNEL(GROUP_THREADS) group_experts(RfGroupExpertsParams p) {
    RF_SHARED u32 lower[GROUP_WAVES], own[GROUP_WAVES];
    u32 expert = group_x(), slots = p.tokens * p.used;
    u32 range = (slots + GROUP_THREADS - 1) / GROUP_THREADS * WAVE;
    u32 first = wave() * range, end = first + range < slots ? first + range : slots;
    u32 wave_lower = 0, wave_own = 0;
    for (u32 slot = first + lane(); slot < end; slot += WAVE) {
        u32 other = selected_expert(p, slot);
        wave_lower += other < expert;
        wave_own += other == expert;
    }
    wave_lower = wave_sum(wave_lower);
    wave_own = wave_sum(wave_own);
    if (lane() == 0) {
        lower[wave()] = wave_lower;
        own[wave()] = wave_own;
    }
    barrier();
    u32 start = 0, count = 0, before = 0;
    for (u32 w = 0; w < GROUP_WAVES; w++) {
        start += lower[w];
        count += own[w];
        before += w < wave() ? own[w] : 0;
    }

    u32 *to = p.groups.slots + start + before;
    for (u32 i = first; i < end; i += WAVE) {
        u32 slot = i + lane();
        bool is_own = slot < end && selected_expert(p, slot) == expert;
        u32 mask = ballot(is_own);
        if (is_own) to[__builtin_popcount(mask & ((1u << lane()) - 1))] = slot;
        to += __builtin_popcount(mask);
    }

    u32 first_tile = start / p.tile_slots + expert, end_tile = (start + count) / p.tile_slots + expert + 1;
    for (u32 i = thread_x(); i < end_tile - first_tile; i += GROUP_THREADS) {
        u32 done = i * p.tile_slots, rest = count > done ? count - done : 0;
        p.groups.tiles[first_tile + i] = {expert, start + done, rest < p.tile_slots ? rest : p.tile_slots, 0};
    }
}

// rf_graph::reference::combine_experts: a lane per column. Grid: x = 128 columns each, y = token.
// Reads 4 · used bytes per column, 4 more with a residual, and writes 4.
RF_KERNEL(EXPERT_THREADS) combine_experts_f32(RfExpertRowsParams p) {
    u32 column = group_x() * EXPERT_THREADS + thread_x();
    if (column >= p.columns) return;
    u64 token = group_y();
    const float *x = p.x + token * p.used * p.columns + column;
    const float *weights = p.route + token * 2 * p.used + p.used;
    float sum = 0.0f;
    for (u32 slot = 0; slot < p.used; slot++) sum = fma(x[(u64)slot * p.columns], weights[slot], sum);
    u64 at = token * p.columns + column;
    p.out[at] = p.residual ? sum + p.residual[at] : sum;
}

// Op::ScaleExperts of rf_graph: a lane per column. Grid: x = 128 columns each, y = token. Reads and
// writes 4 · used bytes per column.
RF_KERNEL(EXPERT_THREADS) scale_experts_f32(RfExpertRowsParams p) {
    u32 column = group_x() * EXPERT_THREADS + thread_x();
    if (column >= p.columns) return;
    u64 token = group_y(), first = token * p.used * p.columns + column;
    const float *weights = p.route + token * 2 * p.used + p.used;
    for (u32 slot = 0; slot < p.used; slot++) {
        u64 at = first + (u64)slot * p.columns;
        p.out[at] = p.x[at] * weights[slot];
    }
}
