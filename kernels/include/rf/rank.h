// The order of logits: larger first, of equal ones the lower index first. Both in one 64-bit key, of which the
// largest is the best; no two are equal. The order is f32::total_cmp's, but that NaN comes last, with −∞.
#pragma once

#include "rf/device.h"

namespace rf {

// Below every key.
constexpr u64 NO_KEY = 0;

// Bits that order as the floats do. Positive numbers lack the sign bit, negative ones order the other way.
RF_DEVICE u32 order_of(float logit) {
    u32 bits = __builtin_bit_cast(u32, logit != logit ? -__builtin_inff() : logit);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

RF_DEVICE u64 key_of(float logit, u32 index) { return (u64)order_of(logit) << 32 | (u32)~index; }
RF_DEVICE u32 index_of(u64 key) { return ~(u32)key; }
RF_DEVICE float logit_of(u64 key) {
    u32 order = (u32)(key >> 32);
    return __builtin_bit_cast(float, order ^ (order >> 31 ? 0x80000000u : 0xffffffffu));
}

RF_DEVICE u64 better(u64 a, u64 b) { return a > b ? a : b; }

template <u32 MASK>
RF_DEVICE u64 xor_lane_key(u64 key) {
    return (u64)xor_lane<MASK>((u32)(key >> 32)) << 32 | xor_lane<MASK>((u32)key);
}

// The best of the wave, for every lane.
RF_DEVICE u64 wave_best(u64 key) {
    key = better(key, xor_lane_key<1>(key));
    key = better(key, xor_lane_key<2>(key));
    key = better(key, xor_lane_key<4>(key));
    key = better(key, xor_lane_key<8>(key));
    return better(key, xor_lane_key<16>(key));
}

} // namespace rf
