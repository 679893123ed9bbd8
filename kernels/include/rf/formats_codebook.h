// The IQ formats below four bits: indices of points in a codebook, scales, and signs.
//
// formats.h describes the interface. A format with a codebook also has
//
//   F::POINTS         the number of points, a multiple of 8
//   F::points()       the points: eight codes of two bits, of which nibble i has codes i and i + 4,
//                     or four of three bits in nibbles
//
// load_grid<F> copies the points to LDS, from which `unpack` reads them: lanes read different
// points, and LDS serves them faster than a cache.
#pragma once

#include "rf/grids.h"
#include "rf/planes.h"

namespace rf {

template <typename F>
concept HasGrid = requires { F::POINTS; };

namespace detail {

// The points of a format in LDS.
template <typename F>
RF_DEVICE u16 *grid() {
    alignas(16) RF_SHARED static u16 points[F::POINTS];
    return points;
}

} // namespace detail

// Prepares `unpack` of a format in a workgroup of `threads` threads. All of them call it.
template <typename F>
RF_DEVICE void load_grid(u32 threads) {
    if constexpr (HasGrid<F>) {
        u32x4 *points = reinterpret_cast<u32x4 *>(detail::grid<F>());
        for (u32 i = thread_x(); i < F::POINTS / 8; i += threads) points[i] = at<u32x4>(F::points(), i);
        barrier();
    }
}

namespace detail {

// A codebook whose points have codes of two bits in order, with codes i and i + 4 in nibble i: the
// eight codes of a point then become bytes with fewer operations.
template <u32 COUNT>
struct PairedGrid {
    u16 points[COUNT];
    constexpr PairedGrid(const u16 (&in_order)[COUNT]) : points{} {
        for (u32 p = 0; p < COUNT; p++)
            for (u32 i = 0; i < 4; i++) {
                u32 first = in_order[p] >> 2 * i & 3, second = in_order[p] >> (2 * i + 8) & 3;
                points[p] = (u16)(points[p] | (first | second << 2) << 4 * i);
            }
    }
};

RF_CONSTANT PairedGrid<256> PAIRS_IQ2_XXS{GRID_IQ2_XXS};
RF_CONSTANT PairedGrid<512> PAIRS_IQ2_XS{GRID_IQ2_XS};
RF_CONSTANT PairedGrid<1024> PAIRS_IQ2_S{GRID_IQ2_S};
RF_CONSTANT PairedGrid<2048> PAIRS_IQ1{GRID_IQ1};

// The eight codes of a point of a PairedGrid as bytes.
RF_DEVICE void spread_pairs(u32 point, u32 codes[2]) {
    u32 halves = (point | point << 8) & 0x00ff00ffu;
    u32 pairs = halves | halves << 4;
    codes[0] = pairs & 0x03030303u;
    codes[1] = (pairs >> 2) & 0x03030303u;
}

// Four codes of a nibble as bytes.
RF_DEVICE u32 spread_nibbles(u32 codes) {
    u32 halves = (codes | codes << 8) & 0x00ff00ffu;
    return (halves | halves << 4) & 0x0f0f0f0fu;
}

// Negates byte i of `magnitudes`, none of which is 0, if bit i of `signs` is set.
RF_DEVICE u32 apply_signs(u32 magnitudes, u32 signs) {
    u32 pairs = signs | signs << 7;
    u32 negative = (pairs | pairs << 14) & 0x01010101u;
    return (magnitudes ^ ((negative << 8) - negative)) + negative;
}

// The signs of eight values from the low 7 bits: an even number of them is negative.
RF_DEVICE u32 even_signs(u32 bits) {
    u32 seven = bits & 127;
    return seven | ((u32)__builtin_popcount(seven) & 1) << 7;
}

// Eight values of the IQ2 formats from a point: 8, 25 or 43 and a sign each.
RF_DEVICE void iq2_values(u32 point, u32 signs, u32 q[2]) {
    constexpr u32 MAGNITUDES = 0x002b1908u;
    u32 codes[2];
    spread_pairs(point, codes);
    q[0] = apply_signs(select_bytes(0, MAGNITUDES, codes[0]), signs & 15);
    q[1] = apply_signs(select_bytes(0, MAGNITUDES, codes[1]), signs >> 4);
}

// Eight values of the IQ1 formats in eighths: -8, 0 or 8, plus or minus 1.
RF_DEVICE void iq1_values(u32 point, bool shift_is_negative, u32 q[2]) {
    u32 values = shift_is_negative ? 0x0007fff7u : 0x000901f9u;
    u32 codes[2];
    spread_pairs(point, codes);
    q[0] = select_bytes(0, values, codes[0]);
    q[1] = select_bytes(0, values, codes[1]);
}

// d · unit · (2s + 1), for scales in the low and the high nibble of a byte.
RF_DEVICE BlockScales odd_scales(float d, u32 nibbles) {
    return {{d * (float)(2 * (nibbles & 15) + 1), d * (float)(2 * (nibbles >> 4) + 1)}, {0.0f, 0.0f}};
}

} // namespace detail

// Eight indices of 8 bits per block in `low`, a ninth bit of each in the first byte of `scale`,
// the scale in the second; signs in `high`; d per 256.
struct Iq3S {
    static constexpr u32 NUMBER = 18;
    static constexpr u32 LOW = 8, HIGH = 4, SCALE = 2, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 512;
    RF_DEVICE_MEMBER static const u16 *points() { return GRID_IQ3_S; }
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
        const u16 *grid = detail::grid<Iq3S>();
        for (u32 j = 0; j < 8; j++) {
            u32 index = (raw.low[j / 4] >> 8 * (j % 4) & 0xff) | (raw.scale >> j & 1u) << 8;
            u32 magnitudes = detail::spread_nibbles(grid[index]) << 1 | 0x01010101u;
            q[j] = detail::apply_signs(magnitudes, raw.high >> 4 * j & 15);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super) * (float)(2 * (raw.scale >> 8) + 1));
    }
};

