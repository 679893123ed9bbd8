// The formats of weights: how 32 neighbouring columns of a row become 32 int8 and a scale.
//
// params/weight.h describes the planes of a matrix. crates/rf-kernels/src/pack.rs writes them, this
// file reads them. A format F has
//
//   F::NUMBER           position in DType::ALL of rf-quant
//   F::LOW, F::HIGH     bytes per block of 32 columns in the planes `low` and `high`
//   F::SCALE, F::SUPER  bytes per block in `scale`, per 256 columns in `super`
//   F::Raw              the data of one block; F::fetch(row, block) loads it, `row` from row_of
//   F::unpack(raw, q)   8 words of 4 int8, in the order of the columns
//   F::scales(raw)      the factors of the first and of the last 16 columns (equal unless
//                       F::HALVES), and their minima (0 unless F::MINIMA)
//
// so that w[i] = scale[i / 16] · q[i] − minimum[i / 16]. Signed values sit at the top of the byte
// in two's complement, which needs no sign extension. The scale includes the resulting power of
// two.
//
// A format with F::PARTS == 2 has values that exceed a byte: w[i] = scale · (q[i] + F::LARGE ·
// h[i]), h by F::unpack_large(raw, h).
//
// format_table.h lists the formats. RF_*_FORMATS(X) expands X(kernel name, F, number) for each
// format of a family.
#pragma once

#include "rf/formats_codebook.h"
#include "rf/format_table.h"
#include "rf/planes.h"

#define RF_NO_FORMAT(NAME, FORMAT, N)
#define RF_FLOAT_FORMATS(X) RF_FORMATS(X, RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT)
#define RF_BLOCK32_FORMATS(X) RF_FORMATS(RF_NO_FORMAT, X, RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT)
#define RF_K_QUANT_FORMATS(X) RF_FORMATS(RF_NO_FORMAT, RF_NO_FORMAT, X, RF_NO_FORMAT, RF_NO_FORMAT)
#define RF_MICROSCALING_FORMATS(X) RF_FORMATS(RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT, X, RF_NO_FORMAT)
#define RF_CODEBOOK_FORMATS(X) RF_FORMATS(RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT, RF_NO_FORMAT, X)

namespace rf {

// The low four bits of a value, with the sign bit of Q4_0 inverted to two's complement.
struct Q4_0 : detail::NibblesAndScale {
    static constexpr u32 NUMBER = 3;
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 4; j++) {
            q[j] = (raw.low[j] << 4) & 0xf0f0f0f0u;
            q[j + 4] = raw.low[j] & 0xf0f0f0f0u;
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.scale) * 0x1p-4f);
    }
};

// Values 0 … 15; scale and negated minimum are adjacent.
struct Q4_1 {
    static constexpr u32 NUMBER = 4;
    static constexpr u32 LOW = 16, HIGH = 0, SCALE = 4, SUPER = 0;
    static constexpr bool MINIMA = true, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { detail::nibbles(raw.low, q); }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::scale_and_minimum(f16_low(raw.scale), -f16_high(raw.scale));
    }
};

// Five bits, two's complement, shifted left by three.
struct Q5_0 {
    static constexpr u32 NUMBER = 5;
    static constexpr u32 LOW = 16, HIGH = 4, SCALE = 2, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32 high;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32>(row.high, block), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 4; j++) {
            q[j] = ((raw.low[j] << 3) & 0x78787878u) | detail::bit_at(raw.high, j, 7);
            q[j + 4] = ((raw.low[j] >> 1) & 0x78787878u) | detail::bit_at(raw.high, j + 4, 7);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.scale) * 0x1p-3f);
    }
};

// Values 0 … 31.
struct Q5_1 {
    static constexpr u32 NUMBER = 6;
    static constexpr u32 LOW = 16, HIGH = 4, SCALE = 4, SUPER = 0;
    static constexpr bool MINIMA = true, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32 high;
        u32 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32>(row.high, block), at<u32>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        detail::nibbles(raw.low, q);
        for (u32 j = 0; j < 8; j++) q[j] |= detail::bit_at(raw.high, j, 4);
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::scale_and_minimum(f16_low(raw.scale), -f16_high(raw.scale));
    }
};

// Unmodified bytes; the first 16 of every block in `low`, the last 16 in `high`.
struct Q8_0 {
    static constexpr u32 NUMBER = 7;
    static constexpr u32 LOW = 16, HIGH = 16, SCALE = 2, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32x4 high;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32x4>(row.high, block), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 4; j++) {
            q[j] = raw.low[j];
            q[j + 4] = raw.high[j];
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.scale));
    }
};

