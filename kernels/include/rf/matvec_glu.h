// The gated unit of decode: gate, up, activation, and the quantisation for the product that follows, in one launch.
//
// A workgroup makes 32 neighbouring outputs, a block of activations, of 8 waves with four outputs each, one after
// the other: so there are some workgroups more than processors, and all end at about the same time.
#pragma once

#include "rf/activation.h"
#include "rf/matvec.h"

namespace rf {

constexpr u32 GLU_WAVES = 8;
constexpr u32 GLU_THREADS = GLU_WAVES * WAVE;

template <typename F>
RF_DEVICE void matvec_glu(const RfMatvecGluParams &p) {
    RF_SHARED float outputs[32];
    u32 blocks = p.columns / 32;
#pragma unroll 1
    for (u32 own = wave(); own < 32; own += GLU_WAVES) {
        u32 row = group_x() * 32 + own;
        RfWeight row_weight[2] = {row_of<F>(p.gate, row, blocks), row_of<F>(p.up, row, blocks)};
        float sums[2][1];
        row_sums<F, 1>(sums, row_weight, p.x_q8, p.norm_in, p.columns);
        if (lane() == 0) outputs[own] = activate(p.activation, sums[0][0]) * sums[1][0];
    }
    barrier();
    if (wave() > 0) return;
    float value = outputs[lane()];
    if (p.out_f32) p.out_f32[group_x() * 32 + lane()] = value;
    if (p.out_q8.q) write_block(value, p.out_q8, 0, p.rows, group_x());
}

} // namespace rf
