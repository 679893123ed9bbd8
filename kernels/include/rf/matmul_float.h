// Float matrix × matrix with the accuracy of f32: out[token][row] = Σ_k w[row][k] · x[token][k].
//
// A workgroup of 8 waves computes a tile of Shape::ROWS × Shape::TOKENS in stages of Shape::COLUMNS
// columns. A thread loads pieces of 8 columns; the next stage is loaded during the multiplication
// of the current one. A wave computes 32 rows × 32 tokens from every K_WAVES-th part of a stage.
//
// With a matrix unit, 16-bit weights are its operands unchanged, and x is split into two terms of
// their type, so a multiplication takes two operations. f16: x/4 = high + low · 2^-11, with 11 bits
// in each; low is scaled up so that it is not lost below f16's 2^-24, and has its own sums. |x| may
// be up to 262,016 (larger values are clamped), and rows of about 1e-5 still have the accuracy of
// f32. bf16: x = high + low, with 8 bits each and both rounded to nearest: at most 2^-18 of x is
// lost, an NMSE of about 1e-11. F32 weights, and all weights without a matrix unit, are multiplied
// in f32.
#pragma once

#include "rf/formats.h"
#include "rf/matmul_tile.h"
#include "rf/mma_f16.h"

namespace rf {

template <u32 ROW_WAVES_, u32 TOKEN_WAVES_, u32 K_WAVES_, u32 COLUMNS_>
struct FloatMatmulShape {
    static constexpr u32 WAVE_ROWS = 32, WAVE_TOKENS = 32;
    static constexpr u32 ROW_WAVES = ROW_WAVES_, TOKEN_WAVES = TOKEN_WAVES_, K_WAVES = K_WAVES_;
    static constexpr u32 THREADS = WAVE * ROW_WAVES * TOKEN_WAVES * K_WAVES;
    static constexpr u32 ROWS = WAVE_ROWS * ROW_WAVES, TOKENS = WAVE_TOKENS * TOKEN_WAVES;
    static constexpr u32 COLUMNS = COLUMNS_; // per stage
    static constexpr u32 AT_ONCE = 2;        // as in MatmulShape, like SPLIT
    static constexpr bool SPLIT = TOKENS <= 32;
    static constexpr u32 PIECES = COLUMNS / 8;
    static constexpr u32 FETCH_ROWS = ROWS * PIECES / THREADS, FETCH_TOKENS = TOKENS * PIECES / THREADS;
    static_assert(FETCH_ROWS * THREADS == ROWS * PIECES && FETCH_TOKENS * THREADS == TOKENS * PIECES);
    static_assert(THREADS % PIECES == 0 && COLUMNS % (16 * K_WAVES) == 0);
};

// Shapes for more than 32 tokens, and up to 32.
using FloatMatmulWide = FloatMatmulShape<4, 2, 1, 32>;
using FloatMatmulNarrow = FloatMatmulShape<1, 1, 8, 128>;

struct Eight {
    float value[8];
};

// The weight types. Eight columns of f32 become two words of 16 bits each at a time: terms().
struct F32Weight {
    using Element = float;
    static constexpr bool MATRIX = false;
    RF_DEVICE_MEMBER static float value(float w) { return w; }
};
struct F16Weight {
    using Element = u16;
    static constexpr bool MATRIX = RF_MATRIX_UNIT;
    static constexpr u32 SUMS = 2;
    RF_DEVICE_MEMBER static float value(u16 w) { return f16_value(w); }
    RF_DEVICE_MEMBER static SplitPair terms(float a, float b) {
        a = __builtin_fminf(__builtin_fmaxf(a * 0.25f, -65504.0f), 65504.0f);
        b = __builtin_fminf(__builtin_fmaxf(b * 0.25f, -65504.0f), 65504.0f);
        u32 high = pack_f16(a, b);
        return {high, pack_f16((a - f16_low(high)) * 2048.0f, (b - f16_high(high)) * 2048.0f)};
    }
    RF_DEVICE_MEMBER static float total(float high, float low) { return 4.0f * fma(low, 0x1p-11f, high); }
};
struct Bf16Weight {
    using Element = u16;
    static constexpr bool MATRIX = RF_MATRIX_UNIT;
    static constexpr u32 SUMS = 1;
    RF_DEVICE_MEMBER static float value(u16 w) { return bf16_value(w); }
    RF_DEVICE_MEMBER static u32 rounded(float v) { return (__builtin_bit_cast(u32, v) + 0x8000u) & 0xffff0000u; }
    RF_DEVICE_MEMBER static SplitPair terms(float a, float b) {
        u32 high_a = rounded(a), high_b = rounded(b);
        u32 low_a = rounded(a - __builtin_bit_cast(float, high_a)), low_b = rounded(b - __builtin_bit_cast(float, high_b));
        return {high_a >> 16 | high_b, low_a >> 16 | low_b};
    }
    RF_DEVICE_MEMBER static float total(float sum, float) { return sum; }
};

// A wave's 32 rows × 32 tokens in f32. Lane l holds rows l % 8 + 8i, i < 4, and tokens l / 8 + 4j,
// j < 8.
template <typename F, typename Shape>
struct FmaCore {
    static constexpr u32 SUMS = 32;
    static constexpr u32 STRIDE = Shape::COLUMNS + 4; // rows have an offset of four banks
    struct Stage {
        __attribute__((aligned(16))) float rows[Shape::ROWS][STRIDE];
        __attribute__((aligned(16))) float tokens[Shape::TOKENS][STRIDE];
    };
    using Accumulator = float[SUMS];