// Indices of 16 values: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
struct Iq4Nl : detail::NibblesAndScale {
    static constexpr u32 NUMBER = 16;
    RF_DEVICE_MEMBER static void values(u32x4 low, u32 q[8]) {
        constexpr u32 VALUES[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
        detail::look_up_nibbles(VALUES, low, q);
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { values(raw.low, q); }
#if RF_NVIDIA
    RF_DEVICE_MEMBER static void split_values(u32x4 low, u32 plus[8], u32 minus[8]) {
        detail::split_nibbles({0x4153687fu, 0x0a162331u}, {0x26190d01u, 0x71594535u}, low, minus, plus);
    }
    RF_DEVICE_MEMBER static void split(const Raw &raw, u32 plus[8], u32 minus[8]) { split_values(raw.low, plus, minus); }
#endif
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.scale));
    }
};

// The indices of Iq4Nl; a signed byte per block, d per 256.
struct Iq4Xs {
    static constexpr u32 NUMBER = 17;
    static constexpr u32 LOW = 16, HIGH = 0, SCALE = 1, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u16 super;
        u8 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u16>(row.super_scale, block / 8), at<u8>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { Iq4Nl::values(raw.low, q); }
#if RF_NVIDIA
    RF_DEVICE_MEMBER static void split(const Raw &raw, u32 plus[8], u32 minus[8]) {
        Iq4Nl::split_values(raw.low, plus, minus);
    }
#endif
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super) * (float)(i8)raw.scale);
    }
};

// Ternary: codes of two bits as in Q2K, one more than the value; d per 256.
struct Tq2_0 {
    static constexpr u32 NUMBER = 25;
    static constexpr u32 LOW = 8, HIGH = 0, SCALE = 0, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x2 low;
        u16 super;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u16>(row.super_scale, block / 8)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        constexpr u32 VALUES = 0x020100ffu;
        for (u32 j = 0; j < 8; j++) q[j] = detail::select_bytes(0, VALUES, (raw.low[j / 4] >> 2 * (j % 4)) & 0x03030303u);
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super));
    }
};

// The codes of Tq2_0; d per 64.
struct Q2_0 : Tq2_0 {
    static constexpr u32 NUMBER = 29;
    static constexpr u32 SUPER = 8;
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u16>(row.super_scale, block / 2)};
    }
};

// Signs: a bit per value, where 1 is d and 0 is -d; d per 128.
struct Q1_0 {
    static constexpr u32 NUMBER = 28;
    static constexpr u32 LOW = 4, HIGH = 0, SCALE = 0, SUPER = 4;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32 low;
        u16 super;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32>(row.low, block), at<u16>(row.super_scale, block / 4)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        constexpr u32 VALUES = 0x000001ffu;
        for (u32 j = 0; j < 8; j++) q[j] = detail::select_bytes(0, VALUES, detail::bit_at(raw.low, j, 0));
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super));
    }
};

// The planes of Tq2_0: the host unpacks five values per byte, which are no whole number of words.
struct Tq1_0 : Tq2_0 {
    static constexpr u32 NUMBER = 26;
};

// Two bits: bits 2j and 2j + 1 of byte i of word h belong to column 16h + 4j + i. One byte per 16
// columns holds the scale in the low nibble and the minimum in the high one; d and dmin per 256.
struct Q2K {
    static constexpr u32 NUMBER = 8;
    static constexpr u32 LOW = 8, HIGH = 0, SCALE = 2, SUPER = 4;
    static constexpr bool MINIMA = true, HALVES = true;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x2 low;
        u32 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u32>(row.super_scale, block / 8), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 8; j++) q[j] = (raw.low[j / 4] >> 2 * (j % 4)) & 0x03030303u;
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        float d = f16_low(raw.super), dmin = f16_high(raw.super);
        u32 first = raw.scale & 0xff, last = raw.scale >> 8;
        return {{d * (float)(first & 15), d * (float)(last & 15)},
                {dmin * (float)(first >> 4), dmin * (float)(last >> 4)}};
    }
};

// Three bits, two's complement, at the top of the byte: one in `high`, two in `low`. A signed byte
// per 16 columns, d per 256.
struct Q3K {
    static constexpr u32 NUMBER = 9;
    static constexpr u32 LOW = 8, HIGH = 4, SCALE = 2, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = true;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x2 low;
        u32 high;
        u16 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u32>(row.high, block), at<u16>(row.super_scale, block / 8),
                at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 8; j++) {
            u32 pair = detail::pair_at_top(raw.low[j / 4], j % 4) >> 1;
            q[j] = detail::bit_at(raw.high, j, 7) | pair;
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        float d = f16_value(raw.super) * 0x1p-5f;
        return {{d * (float)(i8)raw.scale, d * (float)(i8)(raw.scale >> 8)}, {0.0f, 0.0f}};
    }
};

