// The gated unit of decode: gate, up, activation, and the quantisation for the product that follows, in one launch.
//
// A workgroup makes 32 neighbouring outputs, a block of activations, of 16 waves with two rows of each matrix: so a
// wave has four streams of weights, as in a plain product.
#pragma once

#include "rf/activation.h"
#include "rf/matvec.h"

namespace rf {

constexpr u32 GLU_ROWS = 2;
constexpr u32 GLU_THREADS = 32 / GLU_ROWS * WAVE;

// Lane i of a wave has value i of a block of activations.
RF_DEVICE void write_block(float value, const RfActivations &out, u64 row, u32 columns, u32 block) {
    float largest = wave_max(__builtin_fabsf(value));
    float d = largest / 127.0f;
    float q = d > 0.0f ? round_even(value / d) : 0.0f;
    i32 sum = wave_sum((i32)q);
    u32 half = lane() / 16;
    out.q[row * columns + half * (columns / 2) + block * 16 + lane() % 16] = (i8)q;
    if (lane() == 0) {
        float *meta = out.meta + row * (columns / 16) + block * 2;
        meta[0] = d;
        meta[1] = d * (float)sum;
    }
}

template <typename F>
RF_DEVICE void matvec_glu(const RfMatvecGluParams &p) {
    RF_SHARED float outputs[32];
    u32 first_row = group_x() * 32, row = first_row + wave() * GLU_ROWS;
    if (row < p.rows) {
        u32 blocks = p.columns / 32;
        RfWeight row_weight[2 * GLU_ROWS];
        neighbours<F, GLU_ROWS>(row_weight, 0, p.gate, row, blocks);
        neighbours<F, GLU_ROWS>(row_weight, GLU_ROWS, p.up, row, blocks);
        float sums[2 * GLU_ROWS][1];
        row_sums<F>(sums, row_weight, p.x_q8, p.columns);
        float gate = lane() == 0 ? sums[0][0] : sums[1][0];
        float up = lane() == 0 ? sums[2][0] : sums[3][0];
        if (lane() < GLU_ROWS) outputs[wave() * GLU_ROWS + lane()] = activate(p.activation, gate) * up;
    }
    barrier();
    if (wave() > 0) return;
    bool inside = first_row + lane() < p.rows;
    float value = inside ? outputs[lane()] : 0.0f;
    if (p.out_f32 && inside) p.out_f32[first_row + lane()] = value;
    if (p.out_q8.q) write_block(value, p.out_q8, 0, p.rows, group_x());
}

} // namespace rf