    RF_DEVICE_MEMBER static void put(float *to, const Eight &e) {
        *(f32x4 *)to = f32x4{e.value[0], e.value[1], e.value[2], e.value[3]};
        *(f32x4 *)(to + 4) = f32x4{e.value[4], e.value[5], e.value[6], e.value[7]};
    }
    RF_DEVICE_MEMBER static void store_row(Stage &stage, u32 row, u32 column, const typename F::Element (&w)[8]) {
        Eight e;
#pragma unroll
        for (u32 i = 0; i < 8; i++) e.value[i] = F::value(w[i]);
        put(stage.rows[row] + column, e);
    }
    RF_DEVICE_MEMBER static void store_token(Stage &stage, u32 token, u32 column, const Eight &x) {
        put(stage.tokens[token] + column, x);
    }

    RF_DEVICE_MEMBER static void multiply(const Stage &stage, u32 column, u32 wave_row, u32 wave_token,
                                          Accumulator &acc) {
#pragma unroll 1
        for (u32 k = column; k < column + 16; k += 4) {
            f32x4 rows[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) rows[i] = *(const f32x4 *)(stage.rows[wave_row + lane() % 8 + 8 * i] + k);
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                f32x4 token = *(const f32x4 *)(stage.tokens[wave_token + lane() / 8 + 4 * j] + k);
#pragma unroll
                for (u32 c = 0; c < 4; c++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) acc[8 * i + j] = fma(rows[i][c], token[c], acc[8 * i + j]);
                }
            }
        }
    }
    RF_DEVICE_MEMBER static u32 row(u32 n) { return lane() % 8 + n / 8 * 8; }
    RF_DEVICE_MEMBER static u32 token(u32 n) { return lane() / 8 + n % 8 * 4; }
    RF_DEVICE_MEMBER static void finish(const Accumulator &acc, float (&sums)[SUMS]) {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) sums[n] = acc[n];
    }
};

#if RF_MATRIX_UNIT

// The same on the matrix unit: 2 × 2 tiles, weight rows as MatrixTile's x, tokens as its y.
template <typename F, typename Shape>
struct MatrixCore {
    static constexpr u32 SUMS = 32;
    static constexpr u32 STRIDE = Shape::COLUMNS + 8;
    struct Stage {
        __attribute__((aligned(16))) u16 rows[Shape::ROWS][STRIDE];
        __attribute__((aligned(16))) u16 tokens[2][Shape::TOKENS][STRIDE];
    };
    struct Accumulator {
        MatrixTile::Accumulator sums[F::SUMS][2][2] = {};
    };

    RF_DEVICE_MEMBER static void store_row(Stage &stage, u32 row, u32 column, const u16 (&w)[8]) {
        u32x4 words;
#pragma unroll
        for (u32 i = 0; i < 4; i++) words[i] = w[2 * i] | (u32)w[2 * i + 1] << 16;
        *(u32x4 *)(stage.rows[row] + column) = words;
    }
    RF_DEVICE_MEMBER static void store_token(Stage &stage, u32 token, u32 column, const Eight &x) {
        u32x4 high, low;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            SplitPair pair = F::terms(x.value[2 * i], x.value[2 * i + 1]);
            high[i] = pair.high;
            low[i] = pair.low;
        }
        *(u32x4 *)(stage.tokens[0][token] + column) = high;
        *(u32x4 *)(stage.tokens[1][token] + column) = low;
    }

    RF_DEVICE_MEMBER static void multiply(const Stage &stage, u32 column, u32 wave_row, u32 wave_token,
                                          Accumulator &acc) {
        MatrixTile::Fragment rows[2];
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            rows[r] = MatrixTile::load_x_plane((const u8 *)(stage.rows[wave_row + r * TILE] + column), STRIDE);
        }
