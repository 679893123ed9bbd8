// Latent attention: rf_oracle::reference::attention where all heads attend to one row of the cache
// per position, whose first latent_dim elements are the value.
//
// Grid: x = split, y = tile of 16 rows. A row is a head of a token (params/latent.h), so that the
// heads of a token share each row of the cache: a workgroup reads every key of its split once, for
// its 16 rows. Its eight waves divide the columns. Wave w owns the tiles of 16 columns w, w + 8,
// w + 16 …, of the queries, of the keys and, up to latent_dim, of the values and the output.
//
// Per 16 keys a wave loads its columns of them from memory once, for the scores and for the sums of
// values, while it computes those of the keys before; multiplies them by its columns of the queries
// with matrix units (rf/mma_f16.h); adds the partial scores of all waves, which exchange them
// through LDS; and adds its columns of the weighted values. Scores are in units of log 2.
//
// Bytes moved: keys · head_dim elements per tile from memory or, between tiles of one sequence, the
// L2 cache. Operations per key and row: 2 · (head_dim + latent_dim), twice that on matrix units,
// because X is split into two f16. For 576 and 512 elements of f16 and a full tile that is 60
// operations per byte: decode is bound by memory, a prompt by matrix units.
//
// With several splits, workgroups store (largest score, sum of weights, weighted sum of values) in
// memory. The last one of a tile to finish combines them in the order of the splits.
#pragma once

#include "rf/attention_tile.h"
#include "rf/params/latent.h"

namespace rf {

constexpr u32 LATENT_WAVES = 8, LATENT_THREADS = LATENT_WAVES * WAVE;
constexpr u32 LATENT_KEYS = TILE;
constexpr u32 LATENT_MAX_SPLITS = 128;
// The minimum number of tiles of keys in a split.
constexpr u32 LATENT_MIN_TILES = 4;
// Columns that a lane stores at a time.
constexpr u32 LATENT_VECTOR = 4;

// A tile of rows in a batch; the last tile of every span comes first.
struct LatentTile {
    RfSpan span;
    u32 first; // index of a row in the span
    u32 rows;  // 1 … 16; 0: there is no such tile
};

RF_DEVICE LatentTile find_latent_tile(const RfLatentParams &p, u32 tile) {
    for (u32 i = 0; i < p.batch.num_spans; i++) {
        RfSpan span = p.batch.spans[i];
        if (span.num_tokens < p.min_span || span.num_tokens > p.max_span) continue;
        u32 rows = span.num_tokens * p.num_heads, tiles = (rows + TILE - 1) / TILE;
        if (tile < tiles) {
            u32 first = (tiles - 1 - tile) * TILE;
            return {span, first, rows - first < TILE ? rows - first : TILE};
        }
        tile -= tiles;
    }
    return {{0, 0, 0, 0}, 0, 0};
}

// The columns of a vector that are not beyond the end of a row.
RF_DEVICE void store_vector(float *row, u32 column, u32 columns, f32x4 v) {
    if (columns % LATENT_VECTOR == 0) {
        // Rows of other lengths are not aligned to 16 bytes.
        if (column < columns) *reinterpret_cast<f32x4 *>(row + column) = v;
    } else {
        for (u32 i = 0; i < LATENT_VECTOR; i++) {
            if (column + i < columns) row[column + i] = v[i];
        }
    }
}

// One wave: 16 rows and the wave's columns, for heads of up to DIM elements.
template <RfKvType TYPE, u32 DIM>
struct LatentWave {
    using Element = typename TileElement<TYPE>::Type;
    using Engine = Tile<Element>;
    using Accumulator = typename Engine::Accumulator;
    using Row = KvRow<TYPE>;
    static constexpr u32 TILES = (DIM / TILE + LATENT_WAVES - 1) / LATENT_WAVES, ROWS = Engine::LANE_ROWS;
    static_assert(DIM % TILE == 0);

