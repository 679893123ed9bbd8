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

// ln(1 + eˣ).
RF_DEVICE float softplus(float x) {
    return __builtin_fmaxf(x, 0.0f) + 0.693147182f * log2(1.0f + exp(-__builtin_fabsf(x)));
}

// The activation function; RF_SILU and RF_CLAMPED_SWIGLU are x·σ(x) and x·σ(1.702x).
RF_DEVICE float activate(u32 activation, float x) {
    if (activation == RF_GELU_TANH) return gelu_tanh(x);
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
    } else if (activation == RF_GELU_TANH) {
        t = 1.595769122f * (gate + 0.044715f * gate * gate * gate);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) gate[i] *= reciprocal_estimate(1.0f + exp2(-1.44269504f * t[i]));
    return gate * up;
}

} // namespace rf
