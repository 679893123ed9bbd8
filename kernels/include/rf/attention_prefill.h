// Prefill attention: rf_graph::reference::attention for many tokens, bound by matrix units.
//
// Grid: x = query head, y = tile of queries. A tile is WAVES · 16 consecutive tokens of a span, 16
// per wave; tiles with the most visible keys come first. The workgroup iterates over the keys
// visible to any of its queries, KEYS at a time: it loads keys into LDS, computes scores with
// matrix units, computes softmax weights relative to the largest score so far, loads values into
// LDS, and computes weighted sums with matrix units. During each computation the next operand is
// loaded from memory to registers; two barriers per tile of keys hand over LDS alone, so that these
// loads stay in flight.
//
// Queries and weights are rounded to f16 (2^-12 of themselves), keys and values are f16 as stored.
// Per tile of keys a wave computes 2 · KEYS / 16 · DIM / 16 tile matmuls (rf/mma_f16.h); a
// workgroup reads every key and value once. Sums over all keys are f32 additions outside the matrix
// units, one per tile of keys, so that rounding errors do not accumulate over a long context.
#pragma once

#include "rf/attention_tile.h"
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

// Loads keys and values from the cache into LDS.
template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS>
struct PrefillTile {
    using Element = typename TileElement<TYPE>::Type;
    using Engine = Tile<Element, 1>;
    using Row = KvRow<TYPE>;
    static constexpr u32 THREADS = WAVES * WAVE;
    static constexpr u32 CHUNKS = DIM / KV_CHUNK, COUNT = KEYS * CHUNKS / THREADS;
    static_assert(KEYS * CHUNKS % THREADS == 0 && COUNT % 2 == 0 && DIM % KV_GROUP == 0);
    static constexpr u32 GROUPS = DIM / KV_GROUP;
    // Whether registers can hold the next tile during the computation of the current one.
    static constexpr bool AHEAD = DIM <= 128 && TYPE != RF_KV_F32;
    static constexpr u32 HELD = AHEAD ? COUNT : 2;
    static_assert(COUNT % HELD == 0);

    // Rows are indexed by key. If the engine requires transposed values, rows are indexed by
    // element: eight elements of KEYS keys, then a shift of four banks, repeated, so that neither
    // reads nor writes have bank conflicts.
    static constexpr u32 STRIDE = Engine::template STRIDE<DIM>;
    static constexpr u32 TRANSPOSED_STRIDE = KEYS + 8, TRANSPOSED_SHIFT = 8;
    static constexpr u32 COLUMN_STRIDE = Engine::COLUMNS_TRANSPOSED ? TRANSPOSED_STRIDE : STRIDE;
    static constexpr u32 TRANSPOSED_ELEMENTS = DIM * TRANSPOSED_STRIDE + DIM / KV_CHUNK * TRANSPOSED_SHIFT;
    static constexpr u32 KEY_ELEMENTS = KEYS * STRIDE;
    static constexpr u32 VALUE_ELEMENTS = Engine::COLUMNS_TRANSPOSED ? TRANSPOSED_ELEMENTS : KEYS * STRIDE;
    static constexpr u32 SCALES = Row::SCALED ? GROUPS * KEYS : 4;

    // A part of a tile as stored in memory: this thread's chunks FIRST … FIRST + HELD − 1.
    struct Raw {
        typename Row::Raw raw[HELD];
        u16 scale[HELD];
    };

    // The pages of these pairs of keys.
    struct Pages {
        u32 page[HELD / 2];
    };

    const RfAttentionParams &p;
    const u32 *table;
    u32 kv_head;
    u32 chunks; // of the head; further chunks are zero

    // The two keys of a pair are consecutive and have the same chunk.
    RF_DEVICE_MEMBER static u32 pair(u32 i) { return (i / 2 * THREADS + thread_x()) / CHUNKS; }
    RF_DEVICE_MEMBER static u32 chunk(u32 i) { return (i / 2 * THREADS + thread_x()) % CHUNKS; }
    RF_DEVICE_MEMBER static u32 key(u32 i) { return pair(i) * 2 + i % 2; }

