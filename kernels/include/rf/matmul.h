// Quantised matrix × matrix: out[token][row] = Σ_block scale·d·(q_w · q_x) − minimum·(d·Σq_x). Sums
// within a block are integers, sums over blocks are f32.
//
// A workgroup of 8 waves (16 without a matrix unit) computes a tile of Shape::ROWS × Shape::TOKENS.
// It processes the columns in stages of Shape::BLOCKS blocks of 32: weights are loaded as planes,
// 16 bytes per lane, and unpacked once to int8 in LDS; activations are copied unchanged. Per stage
// each thread loads Shape::FETCH_ROWS blocks of weights and Shape::FETCH_TOKENS of activations; the
// next stage is loaded during the multiplication of the current one. A wave computes
// Shape::WAVE_ROWS × Shape::WAVE_TOKENS of the tile from every Shape::K_WAVES-th part of each
// stage; waves with different parts of one tile finally add their sums in a fixed order.
//
// Up to 64 tokens are one tile of tokens, and the time is that of loading and unpacking weights.
// Such tiles have four waves, so that several workgroups fit on a processor and work while others
// wait. The columns are divided over workgroups, until these fill the device (params/matmul.h).
//
// The experts of a mixture are one launch: the tiles of tokens are slots of one expert each, and
// their rows of x are gathered. Each tile reads the weights of its expert once and multiplies each
// of them TOKENS times. In all, Σ ⌈slots / TOKENS⌉ matrices are read, and slots · rows · columns
// multiply-adds are useful. The number of tiles is known on the device only. The grid has its upper
// bound, ⌊slots / TOKENS⌋ + experts, and workgroups without a tile leave at once.
//
// Per block and tile of the matrix unit: 2 multiply-adds per sum (3 with minima), which limit the
// speed together with the matrix unit. t = fma(sum + BIAS, scale, −BIAS·scale) is exact except for
// its rounding, because BIAS = 3 · 2^22 and no scale has more than 22 significant bits; out =
// fma(t, d, out).
#pragma once

#include "rf/copy_async.h"
#include "rf/formats.h"
#include "rf/matmul_tile.h"
#include "rf/mma_i8.h"

#if RF_NVIDIA
#define RF_MATMUL_BUFFERS 2
#else
#define RF_MATMUL_BUFFERS 1
#endif

