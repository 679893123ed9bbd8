// Decode attention: rf_oracle::reference::attention for few tokens over a long cache, memory bound.
//
// Grid: x = split, y = groups of heads, z = token. A split is a range of the keys visible to the
// token. A workgroup computes `heads_together` query heads for a split: those of one key/value
// head, so that keys and values are read from memory once. Its four waves are divided among groups
// of HEADS query heads and, if there are fewer than four groups, among the keys. With few keys and
// sequences a workgroup has some of these query heads only, which keeps more of the device busy;
// with many it has those of several key/value heads, whose waves need no exchange, on which many
// sequences with few keys spend most of their time.
//
// A wave has LANES lanes per key, with PARTS chunks of eight elements of the head each (LANES ·
// PARTS · 8 ≥ head_dim), and processes tiles of STEPS keys per lane: dot products; sums over the
// lanes of a key, distributed such that each lane holds the sum of one key and head; weights
// relative to the largest score so far; values. Scores are in units of log 2.
//
// A launch that appends takes queries, keys and values as matmuls wrote them. Each wave applies
// norm and RoPE to its queries, and the workgroups whose keys include that of the token write it
// and its value to the cache before they read them there. Those of one key/value head write the
// same bits.
//
// Workgroups store (largest score, sum of weights, weighted sum of values) in memory. The last
// workgroup to finish combines them in the order of the splits; the result does not depend on which
// workgroup is last.
#pragma once

#include "rf/attention_score.h"
#include "rf/head_chunks.h"
#include "rf/kv_row.h"
#include "rf/lanes.h"
#include "rf/rows.h"

namespace rf {

constexpr u32 DECODE_WAVES = 4, DECODE_THREADS = DECODE_WAVES * WAVE;
constexpr u32 MAX_SPLITS = 128;
// The minimum number of keys in a split; smaller splits cost more than they save.
constexpr u32 MIN_SPLIT_KEYS = 64;

// Loads at a time of the workgroup that combines the splits, and keys per lane and tile, limited by
// registers. READ_AGAIN: whether a wave after its last tile loads a tile again, which it does not
// use.
#if RF_NVIDIA
constexpr u32 COMBINE_AT_ONCE = 16;
constexpr bool READ_AGAIN = false;
#else
constexpr u32 COMBINE_AT_ONCE = 8;
constexpr bool READ_AGAIN = true;
#endif
#if RF_NVIDIA
constexpr u32 decode_steps(u32, u32 parts) { return 4 / parts; }
#elif RF_GFX9
constexpr u32 decode_steps(u32 heads, u32 parts) { return 4 / heads / parts; }
#else
constexpr u32 decode_steps(u32 heads, u32 parts) { return (heads == 4 ? 2 : 4) / parts; }
#endif

// The keys visible to a token and their division into splits.
struct DecodeRange {
    u32 first_key, last_key;
    u32 first_tile, end_tile; // tiles of this split
    u32 active_splits;        // the other splits have no keys
};

RF_DEVICE DecodeRange decode_range(const RfAttentionParams &p, u32 position, u32 split, u32 tile_keys) {
    DecodeRange r;
    r.last_key = position;
    r.first_key = first_seen(p, position);
    u32 first = r.first_key / tile_keys, tiles = position / tile_keys + 1 - first;
    u32 per_split = (tiles + p.splits - 1) / p.splits;
    if (per_split < MIN_SPLIT_KEYS / tile_keys) per_split = MIN_SPLIT_KEYS / tile_keys;
    r.active_splits = (tiles + per_split - 1) / per_split;
    r.first_tile = first + split * per_split;
    r.end_tile = first + (split + 1 < r.active_splits ? (split + 1) * per_split : tiles);
    return r;
}

// The state of a wave for HEADS query heads: the part held by one lane.
template <u32 HEADS, u32 PARTS, u32 REGISTERS>
struct DecodeState {
    float o[HEADS][PARTS * KV_CHUNK]; // weighted values: this lane's keys, the elements of this lane's chunks
    float m[REGISTERS];       // largest score of the heads whose sums this lane holds
    float l[REGISTERS];       // sum of weights, for the keys and heads whose sums this lane holds
};

// One wave: HEADS query heads, every `stride`-th tile.
template <RfKvType TYPE, u32 LANES, u32 PARTS, u32 HEADS, u32 STEPS>
struct DecodeWave {
    static constexpr u32 KEYS = WAVE / LANES; // processed in parallel
    static constexpr u32 TILE = KEYS * STEPS; // at most 16: a tile lies within a page
    static constexpr u32 SUMS = STEPS * HEADS;
    static constexpr u32 REGISTERS = SUM_REGISTERS<SUMS, LANES>;
    using Row = KvRow<TYPE>;
    using State = DecodeState<HEADS, PARTS, REGISTERS>;
    static_assert(TILE <= 16 && STEPS <= LANES);

