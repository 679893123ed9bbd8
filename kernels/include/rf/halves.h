// Activations and weights as f16, in the order of the f16 matmul.
//
// A block of 32 columns has 16 words of two columns. Word 4j + h, h = 0 or 1, has columns
// 16h + 4j and 16h + 4j + 2, word 4j + 2 + h the columns after these. Words of four int8 then
// become words of two f16 without exchanging bytes: even and odd bytes are masked and shifted
// together.
//
// Activations x are stored as x / scale with one scale per row, a power of two that brings the
// largest magnitude of the row to 2^13 … 2^14. Weights are multiplied by a power of two per matrix,
// their unit (RfProjection), which does the same: values down to 2^-28 of the largest one keep
// their precision.
#pragma once

#include "rf/formats.h"
#include "rf/mma_f16.h"
#include "rf/params/rows.h"

namespace rf {

// The words of a block.
constexpr u32 HALF_WORDS = 16;

namespace detail {

RF_DEVICE f16x2 pair(u32 word) { return __builtin_bit_cast(f16x2, word); }
RF_DEVICE u32 word(f16x2 pair) { return __builtin_bit_cast(u32, pair); }
RF_DEVICE f16x2 both(float value) { return f16x2{(f16)value, (f16)value}; }

// Bytes 0 and 2 (ODD: 1 and 3) of a word of codes 0 … 31, as 32 + code: the code is at bit 5 of an
// f16 whose unit is 2^-5.
template <bool ODD>
RF_DEVICE f16x2 small_codes(u32 codes) {
    return pair(((ODD ? codes >> 3 : codes << 5) & 0x03e003e0u) | 0x50005000u);
}

// Bytes 0 and 2 (ODD: 1 and 3) of a word of four int8. Exact: 1024 + 128 + q has the unit 1.
template <bool ODD>
RF_DEVICE f16x2 signed_codes(u32 q) {
    u32 biased = q ^ 0x80808080u;
    f16x2 shifted = pair(((ODD ? biased >> 8 : biased) & 0x00ff00ffu) | 0x64006400u);
    return shifted - f16x2{(f16)1152.0f, (f16)1152.0f};
}

} // namespace detail

// A quantised format with halves(raw, unit, out), which computes the words of a block times `unit`.
//
// Errors: 2^-12 of a weight; with minima also 0.012 of a step, by the rounding of the offset
// −32 · scale − minimum.
template <typename F>
struct Halves : F {
    RF_DEVICE_MEMBER static void halves(const typename F::Raw &raw, float unit, u32 (&out)[HALF_WORDS]);
    // Prepares `halves` in a workgroup of `threads` threads.
    RF_DEVICE_MEMBER static void prepare(u32 threads) { load_grid<F>(threads); }
    // How many threads should load a block, such that a wave reads whole sectors of memory.
    static constexpr u32 BLOCK_THREADS = 1;
    // Whether blocks are operands of matrix units as stored.
    static constexpr bool COPIED = false;
};

template <typename F>
inline __attribute__((device, always_inline)) void Halves<F>::halves(const typename F::Raw &raw, float unit,
                                                                    u32 (&out)[HALF_WORDS]) {
    BlockScales s = F::scales(raw);
    u32 q[8];
    F::unpack(raw, q);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        float factor = s.scale[h] * unit;
        f16x2 scale = detail::both(factor), offset = {};
        if constexpr (F::MINIMA) offset = detail::both(fma(-32.0f, factor, -unit * s.minimum[h]));
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 codes = q[4 * h + j];
            f16x2 even, odd;
            if constexpr (F::MINIMA) {
                even = __builtin_elementwise_fma(detail::small_codes<false>(codes), scale, offset);
                odd = __builtin_elementwise_fma(detail::small_codes<true>(codes), scale, offset);
            } else {
                even = detail::signed_codes<false>(codes), odd = detail::signed_codes<true>(codes);
                even = even * scale, odd = odd * scale;
            }
            out[4 * j + h] = detail::word(even);
            out[4 * j + 2 + h] = detail::word(odd);
        }
    }
}

