// Matrix × few rows on f16 matrix units, for every format: out[token][row] = Σ_c w[row][c] ·
// x[token][c] for 2 to 64 tokens. Its time is that of reading the weights once.
//
// A lane owns whole blocks: it loads a block of 32 columns of a row of weights with one
// instruction, unpacks it to f16 words (halves.h) in registers, and loads the words of the same
// block of a row of activations, which lie in the same order. The sum over columns may take them in
// any order, so these words are the operands of the matrix unit as they are: neither LDS nor an
// exchange between lanes is needed (but for RDNA 3, whose operands are in both halves of a wave).
//
// A workgroup of 4 waves computes 32 rows for all tokens; each wave has every 4th step of
// SkinnyUnit::BLOCKS blocks. If the rows are too few to fill the device, further workgroups divide
// the columns. Waves add their sums in LDS, workgroups in memory, in a fixed order.
//
// Beyond 32 tokens, activations are most of the bytes that a multiprocessor of NVIDIA reads. There
// a wave has 32 rows of its own and all steps, and the waves share the activations of a step in
// LDS.
//
// Bytes moved: the weights once; activations come from the caches, 64 bytes per block and token for
// each 32 rows, or 128. Per block of a row: about 50 instructions of one lane unpack 4-bit weights.
#pragma once

#include "rf/activation.h"
#include "rf/copy_async.h"
#include "rf/halves.h"
#include "rf/matmul_tile.h"
#include "rf/matvec.h"
#include "rf/params/skinny.h"
#include "rf/rows.h"

#if RF_MATRIX_UNIT

namespace rf {

// The matrix unit with operands that lie in lanes by blocks. A tile is 16 rows by TOKENS tokens.
#if RF_NVIDIA
// mma.sync m16n8k16: lane 4g + j has columns of block j of rows g and g + 8, and of token g.
struct SkinnyUnit {
    static constexpr u32 BLOCKS = 4, LANE_ROWS = 2, X_BLOCKS = 1, TOKENS = 8, SUMS = 4;
    using Sums = f32x4;
    RF_DEVICE_MEMBER static u32 block() { return lane() % 4; }
    RF_DEVICE_MEMBER static u32 row(u32 i) { return lane() / 4 + 8 * i; }
    RF_DEVICE_MEMBER static u32 token() { return lane() / 4; }
    RF_DEVICE_MEMBER static u32 sum_row(u32 e) { return lane() / 4 + e / 2 * 8; }
    RF_DEVICE_MEMBER static u32 sum_token(u32 e) { return lane() % 4 * 2 + e % 2; }

