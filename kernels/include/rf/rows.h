// Shared code of row-wise kernels: sums over a workgroup, RMSNorm of a row that is read once, and
// quantisation of activations to int8.
//
// A lane processes four consecutive columns at a time (a vector), so 8 consecutive lanes hold a
// block of 32.
#pragma once

#include "rf/estimate.h"
#include "rf/params/rows.h"

namespace rf {

constexpr u32 VECTOR = 4;

// The number of waves in the largest workgroup.
constexpr u32 MAX_WAVES = 32;

RF_DEVICE bool is_wanted(const RfActivations &q8) { return q8.q != nullptr; }

// The sum over a workgroup of `threads`, returned to every thread; the order of additions depends
// only on `threads`. `partial` is LDS that is otherwise unused during the call.
RF_DEVICE float workgroup_sum(float value, u32 threads, float (&partial)[MAX_WAVES]) {
    value = wave_sum(value);
    if (lane() == 0) partial[wave()] = value;
    barrier();
    return wave_sum(lane() < threads / WAVE ? partial[lane()] : 0.0f);
}

RF_DEVICE float square_sum(f32x4 v, float sum) {
    for (u32 i = 0; i < VECTOR; i++) sum = fma(v[i], v[i], sum);
    return sum;
}

// Quantises a vector of a row together with the other 7 vectors of its block, which consecutive
// lanes hold: d = max|x| / 127, q = x / d to nearest even. Every lane of the wave must participate;
// `inside` is true in lanes that have a vector.
RF_DEVICE void store_q8(const RfActivations &out, u64 row, u32 columns, u32 vector, bool inside, f32x4 v) {
    float largest = 0.0f;
    for (u32 i = 0; i < VECTOR; i++) largest = __builtin_fmaxf(largest, __builtin_fabsf(v[i]));
    largest = wave_max<8>(largest);
    // The reciprocal of a smaller value would be infinite.
    float inverse = largest > 0x1p-100f ? 127.0f * reciprocal_estimate(largest) : 0.0f;
    float d = largest * (1.0f / 127.0f);

    u32 q = 0;
    for (u32 i = 0; i < VECTOR; i++) q |= ((u32)(i32)round_even(v[i] * inverse) & 0xff) << 8 * i;
    i32 sum = wave_sum<8>(dot4(q, 0x01010101u, 0));
    if (!inside) return;

    u32 block = vector / 8, word = vector % 8;
    u32 at = (word / 4) * (columns / 2) + block * 16 + (word % 4) * 4;
    *reinterpret_cast<u32 *>(out.q + row * columns + at) = q;
    if (word == 0) *reinterpret_cast<f32x2 *>(out.meta + row * (columns / 16) + block * 2) = f32x2{d, d * (float)sum};
}

// Writes a vector of a row in each requested form.
RF_DEVICE void store_operand(const RfOperand &out, u64 row, u32 columns, u32 vector, bool inside, f32x4 v) {
    if (is_wanted(out.q8)) store_q8(out.q8, row, columns, vector, inside, v);
    if (out.f32 && inside) reinterpret_cast<f32x4 *>(out.f32 + row * columns)[vector] = v;
}

// RMSNorm of one row by a workgroup of `threads`, with HELD vectors per thread in registers. The
// source provides the columns: `load(vector)` reads a vector; `keep(vector, v)` is called once per
// vector and may store it; `again(vector)` reads a vector beyond HELD a second time.
//
// One barrier. In rows of up to 4 · HELD · threads columns everything is read once, with all loads
// in flight.
template <u32 HELD, typename Source>
RF_DEVICE void rms_norm_row(const Source &source, const float *weight, float eps, const RfOperand &out, u64 row,
                            u32 columns, u32 threads) {
    RF_SHARED static float partial[MAX_WAVES];
    const f32x4 *weights = reinterpret_cast<const f32x4 *>(weight);
    u32 vectors = columns / VECTOR;

    f32x4 x[HELD], w[HELD];
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        // No branch around a load: lanes beyond the end read the last vector again.
        u32 vector = thread_x() + i * threads, last = vectors - 1;
        x[i] = source.load(vector < last ? vector : last);
        w[i] = weights[vector < last ? vector : last];
    }
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        if (vector < vectors) {
            source.keep(vector, x[i]);
            sum = square_sum(x[i], sum);
        }
    }
    for (u32 vector = thread_x() + HELD * threads; vector < vectors; vector += threads) {
        f32x4 v = source.load(vector);
        source.keep(vector, v);
        sum = square_sum(v, sum);
    }

    sum = workgroup_sum(sum, threads, partial);
    float scale = rsqrt(sum * reciprocal_estimate((float)columns) + eps);

    // All lanes of a wave continue while one of them has a vector.
    u32 wave_first = wave() * WAVE;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        if (wave_first + i * threads >= vectors) return;
        store_operand(out, row, columns, vector, vector < vectors, x[i] * scale * w[i]);
    }
    for (u32 first = wave_first + HELD * threads; first < vectors; first += threads) {
        u32 vector = first + lane();
        bool inside = vector < vectors;
        f32x4 v = inside ? source.again(vector) * scale * weights[vector] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
        store_operand(out, row, columns, vector, inside, v);
    }
}

} // namespace rf