namespace rf {

template <u32 WAVE_ROWS_, u32 WAVE_TOKENS_, u32 ROW_WAVES_, u32 TOKEN_WAVES_, u32 K_WAVES_, u32 BLOCKS_,
          u32 AT_ONCE_ = 2>
struct MatmulShape {
    static constexpr u32 WAVE_ROWS = WAVE_ROWS_, WAVE_TOKENS = WAVE_TOKENS_;
    static constexpr u32 ROW_WAVES = ROW_WAVES_, TOKEN_WAVES = TOKEN_WAVES_, K_WAVES = K_WAVES_;
    static constexpr u32 THREADS = WAVE * ROW_WAVES * TOKEN_WAVES * K_WAVES;
    static constexpr u32 ROWS = WAVE_ROWS * ROW_WAVES, TOKENS = WAVE_TOKENS * TOKEN_WAVES;
    static constexpr u32 BLOCKS = BLOCKS_;   // of 32 columns, per stage
    // Workgroups on a multiprocessor of NVIDIA, which limits the registers of a thread.
    static constexpr u32 AT_ONCE = AT_ONCE_;
    static constexpr u32 ROW_TILES = WAVE_ROWS / Int8Tile::ROWS, TOKEN_TILES = WAVE_TOKENS / Int8Tile::TOKENS;
    // The blocks that a thread loads per stage.
    static constexpr u32 FETCH_ROWS = ROWS * BLOCKS / THREADS;
    static constexpr u32 FETCH_TOKENS = (TOKENS * BLOCKS + THREADS - 1) / THREADS;
    // Whether the columns may be divided over workgroups, where they are not over many waves.
    static constexpr bool SPLIT = TOKENS <= 64 && K_WAVES <= 2;
    // Whether all threads load activations; otherwise only the first waves do.
    static constexpr bool ALL_FETCH = FETCH_TOKENS * THREADS == TOKENS * BLOCKS;
    static_assert(FETCH_ROWS * THREADS == ROWS * BLOCKS && (ALL_FETCH || FETCH_TOKENS == 1));
    static_assert(BLOCKS % K_WAVES == 0 && 8 % BLOCKS == 0);
};

// Shapes for more than 64 tokens, tiles of 64 and of 32 among several (small matrices, experts),
// and a single tile of up to 64, 32 and 16. Without a matrix unit waves have half the sums.
#if RF_MATRIX_UNIT
// Larger stages need fewer barriers; on AMD LDS limits the number of workgroups.
constexpr u32 SLIM_BLOCKS = RF_MATMUL_BUFFERS * 4;
using MatmulWide = MatmulShape<64, 32, 2, 4, 1, 2>;
using MatmulMiddle = MatmulShape<64, 32, 1, 2, 4, 4>;
using MatmulNarrow = MatmulShape<32, 32, 1, 1, 8, 8>;
using MatmulSlim64 = MatmulShape<32, 32, 2, 2, 1, 4, 4>;
using MatmulSlim32 = MatmulShape<32, 32, 2, 1, 2, SLIM_BLOCKS, 3>;
using MatmulSlim16 = MatmulShape<32, 16, 2, 1, 2, SLIM_BLOCKS, 4>;
#else
using MatmulWide = MatmulShape<64, 16, 2, 8, 1, 4>;
using MatmulMiddle = MatmulShape<64, 16, 1, 4, 4, 8>;
using MatmulNarrow = MatmulShape<32, 16, 1, 2, 4, 8>;
using MatmulSlim64 = MatmulShape<32, 16, 2, 4, 1, 4>;
using MatmulSlim32 = MatmulShape<32, 16, 2, 2, 1, 4>;
using MatmulSlim16 = MatmulShape<32, 16, 2, 1, 2, 4>;
#endif

// One stage in LDS.
template <typename F, typename Shape>
struct alignas(16) MatmulStage {
    static constexpr u32 HALVES = F::HALVES ? 2 : 1;
    // Half block h of block b has index h · BLOCKS + b. Threads write the blocks of a row adjacent
    // to each other; the padding puts them in different banks.
    static constexpr u32 PAD = 128 / Shape::BLOCKS;
    u8 rows[F::PARTS][2 * Shape::BLOCKS][Shape::ROWS * HALF_BLOCK_BYTES + PAD];
    u8 tokens[2 * Shape::BLOCKS][Shape::TOKENS * HALF_BLOCK_BYTES + PAD];
    // Ordered by slots within each tile.
    float scale[Shape::BLOCKS][HALVES][Shape::ROWS];
    float minimum[F::MINIMA ? Shape::BLOCKS : 1][HALVES][F::MINIMA ? Shape::ROWS : 1]; // negated
    // Aligned, so that a lane reads its factors at once.
    alignas(16) float d[Shape::BLOCKS][Shape::TOKENS];
    float sum[F::MINIMA ? Shape::BLOCKS : 1][HALVES][F::MINIMA ? Shape::TOKENS : 1]; // d·Σq
};

// The part of a stage that a thread has loaded.
template <typename F, typename Shape>
struct MatmulFetch {
    typename F::Raw rows[Shape::FETCH_ROWS];
    u32x4 tokens[Shape::FETCH_TOKENS][2];
    f32x2 meta[Shape::FETCH_TOKENS];
    bool exists; // false for blocks after the last one
};

template <typename F, typename Shape>
struct Matmul {
    using Stage = MatmulStage<F, Shape>;
    using Fetch = MatmulFetch<F, Shape>;
    static constexpr u32 LANE_ROWS = Int8Tile::LANE_ROWS, LANE_TOKENS = Int8Tile::LANE_TOKENS;
    static constexpr u32 LANE_SUMS = LANE_ROWS * LANE_TOKENS;
    // The number of stages in LDS. NVIDIA: two, if they fit in the default 48 KiB together with the
    // grid of a codebook format, which has up to 4 KiB. AMD: one, which
    // allows four workgroups; these wait for each other less than waves do at a second barrier.
    static constexpr u32 BUFFERS = RF_MATMUL_BUFFERS == 2 && 2 * sizeof(Stage) <= 44 * 1024 ? 2 : 1;
    // Whether the next stage is loaded before the current one is multiplied. Without a matrix unit
    // all registers hold sums.
    static constexpr bool AHEAD = RF_MATRIX_UNIT && !(F::MINIMA && F::HALVES);
    // Whether activations are copied to LDS asynchronously. Q2K needs their sums by halves.
    static constexpr bool ASYNC = COPY_ASYNC && AHEAD && BUFFERS == 2;
    static constexpr u32 ACC_FLOATS = Shape::ROW_TILES * Shape::TOKEN_TILES * LANE_SUMS;
    static constexpr u32 PARTS_BYTES = parts_bytes<Shape>(ACC_FLOATS);
    static constexpr u32 STAGE_BYTES = BUFFERS * sizeof(Stage);
    static constexpr u32 LDS_BYTES = STAGE_BYTES > PARTS_BYTES ? STAGE_BYTES : PARTS_BYTES;
    
