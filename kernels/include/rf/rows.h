// Shared code of row-wise kernels: sums over a workgroup, RMSNorm of a row that is read once, and
// the conversion of activations to int8 and f16.
//
// A lane processes four consecutive columns at a time (a vector), so 8 consecutive lanes hold a
// block of 32.
#pragma once

#include "rf/estimate.h"
#include "rf/params/rows.h"
#include "rf/wgmma.h"

namespace rf {

constexpr u32 VECTOR = 4;

// The number of waves in the largest workgroup.
constexpr u32 MAX_WAVES = 32;

RF_DEVICE bool is_wanted(const RfActivations &q8) { return q8.q != nullptr; }
RF_DEVICE bool is_wanted(const RfHalves &f16) { return f16.x != nullptr; }

// The sum over a workgroup of `threads`, returned to every thread; the order of additions depends
// only on `threads`. `partial` is LDS that is otherwise unused during the call.
RF_DEVICE float workgroup_sum(float value, u32 threads, float (&partial)[MAX_WAVES]) {
    value = wave_sum(value);
    if (lane() == 0) partial[wave()] = value;
    lds_barrier();
    return wave_sum(lane() < threads / WAVE ? partial[lane()] : 0.0f);
}

// The maximum over a workgroup, as workgroup_sum.
RF_DEVICE float workgroup_max(float value, u32 threads, float (&partial)[MAX_WAVES]) {
    value = wave_max(value);
    if (lane() == 0) partial[wave()] = value;
    lds_barrier();
    return wave_max(lane() < threads / WAVE ? partial[lane()] : 0.0f);
}

RF_DEVICE float largest_of(f32x4 v, float largest) {
    for (u32 i = 0; i < VECTOR; i++) largest = __builtin_fmaxf(largest, __builtin_fabsf(v[i]));
    return largest;
}

RF_DEVICE float square_sum(f32x4 v, float sum) {
    for (u32 i = 0; i < VECTOR; i++) sum = fma(v[i], v[i], sum);
    return sum;
}

// Quantises a vector of a row together with the other 7 vectors of its block, which consecutive
// lanes hold: d = max|x| / 127, q = x / d to nearest even. Every lane of the wave must participate;
// `inside` is true in lanes that have a vector.
RF_DEVICE void store_q8(const RfActivations &out, u64 row, u32 columns, u32 vector, bool inside, f32x4 v) {
    float largest = wave_max<8>(largest_of(v, 0.0f));
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

// The scale of a row of RfHalves whose largest magnitude is `largest`: the quotients are below
// 2^14. Rows below 2^-113 have the smallest normal scale.
RF_DEVICE float half_scale(float largest) {
    u32 exponent = __builtin_bit_cast(u32, largest) >> 23;
    return __builtin_bit_cast(float, (exponent > 14 ? exponent - 13 : 1) << 23);
}

// The largest finite f16.
constexpr float HALF_MAX = 65504.0f;

// Stores a vector of a row, in the order of rf/halves.h or, if the lowest bit of the address is
// set, of the columns; `inverse` is the reciprocal of the row's scale.
RF_DEVICE void store_f16(const RfHalves &out, u64 row, u32 columns, u32 vector, float inverse, f32x4 v) {
    u32 block = vector / 8, h = vector % 8 / 4, j = vector % 4;
    v = v * inverse;
#if RF_WGMMA
    if ((u64)out.x & 1) {
        f16x4 *natural = reinterpret_cast<f16x4 *>(static_cast<u8 *>(out.x) - 1);
        natural[row * (columns / VECTOR) + vector] = f16x4{(f16)v[0], (f16)v[1], (f16)v[2], (f16)v[3]};
        return;
    }
#endif
    u32 *words = static_cast<u32 *>(out.x) + row * (columns / 2) + block * 16 + 4 * j + h;
    words[0] = __builtin_bit_cast(u32, f16x2{(f16)v[0], (f16)v[2]});
    words[2] = __builtin_bit_cast(u32, f16x2{(f16)v[1], (f16)v[3]});
}

// The scale of rows whose largest magnitude is not known when they are stored: results of
// attention.
constexpr float FIXED_HALF_SCALE = 16.0f;

// Stores a vector of a row with the scale FIXED_HALF_SCALE, up to the largest f16.
RF_DEVICE void store_f16_fixed(const RfHalves &out, u64 row, u32 columns, u32 vector, f32x4 v) {
    constexpr float most = HALF_MAX * FIXED_HALF_SCALE;
    // NaN stays NaN.
    for (u32 i = 0; i < VECTOR; i++) {
        v[i] = v[i] > most ? most : v[i];
        v[i] = v[i] < -most ? -most : v[i];
    }
    store_f16(out, row, columns, vector, 1.0f / FIXED_HALF_SCALE, v);
    if (vector == 0) out.scale[row] = FIXED_HALF_SCALE;
}

// Stores one element of a row with the scale FIXED_HALF_SCALE. Column 0 stores the scale.
RF_DEVICE void store_f16_of(const RfHalves &out, u64 row, u32 columns, u32 column, float v) {
    constexpr float most = HALF_MAX * FIXED_HALF_SCALE;
    v = v > most ? most : v < -most ? -most : v;
    u32 block = column / 32, h = column % 32 / 16, j = column % 16 / 4, i = column % 4;
    u32 word = block * 16 + 4 * j + h + i % 2 * 2;
    static_cast<f16 *>(out.x)[row * columns + 2 * word + i / 2] = (f16)(v * (1.0f / FIXED_HALF_SCALE));
    if (column == 0) out.scale[row] = FIXED_HALF_SCALE;
}

// Writes a vector of a row in each requested form. The form f16 has a fixed scale.
RF_DEVICE void store_operand(const RfOperand &out, u64 row, u32 columns, u32 vector, bool inside, f32x4 v) {
    if (is_wanted(out.q8)) store_q8(out.q8, row, columns, vector, inside, v);
    if (out.f32 && inside) reinterpret_cast<f32x4 *>(out.f32 + row * columns)[vector] = v;
    if (is_wanted(out.f16) && inside) store_f16_fixed(out.f16, row, columns, vector, v);
}

// As store_operand, for a row of known scale; its vector 0 stores the scale.
RF_DEVICE void store_scaled(const RfOperand &out, u64 row, u32 columns, u32 vector, bool inside, f32x4 v, float scale) {
    if (is_wanted(out.q8)) store_q8(out.q8, row, columns, vector, inside, v);
    if (!inside) return;
    if (out.f32) reinterpret_cast<f32x4 *>(out.f32 + row * columns)[vector] = v;
    if (is_wanted(out.f16)) {
        store_f16(out.f16, row, columns, vector, reciprocal(scale), v);
        if (vector == 0) out.f16.scale[row] = scale;
    }
}

// Stores a row by a workgroup of `threads`, with HELD vectors per thread in registers;
// `source(vector)` computes a vector, and vectors beyond these are computed twice. All lanes of a
// wave compute one.
template <u32 HELD, typename Source>
RF_DEVICE void store_row(const RfOperand &out, u64 row, u32 columns, u32 threads, Source source) {
    RF_SHARED static float partial[MAX_WAVES];
    u32 vectors = columns / VECTOR, wave_first = wave() * WAVE;
    f32x4 held[HELD];
    float largest = 0.0f;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        held[i] = vector < vectors ? source(vector) : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
        largest = largest_of(held[i], largest);
    }
    for (u32 vector = thread_x() + HELD * threads; vector < vectors; vector += threads) {
        largest = largest_of(source(vector), largest);
    }
    float scale = half_scale(workgroup_max(largest, threads, partial));
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        if (wave_first + i * threads >= vectors) return;
        store_scaled(out, row, columns, vector, vector < vectors, held[i], scale);
    }
    for (u32 first = wave_first + HELD * threads; first < vectors; first += threads) {
        u32 vector = first + lane();
        bool inside = vector < vectors;
        store_scaled(out, row, columns, vector, inside, inside ? source(vector) : f32x4{0.0f, 0.0f, 0.0f, 0.0f}, scale);
    }
}