#pragma unroll
        for (u32 term = 0; term < 2; term++) {
#pragma unroll
            for (u32 t = 0; t < 2; t++) {
                MatrixTile::Fragment tokens =
                    MatrixTile::load_rows<STRIDE>((const f16 *)(stage.tokens[term][wave_token + t * TILE] + column));
#pragma unroll
                for (u32 r = 0; r < 2; r++) {
                    if constexpr (F::SUMS == 2) {
                        MatrixTile::multiply_add(rows[r], tokens, acc.sums[term][r][t]);
                    } else {
                        multiply_add_bf16(rows[r], tokens, acc.sums[0][r][t]);
                    }
                }
            }
        }
    }

    // The fragments hold bf16.
    RF_DEVICE_MEMBER static void multiply_add_bf16(const MatrixTile::Fragment &x, const MatrixTile::Fragment &y,
                                                   MatrixTile::Accumulator &acc) {
#if RF_GFX11
        typedef i16 i16x16 __attribute__((ext_vector_type(16)));
        acc = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(i16x16, y), __builtin_bit_cast(i16x16, x),
                                                          acc);
#elif RF_GFX12
        typedef i16 i16x8 __attribute__((ext_vector_type(8)));
        acc = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(i16x8, y),
                                                                __builtin_bit_cast(i16x8, x), acc);
#else
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float a = acc[4 * half], b = acc[4 * half + 1], c = acc[4 * half + 2], d = acc[4 * half + 3];
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                : "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3]), "r"(y.word[2 * half]),
                  "r"(y.word[2 * half + 1]));
            acc[4 * half] = a;
            acc[4 * half + 1] = b;
            acc[4 * half + 2] = c;
            acc[4 * half + 3] = d;
        }
#endif
    }

    RF_DEVICE_MEMBER static u32 row(u32 n) { return n / 16 * TILE + MatrixTile::x_row(n % 8); }
    RF_DEVICE_MEMBER static u32 token(u32 n) {
        return n / 8 % 2 * TILE + MatrixTile::y_first() + MatrixTile::y_step(n % 8);
    }
    RF_DEVICE_MEMBER static void finish(const Accumulator &acc, float (&sums)[SUMS]) {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) {
            sums[n] = F::total(acc.sums[0][n / 16][n / 8 % 2][n % 8], acc.sums[F::SUMS - 1][n / 16][n / 8 % 2][n % 8]);
        }
    }
};

template <typename F, typename Shape, bool MATRIX>
struct CoreOf {
    using Type = FmaCore<F, Shape>;
};
template <typename F, typename Shape>
struct CoreOf<F, Shape, true> {
    using Type = MatrixCore<F, Shape>;
};
template <typename F, typename Shape>
using FloatCore = typename CoreOf<F, Shape, F::MATRIX>::Type;

#else

template <typename F, typename Shape>
using FloatCore = FmaCore<F, Shape>;

#endif

template <typename F, typename Shape>
struct FloatMatmul {
    using Core = FloatCore<F, Shape>;
    using Stage = typename Core::Stage;
    using Element = typename F::Element;
    static constexpr u32 SUMS = Core::SUMS;
    static constexpr u32 LDS_BYTES =
        sizeof(Stage) > parts_bytes<Shape>(SUMS) ? sizeof(Stage) : parts_bytes<Shape>(SUMS);

    struct Fetch {
        Element rows[Shape::FETCH_ROWS][8];
        Eight tokens[Shape::FETCH_TOKENS];
    };

    const Element *weights; // starting at the first row of the tile
    const float *x;
    u32 columns, last_row;
    u32 tokens;                      // of this tile
    u32 x_rows[Shape::FETCH_TOKENS]; // rows of x of this thread, the last one instead of later ones

    // Eight consecutive elements from `first`, and 0 beyond the end of a row; N elements are 16
    // bytes.
    template <typename T>
    RF_DEVICE_MEMBER void fetch_piece(T (&to)[8], const T *base, u32 row, u32 column) const {
        constexpr u32 N = 16 / sizeof(T);
        typedef T Vector __attribute__((ext_vector_type(N)));
        if (columns % 8 == 0) {
            bool exists = column < columns;
            u32 first = row * columns + (exists ? column : 0);
#pragma unroll
            for (u32 v = 0; v < 8 / N; v++) {
                Vector part = at<Vector>(base, first / N + v);
#pragma unroll
                for (u32 i = 0; i < N; i++) to[v * N + i] = exists ? part[i] : T(0);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 8; i++) to[i] = column + i < columns ? base[row * columns + column + i] : T(0);
        }
    }