    // Sum n of a lane in tile (r, t): acc[(r · TOKEN_TILES + t) · LANE_SUMS + n].
    using Accumulator = float[ACC_FLOATS];

    // The operands of a workgroup. The weights start at its first row.
    RfWeight weight;
    const u8 *q;
    const float *meta;
    u32 blocks;
    u32 last_row;                      // the last valid one of this tile
    u32 tokens;                      // of this tile
    u32 x_rows[Shape::FETCH_TOKENS]; // rows of x of this thread, the last one instead of later ones

    // `to` is the destination of the stage.
    RF_DEVICE_MEMBER Fetch fetch(u32 stage, Stage &to) const {
        Fetch f;
        u32 thread = thread_x();
        u32 block = stage * Shape::BLOCKS + thread % Shape::BLOCKS;
        f.exists = block < blocks;
        block = f.exists ? block : blocks - 1;
        #pragma unroll
        for (u32 i = 0; i < Shape::FETCH_ROWS; i++) {
            u32 row = thread / Shape::BLOCKS + i * (Shape::THREADS / Shape::BLOCKS);
            row = row < last_row ? row : last_row;
            f.rows[i] = F::fetch(weight, row * blocks + block);
        }
        #pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            u32 token = thread / Shape::BLOCKS + i * (Shape::THREADS / Shape::BLOCKS);
            // Rows that do not exist are not loaded: several waves would load the same line.
            bool is_row = token < tokens;
            if constexpr (ASYNC) {
                if (Shape::ALL_FETCH || token < Shape::TOKENS) {
#pragma unroll
                    for (u32 h = 0; h < 2; h++) {
                        copy_async_16(to.tokens[thread % Shape::BLOCKS + h * Shape::BLOCKS] + token * HALF_BLOCK_BYTES,
                                      q + ((x_rows[i] * 2 + h) * blocks + block) * HALF_BLOCK_BYTES, is_row);
                    }
                }
            } else {
                f.tokens[i][0] = f.tokens[i][1] = u32x4{0, 0, 0, 0};
                if (is_row) {
#pragma unroll
                    for (u32 h = 0; h < 2; h++) f.tokens[i][h] = at<u32x4>(q, (x_rows[i] * 2 + h) * blocks + block);
                }
            }
            f.meta[i] = at<f32x2>(meta, x_rows[i] * blocks + block);
        }
        return f;
    }