// Eight indices per block in `low`, four times 7 signs and the scale in `high`; d per 256.
struct Iq3Xxs {
    static constexpr u32 NUMBER = 19;
    static constexpr u32 LOW = 8, HIGH = 4, SCALE = 0, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 256;
    RF_DEVICE_MEMBER static const u16 *points() { return GRID_IQ3_XXS; }
    struct Raw {
        u32x2 low;
        u32 high;
        u16 super;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u32>(row.high, block), at<u16>(row.super_scale, block / 8)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        // 4 12 20 28 36 44 52 62.
        constexpr u32 BELOW_4 = 0x1c140c04u, ABOVE_4 = 0x3e342c24u;
        const u16 *grid = detail::grid<Iq3Xxs>();
        for (u32 j = 0; j < 8; j++) {
            u32 codes = detail::spread_nibbles(grid[raw.low[j / 4] >> 8 * (j % 4) & 0xff]);
            u32 signs = detail::even_signs(raw.high >> 7 * (j / 2));
            u32 four = j % 2 ? signs >> 4 : signs & 15;
            q[j] = detail::apply_signs(detail::select_bytes(ABOVE_4, BELOW_4, codes), four);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super) * 0.25f * (float)(2 * (raw.high >> 28) + 1));
    }
};

// Four indices per block in the first word of `low`, four times 8 signs in the second. Bits 8 and 9
// of the indices in the first byte of `scale`, two scales in the second; d per 256.
struct Iq2S {
    static constexpr u32 NUMBER = 20;
    static constexpr u32 LOW = 8, HIGH = 0, SCALE = 2, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = true;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 1024;
    RF_DEVICE_MEMBER static const u16 *points() { return detail::PAIRS_IQ2_S.points; }
    struct Raw {
        u32x2 low;
        u16 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u16>(row.super_scale, block / 8), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        const u16 *grid = detail::grid<Iq2S>();
        for (u32 i = 0; i < 4; i++) {
            u32 index = (raw.low[0] >> 8 * i & 0xff) | (raw.scale >> 2 * i & 3u) << 8;
            detail::iq2_values(grid[index], raw.low[1] >> 8 * i & 0xff, q + 2 * i);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::odd_scales(f16_value(raw.super) * 0.125f, raw.scale >> 8);
    }
};

// Four u16 per block in `low`: 9 bits of index, 7 signs. Two scales in `scale`; d per 256.
struct Iq2Xs {
    static constexpr u32 NUMBER = 21;
    static constexpr u32 LOW = 8, HIGH = 0, SCALE = 1, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = true;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 512;
    RF_DEVICE_MEMBER static const u16 *points() { return detail::PAIRS_IQ2_XS.points; }
    struct Raw {
        u32x2 low;
        u16 super;
        u8 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u16>(row.super_scale, block / 8), at<u8>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        const u16 *grid = detail::grid<Iq2Xs>();
        for (u32 i = 0; i < 4; i++) {
            u32 code = raw.low[i / 2] >> 16 * (i % 2) & 0xffff;
            detail::iq2_values(grid[code & 511], detail::even_signs(code >> 9), q + 2 * i);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::odd_scales(f16_value(raw.super) * 0.125f, raw.scale);
    }
};

// Four indices per block in the first word of `low`, four times 7 signs and the scale in the
// second; d per 256.
struct Iq2Xxs {
    static constexpr u32 NUMBER = 22;
    static constexpr u32 LOW = 8, HIGH = 0, SCALE = 0, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 256;
    RF_DEVICE_MEMBER static const u16 *points() { return detail::PAIRS_IQ2_XXS.points; }
    struct Raw {
        u32x2 low;
        u16 super;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x2>(row.low, block), at<u16>(row.super_scale, block / 8)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        const u16 *grid = detail::grid<Iq2Xxs>();
        for (u32 i = 0; i < 4; i++) {
            u32 point = grid[raw.low[0] >> 8 * i & 0xff];
            detail::iq2_values(point, detail::even_signs(raw.low[1] >> 7 * i), q + 2 * i);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super) * 0.125f * (float)(2 * (raw.low[1] >> 28) + 1));
    }
};

// Four indices per block in `low`. A nibble of `high` for each: bits 8 to 10 of the index, and
// whether the shift is negative. Two scales in `scale`; d per 256.
struct Iq1M {
    static constexpr u32 NUMBER = 23;
    static constexpr u32 LOW = 4, HIGH = 2, SCALE = 1, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = true;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 2048;
    RF_DEVICE_MEMBER static const u16 *points() { return detail::PAIRS_IQ1.points; }
    struct Raw {
        u32 low;
        u16 high;
        u16 super;
        u8 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32>(row.low, block), at<u16>(row.high, block), at<u16>(row.super_scale, block / 8),
                at<u8>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        const u16 *grid = detail::grid<Iq1M>();
        for (u32 i = 0; i < 4; i++) {
            u32 high = raw.high >> 4 * i & 15u;
            u32 index = (raw.low >> 8 * i & 0xff) | (high & 7) << 8;
            detail::iq1_values(grid[index], high & 8, q + 2 * i);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::odd_scales(f16_value(raw.super) * 0.125f, raw.scale);
    }
};

// Four indices per block in `low`. In `scale` bits 8 to 10 of each index, a scale of 3 bits, and
// whether the shift is negative; d per 256.
struct Iq1S {
    static constexpr u32 NUMBER = 24;
    static constexpr u32 LOW = 4, HIGH = 0, SCALE = 2, SUPER = 2;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    static constexpr u32 POINTS = 2048;
    RF_DEVICE_MEMBER static const u16 *points() { return detail::PAIRS_IQ1.points; }
    struct Raw {
        u32 low;
        u16 super;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32>(row.low, block), at<u16>(row.super_scale, block / 8), at<u16>(row.scale, block)};
    }
    RF_DEVICE_MEMBER static void unpack(const Raw &raw, u32 q[8]) {
        const u16 *grid = detail::grid<Iq1S>();
        for (u32 i = 0; i < 4; i++) {
            u32 index = (raw.low >> 8 * i & 0xff) | (raw.scale >> 3 * i & 7u) << 8;
            detail::iq1_values(grid[index], raw.scale & 0x8000, q + 2 * i);
        }
    }
    RF_DEVICE_MEMBER static BlockScales scales(const Raw &raw) {
        return detail::one_scale(f16_value(raw.super) * 0.125f * (float)(2 * (raw.scale >> 12 & 7) + 1));
    }
};

} // namespace rf
