// The Hadamard transform of keys, values, queries and results: KvLayer::transform_len of rf-graph.
#pragma once

#include "rf/device.h"

namespace rf {

namespace detail {

template <u32 LOW, u32 LANES, u32 MASK, u32 N>
RF_DEVICE void hadamard_lanes(float (&x)[N], u32 len) {
    if constexpr (MASK < LANES) {
        if (LOW * MASK < len) {
            float sign = lane() & MASK ? -1.0f : 1.0f;
#pragma unroll
            for (u32 i = 0; i < N; i++) x[i] = fma(x[i], sign, xor_lane<MASK>(x[i]));
        }
        hadamard_lanes<LOW, LANES, 2 * MASK>(x, len);
    }
}

// Adds and subtracts the elements with a distance of HALF in x.
template <u32 HALF, u32 N>
RF_DEVICE void hadamard_step(float (&x)[N]) {
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        if (i & HALF) continue;
        float a = x[i], b = x[i + HALF];
        x[i] = a + b;
        x[i + HALF] = a - b;
    }
}

template <u32 LOW, u32 LANES, u32 HALF, u32 N>
RF_DEVICE void hadamard_registers(float (&x)[N], u32 len) {
    if constexpr (HALF < N) {
        // Below LOW, neighbours in x are neighbours in memory.
        u32 distance = HALF < LOW ? HALF : HALF * LANES;
        if (distance < len) hadamard_step<HALF>(x);
        hadamard_registers<LOW, LANES, 2 * HALF>(x, len);
    }
}

} // namespace detail

// Multiplies each `len` consecutive elements, a power of two, by the matrix (−1)^popcount(i & j),
// which is √len times its inverse; callers multiply by hadamard_factor. The element
// (high · LANES + lane) · LOW + low is x[high · LOW + low]. If `len` exceeds the elements of these
// lanes, the caller has added those of the others. For all lanes of a wave.
template <u32 LOW, u32 LANES, u32 N>
RF_DEVICE void hadamard(float (&x)[N], u32 len) {
    detail::hadamard_registers<LOW, LANES, 1>(x, len);
    detail::hadamard_lanes<LOW, LANES, 1>(x, len);
}

RF_DEVICE float hadamard_factor(u32 len) { return rsqrt((float)len); }

// The same for a row of which a lane has every 32nd vector of four elements.
template <u32 PARTS>
RF_DEVICE void hadamard_row(f32x4 (&v)[PARTS], u32 len) {
    float x[PARTS * 4];
#pragma unroll
    for (u32 i = 0; i < PARTS * 4; i++) x[i] = v[i / 4][i % 4];
    hadamard<4, WAVE>(x, len);
#pragma unroll
    for (u32 i = 0; i < PARTS * 4; i++) v[i / 4][i % 4] = x[i];
}

// The sign of block `i` in a transform of several blocks, for the elements of block `j`.
RF_DEVICE float hadamard_sign(u32 i, u32 j) { return __builtin_popcount(i & j) % 2 == 0 ? 1.0f : -1.0f; }

} // namespace rf