// FP6 codes: sign, exponent and mantissa move to the fields of an f16. Its value is 2^(BIAS - 15)
// times that of the code, also where both are subnormal, so the product with `normal` is exact.
template <u32 MANTISSA_BITS, u32 BIAS>
RF_DEVICE void six_bit_halves(const detail::SixBitRaw &raw, float unit, u32 (&out)[HALF_WORDS]) {
    f16x2 normal = detail::both((float)(1u << (15 - BIAS))), scale = detail::both(detail::e8m0(raw.scale) * unit);
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 h = i / 4, j = i % 4;
        // Bytes with the sign at bit 7, and with the other five bits of a code.
        u32 signs = raw.high[h] << 2 * j, low = h == 0 ? raw.low[j] : raw.low[j] >> 4;
        u32 magnitudes = (low & 0x0f0f0f0fu) | ((signs >> 2) & 0x10101010u);
        u32 even, odd;
        if constexpr (MANTISSA_BITS == 2) {
            // A byte is the upper one of its f16.
            u32 bytes = magnitudes | (signs & 0x80808080u);
            even = detail::select_bytes(0, bytes, 0x02040004u), odd = bytes & 0xff00ff00u;
        } else {
            even = ((magnitudes << 7) & 0x0f800f80u) | ((signs << 8) & 0x80008000u);
            odd = ((magnitudes >> 1) & 0x0f800f80u) | (signs & 0x80008000u);
        }
        out[4 * j + h] = detail::word(detail::pair(even) * normal * scale);
        out[4 * j + 2 + h] = detail::word(detail::pair(odd) * normal * scale);
    }
}

template <>
inline __attribute__((device, always_inline)) void Halves<Mxfp6E2M3>::halves(const Raw &raw, float unit,
                                                                            u32 (&out)[HALF_WORDS]) {
    six_bit_halves<3, 1>(raw, unit, out);
}

template <>
inline __attribute__((device, always_inline)) void Halves<Mxfp6E3M2>::halves(const Raw &raw, float unit,
                                                                            u32 (&out)[HALF_WORDS]) {
    six_bit_halves<2, 3>(raw, unit, out);
}

// The same members for weights of 16 bits.
struct FloatHalves {
    static constexpr u32 LOW = 64, HIGH = 0, SCALE = 0, SUPER = 0;
    static constexpr bool COPIED = false;
    struct Raw {
        u32x4 part[4];
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        Raw raw;
#pragma unroll
        for (u32 i = 0; i < 4; i++) raw.part[i] = at<u32x4>(row.low, block * 4 + i);
        return raw;
    }
    RF_DEVICE_MEMBER static void prepare(u32) {}

    // The columns of words 4j … 4j + 3 of the result, for j of BLOCK_THREADS.
    static constexpr u32 BLOCK_THREADS = 4;
    struct Part {
        u32x2 half[2];
    };
    RF_DEVICE_MEMBER static Part fetch_part(const RfWeight &weight, u32 row_block, u32 block, u32 j) {
        const u8 *from = static_cast<const u8 *>(weight.low) + (block * LOW + 8 * j) + (u64)row_block * LOW;
        return {{at<u32x2>(from, 0), at<u32x2>(from, 4)}};
    }
};
// Weights of 16 bits, of which `pairs` makes the word of the even and that of the odd columns from
// those of the columns (0, 1) and (2, 3).
template <typename Format>
struct FloatHalvesOf : FloatHalves {
    RF_DEVICE_MEMBER static u32x4 part_halves(const Part &part, float unit) {
        u32x2 first = Format::pairs(part.half[0], unit), second = Format::pairs(part.half[1], unit);
        return u32x4{first[0], second[0], first[1], second[1]};
    }
    RF_DEVICE_MEMBER static void halves(const Raw &raw, float unit, u32 (&out)[HALF_WORDS]) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32x2 half[2];
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                u32 word = 8 * h + 2 * j;
                half[h] = u32x2{raw.part[word / 4][word % 4], raw.part[word / 4][word % 4 + 1]};
            }
            u32x4 words = part_halves(Part{{half[0], half[1]}}, unit);
#pragma unroll
            for (u32 i = 0; i < 4; i++) out[4 * j + i] = words[i];
        }
    }
};
// Exact; the unit is 1.
struct F16Halves : FloatHalvesOf<F16Halves> {
    RF_DEVICE_MEMBER static u32x2 pairs(u32x2 words, float) {
        return u32x2{detail::select_bytes(words[1], words[0], 0x05040100u),
                     detail::select_bytes(words[1], words[0], 0x07060302u)};
    }
};
// The same for activations in the order of columns.
struct F16Natural : FloatHalves {
    static constexpr bool COPIED = true;
    using Part = u32x4;
    RF_DEVICE_MEMBER static Part fetch_part(const RfWeight &weight, u32 row_block, u32 block, u32 j) {
        return at<u32x4>(static_cast<const u8 *>(weight.low) + (u64)row_block * LOW, block * 4 + j);
    }
    RF_DEVICE_MEMBER static u32x4 part_halves(const Part &part, float) { return part; }
};
// Exact for weights whose eight bits a normal f16 has.
struct Bf16Halves : FloatHalvesOf<Bf16Halves> {
    RF_DEVICE_MEMBER static u32x2 pairs(u32x2 words, float unit) {
        auto low = [unit](u32 word) { return bf16_value((u16)word) * unit; };
        auto high = [unit](u32 word) { return bf16_value((u16)(word >> 16)) * unit; };
        return u32x2{pack_f16(low(words[0]), low(words[1])), pack_f16(high(words[0]), high(words[1]))};
    }
};

} // namespace rf