    struct Rows {
        u32 words[LANE_ROWS][HALF_WORDS];
    };
    RF_DEVICE_MEMBER static void prepare(Rows &) {}
    RF_DEVICE_MEMBER static void multiply_add(const Rows &w, const u32 (&x)[X_BLOCKS][HALF_WORDS], Sums &sums) {
        float a = sums[0], b = sums[1], c = sums[2], d = sums[3];
#pragma unroll
        for (u32 i = 0; i < HALF_WORDS; i += 2) {
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                : "r"(w.words[0][i]), "r"(w.words[1][i]), "r"(w.words[0][i + 1]), "r"(w.words[1][i + 1]), "r"(x[0][i]),
                  "r"(x[0][i + 1]));
        }
        sums = Sums{a, b, c, d};
    }
    RF_DEVICE_MEMBER static void pin(Sums &) {}
};
#elif RF_GFX12
// Lane 16h + r has the columns of block h of row r, and of token r.
struct SkinnyUnit {
    static constexpr u32 BLOCKS = 2, LANE_ROWS = 1, X_BLOCKS = 1, TOKENS = 16, SUMS = 8;
    using Sums = f32x8;
    RF_DEVICE_MEMBER static u32 block() { return lane() / 16; }
    RF_DEVICE_MEMBER static u32 row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 token() { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 sum_row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 sum_token(u32 e) { return lane() / 16 * 8 + e; }

    struct Rows {
        u32 words[LANE_ROWS][HALF_WORDS];
    };
    RF_DEVICE_MEMBER static void prepare(Rows &) {}
    RF_DEVICE_MEMBER static void multiply_add(const Rows &w, const u32 (&x)[X_BLOCKS][HALF_WORDS], Sums &sums) {
#pragma unroll
        for (u32 i = 0; i < HALF_WORDS; i += 4) {
            u32x4 rows = {w.words[0][i], w.words[0][i + 1], w.words[0][i + 2], w.words[0][i + 3]};
            u32x4 tokens = {x[0][i], x[0][i + 1], x[0][i + 2], x[0][i + 3]};
            sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8, tokens),
                                                                    __builtin_bit_cast(f16x8, rows), sums);
        }
    }
    // Loads of the next activations come after this point: all at once, they would need too many
    // registers.
    RF_DEVICE_MEMBER static void pin(Sums &sums) { asm volatile("" : "+v"(sums) : : "memory"); }
};
#else
// Both halves of a wave have all columns of an operand. A lane loads one block of a row, and gets
// the other one from the other half; it loads both blocks of its token.
struct SkinnyUnit {
    static constexpr u32 BLOCKS = 2, LANE_ROWS = 1, X_BLOCKS = 2, TOKENS = 16, SUMS = 8;
    using Sums = f32x8;
    RF_DEVICE_MEMBER static u32 block() { return lane() / 16; }
    RF_DEVICE_MEMBER static u32 row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 token() { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 sum_row(u32) { return lane() % 16; }
    RF_DEVICE_MEMBER static u32 sum_token(u32 e) { return lane() / 16 + 2 * e; }

    struct Rows {
        u32 words[LANE_ROWS][HALF_WORDS]; // of the own block; after `prepare` of the first one
        u32 last[HALF_WORDS];
    };
    RF_DEVICE_MEMBER static void prepare(Rows &w) {
        bool upper = lane() >= 16;
#pragma unroll
        for (u32 i = 0; i < HALF_WORDS; i++) {
            u32 own = w.words[0][i], other = xor_lane<16>(own);
            w.words[0][i] = upper ? other : own;
            w.last[i] = upper ? own : other;
        }
    }
    RF_DEVICE_MEMBER static f16x16 operand(const u32 *words) {
        typedef u32 u32x8 __attribute__((ext_vector_type(8)));
        u32x8 v;
#pragma unroll
        for (u32 i = 0; i < 8; i++) v[i] = words[i];
        return __builtin_bit_cast(f16x16, v);
    }
    RF_DEVICE_MEMBER static void multiply_add(const Rows &w, const u32 (&x)[X_BLOCKS][HALF_WORDS], Sums &sums) {
#pragma unroll
        for (u32 i = 0; i < HALF_WORDS; i += 8) {
            sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(operand(x[0] + i), operand(w.words[0] + i), sums);
            sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(operand(x[1] + i), operand(w.last + i), sums);
        }
    }
    // Loads of the next activations come after this point: all at once, they would need too many
    // registers.
    RF_DEVICE_MEMBER static void pin(Sums &sums) { asm volatile("" : "+v"(sums) : : "memory"); }
};
#endif

constexpr u32 SKINNY_WAVES = 4, SKINNY_THREADS = SKINNY_WAVES * WAVE;
// With few tokens on NVIDIA a workgroup can have more waves, which add their sums in LDS instead of
// memory.
constexpr u32 skinny_max_waves([[maybe_unused]] u32 tokens) {
#if RF_NVIDIA
    return tokens <= 16 ? 12 : SKINNY_WAVES;
#else
    return SKINNY_WAVES;
#endif
}
constexpr u32 SKINNY_ROW_TILES = 2, SKINNY_ROWS = 16 * SKINNY_ROW_TILES;

// A factor per token: that of its row of x, and of a norm that the row lacks. The loads for
// TOGETHER tokens of a wave are in flight together.
template <u32 TOGETHER, u32 TOKENS>
RF_DEVICE void token_factors(const RfSkinnyParams &p, u32 waves, float (&factors)[TOKENS]) {
    const RfNormIn &norm = p.norm_in;
#pragma unroll 1
    for (u32 first = wave(); first < p.tokens; first += TOGETHER * waves) {
        u32 token[TOGETHER];
        float factor[TOGETHER], squares[TOGETHER] = {};
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            token[i] = first + i * waves < p.tokens ? first + i * waves : first;
            factor[i] = p.x_f16.scale[token[i]];
        }
#pragma unroll 4
        for (u32 block = lane(); block < norm.count; block += WAVE) {
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) squares[i] += norm.squares[(u64)token[i] * norm.count + block];
        }
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            factor[i] *= norm_factor(norm, squares[i], p.columns);
            if (lane() == 0) factors[token[i]] = factor[i];
        }
    }
}

