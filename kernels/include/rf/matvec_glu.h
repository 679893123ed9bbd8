// The gated unit of decode: gate, up, activation, and quantisation for the next matmul, in one
// launch.
//
// A workgroup computes 32 consecutive outputs, a block of activations, with 8 waves of four outputs
// each, one after another. So there are a few more workgroups than processors, and all end at about
// the same time.
#pragma once

#include "rf/activation.h"
#include "rf/matvec.h"

namespace rf {

constexpr u32 GLU_WAVES = 8;
constexpr u32 GLU_THREADS = GLU_WAVES * WAVE;

template <typename F>
RF_DEVICE void matvec_glu(const RfMatvecGluParams &p) {
    RF_SHARED float outputs[32];
    load_grid<F>(GLU_THREADS);
    u32 blocks = p.columns / 32;
#pragma unroll 1
    for (u32 own = wave(); own < 32; own += GLU_WAVES) {
        u32 row = group_x() * 32 + own;
        RfWeight row_weight[2] = {row_of<F>(p.gate, row, blocks), row_of<F>(p.up, row, blocks)};
        float sums[2][1];
        row_sums<F, 1>(sums, row_weight, p.x_q8, p.norm_in, p.columns);
        if (lane() == 0) outputs[own] = gated_unit(p.activation, sums[0][0], sums[1][0]);
    }
    barrier();
    if (wave() > 0) return;
    float value = outputs[lane()];
    if (p.out_f32) p.out_f32[group_x() * 32 + lane()] = value;
    if (p.out_q8.q) write_block(value, p.out_q8, 0, p.rows, group_x());
}

} // namespace rf

// The matrix-vector kernels of a format.
#define RF_MATVEC(NAME, FORMAT, NUMBER)                                                            \
    RF_KERNEL(rf::MATVEC_THREADS_1) matvec_##NAME##_q8_f32_n1(RfMatvecParams p) {                  \
        rf::matvec<rf::FORMAT, 1>(p);                                                              \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_q8_f32_n2(RfMatvecParams p) {                    \
        rf::matvec<rf::FORMAT, 2>(p);                                                              \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_q8_f32_n4(RfMatvecParams p) {                    \
        rf::matvec<rf::FORMAT, 4>(p);                                                              \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_q8_f32_n8(RfMatvecParams p) {                    \
        rf::matvec<rf::FORMAT, 8>(p);                                                              \
    }                                                                                              \
    RF_KERNEL_AT_ONCE(rf::GLU_THREADS, 3) matvec_glu_##NAME##_q8_n1(RfMatvecGluParams p) {         \
        rf::matvec_glu<rf::FORMAT>(p);                                                             \
    }
