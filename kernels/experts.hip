// Routing of tokens to experts, and combination of the experts' outputs.
#include "rf/lanes.h"
#include "rf/router.h"

using namespace rf;

constexpr u32 EXPERT_THREADS = 128;
constexpr u32 EXPERT_WAVES = EXPERT_THREADS / WAVE;
constexpr u32 GROUP_THREADS = 1024;
constexpr u32 COMBINED_COLUMNS = 4;
constexpr u32 GROUP_WAVES = GROUP_THREADS / WAVE;

namespace {

RF_DEVICE u32 selected_expert(const RfGroupExpertsParams &p, u32 slot) {
    // A token has `used` experts and `used` weights.
    return (u32)p.route[slot + slot / p.used * p.used];
}

// The weighted sum of the experts for the columns of a value V from `column` on.
template <typename V>
RF_DEVICE void combine(const RfExpertRowsParams &p, u32 column) {
    u64 token = group_y(), at = token * p.columns + column;
    const float *x = p.x + token * p.used * p.columns + column;
    const float *weights = p.route + token * 2 * p.used + p.used;
    V sum = {}, residual = {};
    if (p.residual) residual = *reinterpret_cast<const V *>(p.residual + at);
#pragma unroll 4
    for (u32 slot = 0; slot < p.used; slot++) {
        V weight = V{} + weights[slot];
        sum = __builtin_elementwise_fma(*reinterpret_cast<const V *>(x + (u64)slot * p.columns), weight, sum);
    }
    *reinterpret_cast<V *>(p.out + at) = p.residual ? sum + residual : sum;
}

} // namespace

// rf::route of a token per wave, four per workgroup (grid: x).
RF_KERNEL(EXPERT_THREADS) route_f32(RfRouteParams p) {
    follow_previous_kernels();
    u32 token = group_x() * EXPERT_WAVES + wave();
    if (token < p.tokens) route(p, token);
}

// Groups the slots of a batch by expert, for a matmul of every expert in one launch. A workgroup
// per expert (grid: x) counts the slots of lower experts and its own, then writes its own in order.
// Each wave has a range of slots, of which it reads AT_ONCE · 32 experts at a time. Reads the
// selected experts twice per expert from the caches: 8 · tokens · used · experts bytes.
RF_KERNEL(GROUP_THREADS) group_experts(RfGroupExpertsParams p) {
    follow_previous_kernels();
    constexpr u32 AT_ONCE = 4;
    RF_SHARED u32 lower[GROUP_WAVES], own[GROUP_WAVES];
    u32 expert = group_x(), slots = p.tokens * p.used;
    u32 range = (slots + GROUP_THREADS - 1) / GROUP_THREADS * WAVE;
    u32 first = wave() * range, end = first + range < slots ? first + range : slots;
    u32 wave_lower = 0, wave_own = 0;
#pragma unroll 4
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
    for (u32 i = first; i < end; i += AT_ONCE * WAVE) {
        bool is_own[AT_ONCE];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) {
            u32 slot = i + j * WAVE + lane();
            is_own[j] = slot < end && selected_expert(p, slot) == expert;
        }
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) {
            u32 mask = ballot(is_own[j]);
            if (is_own[j]) to[__builtin_popcount(mask & ((1u << lane()) - 1))] = i + j * WAVE + lane();
            to += __builtin_popcount(mask);
        }
    }

    u32 first_tile = start / p.tile_slots + expert, end_tile = (start + count) / p.tile_slots + expert + 1;
    for (u32 i = thread_x(); i < end_tile - first_tile; i += GROUP_THREADS) {
        u32 done = i * p.tile_slots, rest = count > done ? count - done : 0;
        p.groups.tiles[first_tile + i] = {expert, start + done, rest < p.tile_slots ? rest : p.tile_slots, 0};
    }
}

// rf_graph::combine_experts: a lane per four columns. Grid: x = 512 columns each, y = token.
// Reads 4 · used bytes per column, 4 more with a residual, and writes 4.
RF_KERNEL(EXPERT_THREADS) combine_experts_f32(RfExpertRowsParams p) {
    follow_previous_kernels();
    u32 first = (group_x() * EXPERT_THREADS + thread_x()) * COMBINED_COLUMNS;
    if (p.columns % COMBINED_COLUMNS == 0) {
        if (first < p.columns) combine<f32x4>(p, first);
        return;
    }
    u32 rest = first < p.columns ? p.columns - first : 0;
    for (u32 i = 0; i < (rest < COMBINED_COLUMNS ? rest : COMBINED_COLUMNS); i++) combine<float>(p, first + i);
}

// Op::ScaleExperts of rf_graph: a lane per column. Grid: x = 128 columns each, y = token. Reads and
// writes 4 · used bytes per column.
RF_KERNEL(EXPERT_THREADS) scale_experts_f32(RfExpertRowsParams p) {
    follow_previous_kernels();
    u32 column = group_x() * EXPERT_THREADS + thread_x();
    if (column >= p.columns) return;
    u64 token = group_y(), first = token * p.used * p.columns + column;
    const float *weights = p.route + token * 2 * p.used + p.used;
    for (u32 slot = 0; slot < p.used; slot++) {
        u64 at = first + (u64)slot * p.columns;
        p.out[at] = p.x[at] * weights[slot];
    }
}
