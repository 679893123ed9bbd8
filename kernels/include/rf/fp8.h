// Eight-bit floats E4M3 (FN): sign, four exponent bits with bias 7, three mantissa bits; no
// infinity; 0x7f is NaN. Implemented in software, so that every target computes the same bits.
#pragma once

#include "rf/device.h"

namespace rf {

// The nearest E4M3, ties to even; magnitudes above 448 become 448.
RF_DEVICE u8 fp8_e4m3_from_f32(float x) {
    u32 bits = __builtin_bit_cast(u32, x);
    u32 sign = bits >> 24 & 0x80;
    float magnitude = __builtin_fabsf(x);
    if (!(magnitude <= 448.0f)) return (u8)(sign | (magnitude > 448.0f ? 0x7e : 0x7f));
    // Below 2^-6 the code counts steps of 2^-9. Eight steps are the first normal number, whose code
    // is also 8.
    if (magnitude < 0x1p-6f) return (u8)(sign | (u32)round_even(magnitude * 0x1p9f));
    // The upper bits of a float equal those of an E4M3 except for the bias; a carry out of the
    // mantissa is correct.
    u32 code = bits & 0x7fffffffu;
    code = (code + 0x7ffffu + (code >> 20 & 1)) >> 20;
    return (u8)(sign | (code - (120u << 3)));
}

// The exact value of an E4M3; NaN becomes 480.
RF_DEVICE float fp8_e4m3_value(u8 code) {
    // Exponent and mantissa are placed in a float, which is 2^-120 times the value, subnormals
    // included.
    float magnitude = __builtin_bit_cast(float, (u32)(code & 0x7f) << 20) * 0x1p120f;
    return code & 0x80 ? -magnitude : magnitude;
}

} // namespace rf
