// The order of logits: larger first, and the lower index first among equal logits. A 64-bit key
// holds both; the largest key is the best, and no two keys are equal. The order is that of
// f32::total_cmp, except that NaN comes last, together with −∞.
#pragma once

#include "rf/device.h"

namespace rf {

// Less than every key.
constexpr u64 NO_KEY = 0;

// An unsigned integer with the order of the float. Positive floats lack the sign bit; negative
// floats are ordered in reverse.
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

// The best key of the wave, returned to every lane.
RF_DEVICE u64 wave_best(u64 key) {
    key = better(key, xor_lane_key<1>(key));
    key = better(key, xor_lane_key<2>(key));
    key = better(key, xor_lane_key<4>(key));
    key = better(key, xor_lane_key<8>(key));
    return better(key, xor_lane_key<16>(key));
}

} // namespace rf