// LDS for the sums of waves, and before that for two stages of activations.
template <typename Stage, u32 WAVES, u32 PASS_TOKENS, bool HAS_STAGES>
union SkinnyExchange {
    float sums[WAVES][SKINNY_ROWS][PASS_TOKENS + 1]; // in different banks for different rows
    Stage stages[2];
};
template <typename Stage, u32 WAVES, u32 PASS_TOKENS>
union SkinnyExchange<Stage, WAVES, PASS_TOKENS, false> {
    float sums[WAVES][SKINNY_ROWS][PASS_TOKENS + 1];
};

template <typename F, u32 TOKEN_TILES>
struct SkinnyMatmul {
    using Unit = SkinnyUnit;
    static constexpr u32 TOKENS = TOKEN_TILES * Unit::TOKENS;
    // Waves have rows of their own, and share activations.
    static constexpr bool OWN_ROWS = COPY_ASYNC && TOKENS >= 64;
    // Waves of a workgroup: those of RfSkinnyParams up to this number where it is above
    // SKINNY_WAVES.
    static constexpr u32 MAX_WAVES = skinny_max_waves(TOKENS);
    // Tokens of a wave whose results are in flight together, and parts of their sums. On AMD
    // other waves hide the loads.
#if RF_NVIDIA
    static constexpr u32 TOGETHER = OWN_ROWS ? 16 : TOKENS / SKINNY_WAVES, PARTS_TOGETHER = 4;
    static constexpr u32 FACTORS_TOGETHER = TOKENS / SKINNY_WAVES;
#else
    static constexpr u32 TOGETHER = 1, PARTS_TOGETHER = 1, FACTORS_TOGETHER = 1;
#endif
    // Tokens whose sums waves exchange at a time.
    static constexpr u32 PASS_TOKENS = TOKENS < 32 ? TOKENS : 32, PASS_TILES = PASS_TOKENS / Unit::TOKENS;
    // Pieces of a step of a token.
    static constexpr u32 PIECES = Unit::BLOCKS * HALF_WORDS / 4;
    using Raw = typename F::Raw[SKINNY_ROW_TILES][Unit::LANE_ROWS];
    using Sums = typename Unit::Sums[SKINNY_ROW_TILES][TOKEN_TILES];

    // The activations of a step: pieces of 16 bytes, at places that spread them over the banks.
    struct Stage {
        u32x4 pieces[TOKENS][PIECES];
    };
    using Exchange = SkinnyExchange<Stage, MAX_WAVES, PASS_TOKENS, OWN_ROWS>;
    struct Lds {
        Exchange exchange;
        float factors[TOKENS];
        u32 arrived;
    };

    // The weights of the two row tiles, each starting at its first row, and their last valid rows.
    RfWeight weight[SKINNY_ROW_TILES];
    u32 last_row[SKINNY_ROW_TILES];
    float unit[SKINNY_ROW_TILES];
    const u32 *x; // words
    u32 blocks, tokens;
    u32 own_results; // tokens of this wave's results; with own rows only
    u32 waves;       // of the workgroup; with MAX_WAVES above SKINNY_WAVES only

    // Waves among which the steps of a row and its results are divided.
    RF_DEVICE_MEMBER u32 row_waves() const { return OWN_ROWS ? 1 : MAX_WAVES == SKINNY_WAVES ? SKINNY_WAVES : waves; }