    RF_DEVICE_MEMBER static void store(const Fetch &f, Stage &stage) {
        u32 thread = thread_x();
        u32 block = thread % Shape::BLOCKS;
        #pragma unroll
        for (u32 i = 0; i < Shape::FETCH_ROWS; i++) {
            u32 row = thread / Shape::BLOCKS + i * (Shape::THREADS / Shape::BLOCKS);
            u32 words[8];
            F::unpack(f.rows[i], words);
            put(words, stage.rows[0][block], stage.rows[0][block + Shape::BLOCKS], row);
            if constexpr (F::PARTS == 2) {
                F::unpack_large(f.rows[i], words);
                put(words, stage.rows[1][block], stage.rows[1][block + Shape::BLOCKS], row);
            }
            BlockScales s = F::scales(f.rows[i]);
            u32 slot = row / Int8Tile::ROWS * Int8Tile::ROWS + Int8Tile::row_slot(row % Int8Tile::ROWS);
            #pragma unroll
            for (u32 h = 0; h < Stage::HALVES; h++) {
                stage.scale[block][h][slot] = s.scale[h];
                if constexpr (F::MINIMA) stage.minimum[block][h][slot] = -s.minimum[h];
            }
        }
        #pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            u32 token = thread / Shape::BLOCKS + i * (Shape::THREADS / Shape::BLOCKS);
            if (!Shape::ALL_FETCH && token >= Shape::TOKENS) break;
            u32 slot = token / Int8Tile::TOKENS * Int8Tile::TOKENS + Int8Tile::token_slot(token % Int8Tile::TOKENS);
            // Blocks after the last one must not contribute. This is the first use of what was
            // loaded: an earlier one would wait for memory before the multiplication.
            float d = f.exists ? f.meta[i][0] : 0.0f;
            stage.d[block][slot] = d;
            #pragma unroll
            for (u32 h = 0; h < 2; h++) {
                if constexpr (!ASYNC) {
                    *(u32x4 *)(stage.tokens[block + h * Shape::BLOCKS] + token * HALF_BLOCK_BYTES) = f.tokens[i][h];
                }
                if constexpr (F::MINIMA && F::HALVES) {
                    i32 sum = 0;
                    #pragma unroll
                    for (u32 j = 0; j < 4; j++) sum = dot4(f.tokens[i][h][j], 0x01010101u, sum);
                    stage.sum[block][h][slot] = d * (float)sum;
                }
            }
            if constexpr (F::MINIMA && !F::HALVES) stage.sum[block][0][slot] = f.exists ? f.meta[i][1] : 0.0f;
        }
    }

    RF_DEVICE_MEMBER static void put(const u32 words[8], u8 *first, u8 *last, u32 row) {
        *(u32x4 *)(first + row * HALF_BLOCK_BYTES) = u32x4{words[0], words[1], words[2], words[3]};
        *(u32x4 *)(last + row * HALF_BLOCK_BYTES) = u32x4{words[4], words[5], words[6], words[7]};
    }

    // A lane's part of the tokens of one tile and block; sums if registers suffice.
    struct TokenTile {
        typename Int8Tile::Tokens q;
        float d[LANE_TOKENS], sum[LANE_TOKENS];
    };
    static constexpr bool KEEP_SUMS = F::MINIMA && !F::HALVES && RF_MATRIX_UNIT;

    RF_DEVICE_MEMBER static TokenTile load_tokens(const Stage &stage, u32 block, u32 first) {
        TokenTile tile;
        u32 slot = first + Int8Tile::token_base();
        tile.q = Int8Tile::load_tokens(stage.tokens[block] + first * HALF_BLOCK_BYTES,
                                       stage.tokens[block + Shape::BLOCKS] + first * HALF_BLOCK_BYTES);
#pragma unroll
        for (u32 j = 0; j < LANE_TOKENS; j++) {
            tile.d[j] = stage.d[block][slot + j];
            if constexpr (KEEP_SUMS) tile.sum[j] = stage.sum[block][0][slot + j];
        }
        return tile;
    }

    // A lane's part of the rows of one tile; bias = −SUM_BIAS · scale[0].
    struct RowFactors {
        float scale[Stage::HALVES][LANE_ROWS], bias[LANE_ROWS], minimum[LANE_ROWS];
    };

    // Adds one block of a stage to the sums of a wave.
    RF_DEVICE_MEMBER static void multiply(const Stage &stage, u32 block, u32 wave_row, u32 wave_token,
                                          const Int8Tile::Sums &start, Accumulator &acc) {
        // Tokens are read once for all rows, if registers suffice.
        TokenTile tiles[Shape::TOKEN_TILES];
        if constexpr (RF_MATRIX_UNIT) {
#pragma unroll
            for (u32 t = 0; t < Shape::TOKEN_TILES; t++) {
                tiles[t] = load_tokens(stage, block, wave_token + t * Int8Tile::TOKENS);
            }
        }
#pragma unroll
        for (u32 r = 0; r < Shape::ROW_TILES; r++) {
            u32 first = wave_row + r * Int8Tile::ROWS, slot = first + Int8Tile::row_base();
            typename Int8Tile::Rows rows[F::PARTS];
#pragma unroll
            for (u32 part = 0; part < F::PARTS; part++) {
                rows[part] = Int8Tile::load_rows(stage.rows[part][block] + first * HALF_BLOCK_BYTES,
                                                 stage.rows[part][block + Shape::BLOCKS] + first * HALF_BLOCK_BYTES);
            }
            RowFactors factors;
#pragma unroll
            for (u32 h = 0; h < Stage::HALVES; h++) {
#pragma unroll
                for (u32 i = 0; i < LANE_ROWS; i++) {
                    factors.scale[h][i] = stage.scale[block][h][slot + i];
                    if constexpr (KEEP_SUMS) factors.minimum[i] = stage.minimum[block][h][slot + i];
                }
            }
#pragma unroll
            for (u32 i = 0; i < LANE_ROWS; i++) factors.bias[i] = -SUM_BIAS * factors.scale[0][i];
#pragma unroll
            for (u32 t = 0; t < Shape::TOKEN_TILES; t++) {
                u32 first_token = wave_token + t * Int8Tile::TOKENS;
                if constexpr (!RF_MATRIX_UNIT) {
                    forget_memory();
                    tiles[t] = load_tokens(stage, block, first_token);
                }
                float *out = acc + (r * Shape::TOKEN_TILES + t) * LANE_SUMS;
                add_block(rows, factors, tiles[t], start, out);
                if constexpr (F::MINIMA && !KEEP_SUMS) {
                    schedule_fence();
                    forget_memory();
#pragma unroll
                    for (u32 n = 0; n < Stage::HALVES * LANE_SUMS; n++) {
                        u32 h = n / LANE_SUMS, i = n / LANE_TOKENS % LANE_ROWS, j = n % LANE_TOKENS;
                        float sum = stage.sum[block][h][first_token + Int8Tile::token_base() + j];
                        float minimum = stage.minimum[block][h][slot + i];
                        out[n % LANE_SUMS] = fma_pairable(n, minimum, sum, out[n % LANE_SUMS]);
                    }
                }
                schedule_fence();
            }
        }
    }

    // Adds one block of one tile to its sums. Operations that depend on the matrix unit are done
    // step by step for all sums rather than sum by sum: consecutive operations are then
    // independent, and RDNA3 issues many of them in pairs.
    RF_DEVICE_MEMBER static void add_block(const typename Int8Tile::Rows *rows, const RowFactors &factors,
                                           const TokenTile &tokens, const Int8Tile::Sums &start, float *out) {
        float part[LANE_SUMS];
        if constexpr (F::HALVES) {
            Int8Tile::Sums first_sums = Int8Tile::product_half(rows[0], tokens.q, 0, start), last_sums;
            float last[LANE_SUMS];
            if constexpr (RF_MATRIX_UNIT) last_sums = Int8Tile::product_half(rows[0], tokens.q, 1, start);
#pragma unroll
            for (u32 n = 0; n < LANE_SUMS; n++) {
                u32 i = n / LANE_TOKENS;
                part[n] = fma(biased(first_sums[n]), factors.scale[0][i], factors.bias[i]);
            }
            if constexpr (!RF_MATRIX_UNIT) {
                schedule_fence();
                last_sums = Int8Tile::product_half(rows[0], tokens.q, 1, start);
            }
#pragma unroll
            for (u32 n = 0; n < LANE_SUMS; n++) last[n] = biased(last_sums[n]) - SUM_BIAS;
            schedule_fence();
#pragma unroll
            for (u32 n = 0; n < LANE_SUMS; n++) part[n] = fma_pairable(n, factors.scale[1][n / LANE_TOKENS], last[n], part[n]);
        } else {
            Int8Tile::Sums from = start;
            if constexpr (F::PARTS == 2) {
                Int8Tile::Sums large = Int8Tile::product(rows[1], tokens.q, Int8Tile::start(0));
                from = Int8Tile::scaled(large, F::LARGE, SUM_START);
            }
            Int8Tile::Sums sums = Int8Tile::product(rows[0], tokens.q, from);
#pragma unroll
            for (u32 n = 0; n < LANE_SUMS; n++) {
                u32 i = n / LANE_TOKENS;
                part[n] = fma(biased(sums[n]), factors.scale[0][i], factors.bias[i]);
            }
        }
        schedule_fence();
#pragma unroll
        for (u32 n = 0; n < LANE_SUMS; n++) out[n] = fma(part[n], tokens.d[n % LANE_TOKENS], out[n]);
        if constexpr (KEEP_SUMS) {
#pragma unroll
            for (u32 n = 0; n < LANE_SUMS; n++) {
                float minimum = factors.minimum[n / LANE_TOKENS], sum = tokens.sum[n % LANE_TOKENS];
                out[n] = fma_pairable(n, minimum, sum, out[n]);
            }
        }
    }

    // shared · own + addend, the n-th of a sequence. On RDNA3 two paired instructions cannot have
    // the same register as the same operand, hence the order.
    RF_DEVICE_MEMBER static float fma_pairable(u32 n, float shared, float own, float addend) {
        return n % 2 ? fma(shared, own, addend) : fma(own, shared, addend);
    }

    RF_DEVICE_MEMBER static float biased(i32 sum) { return __builtin_bit_cast(float, sum); }

    RF_DEVICE_MEMBER static void run(const RfMatmulParams &params) {
        RF_SHARED static __attribute__((aligned(16))) u8 lds[LDS_BYTES];
        Stage *stages = reinterpret_cast<Stage *>(lds);
        load_grid<F>(Shape::THREADS);

        MatmulPlace place = place_of_group<Shape>(params);
        const RfProjection &p = place.projection;
        if (place.first_row >= p.rows || place.tokens == 0) return;
        Matmul self;
        self.blocks = params.columns / 32;
        self.weight = row_of<F>(p.weight, place.weight_row, self.blocks);
        self.q = (const u8 *)params.x_q8.q;
        self.meta = params.x_q8.meta;
        self.last_row = p.rows - 1 - place.first_row;
        self.tokens = place.tokens;
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            u32 token = thread_x() / Shape::BLOCKS + i * (Shape::THREADS / Shape::BLOCKS);
            self.x_rows[i] = place.x_row(params, token);
        }

        constexpr u32 TILE_WAVES = Shape::ROW_WAVES * Shape::TOKEN_WAVES;
        u32 tile_wave = wave() % TILE_WAVES, k_wave = wave() / TILE_WAVES;
        u32 wave_row = tile_wave % Shape::ROW_WAVES * Shape::WAVE_ROWS;
        u32 wave_token = tile_wave / Shape::ROW_WAVES * Shape::WAVE_TOKENS;

        Accumulator acc = {};
        Int8Tile::Sums start = Int8Tile::start(opaque(SUM_START));
        MatmulStages range = stages_of_group<Shape>(params, (self.blocks + Shape::BLOCKS - 1) / Shape::BLOCKS);
        // The loop must not be unrolled: the compiler would unpack during the multiplication and
        // need too many registers.
        u32 blocks_per_wave = opaque_uniform(Shape::BLOCKS / Shape::K_WAVES);
        Stage &first = stages[BUFFERS == 2 ? range.first % 2 : 0];
        store(self.fetch(range.first, first), first);
        if constexpr (ASYNC) copy_async_wait();
        lds_barrier();