    struct Tile {
        typename Row::Raw raw[STEPS][PARTS];
        u16 scale[STEPS][PARTS];
    };

    const RfAttentionParams &p;
    const u32 *table; // page indices of the sequence
    u32 kv_head;
    u32 key; // this lane's
    ChunkPlaces<LANES, PARTS> places; // lanes beyond the head have a zero q

    // The entry of the table with the page of a tile, or of the last one. A page is in a vector
    // register until it is used.
    RF_DEVICE_MEMBER const u32 *entry_of(u32 tile, u32 end_tile) const {
        tile = tile < end_tile ? tile : end_tile - 1;
        return table + opaque(tile * TILE >> __builtin_ctz(p.cache.page_tokens));
    }

    template <KvHalf HALF>
    RF_DEVICE_MEMBER void fetch(Tile &t, u32 page, u32 tile, u32 last_key) const {
        u32 first = tile * TILE;
        auto head = KvHead<TYPE>::template in_page<HALF>(p.cache, kv_page(p.cache, page), kv_head);
        u32 slot = kv_slot(p.cache, first);
#pragma unroll
        for (u32 u = 0; u < STEPS; u++) {
            // Rows after the last one may be uninitialised.
            u32 row = u * KEYS + key;
            row = slot + (first + row > last_key ? last_key - first : row);
#pragma unroll
            for (u32 part = 0; part < PARTS; part++) {
                t.raw[u][part] = head.fetch(row, places.chunk[part]);
                if constexpr (Row::SCALED) t.scale[u][part] = head.fetch_scale(row, places.chunk[part]);
            }
        }
    }

    RF_DEVICE_MEMBER void scores(const Tile &keys, const float (&q)[HEADS][PARTS * KV_CHUNK], float *sums) const {
#pragma unroll
        for (u32 u = 0; u < STEPS; u++) {
#pragma unroll
            for (u32 part = 0; part < PARTS; part++) {
                auto k = Row::values(keys.raw[u][part], p.cache);
                float scale = Row::SCALED ? f16_value(keys.scale[u][part]) : 1.0f;
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) {
                    const float *own = q[h] + part * KV_CHUNK;
                    float dot = (float)k[0] * own[0];
#pragma unroll
                    for (u32 i = 1; i < KV_CHUNK; i++) dot = fma((float)k[i], own[i], dot);
                    dot = Row::SCALED ? dot * scale : dot;
                    sums[u * HEADS + h] = part == 0 ? dot : sums[u * HEADS + h] + dot;
                }
            }
        }
        shared_sums<SUMS, LANES>(sums);
    }

    // The step (of STEPS) of the keys whose sums this lane holds.
    RF_DEVICE_MEMBER static u32 own_step() {
        u32 step = 0;
        for (u32 bit = 1; bit < STEPS; bit *= 2) step = 2 * step + (lane() & bit ? 1 : 0);
        return step;
    }

