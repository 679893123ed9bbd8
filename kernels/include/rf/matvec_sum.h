// The down projection of the selected experts in decode: the matmul of every slot, the weighted sum
// over the slots, residual, and the norm before the next matmul, in one launch.
//
// A workgroup (grid: x) computes 32 consecutive rows with 16 waves of two rows each. Workgroups
// with different slots (grid: y) fill the device; the last one of the rows to finish adds up their
// parts. A lane adds up all slots before the sum over the wave. Experts have few columns, so a slot
// alone would not keep the memory busy: the loads of SUM_STEPS steps, which belong to several
// slots, are in flight at once. Bytes moved: the rows of the selected experts once.
#pragma once

#include "rf/lanes.h"
#include "rf/matvec.h"

namespace rf {

constexpr u32 SUM_WAVES = 16;
constexpr u32 SUM_THREADS = SUM_WAVES * WAVE;
#if RF_AMD
constexpr u32 SUM_STEPS = 2;
#else
constexpr u32 SUM_STEPS = 4;
#endif

template <typename F>
RF_DEVICE void matvec_sum(const RfMatvecSumParams &p) {
    constexpr u32 ROWS = 2;
    RF_SHARED u32 arrived;
    allow_next_kernel();
    load_grid<F>(SUM_THREADS);
    await_previous_kernels();
    const RfProjection &projection = p.projection;
    u32 row = (group_x() * SUM_WAVES + wave()) * ROWS, blocks = p.columns / 32;
    u32 slot = group_y() * p.used / p.parts, end = (group_y() + 1) * p.used / p.parts;
    // Lane r writes row r of the wave.
    bool writes = lane() < ROWS;
    u32 own_row = row + lane() % ROWS;
    float residual = p.residual ? p.residual[own_row] : 0.0f;
    float norm = norm_weight<1>(p.norm_out);
    float sums[ROWS][1] = {};
    if (projection.bias && lane() >= slot && lane() < end) {
        const float *bias = projection.bias + (u32)p.route[lane()] * projection.rows + row;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) sums[r][0] = p.route[p.used + lane()] * bias[r];
    }
    // A step is 32 blocks of the columns of a slot.
    u32 first_block = 0;
#pragma unroll 1
    while (slot < end) {
        typename F::Raw raw[SUM_STEPS][ROWS];
        ActivationBlock x[SUM_STEPS][1];
        float weight[SUM_STEPS];
#pragma unroll
        for (u32 i = 0; i < SUM_STEPS; i++) {
            // No branch around a load: steps and lanes beyond the end read a block again.
            u32 own_slot = slot < end ? slot : end - 1, own_block = first_block + lane();
            bool inside = slot < end && own_block < blocks;
            u32 expert = (u32)p.route[own_slot], block = inside ? own_block : blocks - 1;
            weight[i] = inside ? p.route[p.used + own_slot] : 0.0f;
            RfWeight row_weight[ROWS];
            neighbours<F, ROWS>(row_weight, 0, projection.weight, expert * projection.rows + row, blocks);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) raw[i][r] = F::fetch(row_weight[r], block);
            const i8 *q = p.x_q8.q + own_slot * p.columns;
            const float *meta = p.x_q8.meta + own_slot * (p.columns / 16);
            x[i][0] = ActivationBlock::fetch(q, meta, p.columns, block);
            first_block += WAVE;
            bool ends = first_block >= blocks;
            slot += ends ? 1 : 0;
            first_block = ends ? 0 : first_block;
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
    float value = wave_sum(sums[0][0]), second = wave_sum(sums[1][0]);
    value = lane() % ROWS == 1 ? second : value;
    if (p.parts > 1) {
        if (writes) p.partials[group_y() * projection.rows + own_row] = value;
        device_fence();
        barrier();
        if (thread_x() == 0) arrived = arrive(p.arrivals + group_x());
        barrier();
        if (arrived + 1 != p.parts) return;
        device_fence();
        if (thread_x() == 0) p.arrivals[group_x()] = 0;
        value = p.partials[own_row];
        for (u32 part = 1; part < p.parts; part++) value += p.partials[part * projection.rows + own_row];
    }
    value += residual;
    if (writes) projection.out[own_row] = value;
    const float values[1] = {value};
    if (p.norm_out.squares) write_normed(p.norm_out, norm, values, 1, ROWS, projection.rows);
}

} // namespace rf
