// The output of tiles of f16 matmuls (rf/matmul_half.h): the sums of tiles that several workgroups
// share, and the writes of sums with their epilogues.
#pragma once

#include "rf/activation.h"
#include "rf/matmul_tile.h"
#include "rf/mma_f16.h"
#include "rf/rows.h"
#include "rf/wgmma.h"

#if RF_MATRIX_UNIT

namespace rf {

// The stages of the tiles from `first_tile` on, numbered tile by tile and divided over the first
// `sharers` workgroups.
struct HalfShares {
    u32 stages;     // of a tile
    u32 first_tile;
    u32 units;      // stages of all these tiles
    u32 least, larger; // units of a workgroup; the first `larger` workgroups have one more

    RF_DEVICE_MEMBER static HalfShares of(const RfMatmulParams &params, u32 tiles, u32 stages) {
        u32 first_tile = params.rounds * params.streams, units = (tiles - first_tile) * stages;
        return {stages, first_tile, units, units / params.sharers, units % params.sharers};
    }
    // The first unit of a workgroup.
    RF_DEVICE_MEMBER u32 first(u32 group) const {
        u32 unit = group * least + (group < larger ? group : larger);
        return unit < units ? unit : units;
    }
    // The workgroup of a unit.
    RF_DEVICE_MEMBER u32 owner(u32 unit) const {
        u32 in_larger = larger * (least + 1);
        return unit < in_larger ? unit / (least + 1) : larger + (unit - in_larger) / least;
    }
};

// `Shape` is a HalfShape. The workgroup has LAUNCHED threads: more than multiply, if some only copy
// operands.
template <typename Shape, u32 LAUNCHED>
struct HalfOutput {
    using Sums = MatrixTile::Accumulator[Shape::ROW_TILES][Shape::TOKEN_TILES];
    // Distance of the sums of tokens in LDS: of a tile, and of a wave. Different tokens are in
    // different banks.
    static constexpr u32 TOKEN_STRIDE = Shape::ROWS + 4, GATED_STRIDE = Shape::WAVE_ROWS + 4;
    using LdsTokens = float (*)[TOKEN_STRIDE];
    // With sums in LDS all waves write tokens: half of their own ones together, so that the loads
    // of many are in flight.
    static constexpr u32 WAVES = LAUNCHED / WAVE, HALF = (Shape::TOKENS / WAVES + 1) / 2;
    static constexpr u32 TOGETHER = HALF > 8 ? HALF : 8;
    // LDS that the writes need.
    static constexpr u32 LDS_FLOATS = WGMMA ? Shape::TOKENS * TOKEN_STRIDE : Shape::THREADS / WAVE * TILE * GATED_STRIDE;
    static constexpr u32 LDS_BYTES = LDS_FLOATS * sizeof(float);

    RF_DEVICE_MEMBER static LdsTokens tokens_in(void *lds) { return static_cast<LdsTokens>(lds); }

    // Calls f(n, tile, e) for the sums 4n … 4n + 3 of a lane, which are sums e … e + 3 of a tile of
    // the matrix unit.
    template <typename Function>
    RF_DEVICE_MEMBER static void for_each_four(Sums &sums, Function f) {
#pragma unroll
        for (u32 n = 0; n < Shape::SUMS / 4; n++) {
            // Otherwise the compiler would load all sums at once and need twice the registers.
            if (n % 2 == 0) schedule_fence();
            f(n, sums[n / 2 / Shape::TOKEN_TILES][n / 2 % Shape::TOKEN_TILES], n % 2 * 4);
        }
    }

    // The sums of a lane in slot `slot`; the next four of a lane are THREADS places further.
    RF_DEVICE_MEMBER static f32x4 *slot_of(const RfMatmulParams &params, u32 slot) {
        return reinterpret_cast<f32x4 *>(params.partials) + (u64)slot * (Shape::SUMS / 4 * Shape::THREADS) + thread_x();
    }