    // Combines a value over the keys of a tile: the lowest lane bits select the step, the uppermost
    // the parallel keys.
    template <typename Combine>
    RF_DEVICE_MEMBER static float over_keys(float value, Combine combine) {
        if constexpr (STEPS > 1) value = combine(value, xor_lane<1>(value));
        if constexpr (STEPS > 2) value = combine(value, xor_lane<2>(value));
        if constexpr (STEPS > 4) value = combine(value, xor_lane<4>(value));
        if constexpr (LANES <= 8) value = combine(value, xor_lane<8>(value));
        if constexpr (LANES <= 16) value = combine(value, xor_lane<16>(value));
        return value;
    }

    RF_DEVICE_MEMBER void weigh(const Tile &values, State &s, const float *weights) const {
        for_each<STEPS>([&](auto step) {
            constexpr u32 u = decltype(step)::value;
            for_each<PARTS>([&](auto number) {
                constexpr u32 part = decltype(number)::value;
                auto v = Row::values(values.raw[u][part], p.cache);
                float scale = Row::SCALED ? f16_value(values.scale[u][part]) : 1.0f;
                for_each<HEADS>([&](auto head) {
                    constexpr u32 h = decltype(head)::value, i = u * HEADS + h;
                    float w = share<LANES, sum_lane<SUMS, LANES>(i)>(weights[sum_register<SUMS, LANES>(i)]);
                    if constexpr (Row::SCALED) w *= scale;
                    float *o = s.o[h] + part * KV_CHUNK;
                    for (u32 j = 0; j < KV_CHUNK; j++) o[j] = fma((float)v[j], w, o[j]);
                });
            });
        });
    }

    RF_DEVICE_MEMBER void rescale(State &s, const float (&largest)[REGISTERS]) const {
        float factor[REGISTERS];
        for (u32 r = 0; r < REGISTERS; r++) {
            float m = __builtin_fmaxf(s.m[r], largest[r]);
            factor[r] = exp2(s.m[r] - m);
            s.l[r] *= factor[r];
            s.m[r] = m;
        }
        for_each<HEADS>([&](auto head) {
            constexpr u32 h = decltype(head)::value;
            float f = share<LANES, sum_lane<SUMS, LANES>(h)>(factor[sum_register<SUMS, LANES>(h)]);
            for (u32 j = 0; j < PARTS * KV_CHUNK; j++) s.o[h][j] *= f;
        });
    }

    // The pages of the first tiles of a wave, and its tiles in flight to registers.
    struct Start {
        u32 tile, page, next_page;
        Tile keys, values;
    };

    RF_DEVICE_MEMBER void find_pages(Start &start, const DecodeRange &range, u32 slice, u32 stride) const {
        start.tile = range.first_tile + slice;
        start.page = read_done(entry_of(start.tile, range.end_tile));
        start.next_page = read_done(entry_of(start.tile + stride, range.end_tile));
    }

    RF_DEVICE_MEMBER void fetch_first(Start &start, const DecodeRange &range) const {
        if (LOADS_EARLY && start.tile >= range.end_tile) return;
        u32 page = uniform(start.page);
        fetch<KvHalf::Key>(start.keys, page, start.tile, range.last_key);
        fetch<KvHalf::Value>(start.values, page, start.tile, range.last_key);
    }

