// Matrix multiplication of float tiles by a wave: acc[x][y] += Σ_k X[x][k] · Y[y][k] over 16 × 16 ×
// 16, summed in f32.
//
// X is f32 (queries, softmax weights, activations); Y is f16 as stored (keys, values, weights). For
// matrix units X becomes TERMS f16: one, rounded to nearest, or two, a high and a low part, which
// have the precision of f32 and take two operations. |x| must be below 65504, and magnitudes below
// 2^-24 are lost, so callers scale X.
//
// MatrixTileOf<TERMS> uses the matrix units of gfx11, gfx12 and NVIDIA; FmaTile<E> uses fused
// multiply-adds, with Y of f16 or f32. Tile<E, TERMS> is the better available one. Both define
//
//   Accumulator            8 sums per lane; sum e is of row x_row(e) and y_first() + y_step(e)
//   LANE_ROWS, lane_row(e) the number of distinct rows x among these, and the row of sum e
//   over_lanes(v, op)      combines a value per row x over the lanes that share the row
//   X, load_x, store_x     16 rows of X in LDS (X_BYTES<COLUMNS>), four columns stored at a time
//   x_of(acc)              sums as operand X of the next matmul: the former y becomes k
//   load_rows(p)           Y from LDS with rows of STRIDE elements; a row is y, k is contiguous
//   load_columns(p)        Y from LDS; a row is k, y is contiguous. If COLUMNS_TRANSPOSED, the
//                          tile must be stored transposed for this: a row is y
//   rows_of(half)          Y from registers, if COLUMNS_TRANSPOSED: lane l has row y = l % 16 from
//                          k = 8 · (l / 16) on
//   y_slot, y_base         an order of the 16 y in which those of a lane are consecutive;
//                          y_index(e) is relative to y_base()
#pragma once

#include "rf/device.h"

namespace rf {

constexpr u32 TILE = 16;

typedef float f32x16 __attribute__((ext_vector_type(16)));

// Two f32 as a word of two f16; the rounding mode depends on the hardware.
RF_DEVICE u32 pack_f16(float low, float high) {
#if RF_AMD
    return __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz(low, high));
#else
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#endif
}

// Two words: the high parts of two f32, and the remainders.
struct SplitPair {
    u32 high, low;
};
RF_DEVICE SplitPair split_f16(float a, float b) {
    u32 high = pack_f16(a, b);
    return {high, pack_f16(a - f16_low(high), b - f16_high(high))};
}

#if RF_GFX11 || RF_GFX12 || RF_NVIDIA

// Two f32 as a word of two f16, rounded to nearest.
RF_DEVICE u32 round_f16(float low, float high) { return __builtin_bit_cast(u32, f16x2{(f16)low, (f16)high}); }

template <u32 TERMS>
struct MatrixTileOf {
    using Element = f16;
    using Accumulator = f32x8;
    RF_DEVICE_MEMBER static Accumulator zero() { return Accumulator{0, 0, 0, 0, 0, 0, 0, 0}; }
    // Keeps the multiplications before this point, and loads from LDS after it (AMD).
    RF_DEVICE_MEMBER static void pin(Accumulator &acc) {
#if RF_AMD
        asm volatile("" : "+v"(acc) : : "memory");
#else
        (void)acc;
#endif
    }

    // Rows of COLUMNS f16 with an offset of four banks between consecutive rows.
    template <u32 COLUMNS>
    static constexpr u32 STRIDE = COLUMNS + 8;
    template <u32 COLUMNS>
    static constexpr u32 X_BYTES = TERMS * TILE * STRIDE<COLUMNS> * sizeof(f16);

    template <u32 COLUMNS>
    RF_DEVICE_MEMBER static void store_x(u8 *tile, u32 row, u32 column, f32x4 v) {
        u8 *to = tile + (row * STRIDE<COLUMNS> + column) * sizeof(f16);
        if constexpr (TERMS == 1) {
            *reinterpret_cast<u32x2 *>(to) = u32x2{round_f16(v[0], v[1]), round_f16(v[2], v[3])};
        } else {
            SplitPair first = split_f16(v[0], v[1]), last = split_f16(v[2], v[3]);
            *reinterpret_cast<u32x2 *>(to) = u32x2{first.high, last.high};
            *reinterpret_cast<u32x2 *>(to + X_BYTES<COLUMNS> / 2) = u32x2{first.low, last.low};
        }
    }

#if RF_NVIDIA
    // mma.sync m16n8k16 with x as the rows of matrix A, and y in two halves of 8 as the columns of
    // B.
    static constexpr u32 LANE_ROWS = 2;
    static constexpr bool COLUMNS_TRANSPOSED = false;
    struct Fragment {
        u32 word[4];
    };