    RF_DEVICE_MEMBER void fetch(Raw &raw, u32 step) const {
        u32 block = step * Unit::BLOCKS + Unit::block();
        block = block < blocks ? block : blocks - 1;
#pragma unroll
        for (u32 r = 0; r < SKINNY_ROW_TILES; r++) {
#pragma unroll
            for (u32 i = 0; i < Unit::LANE_ROWS; i++) {
                u32 row = Unit::row(i);
                raw[r][i] = F::fetch(weight[r], (row < last_row[r] ? row : last_row[r]) * blocks + block);
            }
        }
    }

    // The words of this lane's token in a tile of tokens: zeros for tokens and blocks that do not
    // exist.
    RF_DEVICE_MEMBER void fetch_x(u32 (&words)[Unit::X_BLOCKS][HALF_WORDS], u32 step, u32 tile) const {
        u32 token = tile * Unit::TOKENS + Unit::token();
#pragma unroll
        for (u32 b = 0; b < Unit::X_BLOCKS; b++) {
            u32 block = step * Unit::BLOCKS + (Unit::X_BLOCKS == 1 ? Unit::block() : b);
            const u32x4 *from = reinterpret_cast<const u32x4 *>(x + ((u64)token * blocks + block) * HALF_WORDS);
            bool exists = token < tokens && block < blocks;
#pragma unroll
            for (u32 i = 0; i < HALF_WORDS / 4; i++) {
                u32x4 part = {0, 0, 0, 0};
                if (exists) part = from[i];
#pragma unroll
                for (u32 j = 0; j < 4; j++) words[b][4 * i + j] = part[j];
            }
        }
    }

    // The place of a piece of a token. The eight lanes that read at the same time have the same
    // word of four blocks of an even and of an odd token.
    RF_DEVICE_MEMBER static u32 place_of_piece(u32 token, u32 piece) {
        return piece ^ (piece / 8 % 2) ^ (token % 2 * 2);
    }
    // Starts to copy the activations of a step, with zeros for tokens and blocks that do not exist.
    RF_DEVICE_MEMBER void copy_x(Stage &stage, u32 step) const {
        u32 piece = thread_x() % PIECES, block = step * Unit::BLOCKS + piece / 4;
#pragma unroll
        for (u32 first = 0; first < TOKENS; first += SKINNY_THREADS / PIECES) {
            u32 token = first + thread_x() / PIECES;
            const u32 *from = x + ((u64)token * blocks + block) * HALF_WORDS + piece % 4 * 4;
            copy_async_16(&stage.pieces[token][place_of_piece(token, piece)], from, token < tokens && block < blocks);
        }
        copy_async_commit();
    }
    // As fetch_x, of a copied step.
    RF_DEVICE_MEMBER static void read_x(u32 (&words)[Unit::X_BLOCKS][HALF_WORDS], const Stage &stage, u32 tile) {
        u32 token = tile * Unit::TOKENS + Unit::token();
#pragma unroll
        for (u32 i = 0; i < HALF_WORDS / 4; i++) {
            u32x4 part = stage.pieces[token][place_of_piece(token, Unit::block() * 4 + i)];
#pragma unroll
            for (u32 j = 0; j < 4; j++) words[0][4 * i + j] = part[j];
        }
    }

