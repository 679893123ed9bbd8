// Activation functions and gated units: Activation of rf-graph.
#pragma once

#include "rf/device.h"
#include "rf/estimate.h"
#include "rf/params/matvec.h"

namespace rf {

// σ(x).
RF_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
RF_DEVICE float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

// eˣ − 1 for x ≤ 0 with the precision of small results: eᵈ(eᵃ − 1) + (eᵈ − 1) for a = max(x, −½)
// and d = x − a, where a polynomial of degree 9 is eᵃ − 1.
RF_DEVICE float expm1_of_negative(float x) {
    float a = __builtin_fmaxf(x, -0.5f), e = exp(x - a);
    float p = 1.0f / 362880.0f;
    p = fma(p, a, 1.0f / 40320.0f);
    p = fma(p, a, 1.0f / 5040.0f);
    p = fma(p, a, 1.0f / 720.0f);
    p = fma(p, a, 1.0f / 120.0f);
    p = fma(p, a, 1.0f / 24.0f);
    p = fma(p, a, 1.0f / 6.0f);
    p = fma(p, a, 0.5f);
    p = fma(p, a, 1.0f);
    return fma(p * a, e, e - 1.0f);
}

// x·Φ(x) = max(x, 0) − |x|·Φ(−|x|), with the rational approximation 7.1.26 of Abramowitz and Stegun
// for the tail Φ(−z) = ½·erfc(z/√2), whose error is below 1e-7.
RF_DEVICE float gelu_erf(float x) {
    float size = __builtin_fabsf(x), z = 0.707106781f * size;
    float t = 1.0f / (1.0f + 0.3275911f * z);
    float p = fma(t, fma(t, fma(t, fma(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    return __builtin_fmaxf(x, 0.0f) - 0.5f * size * (p * t) * exp(-z * z);
}

// ln(1 + eˣ) within a few ulp: max(x, 0) + ln(1 + u) for u = e^−|x|, and ln(1 + u) = 2·artanh(u /
// (2 + u)), whose argument is at most ⅓. The term after the last one is below 2^-27 of the sum.
RF_DEVICE float softplus(float x) {
    float u = exp(-__builtin_fabsf(x)), s = u / (2.0f + u), s2 = s * s;
    float series = 1.0f / 15.0f;
    series = fma(series, s2, 1.0f / 13.0f);
    series = fma(series, s2, 1.0f / 11.0f);
    series = fma(series, s2, 1.0f / 9.0f);
    series = fma(series, s2, 1.0f / 7.0f);
    series = fma(series, s2, 1.0f / 5.0f);
    series = fma(series, s2, 1.0f / 3.0f);
    series = fma(series, s2, 1.0f);
    return __builtin_fmaxf(x, 0.0f) + 2.0f * s * series;
}

// The activation function; RF_SILU and RF_CLAMPED_SWIGLU are x·σ(x) and x·σ(1.702x).
RF_DEVICE float activate(u32 activation, float x) {
    if (activation == RF_GELU_TANH) return gelu_tanh(x);
    if (activation == RF_RELU) return __builtin_fmaxf(x, 0.0f);
    return x / (1.0f + exp(activation == RF_CLAMPED_SWIGLU ? -1.702f * x : -x));
}

// rf_oracle::reference::glu.
RF_DEVICE float gated_unit(u32 activation, float gate, float up) {
    if (activation == RF_CLAMPED_SWIGLU) {
        gate = __builtin_fminf(gate, 7.0f);
        up = __builtin_fminf(__builtin_fmaxf(up, -7.0f), 7.0f) + 1.0f;
    }
    return activate(activation, gate) * up;
}

// As gated_unit, within a few ulp, for results that become f16: without a division, and the GELU as
// x·σ(2u), since ½(1 + tanh(u)) = σ(2u).
RF_DEVICE f32x4 gated_units(u32 activation, f32x4 gate, f32x4 up) {
    f32x4 t = gate;
    if (activation == RF_CLAMPED_SWIGLU) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            gate[i] = __builtin_fminf(gate[i], 7.0f);
            up[i] = __builtin_fminf(__builtin_fmaxf(up[i], -7.0f), 7.0f) + 1.0f;
        }
        t = 1.702f * gate;
    } else if (activation == RF_RELU) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) gate[i] = __builtin_fmaxf(gate[i], 0.0f);
        return gate * up;
    } else if (activation == RF_GELU_TANH) {
        t = 1.595769122f * (gate + 0.044715f * gate * gate * gate);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) gate[i] *= reciprocal_estimate(1.0f + exp2(-1.44269504f * t[i]));
    return gate * up;
}

} // namespace rf
