// Hardware approximations, where a correctly rounded result would take ten times as long.
#pragma once

#include "rf/device.h"

namespace rf {

// 1/x within 1 ulp (NVIDIA: 2); infinite for subnormals.
RF_DEVICE float reciprocal_estimate(float x) {
#if RF_AMD
    return __builtin_amdgcn_rcpf(x);
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

} // namespace rf
