// Matrix × vector for F32, F16 and BF16 weights.
//
// A lane loads 16 bytes of a row at a time and multiplies in f32; otherwise as rf/matvec.h. Rows
// whose size is not a multiple of 16 bytes are read element by element. Bytes moved: the weights
// once.
#pragma once

#include "rf/lanes.h"
#include "rf/matvec.h"
#include "rf/router.h"

namespace rf {

struct F32 {
    using Element = float;
    RF_DEVICE_MEMBER static float value(float bits) { return bits; }
};
struct F16 {
    using Element = u16;
    RF_DEVICE_MEMBER static float value(u16 bits) { return f16_value(bits); }
};
struct Bf16 {
    using Element = u16;
    RF_DEVICE_MEMBER static float value(u16 bits) { return bf16_value(bits); }
};

// `ready` waits for the activations; weights of one token may be in flight before.
template <typename F, u32 ROWS, u32 TOKENS, typename Ready>
RF_DEVICE void float_row_sums(float (&sums)[ROWS][TOKENS], const void *weight, u32 row, const float *x, u32 columns,
                              Ready ready) {
    using Element = typename F::Element;
    constexpr u32 N = 16 / sizeof(Element);
    typedef Element Piece __attribute__((ext_vector_type(N)));
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) sums[r][t] = 0.0f;
    const Element *rows = static_cast<const Element *>(weight) + (u64)row * columns;
    // Steps whose loads are in flight at once. A router has few rows, so few waves run.
    constexpr u32 STEPS = TOKENS == 1 ? 4 : 1;
    // `loaded` is called between the loads of weights and those of activations.
    auto add_steps = [&]<u32 COUNT>(Number<COUNT>, u32 first, auto loaded) {
        Piece raw[COUNT][ROWS];
        u32 piece = opaque(first);
#pragma unroll
        for (u32 s = 0; s < COUNT; s++)
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) raw[s][r] = at<Piece>(rows + (u64)r * columns, piece + s * WAVE);
        loaded();
#pragma unroll
        for (u32 s = 0; s < COUNT; s++)
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) {
                f32x4 x_piece[N / 4];
#pragma unroll
                for (u32 i = 0; i < N / 4; i++)
                    x_piece[i] = at<f32x4>(x + (u64)t * columns, (piece + s * WAVE) * (N / 4) + i);
#pragma unroll
                for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                    for (u32 i = 0; i < N; i++)
                        sums[r][t] = fma(F::value(raw[s][r][i]), x_piece[i / 4][i % 4], sums[r][t]);
            }
    };
    auto nothing = [] {};
    u32 first = lane();
    // The same for all lanes.
    bool starts_early = LOADS_EARLY && TOKENS == 1 && columns % N == 0 && columns / N >= STEPS * WAVE;
    if (starts_early) {
        add_steps(Number<STEPS>{}, first, ready);
        first += STEPS * WAVE;
    } else {
        ready();
    }
    if (columns % N == 0) {
#pragma unroll 1
        for (; first + (STEPS - 1) * WAVE < columns / N; first += STEPS * WAVE) {
            add_steps(Number<STEPS>{}, first, nothing);
        }
        if constexpr (STEPS > 1) {
#pragma unroll 1
            for (; first < columns / N; first += WAVE) add_steps(Number<1>{}, first, nothing);
        }
    } else {
        for (u32 c = lane(); c < columns; c += WAVE)
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++)
#pragma unroll
                for (u32 r = 0; r < ROWS; r++)
                    sums[r][t] = fma(F::value(rows[(u64)r * columns + c]), x[(u64)t * columns + c], sums[r][t]);
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) sums[r][t] = wave_sum(sums[r][t]);
}

// Multiplies the sums of one token by the remaining factor of a norm.
template <u32 ROWS, u32 TOKENS>
RF_DEVICE void apply_norm(float (&sums)[ROWS][TOKENS], const RfNormIn &norm, float squares, u32 columns) {
    float factor = norm_factor(norm, squares, columns);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) sums[r][t] *= factor;
}

