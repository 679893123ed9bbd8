// Prefill attention: rf_oracle::reference::attention for many tokens, bound by matrix units.
//
// Grid: x = query head, y = tile of queries. A tile is WAVES · QUERY_TILES · 16 consecutive tokens
// of a span, QUERY_TILES · 16 per wave; tiles with the most visible keys come first. The workgroup
// iterates over the keys visible to any of its queries, KEYS at a time: it loads keys into LDS,
// computes scores with matrix units, computes softmax weights relative to the largest score so far,
// loads values into LDS, and computes weighted sums with matrix units. During each computation the
// next operand is loaded from memory to registers (NVIDIA, f16: copied to LDS asynchronously); two
// barriers per tile of keys hand over LDS alone, so that these loads stay in flight.
//
// Matrix units round queries and weights to f16 (2^-12 of themselves), and keys and values of q8_0;
// those of f16 and FP8 are as stored.
// Per tile of keys a wave computes 2 · KEYS / 16 · DIM / 16 tile matmuls (rf/mma_f16.h) for each of
// its tiles of queries; a workgroup reads every key and value once. Sums over all keys are f32
// additions outside the matrix units, one per tile of keys, so that rounding errors do not
// accumulate over a long context.
//
// On NVIDIA 16 queries per wave are bound by reads of LDS. For 32 keys of 128 elements a wave reads
// 160 × 128 bytes and computes 64 products of 16 × 8 × 16; a multiprocessor reads 128 bytes per
// cycle, and computes four products in 6 cycles. With 32 queries (`_wide`) a wave reads 192 × 128
// bytes for 128 products. Registers then allow 8 waves. A prompt of 512 tokens has few tiles of 256
// queries, so the waves are two teams with the same 128 queries. Each team has every other tile of
// keys; their sums are added at the end.
#pragma once

#include "rf/attention_prefill_tile.h"
#include "rf/rows.h"

namespace rf {

// A tile of queries in a batch; the last tile of every span comes first.
struct QueryTile {
    RfSpan span;
    u32 first; // index of a token in the span
    bool exists;
};

RF_DEVICE QueryTile find_tile(const RfAttentionParams &p, u32 tile, u32 queries) {
    for (u32 i = 0; i < p.batch.num_spans; i++) {
        RfSpan span = p.batch.spans[i];
        if (span.num_tokens <= p.short_span) continue;
        u32 tiles = (span.num_tokens + queries - 1) / queries;
        if (tile < tiles) return {span, (tiles - 1 - tile) * queries, true};
        tile -= tiles;
    }
    return {{0, 0, 0, 0}, 0, false};
}

// What a wave knows of each of its queries, in LDS.
struct PrefillQueries {
    u8 *x;          // the queries as operand of the matrix unit
    float *factors; // scale dot products to scores
    u32 *positions;
    u32 seen_by_all; // the last key that every query sees at least; 0 without one
};

// The computation of one wave: QUERY_TILES · 16 queries.
template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS, u32 QUERY_TILES, u32 TEAMS>
struct PrefillWave {
    using Tile = PrefillTile<TYPE, DIM, WAVES, KEYS, TEAMS>;
    using Engine = typename Tile::Engine;
    using Element = typename Tile::Element;
    using Accumulator = typename Engine::Accumulator;
    static constexpr u32 STEPS = DIM / TILE, KEY_TILES = KEYS / TILE, ROWS = Engine::LANE_ROWS;
    static constexpr u32 X_BYTES = Engine::template X_BYTES<DIM>;

    // The scores, then weights, of a tile of queries.
    using Scores = Accumulator[KEY_TILES];
    // The factors for the sums so far.
    using Rescale = float[QUERY_TILES][ROWS];

    Accumulator o[QUERY_TILES][STEPS]; // weighted values
    float m[QUERY_TILES][ROWS];        // largest score
    float l[QUERY_TILES][ROWS];        // sum of this lane's weights