    // The position of key i of this thread in a tile, or the last one: keys after that have weight
    // 0, but their values must be finite.
    RF_DEVICE_MEMBER static u32 position(u32 i, u32 first_key, u32 last_key) {
        u32 position = first_key + key(i);
        return position < last_key ? position : last_key;
    }

    // `first_key` is even, so the keys of a pair are in one page.
    RF_DEVICE_MEMBER void find_pages(Pages &pages, u32 first_key, u32 last_key, u32 first = 0) const {
#pragma unroll
        for (u32 i = 0; i < HELD; i += 2) {
            pages.page[i / 2] = table[position(first + i, first_key, last_key) >> __builtin_ctz(p.cache.page_tokens)];
        }
    }

    template <KvHalf HALF>
    RF_DEVICE_MEMBER void fetch(Raw &r, const Pages &pages, u32 first_key, u32 last_key, u32 first = 0) const {
#pragma unroll
        for (u32 i = 0; i < HELD; i += 2) {
            u32 first_position = position(first + i, first_key, last_key);
            u32 c = chunk(first + i) < chunks ? chunk(first + i) : 0;
            u32 slot = kv_slot(p.cache, first_position), next = first_position < last_key ? slot + 1 : slot;
            auto head = KvHead<TYPE>::template in_page<HALF>(p.cache, kv_page(p.cache, pages.page[i / 2]), kv_head);
            r.raw[i] = head.fetch(slot, c);
            r.raw[i + 1] = head.fetch(next, c);
            if constexpr (Row::SCALED) {
                r.scale[i] = head.fetch_scale(slot, c);
                r.scale[i + 1] = head.fetch_scale(next, c);
            }
        }
    }

    // The values of a chunk; zero in chunks beyond the head.
    RF_DEVICE_MEMBER typename Row::Values values(const Raw &r, u32 i, u32 first) const {
        typedef u32 Words __attribute__((ext_vector_type(sizeof(typename Row::Raw) / 4)));
        Words words = __builtin_bit_cast(Words, r.raw[i]);
        bool inside = chunk(first + i) < chunks;
#pragma unroll
        for (u32 j = 0; j < sizeof(words) / 4; j++) words[j] = inside ? words[j] : 0;
        return Row::values(__builtin_bit_cast(typename Row::Raw, words));
    }

    RF_DEVICE_MEMBER static void store_row(Element *row, typename Row::Values v) {
        if constexpr (sizeof(Element) == 2) {
            *reinterpret_cast<f16x8 *>(row) = v;
        } else {
            f32x4 *to = reinterpret_cast<f32x4 *>(row);
            to[0] = __builtin_shufflevector(v, v, 0, 1, 2, 3);
            to[1] = __builtin_shufflevector(v, v, 4, 5, 6, 7);
        }
    }

    // Stores the scales of q8_0 as [group][key], in the engine's order of keys.
    RF_DEVICE_MEMBER void store_scales(const Raw &r, float *scales, u32 first) const {
        if constexpr (Row::SCALED) {
#pragma unroll
            for (u32 i = 0; i < HELD; i++) {
                if (chunk(first + i) % (KV_GROUP / KV_CHUNK) != 0) continue;
                u32 slot = key(first + i) / TILE * TILE + Engine::y_slot(key(first + i) % TILE);
                scales[chunk(first + i) / (KV_GROUP / KV_CHUNK) * KEYS + slot] = f16_value(r.scale[i]);
            }
        }
    }

    // Stores rows indexed by key.
    RF_DEVICE_MEMBER void store_keys(const Raw &r, Element *tile, float *scales, u32 first = 0) const {
#pragma unroll
        for (u32 i = 0; i < HELD; i++) {
            store_row(tile + key(first + i) * STRIDE + chunk(first + i) * KV_CHUNK, values(r, i, first));
        }
        store_scales(r, scales, first);
    }