    // The keys of a tile in LDS. If the engine takes values by columns, a wave stores its columns
    // transposed, each as a row of 16 keys; the padding and the shift of every eighth column avoid
    // bank conflicts. Otherwise rows are indexed by key and have the columns of all waves.
    static constexpr bool TRANSPOSED = Engine::COLUMNS_TRANSPOSED;
    static constexpr u32 COLUMN_STRIDE = TILE + 8, COLUMN_SHIFT = 16;
    static constexpr u32 STRIDE = TRANSPOSED ? COLUMN_STRIDE : Engine::template STRIDE<DIM>;
    static constexpr u32 TILE_ELEMENTS = TILE * COLUMN_STRIDE + TILE / KV_CHUNK * COLUMN_SHIFT;
    static constexpr u32 KEY_BYTES =
        (TRANSPOSED ? LATENT_WAVES * TILES * TILE_ELEMENTS : LATENT_KEYS * STRIDE) * sizeof(Element);
    // Before and after the keys, a wave exchanges a tile of queries or of the output.
    static constexpr u32 OUT_STRIDE = TILE + LATENT_VECTOR;
    static constexpr u32 X_BYTES = Engine::template X_BYTES<TILE>;
    static constexpr u32 OUT_BYTES = TILE * OUT_STRIDE * sizeof(float);
    static constexpr u32 EXCHANGE_BYTES = X_BYTES > OUT_BYTES ? X_BYTES : OUT_BYTES;
    static constexpr u32 LDS_BYTES =
        KEY_BYTES > LATENT_WAVES * EXCHANGE_BYTES ? KEY_BYTES : LATENT_WAVES * EXCHANGE_BYTES;

    struct Shared {
        __attribute__((aligned(16))) u8 memory[LDS_BYTES];
        f32x4 scores[LATENT_WAVES][2][WAVE];
        // q8_0: of the keys, in the engine's order.
        float scales[Row::SCALED ? LATENT_WAVES : 1][TILES][LATENT_KEYS];
        float up[TILE], factor[TILE]; // of a row's queries
        u32 arrived;
    };

    // This lane's part of 16 keys: eight columns of one key in each tile.
    struct Raw {
        typename Row::Raw raw[TILES];
        u16 scale[TILES];
    };

    const RfLatentParams &p;
    Shared &shared;
    typename Engine::X q[TILES];
    Accumulator o[TILES]; // weighted values
    float m[ROWS];        // largest score
    float l[ROWS];        // sum of this lane's weights
    float factor[ROWS];   // scales dot products to scores
    u32 position[ROWS];

    RF_DEVICE_MEMBER static u32 column(u32 i) { return (i * LATENT_WAVES + wave()) * TILE; }
    RF_DEVICE_MEMBER static u32 own_key() { return lane() % TILE; }
    RF_DEVICE_MEMBER static u32 own_chunk() { return lane() / TILE; }
    RF_DEVICE_MEMBER u8 *exchange() const { return shared.memory + wave() * EXCHANGE_BYTES; }
    // The keys in LDS, from the first column of a tile on.
    RF_DEVICE_MEMBER Element *keys(u32 i) const {
        Element *all = reinterpret_cast<Element *>(shared.memory);
        return TRANSPOSED ? all + (wave() * TILES + i) * TILE_ELEMENTS : all + column(i);
    }