    RF_DEVICE_MEMBER void start() {
#pragma unroll
        for (u32 t = 0; t < QUERY_TILES; t++) {
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) o[t][i] = Engine::zero();
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                m[t][r] = NO_SCORE;
                l[t][r] = 0.0f;
            }
        }
    }

    // The vectors of a row that a lane has.
    static constexpr u32 PARTS = (DIM + 127) / 128;

    // Loads queries, TOGETHER rows at a time: one by one, each would take a latency of memory. The
    // largest magnitude of a row determines a power of two by which it is scaled; `factors` revert
    // the scaling and scale dot products to scores.
    RF_DEVICE_MEMBER static void load_queries(const RfAttentionParams &p, u32 head, u32 first_token, u32 tokens, u8 *x,
                                              float *factors) {
        constexpr u32 TOGETHER = 8;
        u32 vectors = p.cache.head_dim / VECTOR;
#pragma unroll 1
        for (u32 first = 0; first < TILE; first += TOGETHER) {
            f32x4 v[TOGETHER][PARTS];
#pragma unroll
            for (u32 n = 0; n < TOGETHER * PARTS; n++) {
                u32 row = first + n / PARTS, vector = n % PARTS * WAVE + lane();
                u64 token = first_token + (row < tokens ? row : 0);
                const f32x4 *from = reinterpret_cast<const f32x4 *>(p.q) + (token * p.num_heads + head) * vectors;
                bool inside = vector < vectors && row < tokens;
                v[n / PARTS][n % PARTS] = inside ? from[vector] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
            }
#pragma unroll
            for (u32 r = 0; r < TOGETHER; r++) {
                u32 row = first + r;
                if constexpr (Tile::Row::TRANSFORMED) hadamard_row(v[r], p.cache.transform_len);
                float largest = 0.0f;
#pragma unroll
                for (u32 i = 0; i < PARTS; i++) {
                    for (u32 j = 0; j < VECTOR; j++) largest = __builtin_fmaxf(largest, __builtin_fabsf(v[r][i][j]));
                }
                u32 exponent = __builtin_bit_cast(u32, wave_max(largest)) >> 23;
                exponent = exponent > QUERY_EXPONENT ? exponent : QUERY_EXPONENT + 1;
                float up = __builtin_bit_cast(float, (254 + QUERY_EXPONENT - exponent) << 23);
#pragma unroll
                for (u32 i = 0; i < PARTS; i++) {
                    u32 column = (i * WAVE + lane()) * VECTOR;
                    if (column < DIM) Engine::template store_x<DIM>(x, row, column, v[r][i] * up);
                }
                float down = __builtin_bit_cast(float, (exponent - QUERY_EXPONENT) << 23);
                float factor = query_factor(p) * Tile::Row::FACTOR * transform_factor<TYPE>(p.cache);
                if (lane() == 0) factors[row] = down * factor;
            }
        }
    }

    // Adds the dot products over the columns `first` … `end` of the head.
    RF_DEVICE_MEMBER static void add_products(const u8 *x, const Element *keys, u32 first, u32 end,
                                              Scores (&s)[QUERY_TILES]) {
        constexpr u32 STRIDE = Tile::STRIDE;
        for (u32 k = first; k < end; k += TILE) {
            keep_order();
            typename Engine::X q[QUERY_TILES];
#pragma unroll
            for (u32 t = 0; t < QUERY_TILES; t++) q[t] = Engine::template load_x<DIM>(x + t * X_BYTES, k);
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) {
                auto y = Engine::template load_rows<STRIDE>(keys + i * TILE * STRIDE + k);
#pragma unroll
                for (u32 t = 0; t < QUERY_TILES; t++) s[t][i] = Engine::product(q[t], y, s[t][i]);
            }
        }
    }

    RF_DEVICE_MEMBER static void clear(Scores (&s)[QUERY_TILES]) {
#pragma unroll
        for (u32 n = 0; n < QUERY_TILES * KEY_TILES; n++) s[n / KEY_TILES][n % KEY_TILES] = Engine::zero();
    }

    RF_DEVICE_MEMBER static void scores(const u8 *x, const Element *keys, const float *scales, Scores (&s)[QUERY_TILES]) {
        clear(s);
        if constexpr (Tile::SCALES_SUMS) {
            for (u32 group = 0; group < Tile::GROUPS; group++) {
                Scores part[QUERY_TILES];
                clear(part);
                add_products(x, keys, group * KV_GROUP, (group + 1) * KV_GROUP, part);
#pragma unroll
                for (u32 i = 0; i < KEY_TILES; i++) {
                    const float *own = scales + group * KEYS + i * TILE + Engine::y_base();
#pragma unroll
                    for (u32 e = 0; e < 8; e++) {
                        float scale = own[Engine::y_index(e)];
#pragma unroll
                        for (u32 t = 0; t < QUERY_TILES; t++) s[t][i][e] = fma(part[t][i][e], scale, s[t][i][e]);
                    }
                }
            }
        } else {
            add_products(x, keys, 0, DIM, s);
        }
    }

    // The query of a tile to which row r of this lane belongs: sum 2r, if the lane has two rows.
    RF_DEVICE_MEMBER static u32 row_of(u32 r) { return Engine::x_row(2 * r); }

    // Masks the keys that are not visible to a query.
    RF_DEVICE_MEMBER static void mask(const RfAttentionParams &p, u32 first_key, u32 t, const PrefillQueries &queries,
                                      Scores &s) {
        // Relative to this lane's first key, so that every comparison is with a constant.
        i32 first[ROWS], last[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            i32 own = (i32)(first_key + Engine::y_first());
            u32 position = queries.positions[t * TILE + row_of(r)];
            first[r] = (i32)first_seen(p, position) - own;
            last[r] = (i32)(position > queries.seen_by_all ? position : queries.seen_by_all) - own;
        }
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                i32 key = (i32)(i * TILE + Engine::y_step(e));
                if (key < first[r] || key > last[r]) s[i][e] = -__builtin_inff();
            }
        }
    }

    // Converts the dot products of tile t of queries to weights in place; `rescale` is the factor
    // for the sums so far.
    RF_DEVICE_MEMBER void weights(const RfAttentionParams &p, u32 first_key, bool all_seen, u32 t,
                                  const PrefillQueries &queries, Scores &s, float (&rescale)[ROWS]) {
        float factor[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) factor[r] = queries.factors[t * TILE + row_of(r)];
        if (p.softcap > 0.0f) {
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
                for (u32 e = 0; e < 8; e++) s[i][e] = capped(p, s[i][e] * factor[Engine::lane_row(e)]);
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) factor[r] = 1.0f;
        }
        if (!all_seen) mask(p, first_key, t, queries, s);

        float largest[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) largest[r] = -__builtin_inff();
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                largest[r] = __builtin_fmaxf(largest[r], s[i][e]);
            }
        }
        float zero[ROWS]; // the score of weight 1
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            largest[r] = Engine::over_lanes(largest[r], [](float a, float b) { return __builtin_fmaxf(a, b); });
            // Factors are positive.
            largest[r] = __builtin_fmaxf(m[t][r], largest[r] * factor[r]);
            rescale[r] = exp2(m[t][r] - largest[r]);
            m[t][r] = largest[r];
            zero[r] = largest[r] - WEIGHT_SHIFT;
            l[t][r] *= rescale[r];
        }
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                s[i][e] = exp2(fma(s[i][e], factor[r], -zero[r]));
                l[t][r] += s[i][e];
            }
        }
    }

    // The weights of the keys of a tile for all queries.
    RF_DEVICE_MEMBER void weigh(const RfAttentionParams &p, u32 first_key, bool all_seen, const PrefillQueries &queries,
                                const Element *keys, const float *scales, Scores (&s)[QUERY_TILES], Rescale &rescale) {
        scores(queries.x, keys, scales, s);
#pragma unroll
        for (u32 t = 0; t < QUERY_TILES; t++) weights(p, first_key, all_seen, t, queries, s[t], rescale[t]);
    }

    // Adds 16 · (last − first) elements of the weighted values.
    RF_DEVICE_MEMBER void add_columns(const Element *values, const typename Engine::X (&weights)[QUERY_TILES][KEY_TILES],
                                      const Rescale &rescale, u32 first, u32 last) {
#pragma unroll
        for (u32 d = first; d < last; d++) {
            if (d % 2 == 0 || DIM > 128) keep_order();
            Accumulator sum[QUERY_TILES];
#pragma unroll
            for (u32 t = 0; t < QUERY_TILES; t++) sum[t] = Engine::zero();
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) {
                auto y = Engine::template load_columns<Tile::COLUMN_STRIDE>(Tile::columns(values, i * TILE, d * TILE));
#pragma unroll
                for (u32 t = 0; t < QUERY_TILES; t++) sum[t] = Engine::product(weights[t][i], y, sum[t]);
            }
#pragma unroll
            for (u32 t = 0; t < QUERY_TILES; t++) {
#pragma unroll
                for (u32 e = 0; e < 8; e++) o[t][d][e] = fma(o[t][d][e], rescale[t][Engine::lane_row(e)], sum[t][e]);
                if constexpr (sizeof(Element) == 2) together(o[t][d]);
            }
        }
    }

    RF_DEVICE_MEMBER void add_values(const Element *values, const float *scales, const Scores (&s)[QUERY_TILES],
                                     const Rescale &rescale) {
        typename Engine::X weights[QUERY_TILES][KEY_TILES];
        if constexpr (Tile::SCALES_SUMS) {
            // The scales of a group are multiplied into the weights.
#pragma unroll
            for (u32 group = 0; group < Tile::GROUPS; group++) {
                keep_order();
#pragma unroll
                for (u32 n = 0; n < QUERY_TILES * KEY_TILES; n++) {
                    u32 t = n / KEY_TILES, i = n % KEY_TILES;
                    const float *own = scales + group * KEYS + i * TILE + Engine::y_base();
                    Accumulator scaled;
#pragma unroll
                    for (u32 e = 0; e < 8; e++) scaled[e] = s[t][i][e] * own[Engine::y_index(e)];
                    weights[t][i] = Engine::x_of(scaled);
                }
                add_columns(values, weights, rescale, group * (KV_GROUP / TILE), (group + 1) * (KV_GROUP / TILE));
            }
        } else {
#pragma unroll
            for (u32 n = 0; n < QUERY_TILES * KEY_TILES; n++) {
                weights[n / KEY_TILES][n % KEY_TILES] = Engine::x_of(s[n / KEY_TILES][n % KEY_TILES]);
            }
            add_columns(values, weights, rescale, 0, STEPS);
        }
    }

    // The sums of a wave as floats of a lane: o, then m and l.
    static constexpr u32 SUMS = QUERY_TILES * STEPS * 8, STATISTICS = QUERY_TILES * ROWS;
    static constexpr u32 FLOATS = SUMS + 2 * STATISTICS;

    // Passes the sums of this wave on in LDS. The floats of a lane are WAVE places apart.
    RF_DEVICE_MEMBER void hand_over(float *to) const {
        to += lane();
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) to[n * WAVE] = o[n / 8 / STEPS][n / 8 % STEPS][n % 8];
#pragma unroll
        for (u32 n = 0; n < STATISTICS; n++) {
            to[(SUMS + 2 * n) * WAVE] = m[n / ROWS][n % ROWS];
            to[(SUMS + 2 * n + 1) * WAVE] = l[n / ROWS][n % ROWS];
        }
    }

    // Adds the sums that a wave with other keys has passed on.
    RF_DEVICE_MEMBER void add(const float *from) {
        from += lane();
        Rescale own, other;
#pragma unroll
        for (u32 n = 0; n < STATISTICS; n++) {
            u32 t = n / ROWS, r = n % ROWS;
            float their_m = from[(SUMS + 2 * n) * WAVE], their_l = from[(SUMS + 2 * n + 1) * WAVE];
            float largest = __builtin_fmaxf(m[t][r], their_m);
            own[t][r] = exp2(m[t][r] - largest);
            other[t][r] = exp2(their_m - largest);
            m[t][r] = largest;
            l[t][r] = l[t][r] * own[t][r] + their_l * other[t][r];
        }
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) {
            u32 t = n / 8 / STEPS, r = Engine::lane_row(n % 8);
            float sum = o[t][n / 8 % STEPS][n % 8] * own[t][r];
            o[t][n / 8 % STEPS][n % 8] = fma(from[n * WAVE], other[t][r], sum);
        }
    }

    // Writes tile t of queries. Transposes eight rows at a time through LDS, which these queries no
    // longer need: lanes then hold consecutive elements of a row.
    RF_DEVICE_MEMBER void write(const RfAttentionParams &p, u32 head, u32 first_token, u32 tokens, u32 t, u8 *x) const {
        constexpr u32 STRIDE = DIM + 4, AT_ONCE = TILE / 2;
        static_assert(AT_ONCE * STRIDE * sizeof(float) <= X_BYTES);
        float *rows = reinterpret_cast<float *>(x);
        float scale[ROWS], factor = Tile::Row::FACTOR * transform_factor<TYPE>(p.cache);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            float sum = Engine::over_lanes(l[t][r], [](float a, float b) { return a + b; });
            // The weights are 2^WEIGHT_SHIFT times those relative to `m`.
            scale[r] = normalisation(p, head, m[t][r] - WEIGHT_SHIFT, sum) * factor;
        }
        u32 vectors = p.cache.head_dim / VECTOR, columns = p.num_heads * p.cache.head_dim;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            wave_barrier();