    RF_DEVICE_MEMBER void store_values(const Raw &r, Element *tile, float *scales, u32 first = 0) const {
        store_scales(r, scales, first);
#pragma unroll
        for (u32 i = 0; i < HELD; i += 2) {
            typename Row::Values v[2] = {values(r, i, first), values(r, i + 1, first)};
            if constexpr (Engine::COLUMNS_TRANSPOSED) {
                Element *to = tile + transposed(chunk(first + i) * KV_CHUNK) + key(first + i);
                for (u32 j = 0; j < KV_CHUNK; j++) {
                    *reinterpret_cast<f16x2 *>(to + j * TRANSPOSED_STRIDE) = f16x2{v[0][j], v[1][j]};
                }
            } else {
#pragma unroll
                for (u32 j = 0; j < 2; j++) store_row(tile + key(first + i + j) * STRIDE + chunk(first + i) * KV_CHUNK, v[j]);
            }
        }
    }

    // Copies a tile from memory to LDS, one part at a time.
    RF_DEVICE_MEMBER void copy_keys(Element *tile, float *scales, u32 first_key, u32 last_key) const {
#pragma unroll
        for (u32 first = 0; first < COUNT; first += HELD) {
            keep_order();
            Raw r;
            Pages pages;
            find_pages(pages, first_key, last_key, first);
            fetch<KvHalf::Key>(r, pages, first_key, last_key, first);
            store_keys(r, tile, scales, first);
        }
    }
    RF_DEVICE_MEMBER void copy_values(Element *tile, float *scales, u32 first_key, u32 last_key) const {
#pragma unroll
        for (u32 first = 0; first < COUNT; first += HELD) {
            keep_order();
            Raw r;
            Pages pages;
            find_pages(pages, first_key, last_key, first);
            fetch<KvHalf::Value>(r, pages, first_key, last_key, first);
            store_values(r, tile, scales, first);
        }
    }

    RF_DEVICE_MEMBER static u32 transposed(u32 element) {
        return element * TRANSPOSED_STRIDE + element / KV_CHUNK * TRANSPOSED_SHIFT;
    }
    // The start of a block of 16 keys × 16 elements of the values.
    RF_DEVICE_MEMBER static const Element *columns(const Element *tile, u32 key, u32 element) {
        if constexpr (Engine::COLUMNS_TRANSPOSED) {
            // Each lane reads its own row: rows 8 … 15 are one shift further.
            return tile + transposed(element) + lane() / 8 % 2 * TRANSPOSED_SHIFT + key;
        } else {
            return tile + key * STRIDE + element;
        }
    }
};

// The computation of one wave: 16 queries.
template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS>
struct PrefillWave {
    using Tile = PrefillTile<TYPE, DIM, WAVES, KEYS>;
    using Engine = typename Tile::Engine;
    using Element = typename Tile::Element;
    using Accumulator = typename Engine::Accumulator;
    static constexpr u32 STEPS = DIM / TILE, KEY_TILES = KEYS / TILE, ROWS = Engine::LANE_ROWS;

    Accumulator o[STEPS]; // weighted values
    float m[ROWS];        // largest score
    float l[ROWS];        // sum of this lane's weights
    float factor[ROWS];   // scales dot products to scores
    u32 position[ROWS];

