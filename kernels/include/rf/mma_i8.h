// Matrix multiplication of int8 tiles by a wave, with exact sums.
//
// A tile is Int8Tile::ROWS weight rows × Int8Tile::TOKENS tokens; one matmul adds 32 columns (or
// 16) to it. Both operands are in LDS as half blocks: 16 bytes of one row, followed by the next
// row. Consecutive lanes therefore read consecutive 16 bytes for every order of lanes in the
// hardware.
//
// A lane owns LANE_ROWS × LANE_TOKENS of the tile's sums; sum[i · LANE_TOKENS + j] belongs to
// row(i), token(j). Factors per row and per token are in LDS, ordered by slots such that those of a
// lane are consecutive: row(i) has slot row_slot(row(i)) = row_base() + i, and tokens likewise.
//
// Sums are floats with the offset SUM_BIAS: they start with the bits of 1.5 · 2^23, where the last
// place of the mantissa is 1, so the integer needs no conversion. |sum| stays below 2^22: 32 · 128
// · 127 = 520,192.
#pragma once

#include "rf/device.h"

namespace rf {

constexpr u32 HALF_BLOCK_BYTES = 16;
constexpr float SUM_BIAS = 12582912.0f;
constexpr i32 SUM_START = 0x4b400000;

// An opaque constant: the compiler keeps it in a register.
RF_DEVICE i32 opaque(i32 value) {
#if RF_AMD
    asm volatile("" : "+v"(value));
#else
    asm volatile("" : "+r"(value));
#endif
    return value;
}

// The same for a value that is uniform over the lanes.
RF_DEVICE u32 opaque_uniform(u32 value) {
#if RF_AMD
    asm volatile("" : "+s"(value));
#else
    asm volatile("" : "+r"(value));
#endif
    return value;
}

#if RF_GFX11 || RF_GFX12

// WMMA with tokens as matrix A and weight rows as matrix B: a lane holds one row and 8 tokens, and
// the lanes of a half wave write 16 consecutive rows of the result.
struct Int8Tile {
    static constexpr u32 ROWS = 16, TOKENS = 16, LANE_ROWS = 1, LANE_TOKENS = 8;
    using Sums = i32x8;

    RF_DEVICE_MEMBER static u32 row_slot(u32 row) { return row; }
    RF_DEVICE_MEMBER static u32 row_base() { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 row(u32) { return lane() % 16; }
#if RF_GFX11
    RF_DEVICE_MEMBER static u32 token_slot(u32 token) { return token % 2 * 8 + token / 2; }
    RF_DEVICE_MEMBER static u32 token(u32 j) { return 2 * j + lane() / 16; }
#else
    RF_DEVICE_MEMBER static u32 token_slot(u32 token) { return token; }
    RF_DEVICE_MEMBER static u32 token(u32 j) { return lane() / 16 * 8 + j; }
#endif
    RF_DEVICE_MEMBER static u32 token_base() { return lane() / 16 * 8; }

    RF_DEVICE_MEMBER static Sums start(i32 value) {
        Sums sums;
        #pragma unroll
        for (u32 i = 0; i < 8; i++) sums[i] = value;
        return sums;
    }

    // Sums · factor + addend.
    RF_DEVICE_MEMBER static Sums scaled(const Sums &sums, i32 factor, i32 addend) {
        Sums result;
        #pragma unroll
        for (u32 i = 0; i < LANE_ROWS * LANE_TOKENS; i++) result[i] = sums[i] * factor + addend;
        return result;
    }

#if RF_GFX11
    // All 16 columns of a half block in every lane; lanes 16 … 31 equal lanes 0 … 15.
    struct Operand {
        i32x4 half[2];
    };
    RF_DEVICE_MEMBER static Operand load(const u8 *first, const u8 *last) {
        u32 offset = lane() % 16 * HALF_BLOCK_BYTES;
        return {{*(const i32x4 *)(first + offset), *(const i32x4 *)(last + offset)}};
    }
    RF_DEVICE_MEMBER static Sums product_half(const Operand &rows, const Operand &tokens, u32 half, Sums sums) {
        return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, tokens.half[half], true, rows.half[half], sums, false);
    }
#else
    // Lanes 0 … 15 hold 8 columns of each half block, lanes 16 … 31 the other 8.
    struct Operand {
        i32x2 half[2];
    };
    RF_DEVICE_MEMBER static Operand load(const u8 *first, const u8 *last) {
        u32 offset = lane() % 16 * HALF_BLOCK_BYTES + lane() / 16 * 8;
        return {{*(const i32x2 *)(first + offset), *(const i32x2 *)(last + offset)}};
    }
    RF_DEVICE_MEMBER static Sums product_half(const Operand &rows, const Operand &tokens, u32 half, Sums sums) {
        return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, tokens.half[half], true, rows.half[half], sums,
                                                                false);
    }
#endif
    using Rows = Operand;
    using Tokens = Operand;
    RF_DEVICE_MEMBER static Rows load_rows(const u8 *first, const u8 *last) { return load(first, last); }
    RF_DEVICE_MEMBER static Tokens load_tokens(const u8 *first, const u8 *last) { return load(first, last); }
    RF_DEVICE_MEMBER static Sums product(const Rows &rows, const Tokens &tokens, Sums sums) {
        return product_half(rows, tokens, 1, product_half(rows, tokens, 0, sums));
    }
};