#pragma unroll
            for (u32 d = 0; d < STEPS; d++) {
#pragma unroll
                for (u32 e = 0; e < 8; e++) {
                    u32 column = d * TILE + Engine::y_first() + Engine::y_step(e), row = Engine::x_row(e);
                    float v = o[t][d][e] * scale[Engine::lane_row(e)];
                    if (row / AT_ONCE == half) rows[row % AT_ONCE * STRIDE + column] = v;
                }
            }
            wave_barrier();
            for (u32 row = half * AT_ONCE; row < tokens && row < (half + 1) * AT_ONCE; row++) {
                f32x4 v[PARTS];
#pragma unroll
                for (u32 i = 0; i < PARTS; i++) {
                    u32 vector = i * WAVE + lane();
                    const float *from = rows + row % AT_ONCE * STRIDE + (vector < vectors ? vector : 0) * VECTOR;
                    v[i] = *reinterpret_cast<const f32x4 *>(from);
                }
                if constexpr (Tile::Row::TRANSFORMED) hadamard_row(v, p.cache.transform_len);
#pragma unroll
                for (u32 i = 0; i < PARTS && i * WAVE < vectors; i++) {
                    u32 vector = i * WAVE + lane();
                    store_operand(p.out, first_token + row, columns, head * vectors + vector, vector < vectors, v[i]);
                }
            }
        }
    }
};