    RF_DEVICE_MEMBER static u32 lane_row(u32 e) { return e / 2 % 2; }
    RF_DEVICE_MEMBER static u32 x_row(u32 e) { return lane() / 4 + lane_row(e) * 8; }
    RF_DEVICE_MEMBER static u32 y_step(u32 e) { return e / 4 * 8 + e % 2; }
    RF_DEVICE_MEMBER static u32 y_first() { return lane() % 4 * 2; }
    RF_DEVICE_MEMBER static u32 y_slot(u32 y) { return y % 8 / 2 * 4 + y / 8 * 2 + y % 2; }
    RF_DEVICE_MEMBER static u32 y_base() { return lane() % 4 * 4; }
    RF_DEVICE_MEMBER static u32 y_index(u32 e) { return e / 4 * 2 + e % 2; }
    template <typename Combine>
    RF_DEVICE_MEMBER static float over_lanes(float v, Combine combine) {
        v = combine(v, xor_lane<1>(v));
        return combine(v, xor_lane<2>(v));
    }

    RF_DEVICE_MEMBER static u32 lds_address(const void *p) {
        return (u32)(u64)(__attribute__((address_space(3))) const u8 *)(const u8 *)p;
    }
    RF_DEVICE_MEMBER static Fragment load_matrices(const void *p) {
        Fragment f;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
                     : "r"(lds_address(p))
                     : "memory");
        return f;
    }
    RF_DEVICE_MEMBER static Fragment load_transposed_matrices(const void *p) {
        Fragment f;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
                     : "r"(lds_address(p))
                     : "memory");
        return f;
    }

    RF_DEVICE_MEMBER static Fragment load_x_plane(const u8 *plane, u32 stride) {
        return load_matrices(plane + (lane() % 16 * stride + lane() / 16 * 8) * sizeof(f16));
    }
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Fragment load_rows(const f16 *p) {
        return load_matrices(p + (lane() % 8 + lane() / 16 * 8) * STRIDE + lane() / 8 % 2 * 8);
    }
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Fragment load_columns(const f16 *p) {
        return load_transposed_matrices(p + lane() % 16 * STRIDE + lane() / 16 * 8);
    }

    RF_DEVICE_MEMBER static void multiply_add(const Fragment &x, const Fragment &y, Accumulator &acc) {
        for (u32 half = 0; half < 2; half++) {
            float a = acc[4 * half], b = acc[4 * half + 1], c = acc[4 * half + 2], d = acc[4 * half + 3];
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                : "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3]), "r"(y.word[2 * half]),
                  "r"(y.word[2 * half + 1]));
            acc[4 * half] = a;
            acc[4 * half + 1] = b;
            acc[4 * half + 2] = c;
            acc[4 * half + 3] = d;
        }
    }

    struct X {
        Fragment term[TERMS];
    };
    RF_DEVICE_MEMBER static X x_of(const Accumulator &acc) {
        X x;
        for (u32 i = 0; i < 4; i++) {
            if constexpr (TERMS == 1) {
                x.term[0].word[i] = round_f16(acc[2 * i], acc[2 * i + 1]);
            } else {
                SplitPair pair = split_f16(acc[2 * i], acc[2 * i + 1]);
                x.term[0].word[i] = pair.high;
                x.term[TERMS - 1].word[i] = pair.low;
            }
        }
        return x;
    }
#else
    // WMMA with y as the rows of matrix A and x as the columns of B: a lane holds the sums of one
    // x.
    static constexpr u32 LANE_ROWS = 1;
    static constexpr bool COLUMNS_TRANSPOSED = true;

    RF_DEVICE_MEMBER static u32 lane_row(u32) { return 0; }
    RF_DEVICE_MEMBER static u32 x_row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 y_base() { return lane() / 16 * 8; }
    RF_DEVICE_MEMBER static u32 y_index(u32 e) { return e; }
    template <typename Combine>
    RF_DEVICE_MEMBER static float over_lanes(float v, Combine combine) {
        return combine(v, xor_lane<16>(v));
    }