#pragma unroll 1
        for (u32 s = range.first; s < range.end; s++) {
            bool more = s + 1 < range.end;
            const Stage &stage = stages[BUFFERS == 2 ? s % 2 : 0];
            Stage &other = stages[BUFFERS == 2 ? (s + 1) % 2 : 0];
            Fetch next;
            if (AHEAD && more) next = self.fetch(s + 1, other);
#pragma unroll 1
            for (u32 b = 0; b < blocks_per_wave; b++) {
                multiply(stage, k_wave * (Shape::BLOCKS / Shape::K_WAVES) + b, wave_row, wave_token, start, acc);
            }
            if (!more) break;
            if constexpr (!AHEAD) next = self.fetch(s + 1, other);
            if constexpr (BUFFERS == 1) lds_barrier();
            store(next, other);
            if constexpr (ASYNC) copy_async_wait();
            lds_barrier();
        }
        auto row_of_sum = [&](u32 n) {
            u32 r = n / LANE_SUMS / Shape::TOKEN_TILES;
            return place.first_row + wave_row + r * Int8Tile::ROWS + Int8Tile::row(n % LANE_SUMS / LANE_TOKENS);
        };
        auto token_of_sum = [&](u32 n) {
            u32 t = n / LANE_SUMS % Shape::TOKEN_TILES;
            return wave_token + t * Int8Tile::TOKENS + Int8Tile::token(n % LANE_TOKENS);
        };
        if constexpr (Shape::K_WAVES > 1) add_parts<Shape>(acc, reinterpret_cast<float *>(lds), k_wave, tile_wave);
        if (Shape::SPLIT && params.parts > 1) {
            write_parts<Shape>(params, place, acc, k_wave, tile_wave, row_of_sum, token_of_sum);
            return;
        }
        if (Shape::K_WAVES > 1 && k_wave > 0) return;
        u32 out_rows[Shape::TOKEN_TILES * LANE_TOKENS];