    // Passes the sums of a part of a tile on. Returns true in the workgroup that is the last to do
    // so, with the sums of the whole tile. A workgroup has parts of at most two tiles: it continues
    // one (slot 2g) and begins another (slot 2g + 1).
    RF_DEVICE_MEMBER static bool join(const RfMatmulParams &params, const HalfShares &shares, u32 tile, Sums &sums) {
        RF_SHARED static u32 arrived;
        u32 group = group_x(), first_unit = tile * shares.stages;
        u32 first_group = shares.owner(first_unit), last_group = shares.owner(first_unit + shares.stages - 1);
        f32x4 *own = slot_of(params, 2 * group + (group == first_group));
        for_each_four(sums, [&](u32 n, auto &tile, u32 e) {
            own[n * Shape::THREADS] = f32x4{tile[e], tile[e + 1], tile[e + 2], tile[e + 3]};
        });
        device_fence();
        barrier();
        if (thread_x() == 0) arrived = arrive(params.arrivals + first_group);
        barrier();
        if (arrived != last_group - first_group) return false;
        device_fence();
        if (thread_x() == 0) params.arrivals[first_group] = 0;
        const f32x4 *from = slot_of(params, 2 * first_group + 1);
        for_each_four(sums, [&](u32 n, auto &tile, u32 e) {
            f32x4 four = from[n * Shape::THREADS];
            for (u32 i = 0; i < 4; i++) tile[e + i] = four[i];
        });
#pragma unroll 1
        for (u32 g = first_group + 1; g <= last_group; g++) {
            from = slot_of(params, 2 * g);
            for_each_four(sums, [&](u32 n, auto &tile, u32 e) {
                f32x4 four = from[n * Shape::THREADS];
                for (u32 i = 0; i < 4; i++) tile[e + i] += four[i];
            });
        }
        return true;
    }

    // The scale of a token of a tile, or of its last one instead of one that does not exist. With
    // a lambda that captures `params`, LLVM 19 loads by flat instructions on AMD.
    RF_DEVICE_MEMBER static float x_scale(const RfMatmulParams &params, const MatmulPlace &place, u32 token) {
        return params.x_f16.scale[place.x_row(params, token)];
    }

    // The gated unit of sums that are not scaled, for four columns from `column` on.
    struct GatedUnit {
        u32 activation;
        float gate_scale, up_scale;
        f32x4 gate_bias, up_bias;

        RF_DEVICE_MEMBER GatedUnit(const RfMatmulParams &params, const MatmulPlace &place, u32 column)
            : activation(params.activation), gate_scale(reciprocal(params.projections[0].half_unit)),
              up_scale(reciprocal(params.projections[1].half_unit)),
              gate_bias(place.four_biases(params.projections[0].bias, column)),
              up_bias(place.four_biases(params.projections[1].bias, column)) {}
        RF_DEVICE_MEMBER static f32x4 all_four(float value) { return f32x4{value, value, value, value}; }
        RF_DEVICE_MEMBER f32x4 of(f32x4 gate, f32x4 up, float x_scale) const {
            f32x4 gate_factor = all_four(gate_scale * x_scale), up_factor = all_four(up_scale * x_scale);
            return gated_units(activation, __builtin_elementwise_fma(gate, gate_factor, gate_bias),
                               __builtin_elementwise_fma(up, up_factor, up_bias));
        }
    };

#if RF_WGMMA
    // Stores the sums of a tile, of which each lane has some of every token, to LDS. All waves have
    // read the last stage.
    RF_DEVICE_MEMBER static void store_sums(const RfMatmulParams &params, LdsTokens all, u32 wave_row, const Sums &sums) {
        // Gate and up after each other.
        u32 gated_row = wave() % 2 * (Shape::ROWS / 2) + wave_row / 2 / TILE * TILE;
        u32 lds_row = params.glu.x ? gated_row : wave_row;
#pragma unroll
        for (u32 n = 0; n < Shape::SUMS; n++) {
            u32 token = n / 8 * TILE + MatrixTile::y_first() + MatrixTile::y_step(n % 8);
            all[token][lds_row + MatrixTile::x_row(n % 8)] = sums[0][n / 8][n % 8];
        }
    }

    // Tokens of a tile.
    struct Tokens {
        u32 first, end;
    };

    // Stores sums of tokens from LDS to a slot, of which `slot` is where this lane begins: a wave
    // 128 rows of a token at a time.
    RF_DEVICE_MEMBER static void pass_on(LdsTokens all, Tokens tokens, float *slot) {
        static_assert(Shape::ROWS == 4 * WAVE);
#pragma unroll 4
        for (u32 token = tokens.first + wave(); token < tokens.end; token += WAVES) {
            *reinterpret_cast<f32x4 *>(slot + token * Shape::ROWS) = *reinterpret_cast<const f32x4 *>(all[token] + 4 * lane());
        }
    }