    // The sums of this wave's steps of the range. The weights of the next step are loaded as soon
    // as those of this one are unpacked.
    RF_DEVICE_MEMBER void add_steps(const RfSkinnyParams &p, Lds &lds, MatmulStages range, Sums &sums) const {
        Exchange &exchange = lds.exchange;
        u32 step = range.first + (OWN_ROWS ? 0 : wave());
        Raw raw;
        if (step < range.end) fetch(raw, step);
        await_previous_kernels();
        if constexpr (OWN_ROWS) copy_x(exchange.stages[step % 2], step);
        // Where each wave has many, while the first weights are in flight.
        if constexpr (OWN_ROWS) token_factors<FACTORS_TOGETHER>(p, SKINNY_WAVES, lds.factors);
#pragma unroll 1
        for (; step < range.end; step += row_waves()) {
            if constexpr (OWN_ROWS) {
                // All waves have read the stage that the next copies overwrite.
                copy_async_wait();
                lds_barrier();
                if (step + 1 < range.end) copy_x(exchange.stages[(step + 1) % 2], step + 1);
            }
            typename Unit::Rows rows[SKINNY_ROW_TILES];
#pragma unroll
            for (u32 r = 0; r < SKINNY_ROW_TILES; r++) {
#pragma unroll
                for (u32 i = 0; i < Unit::LANE_ROWS; i++) F::halves(raw[r][i], unit[r], rows[r].words[i]);
                Unit::prepare(rows[r]);
            }
            if (step + row_waves() < range.end) fetch(raw, step + row_waves());
#pragma unroll
            for (u32 t = 0; t < TOKEN_TILES; t++) {
                u32 words[Unit::X_BLOCKS][HALF_WORDS];
                if constexpr (OWN_ROWS) {
                    read_x(words, exchange.stages[step % 2], t);
                } else {
                    fetch_x(words, step, t);
                }
#pragma unroll
                for (u32 r = 0; r < SKINNY_ROW_TILES; r++) {
                    Unit::multiply_add(rows[r], words, sums[r][t]);
                    Unit::pin(sums[r][t]);
                }
            }
        }
    }

