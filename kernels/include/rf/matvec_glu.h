// The gated unit of decode: gate, up, activation, and quantisation for the next matmul, in one
// launch.
//
// A workgroup computes 32 consecutive outputs, a block of activations, with 8 waves of four outputs
// each, one after another. So there are a few more workgroups than processors, and all end at about
// the same time. Few outputs have 16 waves of two, as long as the device holds all of them at once.
// For experts, group_y is the slot: one token, one expert. Bytes moved: the weights once, and those
// of the selected experts once per token.
#pragma once

#include "rf/activation.h"
#include "rf/matvec.h"
#include "rf/matvec_sum.h"

namespace rf {

// With several tokens a workgroup has 8 waves.
constexpr u32 GLU_THREADS = 16 * WAVE, GLU_THREADS_FEW = 8 * WAVE;

// As RF_MATVEC_STEPS.
#ifndef RF_GLU_STEPS
#define RF_GLU_STEPS 0
#endif

template <typename F, u32 TOKENS>
RF_DEVICE void matvec_glu(const RfMatvecGluParams &p) {
    constexpr bool STREAMS = MATVEC_STREAMS<F, TOKENS, RF_GLU_STEPS>;
    RF_SHARED float gates[TOKENS][32], ups[TOKENS][32];
    allow_next_kernel();
    load_grid<F>(p.waves * WAVE);
    // That of the wave at the end.
    u32 token = TOKENS == 1 ? 0 : wave(), tokens = TOKENS == 1 ? 1 : p.tokens;
    u32 blocks = p.columns / 32, slot = group_y(), first_row = group_x() * 32;
    float squares = 0.0f;
    RfActivations x = p.x_q8;
    auto ready = [&] {
        await_previous_kernels();
        if (wave() < tokens) squares = norm_squares(p.norm_in, token);
    };
    if (TOKENS > 1 ? !STREAMS : p.route || !STREAMS) ready();
    if (TOKENS == 1 && p.route) {
        u32 routed = slot / p.used;
        first_row += (u32)p.route[routed * 2 * p.used + slot % p.used] * p.rows;
        u64 x_row = p.shared_x ? routed : slot;
        x = {x.q + x_row * p.columns, x.meta + x_row * (p.columns / 16)};
    }
    if constexpr (STREAMS) {
        auto rows_of = [&](u32 i, RfWeight(&row_weight)[2]) {
            u32 row = first_row + i * p.waves + wave();
            row_weight[0] = row_of<F>(p.gate, row, blocks);
            row_weight[1] = row_of<F>(p.up, row, blocks);
        };
        auto ready_once = [&] {
            if (!p.route) ready();
        };
        auto store = [&](u32 i, const float(&sums)[2][TOKENS]) {
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) {
                float gate = wave_sum(sums[0][t]), up = wave_sum(sums[1][t]);
                if (lane() > 0) continue;
                gates[t][i * p.waves + wave()] = gate;
                ups[t][i * p.waves + wave()] = up;
            }
        };
        stream_rows<F, RF_GLU_STEPS, 2, TOKENS>(32 / p.waves, p.waves * WAVE, x, p.columns, rows_of, ready_once, [](u32) {}, store);
    } else {
#pragma unroll 1
        for (u32 own = wave(); own < 32; own += p.waves) {
            u32 row = first_row + own;
            RfWeight row_weight[2] = {row_of<F>(p.gate, row, blocks), row_of<F>(p.up, row, blocks)};
            float sums[2][TOKENS];
            row_sums<F, false>(sums, row_weight, x, tokens, RfNormIn{}, p.columns);
            if (lane() == 0) {
#pragma unroll
                for (u32 t = 0; t < TOKENS; t++) {
                    if (t >= tokens) break;
                    gates[t][own] = sums[0][t];
                    ups[t][own] = sums[1][t];
                }
            }
        }
    }
    barrier();
    if (wave() >= tokens) return;
    // Once for all 32 outputs: the factor of the norm, biases and the activation.
    float factor = norm_factor(p.norm_in, squares, p.columns);
    float gate = gates[token][lane()] * factor, up = ups[token][lane()] * factor;
    if (p.gate_bias) gate += p.gate_bias[first_row + lane()];
    if (p.up_bias) up += p.up_bias[first_row + lane()];
    float value = gated_unit(p.activation, gate, up);
    if (p.out_f32) p.out_f32[(u64)(slot + token) * p.rows + group_x() * 32 + lane()] = value;
    if (p.out_q8.q) write_block(value, p.out_q8, slot + token, p.rows, group_x());
}

} // namespace rf

// Matrix units multiply 2 (NVIDIA: 3) to 64 columns: rf/matmul_skinny.h. On AMD's, 2 columns take
// as long as 16.
#define RF_MATVEC_FUSED(NAME, FORMAT, N)                                                           \
    RF_KERNEL(rf::MATVEC_THREADS_1) matvec_##NAME##_q8_f32_n##N(RfMatvecParams p) {                \
        rf::matvec<rf::FORMAT, N>(p);                                                              \
    }                                                                                              \
    RF_KERNEL_AT_ONCE(rf::GLU_THREADS_FEW, 3) matvec_glu_##NAME##_q8_n##N(RfMatvecGluParams p) {   \
        rf::matvec_glu<rf::FORMAT, N>(p);                                                          \
    }
#if RF_NVIDIA
#define RF_MATVEC_FEW(NAME, FORMAT) RF_MATVEC_FUSED(NAME, FORMAT, 2)
#elif RF_MATRIX_UNIT
#define RF_MATVEC_FEW(NAME, FORMAT)
#else
#define RF_MATVEC_FEW(NAME, FORMAT)                                                                \
    RF_MATVEC_FUSED(NAME, FORMAT, 2)                                                               \
    RF_MATVEC_FUSED(NAME, FORMAT, 4)                                                               \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_q8_f32_n8(RfMatvecParams p) {                    \
        rf::matvec<rf::FORMAT, 8>(p);                                                              \
    }
#endif

// The matrix-vector kernels of a format.
#define RF_MATVEC(NAME, FORMAT, NUMBER)                                                            \
    RF_KERNEL(rf::MATVEC_THREADS_1) matvec_##NAME##_q8_f32_n1(RfMatvecParams p) {                  \
        rf::matvec<rf::FORMAT, 1>(p);                                                              \
    }                                                                                              \
    RF_MATVEC_FEW(NAME, FORMAT)                                                                    \
    RF_KERNEL_AT_ONCE(rf::GLU_THREADS, 2) matvec_glu_##NAME##_q8_n1(RfMatvecGluParams p) {         \
        rf::matvec_glu<rf::FORMAT, 1>(p);                                                             \
    }                                                                                              \
    RF_KERNEL_AT_ONCE(rf::SUM_THREADS, 2) matvec_sum_##NAME##_q8_f32_n1(RfMatvecSumParams p) {     \
        rf::matvec_sum<rf::FORMAT>(p);                                                             \
    }
