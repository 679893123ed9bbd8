// Activation functions and gated units: Activation of rf-graph.
#pragma once

#include "rf/device.h"
#include "rf/params/matvec.h"

namespace rf {

// σ(x).
RF_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
RF_DEVICE float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

// The activation function; RF_SILU and RF_CLAMPED_SWIGLU are x·σ(x) and x·σ(1.702x).
RF_DEVICE float activate(u32 activation, float x) {
    if (activation == RF_GELU_TANH) return gelu_tanh(x);
    return x / (1.0f + exp(activation == RF_CLAMPED_SWIGLU ? -1.702f * x : -x));
}

// rf_graph::reference::glu.
RF_DEVICE float gated_unit(u32 activation, float gate, float up) {
    if (activation == RF_CLAMPED_SWIGLU) {
        gate = __builtin_fminf(gate, 7.0f);
        up = __builtin_fminf(__builtin_fmaxf(up, -7.0f), 7.0f) + 1.0f;
    }
    return activate(activation, gate) * up;
}

} // namespace rf
