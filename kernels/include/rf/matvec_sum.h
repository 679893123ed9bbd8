// The down projection of the selected experts in decode: the matmul of every slot, the weighted sum
// over the slots, residual, and the norm before the next matmul, in one launch.
//
// A workgroup computes 32 consecutive rows with 16 waves of two rows each. A lane adds up all slots
// before the sum over the wave. Experts have few columns, so a slot alone would not keep the
// memory busy: the loads of SUM_STEPS steps, which belong to several slots, are in flight at once.
// Bytes moved: the rows of the selected experts once.
#pragma once

#include "rf/matvec.h"

namespace rf {

constexpr u32 SUM_WAVES = 16;
constexpr u32 SUM_THREADS = SUM_WAVES * WAVE;
#if RF_AMD
constexpr u32 SUM_STEPS = 2;
#else
constexpr u32 SUM_STEPS = 4;
#endif

// 32 blocks of the columns of a slot.
struct SlotStep {
    u32 slot;
    u32 block;    // of this lane
    float weight; // of the slot; 0 for a lane without a block
    u32 expert;
};

RF_DEVICE SlotStep slot_step(const RfMatvecSumParams &p, u32 step, u32 steps, u32 steps_per_slot) {
    u32 blocks = p.columns / 32, slot = step / steps_per_slot;
    bool inside = step < steps;
    // No branch around a load: steps and lanes beyond the end read a block again.
    slot = inside ? slot : p.used - 1;
    u32 block = step % steps_per_slot * WAVE + lane();
    inside = inside && block < blocks;
    return {slot, inside ? block : blocks - 1, inside ? p.route[p.used + slot] : 0.0f, (u32)p.route[slot]};
}

template <typename F>
RF_DEVICE void matvec_sum(const RfMatvecSumParams &p) {
    constexpr u32 ROWS = 2;
    load_grid<F>(SUM_THREADS);
    const RfProjection &projection = p.projection;
    u32 row = (group_x() * SUM_WAVES + wave()) * ROWS, blocks = p.columns / 32;
    u32 steps_per_slot = (blocks + WAVE - 1) / WAVE, steps = p.used * steps_per_slot;
    float sums[ROWS][1] = {};
#pragma unroll 1
    for (u32 first = 0; first < steps; first += SUM_STEPS) {
        typename F::Raw raw[SUM_STEPS][ROWS];
        ActivationBlock x[SUM_STEPS][1];
        float weight[SUM_STEPS];
#pragma unroll
        for (u32 i = 0; i < SUM_STEPS; i++) {
            SlotStep step = slot_step(p, first + i, steps, steps_per_slot);
            RfWeight row_weight[ROWS];
            neighbours<F, ROWS>(row_weight, 0, projection.weight, step.expert * projection.rows + row, blocks);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) raw[i][r] = F::fetch(row_weight[r], step.block);
            x[i][0] = ActivationBlock::fetch(p.x_q8.q + (u64)step.slot * p.columns,
                                             p.x_q8.meta + (u64)step.slot * (p.columns / 16), p.columns, step.block);
            weight[i] = step.weight;
        }
#pragma unroll
        for (u32 i = 0; i < SUM_STEPS; i++) {
            float slot_sums[ROWS][1] = {};
            accumulate<F>(slot_sums, raw[i], x[i]);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
                sums[r][0] = weight[i] != 0.0f ? fma(weight[i], slot_sums[r][0], sums[r][0]) : sums[r][0];
        }
    }
    if (projection.bias && lane() < p.used) {
        const float *bias = projection.bias + (u32)p.route[lane()] * projection.rows + row;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) sums[r][0] = fma(p.route[p.used + lane()], bias[r], sums[r][0]);
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) sums[r][0] = wave_sum(sums[r][0]);
    RfProjection out = projection;
    out.bias = nullptr;
    float value = write_rows(sums, out, p.residual, row, 1);
    if (p.norm_out.squares) write_normed(p.norm_out, value, ROWS, projection.rows);
}

} // namespace rf