#elif RF_NVIDIA

// mma.sync with weight rows as matrix A and tokens as matrix B: a lane holds two rows and two
// tokens.
struct Int8Tile {
    static constexpr u32 ROWS = 16, TOKENS = 8, LANE_ROWS = 2, LANE_TOKENS = 2;
    using Sums = i32x4;

    RF_DEVICE_MEMBER static u32 row_slot(u32 row) { return row % 8 * 2 + row / 8; }
    RF_DEVICE_MEMBER static u32 row_base() { return lane() / 4 * 2; }
    RF_DEVICE_MEMBER static u32 row(u32 i) { return lane() / 4 + 8 * i; }
    RF_DEVICE_MEMBER static u32 token_slot(u32 token) { return token; }
    RF_DEVICE_MEMBER static u32 token_base() { return lane() % 4 * 2; }
    RF_DEVICE_MEMBER static u32 token(u32 j) { return lane() % 4 * 2 + j; }

    RF_DEVICE_MEMBER static Sums start(i32 value) { return {value, value, value, value}; }

    // Sums · factor + addend.
    RF_DEVICE_MEMBER static Sums scaled(const Sums &sums, i32 factor, i32 addend) {
        Sums result;
        #pragma unroll
        for (u32 i = 0; i < LANE_ROWS * LANE_TOKENS; i++) result[i] = sums[i] * factor + addend;
        return result;
    }

    struct Rows {
        u32 word[4]; // rows 0 … 7 and 8 … 15 of the first half block, then of the second
    };
    struct Tokens {
        u32 word[2];
    };
    RF_DEVICE_MEMBER static u32 shared_address(const u8 *p) { return (u32)(u64)(__attribute__((address_space(3))) const u8 *)p; }
    RF_DEVICE_MEMBER static Rows load_rows(const u8 *first, const u8 *last) {
        Rows r;
        const u8 *from = (lane() < 16 ? first : last) + lane() % 16 * HALF_BLOCK_BYTES;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.word[0]), "=r"(r.word[1]), "=r"(r.word[2]), "=r"(r.word[3])
                     : "r"(shared_address(from))
                     : "memory");
        return r;
    }
    RF_DEVICE_MEMBER static Tokens load_tokens(const u8 *first, const u8 *last) {
        Tokens t;
        const u8 *from = (lane() % 16 < 8 ? first : last) + lane() % 8 * HALF_BLOCK_BYTES;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(t.word[0]), "=r"(t.word[1])
                     : "r"(shared_address(from))
                     : "memory");
        return t;
    }
    RF_DEVICE_MEMBER static Sums product(const Rows &a, const Tokens &b, Sums c) {
        Sums d;
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%10, %11, %12, %13};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
              "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
        return d;
    }
    RF_DEVICE_MEMBER static Sums product_half(const Rows &a, const Tokens &b, u32 half, Sums c) {
        Sums d;
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a.word[2 * half]), "r"(a.word[2 * half + 1]), "r"(b.word[half]), "r"(c[0]), "r"(c[1]), "r"(c[2]),
              "r"(c[3]));
        return d;
    }
};