    // Loads the wave's columns of the queries. The largest magnitude of a row determines a power of
    // two by which it is scaled; `factor` reverts the scaling. Two rows per wave.
    RF_DEVICE_MEMBER void start(const LatentTile &tile) {
        u32 head_dim = p.cache.head_dim;
        const float *from =
            p.q + ((u64)tile.span.first_token * p.num_heads + tile.first) * head_dim;
        for (u32 row = wave(); row < TILE; row += LATENT_WAVES) {
            float largest = 0.0f;
            const float *own = from + (u64)(row < tile.rows ? row : 0) * head_dim;
            for (u32 d = lane(); d < head_dim; d += WAVE) largest = __builtin_fmaxf(largest, __builtin_fabsf(own[d]));
            u32 exponent = __builtin_bit_cast(u32, wave_max(largest)) >> 23;
            exponent = exponent > QUERY_EXPONENT ? exponent : QUERY_EXPONENT + 1;
            if (lane() == 0) {
                shared.up[row] = __builtin_bit_cast(float, (254 + QUERY_EXPONENT - exponent) << 23);
                // A sum of a transform has as many elements of at most this magnitude.
                if constexpr (Row::TRANSFORMED) shared.up[row] /= (float)p.cache.transform_len;
                shared.factor[row] = __builtin_bit_cast(float, (exponent - QUERY_EXPONENT) << 23);
            }
        }
        barrier();
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            o[i] = Engine::zero();
            if (column(i) >= head_dim) continue;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 row = half * 8 + lane() / 4, part = lane() % 4 * LATENT_VECTOR, d = column(i) + part;
                bool inside = row < tile.rows && d < head_dim;
                f32x4 v;
                if constexpr (Row::TRANSFORMED) {
                    v = transformed(from + (inside ? (u64)row * head_dim : 0), column(i), inside ? part : 0);
                } else {
                    v = *reinterpret_cast<const f32x4 *>(from + (inside ? (u64)row * head_dim + d : 0));
                }
                v = inside ? v * shared.up[row] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
                Engine::template store_x<TILE>(exchange(), row, part, v);
            }
            wave_barrier();
            q[i] = Engine::template load_x<TILE>(exchange(), 0);
            wave_barrier();
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            // Element 2r of a lane's sums belongs to its row r, if the lane has two rows.
            u32 row = Engine::x_row(2 * r);
            factor[r] = shared.factor[row] * (p.scale * LOG2_E) * Row::FACTOR;
            // `up` divides the sums of a transform by their number.
            if constexpr (Row::TRANSFORMED) factor[r] *= transform_factor<TYPE>(p.cache) * (float)p.cache.transform_len;
            position[r] = tile.span.past_tokens + (tile.first + (row < tile.rows ? row : 0)) / p.num_heads;
            m[r] = NO_SCORE;
            l[r] = 0.0f;
        }
        // The keys take the place of the queries in LDS.
        barrier();
    }

    // Four columns of the Hadamard transform of a query, without its factor: those of a tile from
    // `part` on. The tiles of a transform are added; four lanes hold one.
    RF_DEVICE_MEMBER f32x4 transformed(const float *row, u32 column, u32 part) const {
        u32 len = p.cache.transform_len, block = column & ~(len - 1), own = (column - block) / TILE;
        block = len < TILE ? column : block;
        float x[LATENT_VECTOR] = {};
        for (u32 i = 0; i * TILE < len; i++) {
            f32x4 v = *reinterpret_cast<const f32x4 *>(row + block + i * TILE + part);
            float sign = hadamard_sign(i, own);
#pragma unroll
            for (u32 j = 0; j < LATENT_VECTOR; j++) x[j] = fma(v[j], sign, x[j]);
        }
        hadamard<LATENT_VECTOR, TILE / LATENT_VECTOR>(x, len);
        return {x[0], x[1], x[2], x[3]};
    }

    // `first_key` is a multiple of 16, so its keys are in one page.
    RF_DEVICE_MEMBER void fetch(Raw &r, const u32 *table, u32 first_key, u32 last_key) const {
        auto head = KvHead<TYPE>::template in_page<KvHalf::Key>(p.cache, kv_page_of(p.cache, table, first_key), 0);
        // Keys after the last one have weight 0, but their values must be finite.
        u32 key = first_key + own_key();
        u32 slot = kv_slot(p.cache, key < last_key ? key : last_key), chunks = p.cache.head_dim / KV_CHUNK;
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            // Columns beyond the head are multiplied by queries of 0.
            u32 chunk = column(i) / KV_CHUNK + own_chunk();
            chunk = chunk < chunks ? chunk : chunks - 1;
            r.raw[i] = head.fetch(slot, chunk);
            if constexpr (Row::SCALED) r.scale[i] = head.fetch_scale(slot, chunk);
        }
    }

    // Stores eight columns of this lane's key in a tile.
    RF_DEVICE_MEMBER static void store(Element *to, typename Row::Values v) {
        if constexpr (TRANSPOSED) {
            // Two lanes with consecutive keys exchange halves of their columns, so that a lane
            // stores pairs of keys.
            u32x4 words = __builtin_bit_cast(u32x4, v);
            bool odd = lane() % 2;
            u32 own[2] = {odd ? words[2] : words[0], odd ? words[3] : words[1]};
            u32 other[2] = {xor_lane<1>(odd ? words[0] : words[2]), xor_lane<1>(odd ? words[1] : words[3])};
            u32 first = own_chunk() * KV_CHUNK + (odd ? 4 : 0);
            to += first * COLUMN_STRIDE + own_chunk() * COLUMN_SHIFT + own_key() / 2 * 2;
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                f16x2 low = __builtin_bit_cast(f16x2, odd ? other[j] : own[j]);
                f16x2 high = __builtin_bit_cast(f16x2, odd ? own[j] : other[j]);
                *reinterpret_cast<f16x2 *>(to + 2 * j * COLUMN_STRIDE) = f16x2{low[0], high[0]};
                *reinterpret_cast<f16x2 *>(to + (2 * j + 1) * COLUMN_STRIDE) = f16x2{low[1], high[1]};
            }
        } else if constexpr (sizeof(Element) == 2) {
            *reinterpret_cast<f16x8 *>(to + own_key() * STRIDE + own_chunk() * KV_CHUNK) = v;
        } else {
            f32x4 *at = reinterpret_cast<f32x4 *>(to + own_key() * STRIDE + own_chunk() * KV_CHUNK);
            at[0] = __builtin_shufflevector(v, v, 0, 1, 2, 3);
            at[1] = __builtin_shufflevector(v, v, 4, 5, 6, 7);
        }
    }

    RF_DEVICE_MEMBER void store_keys(const Raw &r) const {
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            if (column(i) >= p.cache.head_dim) continue;
            store(keys(i), Row::values(r.raw[i], p.cache));
            if constexpr (Row::SCALED) {
                if (own_chunk() == 0) shared.scales[wave()][i][Engine::y_slot(own_key())] = f16_value(r.scale[i]);
            }
        }
    }

    // The scales of the keys of this lane's sums.
    RF_DEVICE_MEMBER float scale(u32 i, u32 e) const {
        return shared.scales[wave()][i][Engine::y_base() + Engine::y_index(e)];
    }

    // The part of the scores from the wave's columns.
    RF_DEVICE_MEMBER Accumulator partial_scores([[maybe_unused]] const Raw &r) const {
        Accumulator s = Engine::zero();
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            if (column(i) >= p.cache.head_dim) continue;
            auto y = [&] {
                if constexpr (TRANSPOSED) return Engine::rows_of(Row::values(r.raw[i], p.cache));
                else return Engine::template load_rows<STRIDE>(keys(i));
            }();
            if constexpr (Row::SCALED) {
                Accumulator part = Engine::product(q[i], y, Engine::zero());
#pragma unroll
                for (u32 e = 0; e < 8; e++) s[e] = fma(part[e], scale(i, e), s[e]);
            } else {
                s = Engine::product(q[i], y, s);
            }
        }
        return s;
    }

    // The sum of the parts of all waves, in the order of the waves.
    RF_DEVICE_MEMBER Accumulator all_scores(const Accumulator &part) const {
        shared.scores[wave()][0][lane()] = __builtin_shufflevector(part, part, 0, 1, 2, 3);
        shared.scores[wave()][1][lane()] = __builtin_shufflevector(part, part, 4, 5, 6, 7);
        barrier();
        f32x4 low = shared.scores[0][0][lane()], high = shared.scores[0][1][lane()];
#pragma unroll
        for (u32 w = 1; w < LATENT_WAVES; w++) {
            low += shared.scores[w][0][lane()];
            high += shared.scores[w][1][lane()];
        }
        barrier();
        return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }

    // Converts dot products to weights in place; `rescale` is the factor for the sums so far.
    RF_DEVICE_MEMBER void weights(u32 first_key, Accumulator &s, float (&rescale)[ROWS]) {
        u32 own = first_key + Engine::y_first();
        float largest[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) largest[r] = m[r];
#pragma unroll
        for (u32 e = 0; e < 8; e++) {
            u32 r = Engine::lane_row(e);
            s[e] = own + Engine::y_step(e) <= position[r] ? s[e] * factor[r] : -__builtin_inff();
            largest[r] = __builtin_fmaxf(largest[r], s[e]);
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            largest[r] = Engine::over_lanes(largest[r], [](float a, float b) { return __builtin_fmaxf(a, b); });
            rescale[r] = exp2(m[r] - largest[r]);
            m[r] = largest[r];
            l[r] *= rescale[r];
        }
#pragma unroll
        for (u32 e = 0; e < 8; e++) {
            u32 r = Engine::lane_row(e);
            s[e] = exp2(s[e] - (m[r] - WEIGHT_SHIFT));
            l[r] += s[e];
        }
    }

    RF_DEVICE_MEMBER void add_values(const Accumulator &s, const float (&rescale)[ROWS]) {
        typename Engine::X w;
        if constexpr (!Row::SCALED) w = Engine::x_of(s);
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            if (column(i) >= p.latent_dim) continue;
            if constexpr (Row::SCALED) {
                // The scales of the values are multiplied into the weights.
                Accumulator scaled;
#pragma unroll
                for (u32 e = 0; e < 8; e++) scaled[e] = s[e] * scale(i, e);
                w = Engine::x_of(scaled);
            }
            const Element *from = keys(i);
            // Each lane reads its own column, and every eighth one is shifted.
            if constexpr (TRANSPOSED) from += lane() / 8 % 2 * COLUMN_SHIFT;
            Accumulator sum = Engine::product(w, Engine::template load_columns<STRIDE>(from), Engine::zero());
#pragma unroll
            for (u32 e = 0; e < 8; e++) o[i][e] = fma(o[i][e], rescale[Engine::lane_row(e)], sum[e]);
        }
    }

    // Writes the sums, each times the factor of its row, to rows that are `stride` floats apart.
    RF_DEVICE_MEMBER void write(float *to, u64 stride, u32 columns, u32 rows, const float (&by)[ROWS]) const {
        float *own = reinterpret_cast<float *>(exchange());
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            if (column(i) >= p.latent_dim) continue;
#pragma unroll
            for (u32 e = 0; e < 8; e++) {
                u32 r = Engine::lane_row(e);
                own[Engine::x_row(e) * OUT_STRIDE + Engine::y_first() + Engine::y_step(e)] = o[i][e] * by[r];
            }
            wave_barrier();
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 row = half * 8 + lane() / 4, part = lane() % 4 * LATENT_VECTOR;
                f32x4 v = *reinterpret_cast<const f32x4 *>(own + row * OUT_STRIDE + part);
                if (row < rows) store_vector(to + row * stride, column(i) + part, columns, v);
            }
            wave_barrier();
        }
    }
};