    // With LOADS_EARLY the tile of `start` is on its way.
    RF_DEVICE_MEMBER void run(State &s, Start &start, const float (&q)[HEADS][PARTS * KV_CHUNK],
                              const DecodeRange &range, u32 slice, u32 stride) const {
        for (u32 h = 0; h < HEADS; h++) {
            for (u32 j = 0; j < PARTS * KV_CHUNK; j++) s.o[h][j] = 0.0f;
        }
        for (u32 r = 0; r < REGISTERS; r++) {
            s.m[r] = NO_SCORE;
            s.l[r] = 0.0f;
        }
        if constexpr (!LOADS_EARLY) start.tile = range.first_tile + slice;
        if (start.tile >= range.end_tile) return;
        if constexpr (!LOADS_EARLY) {
            find_pages(start, range, slice, stride);
            fetch_first(start, range);
        }
        u32 tile = start.tile, page = 0, next_page = start.next_page;
        Tile &keys = start.keys, &values = start.values;
        u32 own_key = own_step() * KEYS + key;
        while (true) {
            u32 next = tile + stride;
            float sums[SUMS];
            scores(keys, q, sums);
            bool more = next < range.end_tile;
            page = uniform(next_page);
            // AMD counts loads in flight. Of loads behind a branch the number is not known, so a
            // wait for those before them would be one for them, too.
            if (READ_AGAIN || more) fetch<KvHalf::Key>(keys, page, more ? next : tile, range.last_key);
            // Before the values, so that a wait for it is none for them.
            next_page = *entry_of(next + stride, range.end_tile);

            u32 position = tile * TILE + own_key;
            bool seen = position >= range.first_key && position <= range.last_key;
            float largest[REGISTERS], weights[REGISTERS];
            bool larger = false;
            for (u32 r = 0; r < REGISTERS; r++) {
                sums[r] = seen ? capped(p, sums[r]) : -__builtin_inff();
                largest[r] = over_keys(sums[r], [](float a, float b) { return __builtin_fmaxf(a, b); });
                // Weights may grow to 2^8 before all sums are rescaled.
                larger |= largest[r] > s.m[r] + 8.0f;
            }
            if (any_lane(larger)) rescale(s, largest);
            for (u32 r = 0; r < REGISTERS; r++) {
                weights[r] = exp2(sums[r] - s.m[r]);
                s.l[r] += weights[r];
            }
            weigh(values, s, weights);
            // Otherwise the next values would be loaded to other registers and copied, which waits
            // for them.
            for_each<HEADS>([&](auto head) {
                for (u32 j = 0; j < PARTS * KV_CHUNK; j++) computed_before(s.o[decltype(head)::value][j]);
            });
            forget_memory();
            if (READ_AGAIN || more) fetch<KvHalf::Value>(values, page, more ? next : tile, range.last_key);
            // Nor are they loaded later than here.
            forget_memory();
            if (!more) break;
            tile = next;
        }
    }

    // Sums over the parallel keys; afterwards every lane holds the complete sums of its chunks.
    RF_DEVICE_MEMBER static void finish(State &s, const RfKvCache &cache) {
        float factor = Row::FACTOR * transform_factor<TYPE>(cache);
        for (u32 r = 0; r < REGISTERS; r++) s.l[r] = over_keys(s.l[r], [](float a, float b) { return a + b; });
        for (u32 h = 0; h < HEADS; h++) {
            for (u32 j = 0; j < PARTS * KV_CHUNK; j++) {
                float v = s.o[h][j];
                if constexpr (LANES <= 8) v += xor_lane<8>(v);
                if constexpr (LANES <= 16) v += xor_lane<16>(v);
                s.o[h][j] = v * factor;
            }
            if constexpr (Row::TRANSFORMED) hadamard<KV_CHUNK, LANES>(s.o[h], cache.transform_len);
        }
    }
};

// LDS in which waves with different keys of the same heads exchange results.
template <u32 DIM, u32 HEADS>
struct DecodeShared {
    float o[DECODE_WAVES][HEADS][DIM];
    float m[DECODE_WAVES][HEADS];
    float l[DECODE_WAVES][HEADS];
    u32 arrived;
};

// The offset of a split's results, in units of heads · splits.
RF_DEVICE u64 partial_index(const RfAttentionParams &p, u32 token, u32 head, u32 split) {
    return ((u64)token * p.num_heads + head) * p.splits + split;
}