#pragma unroll
        for (u32 i = 0; i < Shape::TOKEN_TILES * LANE_TOKENS; i++) {
            u32 token = wave_token + i / LANE_TOKENS * Int8Tile::TOKENS + Int8Tile::token(i % LANE_TOKENS);
            out_rows[i] = token < place.tokens ? place.out_row(params, token) : NO_ROW;
        }
        auto out_row_of = [&](u32 n) { return out_rows[n / LANE_SUMS % Shape::TOKEN_TILES * LANE_TOKENS + n % LANE_TOKENS]; };
        write_sums<ACC_FLOATS>(params, p, row_of_sum, out_row_of, [&](u32 n) { return acc[n]; });
    }
};

} // namespace rf

#define RF_MATMUL_OF(SHAPE, PREFIX, NAME, FORMAT)                                                                      \
    RF_MATMUL_KERNEL(rf::SHAPE) PREFIX##_##NAME##_q8_f32(RfMatmulParams p) { rf::Matmul<rf::FORMAT, rf::SHAPE>::run(p); }

// Matrix units multiply up to 64 tokens with f16 operands: rf/matmul_skinny.h.
#if RF_MATRIX_UNIT
#define RF_MATMUL_SLIM(NAME, FORMAT)
#else
#define RF_MATMUL_SLIM(NAME, FORMAT)                                                                                   \
    RF_MATMUL_OF(MatmulSlim64, matmul_slim64, NAME, FORMAT)                                                            \
    RF_MATMUL_OF(MatmulSlim32, matmul_slim32, NAME, FORMAT)                                                            \
    RF_MATMUL_OF(MatmulSlim16, matmul_slim16, NAME, FORMAT)
#endif

// The kernels of one format: RfMatmulParams; grid [tiles of tokens, Σ ⌈rows / ROWS⌉, parts of the
// columns], Shape::THREADS threads.
#define RF_MATMUL(NAME, FORMAT, NUMBER)                                                                                \
    RF_MATMUL_OF(MatmulWide, matmul_wide, NAME, FORMAT)                                                                \
    RF_MATMUL_OF(MatmulMiddle, matmul_middle, NAME, FORMAT)                                                            \
    RF_MATMUL_OF(MatmulNarrow, matmul_narrow, NAME, FORMAT)                                                            \
    RF_MATMUL_SLIM(NAME, FORMAT)
