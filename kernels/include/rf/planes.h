// Parts of the formats: the access to planes, and operations on the bytes of a word.
#pragma once

#include "rf/device.h"
#include "rf/params/weight.h"

namespace rf {

// The factors of the two halves of a block.
struct BlockScales {
    float scale[2];
    float minimum[2];
};

// Loads a word at an index below 4 GiB: a uniform address and a 32-bit offset, which AMD's load
// instructions support directly.
template <typename T>
RF_DEVICE T at(const void *plane, u32 index) {
    return *reinterpret_cast<const T *>(static_cast<const u8 *>(plane) + (u32)(index * (u32)sizeof(T)));
}

// The planes, starting at a row; `blocks` is the number of blocks per row.
template <typename F>
RF_DEVICE RfWeight row_of(const RfWeight &w, u32 row, u32 blocks) {
    u64 first = (u64)row * blocks;
    return {static_cast<const u8 *>(w.low) + first * F::LOW, static_cast<const u8 *>(w.high) + first * F::HIGH,
            static_cast<const u8 *>(w.scale) + first * F::SCALE,
            static_cast<const u8 *>(w.super_scale) + (u64)row * (blocks * F::SUPER / 8)};
}

namespace detail {

// 4-bit values, low nibbles first.
RF_DEVICE void nibbles(u32x4 low, u32 q[8]) {
    for (u32 j = 0; j < 4; j++) {
        q[j] = low[j] & 0x0f0f0f0fu;
        q[j + 4] = (low[j] >> 4) & 0x0f0f0f0fu;
    }
}

// Bit `7 − j` of byte i of `bits` belongs to column 4j + i.
RF_DEVICE u32 bit_at(u32 bits, u32 j, u32 position) {
    u32 shifted = 7 - j >= position ? bits >> (7 - j - position) : bits << (position - 7 + j);
    return shifted & (0x01010101u << position);
}

// Bits `7 − 2j` and `6 − 2j` of byte i of `bits` belong to column 4j + i; returns them at the top
// of the byte.
RF_DEVICE u32 pair_at_top(u32 bits, u32 j) { return (bits << 2 * j) & 0xc0c0c0c0u; }

RF_DEVICE BlockScales one_scale(float scale) { return {{scale, scale}, {0.0f, 0.0f}}; }
RF_DEVICE BlockScales scale_and_minimum(float scale, float minimum) {
    return {{scale, scale}, {minimum, minimum}};
}

// The planes of a format with four bits per value and 16 bits of scale per block.
struct NibblesAndScale {
    static constexpr u32 LOW = 16, HIGH = 0, SCALE = 2, SUPER = 0;
    static constexpr bool MINIMA = false, HALVES = false;
    static constexpr u32 PARTS = 1;
    struct Raw {
        u32x4 low;
        u16 scale;
    };
    RF_DEVICE_MEMBER static Raw fetch(const RfWeight &row, u32 block) {
        return {at<u32x4>(row.low, block), at<u16>(row.scale, block)};
    }
};

// Byte i is byte selector[i], 0 to 7, of `low` (0 to 3) and `high` (4 to 7).
RF_DEVICE u32 select_bytes(u32 high, u32 low, u32 selector) {
#ifdef __AMDGCN__
    return __builtin_amdgcn_perm(high, low, selector);
#else
    u32 pairs = selector | selector >> 4;
    return __nvvm_prmt(low, high, (pairs & 0xff) | (pairs >> 8 & 0xff00));
#endif
}

// Values of the 4-bit codes of `low`, low nibbles first, from a table of 16 bytes.
RF_DEVICE void look_up_nibbles(const u32 (&table)[4], u32x4 low, u32 q[8]) {
    for (u32 j = 0; j < 4; j++) {
#ifdef __AMDGCN__
        u32 codes[2] = {low[j] & 0x0f0f0f0fu, (low[j] >> 4) & 0x0f0f0f0fu};
        for (u32 half = 0; half < 2; half++) {
            u32 below_8 = select_bytes(table[1], table[0], codes[half] & 0x07070707u);
            u32 above_8 = select_bytes(table[3], table[2], codes[half] & 0x07070707u);
            q[j + 4 * half] =
                select_bytes(above_8, below_8, 0x03020100u | ((codes[half] >> 1) & 0x04040404u));
        }
#else
        // prmt selects by nibbles, whose highest bit must be 0: four adjacent codes are a selector.
        u32 index = low[j] & 0x77777777u;
        u32 choice = 0x32103210u | ((low[j] >> 1) & 0x44444444u);
        u32 values[2];
        for (u32 half = 0; half < 2; half++) {
            u32 below_8 = __nvvm_prmt(table[0], table[1], index >> 16 * half);
            u32 above_8 = __nvvm_prmt(table[2], table[3], index >> 16 * half);
            values[half] = __nvvm_prmt(below_8, above_8, choice >> 16 * half);
        }
        q[j] = __nvvm_prmt(values[0], values[1], 0x6420);
        q[j + 4] = __nvvm_prmt(values[0], values[1], 0x7531);
#endif
    }
}

#if RF_NVIDIA
// Differences instead of values: with positive tables of the codes below and from 8, below[k] −
// above[k] are the values of four adjacent codes. For a nibble from 8 on, prmt returns eight copies
// of the sign of a byte of its table, here 0; so no instruction selects between the tables.
RF_DEVICE void split_nibbles(u32x2 below_table, u32x2 above_table, u32x4 low, u32 below[8], u32 above[8]) {
    for (u32 k = 0; k < 8; k++) {
        u32 codes = low[k / 2] >> 16 * (k % 2), others = (low[k / 2] ^ 0x88888888u) >> 16 * (k % 2);
        below[k] = __nvvm_prmt(below_table[0], below_table[1], codes);
        above[k] = __nvvm_prmt(above_table[0], above_table[1], others);
    }
}
#endif

} // namespace detail

} // namespace rf