// Combines the splits of the heads [first_head, first_head + heads): a wave per head, four elements
// per lane.
RF_DEVICE void combine_splits(const RfAttentionParams &p, u32 token, u32 first_head, u32 heads, u32 splits) {
    constexpr u32 PER_LANE = MAX_SPLITS / WAVE;
    u32 vectors = p.cache.head_dim / VECTOR, columns = p.num_heads * p.cache.head_dim;
    for (u32 i = wave(); i < heads; i += DECODE_WAVES) {
        u32 head = first_head + i;
        u64 first = partial_index(p, token, head, 0);
        const f32x2 *statistics = reinterpret_cast<const f32x2 *>(p.statistics) + first;
        float m[PER_LANE], l[PER_LANE], top = NO_SCORE, sum = 0.0f;
        for (u32 j = 0; j < PER_LANE; j++) {
            u32 split = j * WAVE + lane();
            f32x2 ml = split < splits ? statistics[split] : f32x2{NO_SCORE, 0.0f};
            m[j] = ml[0];
            l[j] = ml[1];
            top = __builtin_fmaxf(top, m[j]);
        }
        top = wave_max(top);
        for (u32 j = 0; j < PER_LANE; j++) {
            m[j] = exp2(m[j] - top);
            sum = fma(m[j], l[j], sum);
        }
        float factor = normalisation(p, head, top, wave_sum(sum));

        const f32x4 *partials = reinterpret_cast<const f32x4 *>(p.partials) + first * vectors;
        for (u32 vector = lane(); vector - lane() < vectors; vector += WAVE) {
            bool inside = vector < vectors;
            const f32x4 *column = partials + (inside ? vector : 0);
            f32x4 o = {0.0f, 0.0f, 0.0f, 0.0f};
            // Splits after the last one have weight 0 and read the last part again.
            constexpr u32 AT_ONCE = COMBINE_AT_ONCE;
            for_each<PER_LANE>([&](auto number) {
                constexpr u32 j = decltype(number)::value;
                for (u32 s = 0; s < WAVE && j * WAVE + s < splits; s += AT_ONCE) {
                    f32x4 part[AT_ONCE];
                    for (u32 k = 0; k < AT_ONCE; k++) {
                        u32 split = j * WAVE + s + k;
                        part[k] = column[(split < splits ? split : splits - 1) * vectors];
                    }
                    for (u32 k = 0; k < AT_ONCE; k++) o += part[k] * read_lane(m[j], s + k);
                }
            });
            store_operand(p.out, token, columns, head * vectors + vector, inside, o * factor);
        }
    }
}

// Combines the results of the waves for `heads` query heads from first_head. Writes the final
// result if there is only one split, otherwise this split's part.
template <u32 DIM, u32 HEADS>
RF_DEVICE void merge_waves(const RfAttentionParams &p, const DecodeShared<DIM, HEADS> &shared, u32 token,
                           u32 first_head, u32 heads, u32 slices, u32 split, u32 splits) {
    u32 vectors = p.cache.head_dim / VECTOR, columns = p.num_heads * p.cache.head_dim;
    for (u32 first = 0; first < heads * vectors; first += DECODE_THREADS) {
        u32 i = first + thread_x();
        bool inside = i < heads * vectors;
        i = inside ? i : 0;
        u32 head = i / vectors, vector = i % vectors;
        u32 wave = head / HEADS * slices, h = head % HEADS;

        float m = NO_SCORE, l = 0.0f;
        f32x4 o = {0.0f, 0.0f, 0.0f, 0.0f};
        for (u32 s = 0; s < slices; s++) m = __builtin_fmaxf(m, shared.m[wave + s][h]);
        for (u32 s = 0; s < slices; s++) {
            float factor = exp2(shared.m[wave + s][h] - m);
            l = fma(factor, shared.l[wave + s][h], l);
            o += *reinterpret_cast<const f32x4 *>(&shared.o[wave + s][h][vector * VECTOR]) * factor;
        }
        head += first_head;
        if (splits == 1) {
            float factor = normalisation(p, head, m, l);
            store_operand(p.out, token, columns, head * vectors + vector, inside, o * factor);
        } else if (inside) {
            u64 at = partial_index(p, token, head, split);
            reinterpret_cast<f32x4 *>(p.partials)[at * vectors + vector] = o;
            if (vector == 0) reinterpret_cast<f32x2 *>(p.statistics)[at] = f32x2{m, l};
        }
    }
}