    RF_DEVICE_MEMBER void start() {
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) o[i] = Engine::zero();
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            m[r] = NO_SCORE;
            l[r] = 0.0f;
        }
    }

    // Loads queries row by row. The largest magnitude of a row determines a power of two by which
    // it is scaled; `factor` reverts the scaling.
    RF_DEVICE_MEMBER static void load_queries(const RfAttentionParams &p, u32 head, u32 first_token, u32 tokens, u8 *x,
                                              float *factors) {
        u32 vectors = p.cache.head_dim / VECTOR;
        for (u32 row = 0; row < TILE; row++) {
            u64 token = first_token + (row < tokens ? row : 0);
            const f32x4 *from = reinterpret_cast<const f32x4 *>(p.q) + (token * p.num_heads + head) * vectors;
            f32x4 v[(DIM + 127) / 128];
            float largest = 0.0f;
            for (u32 i = 0; i < (DIM + 127) / 128; i++) {
                u32 vector = i * WAVE + lane();
                bool inside = vector < vectors && row < tokens;
                v[i] = inside ? from[vector] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
                for (u32 j = 0; j < VECTOR; j++) largest = __builtin_fmaxf(largest, __builtin_fabsf(v[i][j]));
            }
            u32 exponent = __builtin_bit_cast(u32, wave_max(largest)) >> 23;
            exponent = exponent > QUERY_EXPONENT ? exponent : QUERY_EXPONENT + 1;
            float up = __builtin_bit_cast(float, (254 + QUERY_EXPONENT - exponent) << 23);
            for (u32 i = 0; i < (DIM + 127) / 128; i++) {
                u32 column = (i * WAVE + lane()) * VECTOR;
                if (column < DIM) Engine::template store_x<DIM>(x, row, column, v[i] * up);
            }
            if (lane() == 0) factors[row] = __builtin_bit_cast(float, (exponent - QUERY_EXPONENT) << 23);
        }
    }

    RF_DEVICE_MEMBER void scores(const u8 *x, const Element *keys, const float *scales, Accumulator *s) const {
        constexpr u32 STRIDE = Tile::STRIDE;
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) s[i] = Engine::zero();
        if constexpr (Tile::Row::SCALED) {
            for (u32 group = 0; group < Tile::GROUPS; group++) {
                Accumulator part[KEY_TILES];
#pragma unroll
                for (u32 i = 0; i < KEY_TILES; i++) part[i] = Engine::zero();
                for (u32 k = group * KV_GROUP; k < (group + 1) * KV_GROUP; k += TILE) {
                    keep_order();
                    auto q = Engine::template load_x<DIM>(x, k);
#pragma unroll
                    for (u32 i = 0; i < KEY_TILES; i++) {
                        auto y = Engine::template load_rows<STRIDE>(keys + i * TILE * STRIDE + k);
                        part[i] = Engine::product(q, y, part[i]);
                    }
                }
#pragma unroll
                for (u32 i = 0; i < KEY_TILES; i++) {
                    const float *own = scales + group * KEYS + i * TILE + Engine::y_base();
#pragma unroll
                    for (u32 e = 0; e < 8; e++) s[i][e] = fma(part[i][e], own[Engine::y_index(e)], s[i][e]);
                }
            }
        } else {
            for (u32 k = 0; k < DIM; k += TILE) {
                keep_order();
                auto q = Engine::template load_x<DIM>(x, k);
#pragma unroll
                for (u32 i = 0; i < KEY_TILES; i++) {
                    auto y = Engine::template load_rows<STRIDE>(keys + i * TILE * STRIDE + k);
                    s[i] = Engine::product(q, y, s[i]);
                }
            }
        }
    }

    // Masks the keys that are not visible to a query.
    RF_DEVICE_MEMBER void mask(const RfAttentionParams &p, u32 first_key, Accumulator *s) const {
        // Relative to this lane's first key, so that every comparison is with a constant.
        i32 first[ROWS], last[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            i32 own = (i32)(first_key + Engine::y_first());
            first[r] = (i32)first_seen(p, position[r]) - own;
            last[r] = (i32)position[r] - own;
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

    // Converts dot products to weights in place; `rescale` is the factor for the sums so far.
    RF_DEVICE_MEMBER void weights(const RfAttentionParams &p, u32 first_key, bool all_seen, Accumulator *s,
                                  float (&rescale)[ROWS]) {
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) s[i][e] *= factor[Engine::lane_row(e)];
        }
        if (p.softcap > 0.0f) {
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
                for (u32 e = 0; e < 8; e++) s[i][e] = capped(p, s[i][e]);
            }
        }
        if (!all_seen) mask(p, first_key, s);

        float largest[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) largest[r] = m[r];
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                largest[r] = __builtin_fmaxf(largest[r], s[i][e]);
            }
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            largest[r] = Engine::over_lanes(largest[r], [](float a, float b) { return __builtin_fmaxf(a, b); });
            rescale[r] = exp2(m[r] - largest[r]);
            m[r] = largest[r];
            l[r] *= rescale[r];
        }