// The LDS of a workgroup.
template <typename Wave, u32 WAVES, u32 QUERY_TILES, u32 TEAMS>
struct PrefillLds {
    using Tile = typename Wave::Tile;
    // With two buffers the next tile is copied while the current one is read.
    static constexpr u32 BUFFERS = TEAMS > 1 && Tile::ASYNC ? 2 : 1;
    struct Buffer {
        alignas(16) typename Tile::Element keys[Tile::KEY_ELEMENTS];
        alignas(16) typename Tile::Element values[Tile::VALUE_ELEMENTS];
        alignas(16) float key_scales[Tile::SCALES], value_scales[Tile::SCALES];
    };
    alignas(16) u8 queries[WAVES * QUERY_TILES * Wave::X_BYTES];
    Buffer tiles[TEAMS][BUFFERS];
    float factors[WAVES * QUERY_TILES * TILE];
    u32 positions[WAVES * QUERY_TILES * TILE];
};

// Barrier of the waves of a team, for LDS alone.
template <u32 TEAMS, u32 THREADS>
RF_DEVICE void team_barrier([[maybe_unused]] u32 team) {
#if RF_NVIDIA
    if constexpr (TEAMS > 1) {
        asm volatile("bar.sync %0, %1;" : : "r"(team + 1), "n"(THREADS) : "memory");
        return;
    }
#endif
    static_assert(TEAMS == 1 || COPY_ASYNC);
    lds_barrier();
}