// Writes the keys and values of a token to the cache, for `heads` key/value heads from `first` on:
// a wave per key or value.
template <RfKvType TYPE, u32 LANES, u32 PARTS>
RF_DEVICE void append_token(const RfAttentionParams &p, const ChunkPlaces<LANES, PARTS> &places,
                            const ChunkTurns<PARTS> &turns, const u32 *table, u32 token, u32 position, u32 first,
                            u32 heads) {
    RfKvCache cache = p.cache;
    if constexpr (TYPE != KV_PACKED) cache.kv_type = TYPE;
    u32 slot = kv_slot(cache, position);
    u8 *page = kv_page_of(cache, table, position);
    for (u32 i = wave(); i < 2 * heads; i += DECODE_WAVES) {
        u32 kv_head = first + i / 2;
        bool is_key = i % 2 == 0;
        const float *row =
            (is_key ? p.heads.k : p.heads.v) + ((u64)token * cache.num_kv_heads + kv_head) * cache.head_dim;
        Chunks<PARTS> x[1];
        read_chunks<PARTS>(x[0], row, places.chunk);
        if (is_key) turn_heads(x, places, turns, p.heads.k_norm, p.heads.eps, cache.head_dim);
        auto place = is_key ? KvPlace::in_page<KvHalf::Key>(cache, page, kv_head, slot)
                            : KvPlace::in_page<KvHalf::Value>(cache, page, kv_head, slot);
        store_chunks<TYPE>(x[0], places, lane() < LANES, cache, place);
    }
}