// Values 0 … 15; six-bit scale and minimum in a byte each; d and dmin per 256.
struct Q4K {
    static constexpr u32 NUMBER = 10;
    static constexpr u32 LOW = 16, HIGH = 0, SCALE = 2, SUPER = 4;
    static constexpr bool MINIMA = true, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32>(row.super_scale, block / 8), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { detail::nibbles(raw.low, q); }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::scale_and_minimum(f16_low(raw.super) * (float)(raw.scale & 0xff),
                                         f16_high(raw.super) * (float)(raw.scale >> 8));
    }
};

// As Q4K, with a fifth bit.
struct Q5K {
    static constexpr u32 NUMBER = 11;
    static constexpr u32 LOW = 16, HIGH = 4, SCALE = 2, SUPER = 4;
    static constexpr bool MINIMA = true, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32 high;
        u32 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32>(row.high, block), at<u32>(row.super_scale, block / 8),
                at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        detail::nibbles(raw.low, q);
        for (u32 j = 0; j < 8; j++) q[j] |= detail::bit_at(raw.high, j, 4);
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::scale_and_minimum(f16_low(raw.super) * (float)(raw.scale & 0xff),
                                         f16_high(raw.super) * (float)(raw.scale >> 8));
    }
};

// Six bits, two's complement, shifted left by two. A signed byte per 16 columns, d per 256.
struct Q6K {
    static constexpr u32 NUMBER = 12;
    static constexpr u32 LOW = 16, HIGH = 8, SCALE = 2, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = true;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u32x2 high;
        u16 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32x2>(row.high, block), at<u16>(row.super_scale, block / 8),
                at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 4; j++) {
            q[j] = ((raw.low[j] << 2) & 0x3c3c3c3cu) | detail::pair_at_top(raw.high[0], j);
            q[j + 4] = ((raw.low[j] >> 2) & 0x3c3c3c3cu) | detail::pair_at_top(raw.high[1], j);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        float d = f16_value(raw.super) * 0x1p-2f;
        return {{d * (float)(i8)raw.scale, d * (float)(i8)(raw.scale >> 8)}, {0.0f, 0.0f}};
    }
};

namespace detail {

// 2^(e − 127) of an E8M0 byte; 0 is 2^-127, 255 NaN.
RF_DEVICE float e8m0(u8 e) {
    u32 bits = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (u32)e << 23;
    return __builtin_bit_cast(float, bits);
}

// 2^(e − 128), the factor of doubled elements in ggml: 0 and 1 are subnormal, and 255 is a number.
RF_DEVICE float e8m0_halved(u8 e) {
    u32 bits = e < 2 ? 0x00200000u << e : ((u32)e - 1) << 23;
    return __builtin_bit_cast(float, bits);
}

} // namespace detail

// E2M1 codes of a sign and three bits of magnitude: twice the value is 0 1 2 3 4 6 8 12.
struct Mxfp4 {
    static constexpr u32 NUMBER = 13;
    static constexpr u32 LOW = 16, HIGH = 0, SCALE = 1, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u8 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u8>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void values(u32x4 low, u32 q[8]) {
        constexpr u32 VALUES[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
        detail::look_up_nibbles(VALUES, low, q);
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { values(raw.low, q); }
#if RF_NVIDIA
    RF_DEVICE_MEMBER static void split_values(u32x4 low, u32 plus[8], u32 minus[8]) {
        constexpr u32x2 MAGNITUDES = {0x03020100u, 0x0c080604u};
        detail::split_nibbles(MAGNITUDES, MAGNITUDES, low, plus, minus);
    }
    RF_DEVICE_MEMBER static void split(const Raw &raw, u32 plus[8], u32 minus[8]) { split_values(raw.low, plus, minus); }
#endif
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(detail::e8m0_halved(raw.scale));
    }
};

// The codes of Mxfp4; an E4M3 without sign per 16 columns.
struct Nvfp4 : detail::NibblesAndScale {
    static constexpr u32 NUMBER = 27;
    static constexpr bool HALVES = true;
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) { Mxfp4::values(raw.low, q); }
    // Half of the value of a code, whose bits in a float are 2^-120 times the value.
    RF_DEVICE_MEMBER static float half(u32 code) { return __builtin_bit_cast(float, code << 20) * 0x1p119f; }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return {{half(raw.scale & 0xff), half(raw.scale >> 8)}, {0.0f, 0.0f}};
    }
};