// RMSNorm of one row by a workgroup of `threads`, with HELD vectors per thread in registers. The
// source provides the columns: `load(vector)` reads a vector; `keep(vector, v)` is called once per
// vector and may store it; `again(vector)` reads a vector beyond HELD a second time.
//
// One barrier, and one more for f16. In rows of up to 4 · HELD · threads columns everything is read
// once, with all loads in flight.
template <u32 HELD, typename Source>
RF_DEVICE void rms_norm_row(const Source &source, const float *weight, float eps, const RfOperand &out, u64 row,
                            u32 columns, u32 threads) {
    RF_SHARED static float partial[MAX_WAVES], largest_partial[MAX_WAVES];
    const f32x4 *weights = reinterpret_cast<const f32x4 *>(weight);
    u32 vectors = columns / VECTOR;
    bool is_scaled = is_wanted(out.f16);

    f32x4 x[HELD], w[HELD];
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        // No branch around a load: lanes beyond the end read the last vector again.
        u32 vector = thread_x() + i * threads, last = vectors - 1;
        x[i] = source.load(vector < last ? vector : last);
        w[i] = weights[vector < last ? vector : last];
    }
    float sum = 0.0f, largest = 0.0f;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        if (vector < vectors) {
            source.keep(vector, x[i]);
            sum = square_sum(x[i], sum);
            largest = largest_of(x[i] * w[i], largest);
        }
    }
    for (u32 vector = thread_x() + HELD * threads; vector < vectors; vector += threads) {
        f32x4 v = source.load(vector);
        source.keep(vector, v);
        sum = square_sum(v, sum);
        largest = largest_of(v * weights[vector], largest);
    }

    sum = workgroup_sum(sum, threads, partial);
    float scale = rsqrt(sum * reciprocal_estimate((float)columns) + eps);
    float half = is_scaled ? half_scale(workgroup_max(largest, threads, largest_partial) * scale) : 1.0f;

    // All lanes of a wave continue while one of them has a vector.
    u32 wave_first = wave() * WAVE;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 vector = thread_x() + i * threads;
        if (wave_first + i * threads >= vectors) return;
        store_scaled(out, row, columns, vector, vector < vectors, x[i] * scale * w[i], half);
    }
    for (u32 first = wave_first + HELD * threads; first < vectors; first += threads) {
        u32 vector = first + lane();
        bool inside = vector < vectors;
        f32x4 v = inside ? source.again(vector) * scale * weights[vector] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
        store_scaled(out, row, columns, vector, inside, v, half);
    }
}

} // namespace rf