#else

// No matrix unit: dot4 on registers. A lane holds four rows and four tokens. Operands are loaded at
// their use, because the registers of a lane cannot hold more.
struct Int8Tile {
    static constexpr u32 ROWS = 32, TOKENS = 16, LANE_ROWS = 4, LANE_TOKENS = 4;
    struct Sums {
        i32 sum[16];
        RF_DEVICE_MEMBER i32 operator[](u32 i) const { return sum[i]; }
    };

    RF_DEVICE_MEMBER static u32 row_slot(u32 row) { return row % 8 * 4 + row / 8; }
    RF_DEVICE_MEMBER static u32 row_base() { return lane() % 8 * 4; }
    RF_DEVICE_MEMBER static u32 row(u32 i) { return lane() % 8 + 8 * i; }
    RF_DEVICE_MEMBER static u32 token_slot(u32 token) { return token % 4 * 4 + token / 4; }
    RF_DEVICE_MEMBER static u32 token_base() { return lane() / 8 * 4; }
    RF_DEVICE_MEMBER static u32 token(u32 j) { return lane() / 8 + 4 * j; }

    RF_DEVICE_MEMBER static Sums start(i32 value) {
        Sums sums;
        #pragma unroll
        for (u32 i = 0; i < 16; i++) sums.sum[i] = value;
        return sums;
    }

    // Sums · factor + addend.
    RF_DEVICE_MEMBER static Sums scaled(const Sums &sums, i32 factor, i32 addend) {
        Sums result;
        #pragma unroll
        for (u32 i = 0; i < LANE_ROWS * LANE_TOKENS; i++) result.sum[i] = sums.sum[i] * factor + addend;
        return result;
    }

    struct Operand {
        const u8 *half[2];
    };
    using Rows = Operand;
    using Tokens = Operand;
    RF_DEVICE_MEMBER static Rows load_rows(const u8 *first, const u8 *last) {
        u32 offset = lane() % 8 * HALF_BLOCK_BYTES;
        return {{first + offset, last + offset}};
    }
    RF_DEVICE_MEMBER static Tokens load_tokens(const u8 *first, const u8 *last) {
        u32 offset = lane() / 8 * HALF_BLOCK_BYTES;
        return {{first + offset, last + offset}};
    }
    RF_DEVICE_MEMBER static Sums product_half(const Rows &rows, const Tokens &tokens, u32 half, Sums sums) {
        // Prevents the compiler from loading more operands at once than the registers hold.
        forget_memory();
        u32x2 r[4];
#pragma unroll
        for (u32 word = 0; word < 4; word += 2) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) r[i] = *(const u32x2 *)(rows.half[half] + 8 * i * HALF_BLOCK_BYTES + 4 * word);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                u32x2 t = *(const u32x2 *)(tokens.half[half] + 4 * j * HALF_BLOCK_BYTES + 4 * word);
#pragma unroll
                for (u32 k = 0; k < 2; k++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) sums.sum[4 * i + j] = dot4(r[i][k], t[k], sums.sum[4 * i + j]);
                }
            }
            schedule_fence();
        }
        return sums;
    }
    RF_DEVICE_MEMBER static Sums product(const Rows &rows, const Tokens &tokens, Sums sums) {
        return product_half(rows, tokens, 1, product_half(rows, tokens, 0, sums));
    }
};

#endif

} // namespace rf