    // Calls f(sum, token, load(token)) with lane r of a wave for row r, for the tokens of this wave
    // from `first` to `end`; sum(tokens, sums) adds up several. The loads for several tokens are on
    // their way together.
    template <typename Sum, typename Load, typename Function>
    RF_DEVICE_MEMBER void for_tokens(u32 first, u32 end, Sum sum, Load load, Function f) const {
#pragma unroll 1
        for (u32 token = first + (OWN_ROWS ? 0 : wave()); token < end; token += TOGETHER * row_waves()) {
            float sums[TOGETHER] = {}, loaded[TOGETHER];
            u32 own[TOGETHER];
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) {
                // No branches: after the last token the first one is read and written again.
                own[i] = token + i * row_waves() < end ? token + i * row_waves() : token;
                loaded[i] = load(own[i]);
            }
            sum(own, sums);
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) f(sums[i], own[i], loaded[i]);
        }
    }

    // Adds the sums of the waves of a row: see for_tokens.
    template <typename Load, typename Function>
    RF_DEVICE_MEMBER void add_waves(Lds &lds, const Sums &sums, Load load, Function f) const {
        auto &of_waves = lds.exchange.sums;
#pragma unroll
        for (u32 first = 0; first < TOKEN_TILES; first += PASS_TILES) {
            if (OWN_ROWS || first > 0) lds_barrier();
#pragma unroll
            for (u32 r = 0; r < SKINNY_ROW_TILES; r++) {
#pragma unroll
                for (u32 t = 0; t < PASS_TILES; t++) {
#pragma unroll
                    for (u32 e = 0; e < Unit::SUMS; e++) {
                        u32 row = r * 16 + Unit::sum_row(e), token = t * Unit::TOKENS + Unit::sum_token(e);
                        of_waves[wave()][row][token] = sums[r][first + t][e];
                    }
                }
            }
            lds_barrier();
            u32 before = first * Unit::TOKENS, end = before + PASS_TOKENS;
            end = end < results() ? end : results();
            auto sum = [&](const u32 (&own)[TOGETHER], float (&of)[TOGETHER]) {
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++)
#pragma unroll 4
                    for (u32 w = 0; w < row_waves(); w++)
                        of[i] += of_waves[OWN_ROWS ? wave() : w][lane()][own[i] - before];
            };
            for_tokens(before, end, sum, load, f);
        }
    }

    // As add_waves, also over all workgroups with other columns of these rows, and with the factor
    // of each token applied. The last workgroup to arrive calls f.
    template <typename Load, typename Function>
    RF_DEVICE_MEMBER void total(const RfSkinnyParams &p, Lds &lds, const Sums &sums, Load load, Function f) const {
        auto scaled = [&](float sum, u32 token, float loaded) { f(sum * lds.factors[token], token, loaded); };
        if (p.parts == 1) {
            add_waves(lds, sums, load, scaled);
            return;
        }
        float *parts = p.partials + (u64)group() * p.parts * (SKINNY_ROWS * TOKENS) + lane();
        auto nothing = [](u32) { return 0.0f; };
        add_waves(lds, sums, nothing,
                  [&](float sum, u32 token, float) { parts[(group_y() * TOKENS + token) * SKINNY_ROWS] = sum; });
        device_fence();
        barrier();
        if (thread_x() == 0) lds.arrived = arrive(p.arrivals + group_x());
        barrier();
        if (lds.arrived + 1 != p.parts) return;
        device_fence();
        if (thread_x() == 0) p.arrivals[group_x()] = 0;
        auto sum = [&](const u32 (&own)[TOGETHER], float (&of)[TOGETHER]) {
            for (u32 first = 0; first < p.parts; first += PARTS_TOGETHER) {
                float values[PARTS_TOGETHER][TOGETHER];
#pragma unroll
                for (u32 k = 0; k < PARTS_TOGETHER; k++) {
                    // No branch around a load: after the last part it is read again.
                    u32 part = first + k < p.parts ? first + k : p.parts - 1;
#pragma unroll
                    for (u32 i = 0; i < TOGETHER; i++)
                        values[k][i] = parts[(part * TOKENS + own[i]) * SKINNY_ROWS];
                }
#pragma unroll
                for (u32 k = 0; k < PARTS_TOGETHER; k++)
#pragma unroll
                    for (u32 i = 0; i < TOGETHER; i++) of[i] += first + k < p.parts ? values[k][i] : 0.0f;
            }
        };
        for_tokens(0, results(), sum, load, scaled);
    }

    // The tokens whose results this wave computes.
    RF_DEVICE_MEMBER u32 results() const { return OWN_ROWS ? own_results : tokens; }
    // The number of this wave's 32 rows among those of all projections.
    RF_DEVICE_MEMBER static u32 group() { return OWN_ROWS ? group_x() * SKINNY_WAVES + wave() : group_x(); }

    RF_DEVICE_MEMBER static void run(const RfSkinnyParams &p) {
        RF_SHARED static Lds lds;
        allow_next_kernel();
        F::prepare((MAX_WAVES == SKINNY_WAVES ? SKINNY_WAVES : p.waves) * WAVE);
        bool is_glu = p.epilogue == RF_SKINNY_GLU;
        // Pointers that are loaded after a fence would be flat: of memory or LDS.
        const RfHalves out = p.out;
        const float *residual = p.residual, *norm_weight = p.norm_weight;
        float *squares_out = p.squares, *out_f32 = p.out_f32;
        // Of gate and up the same 16 rows; otherwise 32 rows of a projection.
        u32 rows_per_group = is_glu ? SKINNY_ROWS / 2 : SKINNY_ROWS;
        Place place = place_of(p.projections, is_glu ? 1 : p.num_projections, group(), rows_per_group);
        const RfProjection projection = p.projections[place.projection];
        SkinnyMatmul self;
        self.blocks = p.columns / 32;
        self.tokens = self.own_results = p.tokens;
        self.waves = p.waves;
        self.x = static_cast<const u32 *>(p.x_f16.x);
        const RfProjection &up = is_glu ? p.projections[1] : projection;
        u32 end = projection.rows;
        // Waves after the last row have no result, but copy activations for the others.
        if (OWN_ROWS && place.row >= end) place.row = 0, self.own_results = 0;
        u32 second = is_glu ? place.row : place.row + 16;
        second = second < end ? second : end - 1;
        self.weight[0] = row_of<F>(projection.weight, place.row, self.blocks);
        self.weight[1] = row_of<F>(up.weight, second, self.blocks);
        self.last_row[0] = end - 1 - place.row;
        self.last_row[1] = end - 1 - second;
        self.unit[0] = projection.half_unit;
        self.unit[1] = up.half_unit;

        Sums sums = {};
        u32 steps = (self.blocks + Unit::BLOCKS - 1) / Unit::BLOCKS;
        self.add_steps(p, lds, {steps * group_y() / p.parts, steps * (group_y() + 1) / p.parts}, sums);
#pragma unroll
        for (u32 r = 0; r < SKINNY_ROW_TILES; r++) {
#pragma unroll
            for (u32 t = 0; t < TOKEN_TILES; t++) sums[r][t] *= reciprocal(self.unit[r]);
        }
        if constexpr (!OWN_ROWS) token_factors<FACTORS_TOGETHER>(p, self.row_waves(), lds.factors);
        if (is_glu) {
            auto nothing = [](u32) { return 0.0f; };
            self.total(p, lds, sums, nothing, [&](float sum, u32 token, float) {
                u32 column = place.row + lane() % 16;
                float v = gated_unit(p.activation, sum, xor_lane<16>(sum));
                if (lane() < 16 && column < end) store_f16_of(out, token, end, column, v);
            });
        } else {
            u32 row = place.row + lane();
            bool inside = row < end;
            auto index = [&](u32 token) { return (u64)token * end + (inside ? row : 0); };
            float bias = projection.bias && inside ? projection.bias[row] : 0.0f;
            auto before = [&](u32 token) { return residual ? residual[index(token)] : 0.0f; };
            self.total(p, lds, sums, before, [&](float sum, u32 token, float before) {
                sum = sum + bias + before;
                if (inside) projection.out[index(token)] = sum;
                if (p.epilogue != RF_SKINNY_NORM) return;
                float squares = wave_sum(inside ? sum * sum : 0.0f);
                if (lane() == 0) squares_out[(u64)token * (end / SKINNY_ROWS) + group()] = squares;
                float v = sum * norm_weight[inside ? row : 0];
                if (inside) store_f16_of(out, token, end, row, v);
                if (inside && out_f32) out_f32[index(token)] = v;
            });
        }
    }
};

} // namespace rf

