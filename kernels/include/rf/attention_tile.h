// Definitions of the attention kernels that compute tiles with matrix units.
#pragma once

#include "rf/attention_score.h"
#include "rf/kv_row.h"
#include "rf/lanes.h"
#include "rf/mma_f16.h"

namespace rf {

// Weights are at most 2^WEIGHT_SHIFT, because f16 is coarse below 2^-14.
constexpr float WEIGHT_SHIFT = 10.0f;

// Queries are scaled such that the largest of a row has this exponent, which keeps the others, or
// their low parts, within the range of f16.
constexpr u32 QUERY_EXPONENT = 12;

// Prevents the compiler from moving code across this point, which would need too many registers.
RF_DEVICE void keep_order() {
    asm volatile("" ::: "memory");
#if RF_AMD
    __builtin_amdgcn_sched_barrier(0);
#endif
}

// Keeps a vector in consecutive registers. Otherwise clang places some of its elements among those
// of the matrix unit's result and extends the lifetime of the rest.
template <typename T>
RF_DEVICE void together([[maybe_unused]] T &vector) {
#if RF_GFX11 || RF_GFX12
    asm("" : "+v"(vector));
#endif
}

// The elements of keys and values in LDS.
template <RfKvType TYPE>
struct TileElement {
    using Type = f16;
};
template <>
struct TileElement<RF_KV_F32> {
    using Type = float;
};

} // namespace rf