// Columns of a row of partial sums.
RF_DEVICE u32 latent_vectors(const RfLatentParams &p) { return (p.latent_dim + LATENT_VECTOR - 1) / LATENT_VECTOR; }

// Combines the splits of a tile of rows: a wave per row, four columns per lane.
RF_DEVICE void combine_latent_splits(const RfLatentParams &p, const LatentTile &tile, u32 splits) {
    constexpr u32 PER_LANE = LATENT_MAX_SPLITS / WAVE;
    u32 vectors = latent_vectors(p);
    for (u32 row = wave(); row < tile.rows; row += LATENT_WAVES) {
        u64 first = (u64)(group_y() * TILE + row) * p.splits;
        const f32x2 *statistics = reinterpret_cast<const f32x2 *>(p.statistics) + first;
        float m[PER_LANE], l[PER_LANE], top = NO_SCORE, sum = 0.0f;
#pragma unroll
        for (u32 j = 0; j < PER_LANE; j++) {
            u32 split = j * WAVE + lane();
            f32x2 ml = split < splits ? statistics[split] : f32x2{NO_SCORE, 0.0f};
            m[j] = ml[0];
            l[j] = ml[1];
            top = __builtin_fmaxf(top, m[j]);
        }
        top = wave_max(top);
#pragma unroll
        for (u32 j = 0; j < PER_LANE; j++) {
            m[j] = exp2(m[j] - top);
            sum = fma(m[j], l[j], sum);
        }
        float normalisation = 1.0f / wave_sum(sum);

        const f32x4 *partials = reinterpret_cast<const f32x4 *>(p.partials) + first * vectors;
        float *out = p.out + ((u64)tile.span.first_token * p.num_heads + tile.first + row) * p.latent_dim;
        for (u32 start = 0; start < vectors; start += WAVE) {
            u32 vector = start + lane();
            const f32x4 *column = partials + (vector < vectors ? vector : 0);
            f32x4 o = {0.0f, 0.0f, 0.0f, 0.0f};
            // Eight loads at a time. Splits after the last one have weight 0 and read the last part
            // again.
            constexpr u32 AT_ONCE = 8;
            for_each<PER_LANE>([&](auto number) {
                constexpr u32 j = decltype(number)::value;
                for (u32 s = 0; s < WAVE && j * WAVE + s < splits; s += AT_ONCE) {
                    f32x4 part[AT_ONCE];
                    for (u32 k = 0; k < AT_ONCE; k++) {
                        u32 split = j * WAVE + s + k;
                        part[k] = column[(u64)(split < splits ? split : splits - 1) * vectors];
                    }
                    for (u32 k = 0; k < AT_ONCE; k++) o += part[k] * read_lane(m[j], s + k);
                }
            });
            store_vector(out, vector * LATENT_VECTOR, p.latent_dim, o * normalisation);
        }
    }
}