    RF_DEVICE_MEMBER void fetch(Fetch &f, u32 stage) const {
        u32 column = stage * Shape::COLUMNS + thread_x() % Shape::PIECES * 8;
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_ROWS; i++) {
            u32 row = (thread_x() + i * Shape::THREADS) / Shape::PIECES;
            fetch_piece(f.rows[i], weights, row < last_row ? row : last_row, column);
        }
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            f.tokens[i] = {};
            if ((thread_x() + i * Shape::THREADS) / Shape::PIECES < tokens) {
                fetch_piece(f.tokens[i].value, x, x_rows[i], column);
            }
        }
    }

    RF_DEVICE_MEMBER static void store(const Fetch &f, Stage &stage) {
        u32 column = thread_x() % Shape::PIECES * 8;
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_ROWS; i++) {
            Core::store_row(stage, (thread_x() + i * Shape::THREADS) / Shape::PIECES, column, f.rows[i]);
        }
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            Core::store_token(stage, (thread_x() + i * Shape::THREADS) / Shape::PIECES, column, f.tokens[i]);
        }
    }

    RF_DEVICE_MEMBER static void run(const RfMatmulParams &params) {
        RF_SHARED static __attribute__((aligned(16))) u8 lds[LDS_BYTES];
        Stage &stage = *reinterpret_cast<Stage *>(lds);
        MatmulPlace place = place_of_group<Shape>(params);
        const RfProjection &p = place.projection;
        if (place.first_row >= p.rows || place.tokens == 0) return;
        FloatMatmul self;
        self.columns = params.columns;
        self.weights = static_cast<const Element *>(p.weight.low) + (u64)place.weight_row * params.columns;
        self.x = params.x_f32;
        self.last_row = p.rows - 1 - place.first_row;
        self.tokens = place.tokens;
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            self.x_rows[i] = place.x_row(params, (thread_x() + i * Shape::THREADS) / Shape::PIECES);
        }

        constexpr u32 TILE_WAVES = Shape::ROW_WAVES * Shape::TOKEN_WAVES;
        u32 tile_wave = wave() % TILE_WAVES, k_wave = wave() / TILE_WAVES;
        u32 wave_row = tile_wave % Shape::ROW_WAVES * Shape::WAVE_ROWS;
        u32 wave_token = tile_wave / Shape::ROW_WAVES * Shape::WAVE_TOKENS;

        typename Core::Accumulator acc = {};
        constexpr u32 WAVE_COLUMNS = Shape::COLUMNS / Shape::K_WAVES;
        MatmulStages range = stages_of_group<Shape>(params, (self.columns + Shape::COLUMNS - 1) / Shape::COLUMNS);
        Fetch next;
        self.fetch(next, range.first);
#pragma unroll 1
        for (u32 s = range.first; s < range.end; s++) {
            lds_barrier();
            store(next, stage);
            lds_barrier();
            if (s + 1 < range.end) self.fetch(next, s + 1);
#pragma unroll 1
            for (u32 c = 0; c < WAVE_COLUMNS; c += 16) {
                Core::multiply(stage, k_wave * WAVE_COLUMNS + c, wave_row, wave_token, acc);
            }
        }
        float sums[SUMS];
        Core::finish(acc, sums);
        auto row_of_sum = [&](u32 n) { return place.first_row + wave_row + Core::row(n); };
        auto token_of_sum = [&](u32 n) { return wave_token + Core::token(n); };
        if constexpr (Shape::K_WAVES > 1) add_parts<Shape>(sums, reinterpret_cast<float *>(lds), k_wave, tile_wave);
        if (Shape::SPLIT && params.parts > 1) {
            write_parts<Shape>(params, place, sums, k_wave, tile_wave, row_of_sum, token_of_sum);
            return;
        }
        if (Shape::K_WAVES > 1 && k_wave > 0) return;
        auto out_row_of = [&](u32 n) {
            u32 token = token_of_sum(n);
            return token < place.tokens ? place.out_row(params, token) : NO_ROW;
        };
        write_sums<SUMS>(params, p, row_of_sum, out_row_of, [&](u32 n) { return sums[n]; });
    }
};

// The kernels of one type: RfMatmulParams; grid [tiles of tokens, Σ ⌈rows / ROWS⌉, parts
// of the columns], 256 threads.
#define RF_FLOAT_MATMUL(NAME, FORMAT, NUMBER)                                                                          \
    RF_MATMUL_KERNEL(rf::FloatMatmulWide) matmul_wide_##NAME##_f32(RfMatmulParams p) {                                   \
        rf::FloatMatmul<rf::FORMAT##Weight, rf::FloatMatmulWide>::run(p);                                              \
    }                                                                                                                  \
    RF_MATMUL_KERNEL(rf::FloatMatmulNarrow) matmul_narrow_##NAME##_f32(RfMatmulParams p) {                               \
        rf::FloatMatmul<rf::FORMAT##Weight, rf::FloatMatmulNarrow>::run(p);                                            \
    }

} // namespace rf
