// RoPE, per-head norms, and writes of keys and values to the cache: see rf/heads.h.
//
// A wave per head, four waves per workgroup. Grid: x = groups of four heads of a token, y = token.
#include "rf/heads.h"
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
    head.rotate(p.rope, p.batch.positions[token], exchange);
    head.write(p.out + offset);
}

template <u32 STEPS>
RF_DEVICE void kv_append(const RfKvAppendParams &p) {
    u32 heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim, token = group_y();
    bool is_key = head_index() < heads;
    u32 kv_head = is_key ? head_index() : head_index() - heads;
    auto head = Head<STEPS>::read((is_key ? p.k : p.v) + ((u64)token * heads + kv_head) * head_dim, head_dim);
    if (is_key) {
        head.template append<KvHalf::Key>(p.batch, p.cache, token, kv_head);
    } else {
        head.template append<KvHalf::Value>(p.batch, p.cache, token, kv_head);
    }
}

template <u32 STEPS>
RF_DEVICE void rope_append(const RfRopeAppendParams &p, float (&exchange)[MAX_HEAD_DIM]) {
    u32 kv_heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim, token = group_y();
    if (head_index() >= p.num_heads + kv_heads) {
        u32 kv_head = head_index() - p.num_heads - kv_heads;
        auto head = Head<STEPS>::read(p.heads.v + ((u64)token * kv_heads + kv_head) * head_dim, head_dim);
        head.template append<KvHalf::Value>(p.batch, p.cache, token, kv_head);
        return;
    }

    bool is_query = head_index() < p.num_heads;
    u32 kv_head = head_index() - p.num_heads;
    u64 row = is_query ? (u64)token * p.num_heads + head_index() : (u64)token * kv_heads + kv_head;
    const float *norm = is_query ? p.heads.q_norm : p.heads.k_norm;
    auto head = Head<STEPS>::read((is_query ? p.q : p.heads.k) + row * head_dim, head_dim);
    if (norm) head.norm(norm, p.heads.eps);
    head.rotate(p.heads.rope, p.batch.positions[token], exchange);
    if (is_query) {
        head.write(p.q_out + row * head_dim);
    } else {
        head.template append<KvHalf::Key>(p.batch, p.cache, token, kv_head);
    }
}

} // namespace

// rf_graph::reference::rope for every head. Reads and writes 4 bytes per element.
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
    const u32 *table = p.batch.pages + p.batch.spans[p.batch.span_of[token]].first_page;
    u8 *page = kv_page_of(p.cache, table, position);
    u32 slot = kv_slot(p.cache, position);
    u8 *row = page + kv_row_offset<KvHalf::Key>(p.cache, 0, slot) + first * kv_element_bytes(p.cache.type);
    part.store(p.cache.type, row, reinterpret_cast<f16 *>(page + kv_scale_offset<KvHalf::Key>(p.cache, 0, slot)) + group);
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
