// RoPE, per-head norms, and writes of keys and values to the cache: see rf/heads.h and
// rf/head_chunks.h.
//
// A wave per head, but for `rope_append_chunks_f32`, and four waves per workgroup. Grid: x = groups
// of four heads of a token, y = token.
#include "rf/head_chunks.h"
#include "rf/heads.h"
#include "rf/lanes.h"
#include "rf/params/latent.h"

using namespace rf;

constexpr u32 HEAD_WAVES = 4;
constexpr u32 HEAD_THREADS = HEAD_WAVES * WAVE;

namespace {

// The index of the wave among those of a token.
RF_DEVICE u32 head_index() { return group_x() * HEAD_WAVES + wave(); }

template <u32 STEPS>
RF_DEVICE void rope(const RfRopeParams &p, float (&exchange)[MAX_HEAD_DIM]) {
    u32 token = group_y();
    u64 offset = ((u64)token * p.num_heads + head_index()) * p.head_dim;
    auto head = Head<STEPS>::read(p.x + offset, p.head_dim);
    head.rotate(p.rope, p.rows[token], exchange);
    head.write(p.out + offset);
}

template <u32 STEPS>
RF_DEVICE void kv_append(const RfKvAppendParams &p) {
    u32 heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim, token = group_y();
    bool is_key = head_index() < heads;
    u32 kv_head = is_key ? head_index() : head_index() - heads;
    auto head = Head<STEPS>::read((is_key ? p.k : p.v) + ((u64)token * heads + kv_head) * head_dim, head_dim);
    head.append(p.batch, p.cache, token, kv_head, is_key);
}

template <u32 STEPS>
RF_DEVICE void rope_append(const RfRopeAppendParams &p, float (&exchange)[MAX_HEAD_DIM]) {
    u32 kv_heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim, token = group_y();
    u32 keys = p.num_heads, values = keys + kv_heads;
    bool is_query = head_index() < keys, is_value = head_index() >= values;
    u32 kv_head = head_index() - (is_value ? values : keys);
    u64 row = is_query ? (u64)token * p.num_heads + head_index() : (u64)token * kv_heads + kv_head;
    const float *from = is_query ? p.q : is_value ? p.heads.v : p.heads.k;
    auto head = Head<STEPS>::read(from + row * head_dim, head_dim);
    if (!is_value) {
        const float *norm = is_query ? p.heads.q_norm : p.heads.k_norm;
        if (norm) head.norm(norm, p.heads.eps);
        head.rotate(p.heads.rope, p.rows[token], exchange);
    }
    if (is_query) {
        head.write(p.q_out + row * head_dim);
    } else {
        head.append(p.batch, p.cache, token, kv_head, !is_value);
    }
}

// The heads of queries, keys and values of a token, in this order: HEADS for each LANES lanes.
template <u32 LANES, u32 PARTS>
RF_DEVICE void rope_append_chunks(const RfRopeAppendParams &p) {
    constexpr u32 HEADS = PARTS == 1 ? 4 : 2, AT_ONCE = WAVE / LANES;
    const RfKvCache &cache = p.cache;
    u32 kv_heads = cache.num_kv_heads, head_dim = cache.head_dim, token = group_y();
    u32 keys = p.num_heads, values = keys + kv_heads, end = values + kv_heads;
    u32 first = head_index() * (HEADS * AT_ONCE) + lane() / LANES;
    auto places = ChunkPlaces<LANES, PARTS>::of(head_dim);

    Chunks<PARTS> x[HEADS][1];
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        // No branch around a load: beyond the end the last head is read again.
        u32 head = first + h * AT_ONCE;
        head = head < end ? head : end - 1;
        const float *from = head < keys ? p.q : head < values ? p.heads.k : p.heads.v;
        u32 in_kind = head < keys ? head : head < values ? head - keys : head - values;
        u64 index = (u64)token * (head < keys ? p.num_heads : kv_heads) + in_kind;
        read_chunks<PARTS>(x[h][0], from + index * head_dim, places.chunk);
    }
    u32 position = p.batch.positions[token];
    auto turns = ChunkTurns<PARTS>::read(p.heads.rope, p.rows[token], places.chunk);
    const u32 *table = p.batch.pages + p.batch.spans[p.batch.span_of[token]].first_page;
    u32 slot = kv_slot(cache, position);
    u8 *page = kv_page_of(cache, table, position);
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        // Lanes of a wave may have heads of several kinds, but exchange values together.
        u32 head = first + h * AT_ONCE;
        bool is_query = head < keys, is_key = !is_query && head < values, is_value = head >= values && head < end;
        Chunks<PARTS> &own = x[h][0];
        if (any_lane(head < values)) {
            const float *norm = is_query ? p.heads.q_norm : p.heads.k_norm;
            turn_heads<LANES, PARTS>(x[h], places, turns, norm, p.heads.eps, head_dim, head < values);
        }
        if (any_lane(is_query)) {
            float *row = p.q_out + ((u64)token * p.num_heads + head) * head_dim;
            store_chunks<RF_KV_F32>(own, places, is_query, cache, {reinterpret_cast<u8 *>(row), nullptr, nullptr});
        }
        bool appends = is_key || is_value;
        if (!any_lane(appends)) continue;
        u32 kv_head = is_key ? head - keys : head - values;
        auto place = is_key ? KvPlace::in_page<KvHalf::Key>(cache, page, kv_head, slot)
                            : KvPlace::in_page<KvHalf::Value>(cache, page, kv_head, slot);
        switch (cache.kv_type) {
        case RF_KV_F32: store_chunks<RF_KV_F32>(own, places, appends, cache, place); break;
        case RF_KV_F16: store_chunks<RF_KV_F16>(own, places, appends, cache, place); break;
        case RF_KV_FP8: store_chunks<RF_KV_FP8>(own, places, appends, cache, place); break;
        case RF_KV_Q8_0: store_chunks<RF_KV_Q8_0>(own, places, appends, cache, place); break;
        default: store_chunks<KV_PACKED>(own, places, appends, cache, place);
        }
    }
}

} // namespace

