// The tiles of keys and values of prefill attention in LDS, and their loads from the cache.
#pragma once

#include "rf/attention_tile.h"
#include "rf/copy_async.h"

namespace rf {

// Loads keys and values from the cache into LDS.
template <RfKvType TYPE, u32 DIM, u32 WAVES, u32 KEYS, u32 TEAMS>
struct PrefillTile {
    using Element = typename TileElement<TYPE>::Type;
    using Engine = Tile<Element, 1>;
    using Row = KvRow<TYPE>;
    static constexpr u32 THREADS = WAVES * WAVE;
    static constexpr u32 CHUNKS = DIM / KV_CHUNK, COUNT = KEYS * CHUNKS / THREADS;
    static_assert(KEYS * CHUNKS % THREADS == 0 && COUNT % 2 == 0 && DIM % KV_GROUP == 0);
    static constexpr u32 GROUPS = DIM / KV_GROUP;
    // Whether the scales of q8_0 multiply scores and weights, exactly. Matrix units round queries
    // and weights to f16, and so are keys and values when they are stored with their scales: 5
    // operations less per key, query and group.
    static constexpr bool SCALES_SUMS = Row::SCALED && !RF_MATRIX_UNIT;
    // Whether the next tile is copied without registers.
    static constexpr bool ASYNC = COPY_ASYNC && TYPE == RF_KV_F16;
    // Whether the next tile is on its way during the computation of the current one: registers must
    // be able to hold it.
    static constexpr bool AHEAD = ASYNC || (DIM <= 128 && TYPE != RF_KV_F32);
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
    static constexpr u32 SCALES = SCALES_SUMS ? GROUPS * KEYS : 4;

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
    u32 chunks;     // of the head; further chunks are zero
    u32 page_shift; // a page has 2^page_shift tokens

    RF_DEVICE_MEMBER static u32 thread() { return TEAMS == 1 ? thread_x() : thread_x() % THREADS; }
    // The two keys of a pair are consecutive and have the same chunk.
    RF_DEVICE_MEMBER static u32 pair(u32 i) { return (i / 2 * THREADS + thread()) / CHUNKS; }
    RF_DEVICE_MEMBER static u32 chunk(u32 i) { return (i / 2 * THREADS + thread()) % CHUNKS; }
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
            pages.page[i / 2] = table[position(first + i, first_key, last_key) >> page_shift];
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

    // Copies a tile asynchronously. Chunks beyond the head become zero.
    template <KvHalf HALF>
    RF_DEVICE_MEMBER void copy(Element *tile, const Pages &pages, u32 first_key, u32 last_key) const {
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            u32 slot = kv_slot(p.cache, position(i, first_key, last_key)), c = chunk(i);
            auto head = KvHead<TYPE>::template in_page<HALF>(p.cache, kv_page(p.cache, pages.page[i / 2]), kv_head);
            bool exists = c < chunks;
            copy_async_16(tile + key(i) * STRIDE + c * KV_CHUNK, head.address(slot, exists ? c : 0), exists);
        }
        copy_async_commit();
    }

    // The values of a chunk, with their scale unless SCALES_SUMS. Chunks beyond the head have codes
    // of 0, with a finite value: their queries are zero, and their sums are not read.
    RF_DEVICE_MEMBER typename Row::Values values(const Raw &r, u32 i, u32 first) const {
        typedef u32 Words __attribute__((ext_vector_type(sizeof(typename Row::Raw) / 4)));
        Words words = __builtin_bit_cast(Words, r.raw[i]);
        bool inside = chunk(first + i) < chunks;
#pragma unroll
        for (u32 j = 0; j < sizeof(words) / 4; j++) words[j] = inside ? words[j] : 0;
        auto v = Row::values(__builtin_bit_cast(typename Row::Raw, words), p.cache);
        if constexpr (Row::SCALED && !SCALES_SUMS) v *= __builtin_bit_cast(f16, r.scale[i]);
        return v;
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
        if constexpr (SCALES_SUMS) {
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

} // namespace rf