#pragma unroll
        for (u32 i = 0; i < KEY_TILES; i++) {
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                s[i][e] = exp2(s[i][e] - (m[r] - WEIGHT_SHIFT));
                l[r] += s[i][e];
            }
        }
    }

    // Adds 16 · (last − first) elements of the weighted values.
    RF_DEVICE_MEMBER void add_columns(const Element *values, const typename Engine::X *weights,
                                      const float (&rescale)[ROWS], u32 first, u32 last) {
#pragma unroll
        for (u32 d = first; d < last; d++) {
            if (d % 2 == 0 || DIM > 128) keep_order();
            Accumulator sum = Engine::zero();
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) {
                auto y = Engine::template load_columns<Tile::COLUMN_STRIDE>(Tile::columns(values, i * TILE, d * TILE));
                sum = Engine::product(weights[i], y, sum);
            }
#pragma unroll
            for (u32 e = 0; e < 8; e++) o[d][e] = fma(o[d][e], rescale[Engine::lane_row(e)], sum[e]);
            if constexpr (sizeof(Element) == 2) together(o[d]);
        }
    }

    RF_DEVICE_MEMBER void add_values(const Element *values, const float *scales, const Accumulator *s,
                                     const float (&rescale)[ROWS]) {
        typename Engine::X weights[KEY_TILES];
        if constexpr (Tile::Row::SCALED) {
            // The scales of a group are multiplied into the weights.
#pragma unroll
            for (u32 group = 0; group < Tile::GROUPS; group++) {
                keep_order();
#pragma unroll
                for (u32 i = 0; i < KEY_TILES; i++) {
                    const float *own = scales + group * KEYS + i * TILE + Engine::y_base();
                    Accumulator scaled;
#pragma unroll
                    for (u32 e = 0; e < 8; e++) scaled[e] = s[i][e] * own[Engine::y_index(e)];
                    weights[i] = Engine::x_of(scaled);
                }
                add_columns(values, weights, rescale, group * (KV_GROUP / TILE), (group + 1) * (KV_GROUP / TILE));
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < KEY_TILES; i++) weights[i] = Engine::x_of(s[i]);
            add_columns(values, weights, rescale, 0, STEPS);
        }
    }

    // Transposes eight rows at a time through LDS, which the wave's queries no longer need: lanes
    // then hold consecutive elements of a row.
    RF_DEVICE_MEMBER void write(const RfAttentionParams &p, u32 head, u32 first_token, u32 tokens, u8 *x) const {
        constexpr u32 STRIDE = DIM + 4, AT_ONCE = TILE / 2;
        static_assert(AT_ONCE * STRIDE * sizeof(float) <= Engine::template X_BYTES<DIM>);
        float *rows = reinterpret_cast<float *>(x);
        float scale[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            float sum = Engine::over_lanes(l[r], [](float a, float b) { return a + b; });
            // The weights are 2^WEIGHT_SHIFT times those relative to `m`.
            scale[r] = normalisation(p, head, m[r] - WEIGHT_SHIFT, sum) * Tile::Row::FACTOR;
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
                    float v = o[d][e] * scale[Engine::lane_row(e)];
                    if (row / AT_ONCE == half) rows[row % AT_ONCE * STRIDE + column] = v;
                }
            }
            wave_barrier();
            for (u32 row = half * AT_ONCE; row < tokens && row < (half + 1) * AT_ONCE; row++) {
                for (u32 first = 0; first < vectors; first += WAVE) {
                    u32 vector = first + lane();
                    bool inside = vector < vectors;
                    const float *from = rows + row % AT_ONCE * STRIDE + (inside ? vector : 0) * VECTOR;
                    f32x4 v = *reinterpret_cast<const f32x4 *>(from);
                    store_operand(p.out, first_token + row, columns, head * vectors + vector, inside, v);
                }
            }
        }
    }
};