    // Replaces the sums of tokens in LDS, part `own`, by those of all `parts`, in the order of the
    // columns.
    template <typename Slot>
    RF_DEVICE_MEMBER static void add_parts(LdsTokens all, Tokens tokens, u32 parts, u32 own, Slot slot) {
#pragma unroll 1
        for (u32 first = tokens.first + wave(); first < tokens.end; first += TOGETHER * WAVES) {
            f32x4 sum[TOGETHER] = {};
            auto in_lds = [&](u32 i) -> f32x4 & { return *reinterpret_cast<f32x4 *>(all[first + i * WAVES] + 4 * lane()); };
#pragma unroll 1
            for (u32 part = 0; part < parts; part++) {
                if (part == own) {
#pragma unroll
                    for (u32 i = 0; i < TOGETHER; i++) {
                        if (first + i * WAVES < tokens.end) sum[i] += in_lds(i);
                    }
                    continue;
                }
                const float *from = slot(part) + first * Shape::ROWS;
                f32x4 v[TOGETHER];
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) {
                    v[i] = f32x4{0, 0, 0, 0};
                    if (first + i * WAVES < tokens.end) v[i] = *reinterpret_cast<const f32x4 *>(from + i * WAVES * Shape::ROWS);
                }
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) sum[i] += v[i];
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) {
                if (first + i * WAVES < tokens.end) in_lds(i) = sum[i];
            }
        }
        lds_barrier();
    }

    // As `join`, with the sums of `count` tokens in LDS. Returns the tokens of which this workgroup
    // then has all sums. Two workgroups with half of the columns each exchange sums: each passes on
    // those of half of the tokens, waits for the other one, and has the other half.
    RF_DEVICE_MEMBER static Tokens join_tokens(const RfMatmulParams &params, const HalfShares &shares, u32 tile,
                                               LdsTokens all, u32 count) {
        RF_SHARED static u32 arrived;
        u32 first_unit = tile * shares.stages, first_group = shares.owner(first_unit);
        u32 own = group_x() - first_group, parts = shares.owner(first_unit + shares.stages - 1) - first_group + 1;
        u32 *counter = params.arrivals + first_group;
        auto slot = [&](u32 part) {
            u64 index = 2 * (first_group + part) + (part == 0);
            return params.partials + index * (Shape::ROWS * Shape::TOKENS) + 4 * lane();
        };
        bool exchanges = 2 * shares.least == shares.stages && shares.larger == 0;
        u32 middle = count / 2;
        Tokens every = {0, count}, mine = every, other = every;
        if (exchanges) {
            mine = own == 0 ? Tokens{0, middle} : Tokens{middle, count};
            other = own == 0 ? Tokens{middle, count} : Tokens{0, middle};
        }
        pass_on(all, other, slot(own));
        barrier();
        if (thread_x() == 0) arrived = exchanges ? meet(counter) : arrive(counter);
        barrier();
        if (exchanges && arrived == WAITED) {
            pass_on(all, mine, slot(own));
            barrier();
            if (thread_x() == 0) arrived = leave(counter);
            barrier();
        }
        if (exchanges ? arrived == LEFT : arrived + 1 < parts) return {0, 0};
        Tokens tokens = exchanges && arrived == MET ? mine : every;
        add_parts(all, tokens, parts, own, slot);
        if (thread_x() == 0) {
            if (!exchanges || arrived != MET || arrive(counter) == 3) *counter = 0;
        }
        return tokens;
    }

    // What a workgroup knows of the one that it exchanges sums with. One that has waited for a
    // while passes all sums on and leaves, so that no workgroup depends on another one that has not
    // started.
    enum Meeting : u32 {
        MET,
        WAITED, // the other one may still come
        LEFT,
        ALONE, // the other one has left
    };
    // The counter is the number of workgroups that have arrived, then of those that have added the
    // sums of the other, or this value.
    static constexpr u32 HAS_LEFT = 8;
    // Each poll takes a latency of L2.
    static constexpr u32 MOST_POLLS = 100;

    RF_DEVICE_MEMBER static u32 meet(u32 *counter) {
        u32 before = arrive(counter);
        if (before > 0) return before == HAS_LEFT ? ALONE : MET;
        for (u32 i = 0; i < MOST_POLLS; i++) {
            if (count_of(counter) >= 2) return MET;
        }
        return WAITED;
    }
    RF_DEVICE_MEMBER static u32 leave(u32 *counter) { return replace_count(counter, 1, HAS_LEFT) == 1 ? LEFT : MET; }

    // Writes the sums of a tile in LDS: a wave 128 rows of a token at a time, or 64 columns of two
    // tokens of the gated unit.
    RF_DEVICE_MEMBER static void write_tokens(const RfMatmulParams &params, LdsTokens all, const MatmulPlace &place,
                                              Tokens tokens) {
        const RfProjection &p = place.projection;
        if (params.glu.x) {
            constexpr u32 STEP = 2 * WAVES, STEPS = (TOGETHER + 1) / 2;
            u32 at = lane() % TILE * 4, column = place.first_row + at;
            const GatedUnit unit(params, place, column);
            u32 own = tokens.first + 2 * wave() + lane() / TILE;
#pragma unroll 1
            for (u32 first = own; first < tokens.end; first += STEPS * STEP) {
                float scale[STEPS];
                u32 out_row[STEPS];
#pragma unroll
                for (u32 i = 0; i < STEPS; i++) {
                    u32 token = first + i * STEP;
                    scale[i] = x_scale(params, place, token);
                    out_row[i] = place.out_row(params, token < tokens.end ? token : tokens.first);
                }
#pragma unroll
                for (u32 i = 0; i < STEPS; i++) {
                    u32 token = first + i * STEP;
                    if (token >= tokens.end || column >= p.rows) continue;
                    f32x4 gate = *reinterpret_cast<const f32x4 *>(all[token] + at);
                    f32x4 up = *reinterpret_cast<const f32x4 *>(all[token] + Shape::ROWS / 2 + at);
                    f32x4 v = unit.of(gate, up, scale[i]);
                    store_f16_fixed(params.glu, out_row[i], p.rows, column / 4, v);
                }
            }
            return;
        }
        u32 row = place.first_row + 4 * lane(), rest = row < p.rows ? p.rows - row : 0;
        float unit = reciprocal(p.half_unit);
        f32x4 bias = {0, 0, 0, 0};
#pragma unroll
        for (u32 i = 0; i < 4; i++) bias[i] = p.bias && i < rest ? p.bias[row + i] : 0.0f;
        if (p.rows % 4 != 0) {
#pragma unroll 1
            for (u32 token = tokens.first + wave(); token < tokens.end; token += WAVES) {
                f32x4 v = *reinterpret_cast<const f32x4 *>(all[token] + 4 * lane());
                v = v * (x_scale(params, place, token) * unit) + bias;
                u64 at = (u64)place.out_row(params, token) * p.rows + row;
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    if (i < rest) p.out[at + i] = v[i] + (params.residual ? params.residual[at + i] : 0.0f);
                }
            }
            return;
        }