// rf_oracle::reference::rope for every head. Reads and writes 4 bytes per element.
RF_KERNEL(HEAD_THREADS) rope_f32(RfRopeParams p) {
    follow_previous_kernels();
    RF_SHARED static float exchange[HEAD_WAVES][MAX_HEAD_DIM];
    if (head_index() >= p.num_heads) return;
    if (p.head_dim <= 64) {
        rope<2>(p, exchange[wave()]);
    } else if (p.head_dim <= 128) {
        rope<4>(p, exchange[wave()]);
    } else if (p.head_dim <= 256) {
        rope<8>(p, exchange[wave()]);
    } else {
        rope<16>(p, exchange[wave()]);
    }
}

// Keys, then values. Reads 4 bytes per element and writes the cache format.
RF_KERNEL(HEAD_THREADS) kv_append_f32(RfKvAppendParams p) {
    follow_previous_kernels();
    if (head_index() >= 2 * p.cache.num_kv_heads) return;
    if (p.cache.head_dim <= 64) {
        kv_append<2>(p);
    } else if (p.cache.head_dim <= 128) {
        kv_append<4>(p);
    } else if (p.cache.head_dim <= 256) {
        kv_append<8>(p);
    } else {
        kv_append<16>(p);
    }
}

// The keys of latent attention, which have no values: a wave per 32 elements. Grid: x = four of
// them each, y = token. Reads 4 bytes per element and writes the cache format.
RF_KERNEL(HEAD_THREADS) latent_append_f32(RfLatentAppendParams p) {
    follow_previous_kernels();
    u32 group = head_index(), head_dim = p.cache.head_dim, token = group_y();
    if (group >= kv_groups(p.cache)) return;
    u32 first = group * KV_GROUP, rest = head_dim - first, position = p.batch.positions[token];
    auto part = Head<1>::read(p.k + (u64)token * head_dim + first, rest < KV_GROUP ? rest : KV_GROUP);
    if (u32 len = p.cache.transform_len; len > 1) {
        if (len > WAVE) {
            // The groups of a transform are added.
            u32 block = first & ~(len - 1), own = (first - block) / WAVE;
            const float *from = p.k + (u64)token * head_dim + block + lane();
            float sum = 0.0f;
            for (u32 i = 0; i < len / WAVE; i++) sum = fma(from[i * WAVE], hadamard_sign(i, own), sum);
            part.x[0] = sum;
        }
        part.transform(len);
    }
    const u32 *table = p.batch.pages + p.batch.spans[p.batch.span_of[token]].first_page;
    u8 *page = kv_page_of(p.cache, table, position);
    u32 slot = kv_slot(p.cache, position);
    auto place = KvPlace::in_page<KvHalf::Key>(p.cache, page, 0, slot);
    place.elements += kv_bytes(p.cache.kv_type, first);
    place.fifth_bits += first / KV_CHUNK;
    place.scales += group;
    part.store(p.cache, place);
}

// Norms, RoPE and cache write in one kernel: heads of queries, of keys, of values. Reads 4
// bytes per element; writes 4 per element of q, and k and v in the cache format.
RF_KERNEL(HEAD_THREADS) rope_append_f32(RfRopeAppendParams p) {
    follow_previous_kernels();
    RF_SHARED static float exchange[HEAD_WAVES][MAX_HEAD_DIM];
    if (head_index() >= p.num_heads + 2 * p.cache.num_kv_heads) return;
    if (p.cache.head_dim <= 64) {
        rope_append<2>(p, exchange[wave()]);
    } else if (p.cache.head_dim <= 128) {
        rope_append<4>(p, exchange[wave()]);
    } else if (p.cache.head_dim <= 256) {
        rope_append<8>(p, exchange[wave()]);
    } else {
        rope_append<16>(p, exchange[wave()]);
    }
}

// As rope_append_f32, for heads of whole chunks: lanes read and write 32 bytes of a head, and have
// several heads in flight. Grid: x = heads of four waves, y = token.
RF_KERNEL(HEAD_THREADS) rope_append_chunks_f32(RfRopeAppendParams p) {
    follow_previous_kernels();
    if (p.cache.head_dim <= 64) {
        rope_append_chunks<8, 1>(p);
    } else if (p.cache.head_dim <= 128) {
        rope_append_chunks<16, 1>(p);
    } else if (p.cache.head_dim <= 256) {
        rope_append_chunks<32, 1>(p);
    } else {
        rope_append_chunks<32, 2>(p);
    }
}