// The kernel of one format for a number of tiles of tokens: RfSkinnyParams; grid [Σ ⌈rows / 32⌉
// (gate and up: ⌈rows / 16⌉), parts of the columns], SKINNY_THREADS threads; beyond 32 tokens, a
// quarter of these workgroups on NVIDIA.
#define RF_SKINNY_OF(NAME, FORMAT, N)                                                                                  \
    RF_SKINNY_KERNEL(N) matmul_skinny##N##_##NAME##_f16_f32(RfSkinnyParams p) {                                        \
        rf::SkinnyMatmul<FORMAT, N / rf::SkinnyUnit::TOKENS>::run(p);                                                  \
    }
#else
#define RF_SKINNY_OF(NAME, FORMAT, N)
#endif

#if RF_NVIDIA
#define RF_SKINNY_KERNEL(N)                                                                                            \
    RF_KERNEL_AT_ONCE(rf::skinny_max_waves(N) * rf::WAVE, N <= 16 ? 1 : N <= 32 ? 3 : 2)
#define RF_SKINNY_SMALLEST(NAME, FORMAT) RF_SKINNY_OF(NAME, FORMAT, 8)
#else
#define RF_SKINNY_KERNEL(N) RF_LARGE_KERNEL(rf::SKINNY_THREADS)
#define RF_SKINNY_SMALLEST(NAME, FORMAT)
#endif

#define RF_SKINNY_MATMULS(NAME, FORMAT)                                                                                \
    RF_SKINNY_SMALLEST(NAME, FORMAT)                                                                                   \
    RF_SKINNY_OF(NAME, FORMAT, 16)                                                                                     \
    RF_SKINNY_OF(NAME, FORMAT, 32)                                                                                     \
    RF_SKINNY_OF(NAME, FORMAT, 64)
#define RF_SKINNY(NAME, FORMAT, NUMBER) RF_SKINNY_MATMULS(NAME, rf::Halves<rf::FORMAT>)