#pragma unroll 1
        for (u32 first = tokens.first + wave(); first < tokens.end; first += TOGETHER * WAVES) {
            float scale[TOGETHER];
            u32 out_row[TOGETHER];
            f32x4 residual[TOGETHER];
            auto token_of = [&](u32 i) { return first + i * WAVES; };
            auto exists = [&](u32 i) { return token_of(i) < tokens.end && rest > 0; };
            auto place_of = [&](u32 i) { return (u64)out_row[i] * p.rows + row; };
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) {
                u32 token = exists(i) ? token_of(i) : tokens.first;
                scale[i] = x_scale(params, place, token), out_row[i] = place.out_row(params, token);
                residual[i] = f32x4{0, 0, 0, 0};
                if (params.residual && exists(i)) {
                    residual[i] = *reinterpret_cast<const f32x4 *>(params.residual + place_of(i));
                }
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++) {
                if (!exists(i)) continue;
                f32x4 v = *reinterpret_cast<const f32x4 *>(all[token_of(i)] + 4 * lane()) * (scale[i] * unit) + bias;
                *reinterpret_cast<f32x4 *>(p.out + place_of(i)) = v + residual[i];
            }
        }
    }
#endif

    // Writes the gated unit of a tile: tiles of the matrix unit are of gate and up in turns. A wave
    // passes 16 tokens at a time through LDS. The loop over vectors is not unrolled: that would be
    // long code.
    RF_DEVICE_MEMBER static void write_gated(const RfMatmulParams &params, void *lds, const MatmulPlace &place,
                                             u32 wave_row, u32 wave_token, const Sums &sums) {
        constexpr u32 COLUMNS = Shape::WAVE_ROWS / 2, VECTORS = COLUMNS / 4, STRIDE = GATED_STRIDE;
        float(*own)[STRIDE] = static_cast<float(*)[STRIDE]>(lds) + wave() * TILE;
        u32 rows = place.projection.rows, column = place.first_row + wave_row / 2 + lane() % VECTORS * 4;
        const GatedUnit unit(params, place, column);
        // All waves have read the last stage.
        lds_barrier();
        constexpr u32 STEPS = TILE * VECTORS / WAVE;
        auto token_of = [&](u32 step) {
            return wave_token + step / STEPS * TILE + step % STEPS * (WAVE / VECTORS) + lane() / VECTORS;
        };
        float next_scale = x_scale(params, place, token_of(0));
#pragma unroll 1
        for (u32 step = 0; step < STEPS * Shape::TOKEN_TILES; step++) {
            if (step % STEPS == 0) {
                wave_barrier();
#pragma unroll
                for (u32 t = 0; t < Shape::TOKEN_TILES; t++) {
                    if (t != step / STEPS) continue;
#pragma unroll
                    for (u32 r = 0; r < Shape::ROW_TILES; r++) {
#pragma unroll
                        for (u32 e = 0; e < 8; e++) {
                            u32 at = r % 2 * COLUMNS + r / 2 * TILE + MatrixTile::x_row(e);
                            own[MatrixTile::y_first() + MatrixTile::y_step(e)][at] = sums[r][t][e];
                        }
                    }
                }
                wave_barrier();
            }
            u32 token = token_of(step);
            float scale = next_scale;
            next_scale = x_scale(params, place, token_of(step + 1));
            const float *gate = own[token % TILE] + lane() % VECTORS * 4;
            f32x4 v = unit.of(*reinterpret_cast<const f32x4 *>(gate),
                              *reinterpret_cast<const f32x4 *>(gate + COLUMNS), scale);
            if (token < place.tokens && column < rows)
                store_f16_fixed(params.glu, place.out_row(params, token), rows, column / 4, v);
        }
    }

    // Writes the sums of a tile from registers.
    RF_DEVICE_MEMBER static void write(const RfMatmulParams &params, const MatmulPlace &place, u32 wave_row,
                                       u32 wave_token, Sums &sums) {
        const RfProjection &p = place.projection;
        u32 first_token = computed_here(wave_token + MatrixTile::y_first());
        u32 first_row = computed_here(place.first_row + wave_row + MatrixTile::x_row(0));
        // The tokens of a tile of which a lane has sums, and the tiles whose tokens are loaded at
        // once.
        constexpr u32 LANE_TOKENS = 8 / MatrixTile::LANE_ROWS;
        constexpr u32 TILES = LANE_TOKENS * Shape::TOKEN_TILES <= 16 ? Shape::TOKEN_TILES : 1;
#pragma unroll
        for (u32 first = 0; first < Shape::TOKEN_TILES; first += TILES) {
            u32 out_rows[TILES][LANE_TOKENS];
            float scales[TILES][LANE_TOKENS];
#pragma unroll
            for (u32 n = 0; n < TILES * 8; n++) {
                if (MatrixTile::lane_row(n % 8) > 0) continue;
                u32 t = n / 8, i = MatrixTile::y_index(n % 8);
                u32 token = first_token + (first + t) * TILE + MatrixTile::y_step(n % 8);
                out_rows[t][i] = token < place.tokens ? place.out_row(params, token) : NO_ROW;
                scales[t][i] = x_scale(params, place, token) * reciprocal(p.half_unit);
            }
#pragma unroll
            for (u32 t = 0; t < TILES; t++) {
                // Sum n is sum n % 8 of tile n / 8 of rows.
                auto row_of = [&](u32 n) { return first_row + n / 8 * TILE + MatrixTile::lane_row(n % 8) * 8; };
                auto out_row_of = [&](u32 n) { return out_rows[t][MatrixTile::y_index(n % 8)]; };
                auto sum_of = [&](u32 n) { return sums[n / 8][first + t][n % 8] * scales[t][MatrixTile::y_index(n % 8)]; };
                write_sums<Shape::ROW_TILES * 8>(params, p, row_of, out_row_of, sum_of);
            }
        }
    }
};

} // namespace rf

#endif