// Inverts the Hadamard transform of the values in the rows of a tile: a wave per row.
template <RfKvType TYPE>
RF_DEVICE void transform_rows(const RfLatentParams &p, const LatentTile &tile) {
    constexpr u32 STEPS = 16; // a transform has at most 512 elements
    barrier();
    float factor = transform_factor<TYPE>(p.cache);
    for (u32 row = wave(); row < tile.rows; row += LATENT_WAVES) {
        float *out = p.out + ((u64)tile.span.first_token * p.num_heads + tile.first + row) * p.latent_dim;
        for (u32 first = 0; first < p.latent_dim; first += STEPS * WAVE) {
            float x[STEPS];
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                u32 d = first + i * WAVE + lane();
                x[i] = d < p.latent_dim ? out[d] : 0.0f;
            }
            hadamard<1, WAVE>(x, p.cache.transform_len);
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                u32 d = first + i * WAVE + lane();
                if (d < p.latent_dim) out[d] = x[i] * factor;
            }
        }
    }
}

template <RfKvType TYPE, u32 DIM>
RF_DEVICE void attention_latent(const RfLatentParams &p) {
    using Wave = LatentWave<TYPE, DIM>;
    using Engine = typename Wave::Engine;
    RF_SHARED static typename Wave::Shared shared;
    follow_previous_kernels();
    LatentTile tile = find_latent_tile(p, group_y());
    if (tile.rows == 0) return;
    u32 last_key = tile.span.past_tokens + (tile.first + tile.rows - 1) / p.num_heads;
    u32 tiles = last_key / LATENT_KEYS + 1, per_split = (tiles + p.splits - 1) / p.splits;
    per_split = per_split < LATENT_MIN_TILES ? LATENT_MIN_TILES : per_split;
    u32 split = group_x(), active_splits = (tiles + per_split - 1) / per_split;
    if (split >= active_splits) return;
    u32 end_tile = split + 1 < active_splits ? (split + 1) * per_split : tiles;
    u32 key = split * per_split * LATENT_KEYS, end = end_tile * LATENT_KEYS;

    Wave w = {p, shared, {}, {}, {}, {}, {}, {}};
    w.start(tile);
    const u32 *table = p.batch.pages + tile.span.first_page;
    typename Wave::Raw raw;
    w.fetch(raw, table, key, last_key);
    for (; key < end; key += LATENT_KEYS) {
        // A wave reads only keys that it stored itself.
        wave_barrier();
        w.store_keys(raw);
        wave_barrier();
        typename Wave::Accumulator s = w.partial_scores(raw);
        if (key + LATENT_KEYS < end) w.fetch(raw, table, key + LATENT_KEYS, last_key);
        s = w.all_scores(s);
        float rescale[Wave::ROWS];
        w.weights(key, s, rescale);
        w.add_values(s, rescale);
    }
    // The output takes the place of the keys in LDS.
    barrier();

    float by[Wave::ROWS];
#pragma unroll
    for (u32 r = 0; r < Wave::ROWS; r++) {
        w.l[r] = Engine::over_lanes(w.l[r], [](float a, float b) { return a + b; });
        by[r] = (active_splits == 1 ? 1.0f / w.l[r] : 1.0f) * Wave::Row::FACTOR;
    }
    if (active_splits == 1) {
        float *out = p.out + ((u64)tile.span.first_token * p.num_heads + tile.first) * p.latent_dim;
        w.write(out, p.latent_dim, p.latent_dim, tile.rows, by);
        if constexpr (Wave::Row::TRANSFORMED) transform_rows<TYPE>(p, tile);
        return;
    }
    u32 columns = latent_vectors(p) * LATENT_VECTOR;
    u64 first = (u64)group_y() * TILE * p.splits + split;
    w.write(p.partials + first * columns, (u64)p.splits * columns, columns, tile.rows, by);
    if (wave() == 0 && Engine::y_first() == 0) {
#pragma unroll
        for (u32 r = 0; r < Wave::ROWS; r++) {
            u32 row = Engine::x_row(2 * r);
            // The weights are 2^WEIGHT_SHIFT times those relative to `m`.
            f32x2 statistics = {w.m[r] - WEIGHT_SHIFT, w.l[r]};
            if (row < tile.rows) reinterpret_cast<f32x2 *>(p.statistics)[first + (u64)row * p.splits] = statistics;
        }
    }

    device_fence();
    barrier();
    u32 *arrivals = p.arrivals + group_y();
    if (thread_x() == 0) shared.arrived = arrive(arrivals);
    barrier();
    if (shared.arrived + 1 != active_splits) return;
    device_fence();
    combine_latent_splits(p, tile, active_splits);
    if constexpr (Wave::Row::TRANSFORMED) transform_rows<TYPE>(p, tile);
    if (thread_x() == 0) *arrivals = 0;
}

} // namespace rf