template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS>
RF_DEVICE void attention_prefill(const RfAttentionParams &p) {
    using Wave = PrefillWave<TYPE, DIM, WAVES, KEYS>;
    using Tile = typename Wave::Tile;
    using Engine = typename Tile::Engine;
    constexpr u32 X_BYTES = Engine::template X_BYTES<DIM>;
    RF_SHARED __attribute__((aligned(16))) static u8 queries[WAVES * X_BYTES];
    RF_SHARED __attribute__((aligned(16))) static typename Tile::Element keys[Tile::KEY_ELEMENTS];
    RF_SHARED __attribute__((aligned(16))) static typename Tile::Element values[Tile::VALUE_ELEMENTS];
    RF_SHARED __attribute__((aligned(16))) static float key_scales[Tile::SCALES], value_scales[Tile::SCALES];
    RF_SHARED static float factors[WAVES * TILE];

    u32 head = group_x();
    QueryTile tile = find_tile(p, group_y(), WAVES * TILE);
    if (!tile.exists) return;
    u32 left = tile.span.num_tokens - tile.first;
    u32 tile_tokens = left < WAVES * TILE ? left : WAVES * TILE;
    // Positions are those that limit what queries see: all equal where attention is not causal.
    u32 tile_position = tile.span.past_tokens + tile.first;
    u32 first_position = seen_from(p, tile.span, tile_position);
    u32 last_position = seen_from(p, tile.span, tile_position + tile_tokens - 1);

    // This wave's queries; none if the span ends before them.
    u32 own_first = wave() * TILE;
    u32 own_tokens = tile_tokens > own_first ? tile_tokens - own_first : 0;
    own_tokens = own_tokens < TILE ? own_tokens : TILE;
    u32 first_token = tile.span.first_token + tile.first + own_first;
    u32 own_position = seen_from(p, tile.span, tile_position + own_first);
    u32 own_last = seen_from(p, tile.span, tile_position + own_first + own_tokens - 1);
    u8 *x = queries + wave() * X_BYTES;
    Wave w;
    w.start();
    if (own_tokens > 0) Wave::load_queries(p, head, first_token, own_tokens, x, factors + own_first);
    wave_barrier();
#pragma unroll
    for (u32 r = 0; r < Wave::ROWS; r++) {
        // Element 2r of a lane's sums belongs to its row r, if the lane has two rows.
        u32 row = Engine::x_row(2 * r);
        w.factor[r] = factors[own_first + row] * query_factor(p) * Tile::Row::FACTOR;
        u32 position = tile_position + own_first + (row < own_tokens ? row : 0);
        w.position[r] = seen_from(p, tile.span, position);
    }

    u32 group = p.num_heads / p.cache.num_kv_heads;
    Tile t = {p, p.batch.pages + tile.span.first_page, head / group, p.cache.head_dim / KV_CHUNK};
    typename Tile::Raw raw;
    u32 key = first_seen(p, first_position) & ~1u;
    // The pages are found a tile ahead too, so that a fetch does not wait for them.
    typename Tile::Pages pages;
    if constexpr (Tile::AHEAD) {
        t.find_pages(pages, key, last_position);
        t.template fetch<KvHalf::Key>(raw, pages, key, last_position);
    }
    for (; key <= last_position; key += KEYS) {
        u32 last_key = key + KEYS - 1;
        bool concerned = own_tokens > 0 && key <= own_last && last_key >= first_seen(p, own_position);
        bool all_seen = last_key <= own_position && key >= first_seen(p, own_last);

        // The keys before have been read since the last barrier but one, the values since the last
        // one.
        if constexpr (Tile::AHEAD) {
            t.store_keys(raw, keys, key_scales);
            t.template fetch<KvHalf::Value>(raw, pages, key, last_position);
            t.find_pages(pages, key + KEYS, last_position);
        } else {
            t.copy_keys(keys, key_scales, key, last_position);
        }
        lds_barrier();
        typename Wave::Accumulator s[Wave::KEY_TILES];
        float rescale[Wave::ROWS];
        if (concerned) {
            w.scores(x, keys, key_scales, s);
            w.weights(p, key, all_seen, s, rescale);
        }

        if constexpr (Tile::AHEAD) {
            t.store_values(raw, values, value_scales);
            if (key + KEYS <= last_position) t.template fetch<KvHalf::Key>(raw, pages, key + KEYS, last_position);
        } else {
            t.copy_values(values, value_scales, key, last_position);
        }
        lds_barrier();
        if (concerned) w.add_values(values, value_scales, s, rescale);
    }
    if (own_tokens > 0) w.write(p, head, first_token, own_tokens, x);
}

} // namespace rf