template <RfKvType TYPE, u32 LANES, u32 HEADS, u32 PARTS = 1>
RF_DEVICE void attention_decode(const RfAttentionParams &p) {
    using Wave = DecodeWave<TYPE, LANES, PARTS, HEADS, decode_steps(HEADS, PARTS)>;
    RF_SHARED static DecodeShared<LANES * PARTS * KV_CHUNK, HEADS> shared;

    allow_next_kernel();
    u32 head_dim = p.cache.head_dim, heads_per_kv = p.num_heads / p.cache.num_kv_heads;
#if RF_NVIDIA
    u32 group = p.heads_together, group_head = group_y() * group, first_kv_head = group_head / heads_per_kv;
    u32 kv_heads_together = group > heads_per_kv ? group / heads_per_kv : 1;
#else
    // The code for other numbers of heads needs more scalar registers than there are.
    u32 group = heads_per_kv, first_kv_head = group_y(), group_head = first_kv_head * heads_per_kv;
    constexpr u32 kv_heads_together = 1;
#endif
    u32 token = group_z(), split = group_x();
    RfSpan span = span_of_token(p.batch, token);
    if (span.num_tokens > p.short_span) return await_previous_kernels();
    // Without limits on the first key, it is the same for the last position of a span.
    u32 position = last_seen(p, span, span.past_tokens + token - span.first_token);
    DecodeRange range = decode_range(p, position, split, Wave::TILE);
    if (split >= range.active_splits) return await_previous_kernels();

    auto places = ChunkPlaces<LANES, PARTS>::of(head_dim);
    Wave w = {p, p.batch.pages + span.first_page, first_kv_head, lane() / LANES, places};
    float factor = query_factor(p) * KvRow<TYPE>::FACTOR * transform_factor<TYPE>(p.cache);

    // Groups of HEADS heads are distributed over the waves, with several waves for different keys
    // of a group.
    u32 groups = (group + HEADS - 1) / HEADS;
    u32 slices = groups == 1 ? 4 : groups == 2 ? 2 : 1, together = DECODE_WAVES / slices;
    typename Wave::Start start;
    if constexpr (LOADS_EARLY) w.find_pages(start, range, wave() % slices, slices);
    await_previous_kernels();
    bool appends = p.heads.k != nullptr, appends_here = appends && split + 1 == range.active_splits;
    auto append = [&](const ChunkTurns<PARTS> &turns) {
        append_token<TYPE>(p, places, turns, w.table, token, position, first_kv_head, kv_heads_together);
        barrier();
    };
    if (!LOADS_EARLY && appends_here) append(ChunkTurns<PARTS>::read(p.heads.rope, position, places.chunk));
    for (u32 first_group = 0; first_group < groups; first_group += together) {
        u32 first_head = (first_group + wave() / slices) * HEADS;
        if (LOADS_EARLY || first_head < group) {
            // Each of several key/value heads has HEADS query heads.
            if (kv_heads_together > 1) w.kv_head = first_kv_head + first_head / HEADS;
            // Addresses that follow from it take no registers in the loop over keys.
            u32 chunk[PARTS];
#pragma unroll
            for (u32 part = 0; part < PARTS; part++) chunk[part] = computed_here(places.chunk[part]);
            Chunks<PARTS> q[HEADS];
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                // Heads beyond the group repeat its last head; their results are not used.
                u32 head = group_head + (first_head + h < group ? first_head + h : group - 1);
                read_chunks<PARTS>(q[h], p.q + ((u64)token * p.num_heads + head) * head_dim, chunk);
            }
            if (appends) {
                auto turns = ChunkTurns<PARTS>::read(p.heads.rope, position, chunk);
                if (LOADS_EARLY && appends_here && first_group == 0) append(turns);
                if constexpr (LOADS_EARLY) w.fetch_first(start, range);
                turn_heads(q, places, turns, p.heads.q_norm, p.heads.eps, head_dim);
            } else if constexpr (LOADS_EARLY) {
                w.fetch_first(start, range);
            }
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                if constexpr (KvRow<TYPE>::TRANSFORMED) hadamard<KV_CHUNK, LANES>(q[h], p.cache.transform_len);
#pragma unroll
                for (u32 i = 0; i < PARTS * KV_CHUNK; i++) {
                    q[h][i] = places.inside[i / KV_CHUNK] ? q[h][i] * factor : 0.0f;
                }
            }
            typename Wave::State s;
            w.run(s, start, q, range, wave() % slices, slices);
            Wave::finish(s, p.cache);
            // Waves after the last head exchange results that no wave reads.
            for_each<HEADS>([&](auto head) {
                constexpr u32 h = decltype(head)::value, r = sum_register<Wave::SUMS, LANES>(h);
                if (lane() < LANES) {
                    for (u32 part = 0; part < PARTS; part++) {
                        u32 chunk = part * LANES + lane();
                        const float *o = s.o[h] + part * KV_CHUNK;
                        f32x4 *to = reinterpret_cast<f32x4 *>(&shared.o[wave()][h][chunk * KV_CHUNK]);
                        to[0] = f32x4{o[0], o[1], o[2], o[3]};
                        to[1] = f32x4{o[4], o[5], o[6], o[7]};
                    }
                }
                if (lane() == sum_lane<Wave::SUMS, LANES>(h)) {
                    shared.m[wave()][h] = s.m[r];
                    shared.l[wave()][h] = s.l[r];
                }
            });
        }
        barrier();
        u32 heads = group - first_group * HEADS;
        heads = heads < together * HEADS ? heads : together * HEADS;
        merge_waves(p, shared, token, group_head + first_group * HEADS, heads, slices, split, range.active_splits);
        barrier();
    }
    if (range.active_splits == 1) return;

    device_fence();
    barrier();
    u32 *arrivals = p.arrivals + token * p.num_heads + group_head;
    if (thread_x() == 0) shared.arrived = arrive(arrivals);
    barrier();
    if (shared.arrived + 1 != range.active_splits) return;
    device_fence();
    combine_splits(p, token, group_head, group, range.active_splits);
    if (thread_x() == 0) *arrivals = 0;
}

} // namespace rf

// Declares a decode kernel. On NVIDIA its registers allow as many workgroups at once as
// AttentionParams::with_splits assumes.
#if RF_NVIDIA
#define RF_DECODE_KERNEL(HEADS, PARTS)                                                                                 \
    RF_KERNEL_AT_ONCE(rf::DECODE_THREADS, (HEADS) == 4 || (PARTS) == 2 ? 3 : 4)
#else
#define RF_DECODE_KERNEL(HEADS, PARTS) RF_LARGE_KERNEL(rf::DECODE_THREADS)
#endif