#if RF_GFX11
    // All 16 k of a row in both half waves.
    using Fragment = f16x16;
    RF_DEVICE_MEMBER static u32 y_step(u32 e) { return 2 * e; }
    RF_DEVICE_MEMBER static u32 y_first() { return lane() / 16; }
    RF_DEVICE_MEMBER static u32 y_slot(u32 y) { return y % 2 * 8 + y / 2; }
    RF_DEVICE_MEMBER static Fragment load_fragment(const f16 *p, u32 stride) {
        const f16x8 *from = reinterpret_cast<const f16x8 *>(p + lane() % 16 * stride);
        return __builtin_shufflevector(from[0], from[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    RF_DEVICE_MEMBER static Fragment rows_of(f16x8 half) {
        u32x4 own = __builtin_bit_cast(u32x4, half), other;
        for (u32 i = 0; i < 4; i++) other[i] = xor_lane<16>(own[i]);
        f16x8 first = __builtin_bit_cast(f16x8, lane() < 16 ? own : other);
        f16x8 last = __builtin_bit_cast(f16x8, lane() < 16 ? other : own);
        return __builtin_shufflevector(first, last, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    RF_DEVICE_MEMBER static void multiply_add(const Fragment &x, const Fragment &y, Accumulator &acc) {
        acc = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(y, x, acc);
    }
    // This half wave holds every other k; `words` are pairs of those.
    RF_DEVICE_MEMBER static Fragment both_halves(u32x4 words) {
        typedef u32 u32x8 __attribute__((ext_vector_type(8)));
        bool upper = lane() >= 16;
        u32 low_halves = upper ? 0x05040100u : 0x01000504u, high_halves = upper ? 0x07060302u : 0x03020706u;
        u32x8 all;
        for (u32 i = 0; i < 4; i++) {
            u32 other = xor_lane<16>(words[i]);
            all[2 * i] = __builtin_amdgcn_perm(words[i], other, low_halves);
            all[2 * i + 1] = __builtin_amdgcn_perm(words[i], other, high_halves);
        }
        return __builtin_bit_cast(Fragment, all);
    }
#else
    // Lanes 0 … 15 hold k 0 … 7, lanes 16 … 31 the others.
    using Fragment = f16x8;
    RF_DEVICE_MEMBER static u32 y_step(u32 e) { return e; }
    RF_DEVICE_MEMBER static u32 y_first() { return lane() / 16 * 8; }
    RF_DEVICE_MEMBER static u32 y_slot(u32 y) { return y; }
    RF_DEVICE_MEMBER static Fragment load_fragment(const f16 *p, u32 stride) {
        return *reinterpret_cast<const f16x8 *>(p + lane() % 16 * stride + lane() / 16 * 8);
    }
    RF_DEVICE_MEMBER static Fragment rows_of(f16x8 half) { return half; }
    RF_DEVICE_MEMBER static void multiply_add(const Fragment &x, const Fragment &y, Accumulator &acc) {
        acc = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(y, x, acc);
    }
    RF_DEVICE_MEMBER static Fragment both_halves(u32x4 words) { return __builtin_bit_cast(Fragment, words); }
#endif

    RF_DEVICE_MEMBER static Fragment load_x_plane(const u8 *plane, u32 stride) {
        return load_fragment(reinterpret_cast<const f16 *>(plane), stride);
    }
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Fragment load_rows(const f16 *p) {
        return load_fragment(p, STRIDE);
    }
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Fragment load_columns(const f16 *p) {
        return load_fragment(p, STRIDE);
    }

    struct X {
        Fragment term[TERMS];
    };
    RF_DEVICE_MEMBER static X x_of(const Accumulator &acc) {
        u32x4 words[TERMS];
        for (u32 i = 0; i < 4; i++) {
            if constexpr (TERMS == 1) {
                words[0][i] = round_f16(acc[2 * i], acc[2 * i + 1]);
            } else {
                SplitPair pair = split_f16(acc[2 * i], acc[2 * i + 1]);
                words[0][i] = pair.high;
                words[TERMS - 1][i] = pair.low;
            }
        }
        X x;
        for (u32 term = 0; term < TERMS; term++) x.term[term] = both_halves(words[term]);
        return x;
    }
#endif

    template <u32 COLUMNS>
    RF_DEVICE_MEMBER static X load_x(const u8 *tile, u32 k) {
        const u8 *plane = tile + k * sizeof(f16);
        X x;
        for (u32 term = 0; term < TERMS; term++) {
            x.term[term] = load_x_plane(plane + term * (X_BYTES<COLUMNS> / TERMS), STRIDE<COLUMNS>);
        }
        return x;
    }
    RF_DEVICE_MEMBER static Accumulator product(const X &x, const Fragment &y, Accumulator acc) {
        for (u32 term = 0; term < TERMS; term++) multiply_add(x.term[term], y, acc);
        return acc;
    }
};

// For operands that are f16 already.
using MatrixTile = MatrixTileOf<1>;

#endif

// Fused multiply-adds. Lane l holds row x = l % 16 and the eight y of its half wave. Y is read from
// LDS at its use; all lanes of a half read the same words.
template <typename E>
struct FmaTile {
    using Element = E;
    using Accumulator = f32x8;
    typedef E Eight __attribute__((ext_vector_type(8)));
    static constexpr u32 LANE_ROWS = 1;
    static constexpr bool COLUMNS_TRANSPOSED = false;
    RF_DEVICE_MEMBER static Accumulator zero() { return Accumulator{0, 0, 0, 0, 0, 0, 0, 0}; }

    RF_DEVICE_MEMBER static u32 lane_row(u32) { return 0; }
    RF_DEVICE_MEMBER static u32 x_row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 y_step(u32 e) { return e; }
    RF_DEVICE_MEMBER static u32 y_first() { return lane() / 16 * 8; }
    RF_DEVICE_MEMBER static u32 y_slot(u32 y) { return y; }
    RF_DEVICE_MEMBER static u32 y_base() { return lane() / 16 * 8; }
    RF_DEVICE_MEMBER static u32 y_index(u32 e) { return e; }
    template <typename Combine>
    RF_DEVICE_MEMBER static float over_lanes(float v, Combine combine) {
        return combine(v, xor_lane<16>(v));
    }

    // Consecutive rows have an offset of four banks.
    template <u32 COLUMNS>
    static constexpr u32 STRIDE = COLUMNS + 16 / sizeof(E);
    template <u32 COLUMNS>
    static constexpr u32 X_BYTES = TILE * (COLUMNS + 4) * sizeof(float);

    struct X {
        float k[16];
    };
    template <u32 COLUMNS>
    RF_DEVICE_MEMBER static void store_x(u8 *tile, u32 row, u32 column, f32x4 v) {
        *reinterpret_cast<f32x4 *>(tile + (row * (COLUMNS + 4) + column) * sizeof(float)) = v;
    }
    template <u32 COLUMNS>
    RF_DEVICE_MEMBER static X load_x(const u8 *tile, u32 k) {
        const f32x4 *from =
            reinterpret_cast<const f32x4 *>(tile + (lane() % 16 * (COLUMNS + 4) + k) * sizeof(float));
        X x;
        for (u32 i = 0; i < 16; i++) x.k[i] = from[i / 4][i % 4];
        return x;
    }
    RF_DEVICE_MEMBER static X x_of(const Accumulator &acc) {
        X x;
        for (u32 e = 0; e < 8; e++) {
            float other = xor_lane<16>(acc[e]);
            x.k[e] = lane() < 16 ? acc[e] : other;
            x.k[e + 8] = lane() < 16 ? other : acc[e];
        }
        return x;
    }

    struct Rows {
        const E *first;
        u32 stride;
    };
    struct Columns {
        const E *first;
        u32 stride;
    };
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Rows load_rows(const E *p) {
        return {p + y_base() * STRIDE, STRIDE};
    }
    template <u32 STRIDE>
    RF_DEVICE_MEMBER static Columns load_columns(const E *p) {
        return {p + y_base(), STRIDE};
    }

    RF_DEVICE_MEMBER static Eight eight(const E *p) {
        typedef E Four __attribute__((ext_vector_type(4)));
        // In pieces of at most 16 bytes, which is the guaranteed alignment.
        if constexpr (sizeof(E) == 2) return *reinterpret_cast<const Eight *>(p);
        const Four *from = reinterpret_cast<const Four *>(p);
        return __builtin_shufflevector(from[0], from[1], 0, 1, 2, 3, 4, 5, 6, 7);
    }
    RF_DEVICE_MEMBER static Accumulator product(const X &x, const Rows &y, Accumulator acc) {
        for (u32 e = 0; e < 8; e++) {
            // Prevents the compiler from reading everything at once, which would exceed the
            // registers.
            if (e % 2 == 0) asm volatile("" ::: "memory");
            Eight low = eight(y.first + e * y.stride), high = eight(y.first + e * y.stride + 8);
            float sum = acc[e];
            for (u32 k = 0; k < 8; k++) sum = fma((float)low[k], x.k[k], sum);
            for (u32 k = 0; k < 8; k++) sum = fma((float)high[k], x.k[k + 8], sum);
            acc[e] = sum;
        }
        return acc;
    }
    RF_DEVICE_MEMBER static Accumulator product(const X &x, const Columns &y, Accumulator acc) {
        for (u32 k = 0; k < 16; k++) {
            if (k % 4 == 0) asm volatile("" ::: "memory");
            Eight row = eight(y.first + k * y.stride);
            for (u32 e = 0; e < 8; e++) acc[e] = fma((float)row[e], x.k[k], acc[e]);
        }
        return acc;
    }
};

namespace detail {
template <typename E, u32 TERMS>
struct TileOf {
    using Type = FmaTile<E>;
};
#if RF_GFX11 || RF_GFX12 || RF_NVIDIA
template <u32 TERMS>
struct TileOf<f16, TERMS> {
    using Type = MatrixTileOf<TERMS>;
};
#endif
} // namespace detail

template <typename E, u32 TERMS = 2>
using Tile = typename detail::TileOf<E, TERMS>::Type;

} // namespace rf
