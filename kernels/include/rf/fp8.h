// Eight-bit floats E4M3 (FN): sign, four bits of exponent with bias 7, three of mantissa; no infinity; 0x7f is NaN.
// In software, so that every target gives the same bits.
#pragma once

#include "rf/device.h"

namespace rf {

// The nearest E4M3, ties to even; magnitudes beyond 448 become 448.
RF_DEVICE u8 fp8_e4m3_from_f32(float x) {
    u32 bits = __builtin_bit_cast(u32, x);
    u32 sign = bits >> 24 & 0x80;
    float magnitude = __builtin_fabsf(x);
    if (!(magnitude <= 448.0f)) return (u8)(sign | (magnitude > 448.0f ? 0x7e : 0x7f));
    // Below 2^-6 the code counts steps of 2^-9; eight of them are the first normal number, whose code is 8 as well.
    if (magnitude < 0x1p-6f) return (u8)(sign | (u32)round_even(magnitude * 0x1p9f));
    // The upper bits of a float are those of an E4M3 but for the bias; a carry out of the mantissa is right.
    u32 code = bits & 0x7fffffffu;
    code = (code + 0x7ffffu + (code >> 20 & 1)) >> 20;
    return (u8)(sign | (code - (120u << 3)));
}

// The value of an E4M3, exactly; the NaN reads as 480.
RF_DEVICE float fp8_e4m3_value(u8 code) {
    // Exponent and mantissa in their places of a float that is 2^-120 of the value; subnormals come out right too.
    float magnitude = __builtin_bit_cast(float, (u32)(code & 0x7f) << 20) * 0x1p120f;
    return code & 0x80 ? -magnitude : magnitude;
}

} // namespace rf