template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS, u32 QUERY_TILES = 1, u32 TEAMS = 1>
RF_DEVICE void attention_prefill(const RfAttentionParams &p) {
    using Wave = PrefillWave<TYPE, DIM, WAVES, KEYS, QUERY_TILES, TEAMS>;
    using Tile = typename Wave::Tile;
    using Lds = PrefillLds<Wave, WAVES, QUERY_TILES, TEAMS>;
    constexpr u32 X_BYTES = Wave::X_BYTES, WAVE_QUERIES = QUERY_TILES * TILE, QUERIES = WAVES * WAVE_QUERIES;
    Lds *memory;
    if constexpr (TEAMS > 1) {
        memory = shared_memory<Lds>();
    } else {
        RF_SHARED static Lds own;
        memory = &own;
    }
    u32 team = TEAMS > 1 ? wave() / WAVES : 0, own_wave = TEAMS > 1 ? wave() % WAVES : wave();
    auto &buffers = memory->tiles[team];
    auto &lds = buffers[0];

    u32 head = group_x();
    QueryTile tile = find_tile(p, group_y(), QUERIES);
    if (!tile.exists) return;
    u32 left = tile.span.num_tokens - tile.first;
    u32 tile_tokens = left < QUERIES ? left : QUERIES;
    u32 tile_position = tile.span.past_tokens + tile.first;
    u32 last_key_of_tile = last_seen(p, tile.span, tile_position + tile_tokens - 1);

    // This wave's queries; none if the span ends before them.
    u32 own_first = own_wave * WAVE_QUERIES;
    u32 own_tokens = tile_tokens > own_first ? tile_tokens - own_first : 0;
    own_tokens = own_tokens < WAVE_QUERIES ? own_tokens : WAVE_QUERIES;
    u32 first_token = tile.span.first_token + tile.first + own_first;
    u32 own_position = tile_position + own_first, own_last = own_position + own_tokens - 1;
    u32 seen_by_all = last_seen(p, tile.span, own_position), seen_by_last = last_seen(p, tile.span, own_last);
    u8 *x = memory->queries + own_wave * (QUERY_TILES * X_BYTES);
    PrefillQueries queries = {x, memory->factors + own_first, memory->positions + own_first,
                              p.window & RF_BOTH_WAYS ? seen_by_all : 0};
    Wave w;
    w.start();
    // The tokens of a tile of queries of this wave.
    auto tokens_of = [&](u32 t) {
        u32 rest = own_tokens > t * TILE ? own_tokens - t * TILE : 0;
        return rest < TILE ? rest : TILE;
    };
    // The first keys are in flight while the queries are loaded.
    u32 group = p.num_heads / p.cache.num_kv_heads;
    Tile t = {p, p.batch.pages + tile.span.first_page, head / group, p.cache.head_dim / KV_CHUNK,
              computed_here(__builtin_ctz(p.cache.page_tokens))};
    typename Tile::Raw raw;
    u32 key = (first_seen(p, tile_position) & ~1u) + team * KEYS;
    // The pages are found a tile ahead too, so that a fetch does not wait for them.
    typename Tile::Pages pages;
    if constexpr (Tile::AHEAD) {
        t.find_pages(pages, key, last_key_of_tile);
        if constexpr (Tile::ASYNC) {
            t.template copy<KvHalf::Key>(lds.keys, pages, key, last_key_of_tile);
        } else {
            t.template fetch<KvHalf::Key>(raw, pages, key, last_key_of_tile);
        }
    }
    if constexpr (Lds::BUFFERS == 2) {
        t.template copy<KvHalf::Value>(lds.values, pages, key, last_key_of_tile);
        t.find_pages(pages, key + TEAMS * KEYS, last_key_of_tile);
    }
    // The teams share the queries, and load some of them each.
    for (u32 i = team; i < QUERY_TILES; i += TEAMS) {
        u32 first = i * TILE;
        if (own_tokens > 0) {
            Wave::load_queries(p, head, first_token + first, tokens_of(i), x + i * X_BYTES, queries.factors + first);
        }
        if (lane() < TILE) {
            u32 row = first + lane();
            queries.positions[row] = own_position + (row < own_tokens ? row : 0);
        }
    }
    if constexpr (TEAMS > 1) {
        lds_barrier();
    } else {
        wave_barrier();
    }
    u32 buffer = 0;
    // A team whose last tile is behind the keys passes its barriers as well: with equal numbers of
    // barriers of all waves, racecheck sees the order of their reads and writes.
    for (; key - team * KEYS <= last_key_of_tile; key += TEAMS * KEYS) {
        u32 last_key = key + KEYS - 1, next_key = key + TEAMS * KEYS;
        bool concerned = own_tokens > 0 && key <= seen_by_last && last_key >= first_seen(p, own_position);
        bool all_seen = last_key <= seen_by_all && key >= first_seen(p, own_last);

        if constexpr (Lds::BUFFERS == 2) {
            copy_async_wait();
            team_barrier<TEAMS, Tile::THREADS>(team);
            const auto &own = buffers[buffer];
            auto &next = buffers[buffer ^ 1];
            if (next_key <= last_key_of_tile) {
                // All waves have read the tile before.
                t.template copy<KvHalf::Key>(next.keys, pages, next_key, last_key_of_tile);
                t.template copy<KvHalf::Value>(next.values, pages, next_key, last_key_of_tile);
                t.find_pages(pages, next_key + TEAMS * KEYS, last_key_of_tile);
            }
            buffer ^= 1;
            if (!concerned) continue;
            typename Wave::Scores s[QUERY_TILES];
            typename Wave::Rescale rescale;
            w.weigh(p, key, all_seen, queries, own.keys, own.key_scales, s, rescale);
            w.add_values(own.values, own.value_scales, s, rescale);
            continue;
        }

        // The keys before have been read since the last barrier but one, the values since the last
        // one.
        if constexpr (Tile::ASYNC) {
            copy_async_wait();
        } else if constexpr (Tile::AHEAD) {
            t.store_keys(raw, lds.keys, lds.key_scales);
            t.template fetch<KvHalf::Value>(raw, pages, key, last_key_of_tile);
            t.find_pages(pages, next_key, last_key_of_tile);
        } else {
            t.copy_keys(lds.keys, lds.key_scales, key, last_key_of_tile);
        }
        team_barrier<TEAMS, Tile::THREADS>(team);
        if constexpr (Tile::ASYNC) {
            t.template copy<KvHalf::Value>(lds.values, pages, key, last_key_of_tile);
            t.find_pages(pages, next_key, last_key_of_tile);
        }
        typename Wave::Scores s[QUERY_TILES];
        typename Wave::Rescale rescale;
        if (concerned) w.weigh(p, key, all_seen, queries, lds.keys, lds.key_scales, s, rescale);

        if constexpr (Tile::ASYNC) {
            copy_async_wait();
        } else if constexpr (Tile::AHEAD) {
            t.store_values(raw, lds.values, lds.value_scales);
            if (next_key <= last_key_of_tile) t.template fetch<KvHalf::Key>(raw, pages, next_key, last_key_of_tile);
        } else {
            t.copy_values(lds.values, lds.value_scales, key, last_key_of_tile);
        }
        team_barrier<TEAMS, Tile::THREADS>(team);
        if constexpr (Tile::ASYNC) {
            if (next_key <= last_key_of_tile) t.template copy<KvHalf::Key>(lds.keys, pages, next_key, last_key_of_tile);
        }
        if (concerned) w.add_values(lds.values, lds.value_scales, s, rescale);
    }
    if constexpr (TEAMS > 1) {
        // Nothing else of the LDS is needed any more.
        static_assert(TEAMS == 2 && WAVES * Wave::FLOATS * WAVE * sizeof(float) <= sizeof(Lds));
        static_assert(sizeof(Lds) <= 105600); // WIDE_LDS_BYTES of the host
        float *sums = reinterpret_cast<float *>(memory) + own_wave * (Wave::FLOATS * WAVE);
        lds_barrier();
        if (team == 1) w.hand_over(sums);
        lds_barrier();
        if (team == 1) return;
        w.add(sums);
        // The queries of other waves lie among the sums of this one.
        team_barrier<TEAMS, Tile::THREADS>(team);
    }
#pragma unroll
    for (u32 i = 0; i < QUERY_TILES; i++) {
        if (tokens_of(i) > 0) w.write(p, head, first_token + i * TILE, tokens_of(i), i, x + i * X_BYTES);
    }
}

} // namespace rf

// 128 queries per workgroup, 32 per wave (NVIDIA).
#if RF_NVIDIA
#define PREFILL_WIDE(NAME, TYPE)                                                                                       \
    RF_KERNEL_AT_ONCE(256, 1) NAME(RfAttentionParams p) { rf::attention_prefill<TYPE, 128, 4, 32, 2, 2>(p); }
#else
#define PREFILL_WIDE(NAME, TYPE)
#endif
