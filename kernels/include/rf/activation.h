// Activation functions of gated units: Activation of rf-graph.
#pragma once

#include "rf/device.h"
#include "rf/params/matvec.h"

namespace rf {

// x·σ(x).
RF_DEVICE float silu(float x) { return x / (1.0f + exp(-x)); }

// ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
RF_DEVICE float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

RF_DEVICE float activate(u32 activation, float x) { return activation == RF_SILU ? silu(x) : gelu_tanh(x); }

} // namespace rf