template <typename F, u32 TOKENS>
RF_DEVICE void matvec_float(const RfMatvecParams &p) {
    constexpr u32 ROWS = TOKENS <= 4 ? 4 : 2;
    Place place = place_of(p.projections, p.num_projections, group_x(), MATVEC_WAVES * ROWS);
    const RfProjection &projection = p.projections[place.projection];
    u32 row = place.row + wave() * ROWS;
    allow_next_kernel();
    if (row >= projection.rows) return;
    float sums[ROWS][TOKENS], values[TOKENS];
    float squares = 0.0f;
    auto ready = [&] {
        await_previous_kernels();
        if constexpr (TOKENS == 1) squares = norm_squares(p.norm_in);
    };
    bool has_route = TOKENS == 1 && p.route;
    if (!LOADS_EARLY || has_route) ready();
    if (has_route) {
        u32 slot = group_y(), token = slot / p.used;
        u32 expert = (u32)p.route[token * 2 * p.used + slot % p.used];
        u64 x_row = p.shared_x ? token : slot;
        float_row_sums<F>(sums, projection.weight.low, expert * projection.rows + row, p.x_f32 + x_row * p.columns,
                          p.columns, [] {});
        apply_norm(sums, p.norm_in, squares, p.columns);
        write_rows(sums, projection_of(projection, slot, expert), nullptr, row, 1, values);
        return;
    }
    float_row_sums<F>(sums, projection.weight.low, row, p.x_f32, p.columns, [&] {
        if constexpr (LOADS_EARLY) ready();
    });
    if constexpr (TOKENS == 1) apply_norm(sums, p.norm_in, squares, p.columns);
    write_rows(sums, projection, p.residual, row, p.tokens, values);
}

// The logits of one token and the gate of its shared expert, a workgroup per row of the weights
// (grid: x), whose waves divide the columns. The last workgroup to finish selects the experts.
// Bytes moved: the weights once.
template <typename F>
RF_DEVICE void router(const RfRouterParams &p) {
    using Element = typename F::Element;
    constexpr u32 N = 16 / sizeof(Element);
    typedef Element Piece __attribute__((ext_vector_type(N)));
    RF_SHARED float partial[MATVEC_WAVES];
    RF_SHARED u32 arrived;
    u32 expert = group_x();
    bool is_shared = expert == p.route.experts;
    const Element *row = static_cast<const Element *>(is_shared ? p.shared_weight : p.weight);
    if (!is_shared) row += (u64)expert * p.columns;
    follow_previous_kernels();
    float squares = wave() == 0 ? norm_squares(p.norm_in) : 0.0f, sum = 0.0f;
    if (p.columns % N == 0) {
#pragma unroll 2
        for (u32 piece = thread_x(); piece < p.columns / N; piece += MATVEC_THREADS) {
            Piece raw = at<Piece>(row, piece);
#pragma unroll
            for (u32 i = 0; i < N / 4; i++) {
                f32x4 x = at<f32x4>(p.x, piece * (N / 4) + i);
#pragma unroll
                for (u32 c = 0; c < 4; c++) sum = fma(F::value(raw[i * 4 + c]), x[c], sum);
            }
        }
    } else {
        for (u32 c = thread_x(); c < p.columns; c += MATVEC_THREADS) sum = fma(F::value(row[c]), p.x[c], sum);
    }
    sum = wave_sum(sum);
    if (lane() == 0) partial[wave()] = sum;
    barrier();
    if (wave() > 0) return;
    sum = wave_sum(lane() < MATVEC_WAVES ? partial[lane()] : 0.0f) * norm_factor(p.norm_in, squares, p.columns);
    if (lane() == 0) {
        float *out = const_cast<float *>(is_shared ? p.route.shared_gate : p.route.logits + expert);
        *out = p.bias && !is_shared ? sum + p.bias[expert] : sum;
        arrived = arrive(p.arrivals);
    }
    wave_barrier();
    if (arrived + 1 != p.rows) return;
    device_fence();
    if (lane() == 0) *p.arrivals = 0;
    route(p.route, 0);
}

} // namespace rf

// The matrix-vector kernels of a float format.
#define RF_MATVEC_FLOAT(NAME, FORMAT, NUMBER)                                                      \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_f32_n1(RfMatvecParams p) {                       \
        rf::matvec_float<rf::FORMAT, 1>(p);                                                        \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_f32_n2(RfMatvecParams p) {                       \
        rf::matvec_float<rf::FORMAT, 2>(p);                                                        \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_f32_n4(RfMatvecParams p) {                       \
        rf::matvec_float<rf::FORMAT, 4>(p);                                                        \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) matvec_##NAME##_f32_n8(RfMatvecParams p) {                       \
        rf::matvec_float<rf::FORMAT, 8>(p);                                                        \
    }                                                                                              \
    RF_KERNEL(rf::MATVEC_THREADS) router_##NAME##_f32_n1(RfRouterParams p) {                       \
        rf::router<rf::FORMAT>(p);                                                                 \
    }