namespace detail {

struct SixBitRaw {
    u32x4 low;
    u32x2 high;
    u8 scale;
};

// Words of four six-bit codes: four bits in `low` as nibbles, two in `high` as in Q6K.
RF_DEVICE u32 six_bit_codes(const SixBitRaw &raw, u32 j) {
    u32 low = j < 4 ? raw.low[j] & 0x0f0f0f0fu : (raw.low[j - 4] >> 4) & 0x0f0f0f0fu;
    return low | pair_at_top(raw.high[j / 4], j % 4) >> 2;
}

// 1 in every byte that is 0; bytes are below 0x80.
RF_DEVICE u32 zero_bytes(u32 bytes) { return (~(bytes + 0x7f7f7f7fu) >> 7) & 0x01010101u; }

// Negates the bytes of `magnitude` (below 0x80) where `sign` has a 1: −m = (m ^ 0xff) + 1. Only m =
// 0 carries into the next byte, so it is excluded.
RF_DEVICE u32 negate(u32 magnitude, u32 sign) {
    u32 negative = sign & ~zero_bytes(magnitude);
    return (magnitude ^ (negative * 0xff)) + negative;
}

} // namespace detail

// E2M3: eight times the value is at most 60.
struct Mxfp6E2M3 {
    static constexpr u32 NUMBER = 14;
    static constexpr u32 LOW = 16, HIGH = 8, SCALE = 1, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    using Raw = detail::SixBitRaw;
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u32x2>(row.high, block), at<u8>(row.scale, block)};
    }
    // Exponents 0 and 1: the code c itself; 2: 2c − 16; 3: 4c − 64.
    RF_DEVICE_MEMBER static u32 values(u32 codes) {
        u32 c = codes & 0x1f1f1f1fu;
        u32 e = (c >> 3) & 0x03030303u;
        u32 two = (e >> 1) & ~e & 0x01010101u, three = (e >> 1) & e & 0x01010101u;
        u32 magnitude = c + (c & (two * 0x1f)) + (c & (three * 0x1f)) * 3 - (two << 4) - (three << 6);
        return detail::negate(magnitude, (codes >> 5) & 0x01010101u);
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        for (u32 j = 0; j < 8; j++) q[j] = values(detail::six_bit_codes(raw, j));
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(detail::e8m0(raw.scale) * 0.125f);
    }
};

// E3M2: sixteen times the value is at most 448. Exponents 0 … 4 reach 56; values of larger
// exponents are multiples of 16.
struct Mxfp6E3M2 {
    static constexpr u32 NUMBER = 15;
    static constexpr u32 LOW = 16, HIGH = 8, SCALE = 1, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 2;
    static constexpr i32 LARGE = 16;
    using Raw = detail::SixBitRaw;
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) { return Mxfp6E2M3::fetch(row, block); }
    // The magnitude of exponent e is (4 + m)·2^(e − 1), and m for e = 0. `LARGER` selects exponents
    // of at least 5 and returns sixteenths of the magnitude.
    template <bool LARGER>
    RF_DEVICE_MEMBER static u32 values(u32 codes) {
        u32 result = 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 code = codes >> 8 * i, e = (code >> 2) & 7, m = code & 3;
            u32 small = e == 0 ? m : (4 + m) << (e - 1);
            u32 large = (4 + m) << ((e - 5) & 3);
            u32 magnitude = LARGER ? (e >= 5 ? large : 0) : (e >= 5 ? 0 : small);
            u32 value = code & 0x20 ? 0 - magnitude : magnitude;
            result |= (value & 0xff) << 8 * i;
        }
        return result;
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) q[j] = values<false>(detail::six_bit_codes(raw, j));
    }
    RF_DEVICE_MEMBER static void unpack_large(const Raw &raw, u32 h[8]) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) h[j] = values<true>(detail::six_bit_codes(raw, j));
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(detail::e8m0(raw.scale) * 0.0625f);
    }
};

#define RF_CHECK_NUMBER(NAME, FORMAT, N) \
    static_assert(FORMAT::NUMBER == N, #FORMAT " has another number in rf-quant");
RF_FORMATS(RF_NO_FORMAT, RF_CHECK_NUMBER, RF_CHECK_NUMBER, RF_CHECK_NUMBER, RF_CHECK_NUMBER)
#undef RF_CHECK_NUMBER

} // namespace rf
