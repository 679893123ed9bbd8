// Rotary embedding, per-head norms and the way of keys and values into the cache.
//
// Throughout, a wave has one head of one token: lane l holds elements l, l + 32, l + 64 … in registers. Four waves
// make a workgroup; grid: x = heads of a token in fours, y = token.
#include "rf/fp8.h"
#include "rf/kv.h"
#include "rf/params/rope.h"

using namespace rf;

constexpr u32 HEAD_WAVES = 4;
constexpr u32 HEAD_THREADS = HEAD_WAVES * WAVE;

namespace {

constexpr u32 MAX_HEAD_DIM = 256;
constexpr u32 STEPS = MAX_HEAD_DIM / WAVE;

// Elements of a head, those past its end 0.
struct Head {
    float x[STEPS];
};

RF_DEVICE Head read_head(const float *x, u32 head_dim) {
    Head head;
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) head.x[i] = i * WAVE + lane() < head_dim ? x[i * WAVE + lane()] : 0.0f;
    return head;
}

RF_DEVICE void write_head(float *out, const Head &head, u32 head_dim) {
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) {
        if (i * WAVE + lane() < head_dim) out[i * WAVE + lane()] = head.x[i];
    }
}

// x / √(mean(x²) + eps) · weight.
RF_DEVICE void norm_head(Head &head, const float *weight, float eps, u32 head_dim) {
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) sum = fma(head.x[i], head.x[i], sum);
    float scale = rsqrt(wave_sum(sum) / (float)head_dim + eps);
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) {
        if (i * WAVE + lane() < head_dim) head.x[i] *= scale * weight[i * WAVE + lane()];
    }
}

// (x, y) → (x cos θ − y sin θ, x sin θ + y cos θ) for each pair; `exchange` is LDS of this wave.
RF_DEVICE void rotate_head(Head &head, const RfRope &rope, u32 position, float (&exchange)[MAX_HEAD_DIM]) {
    const f32x2 *table = reinterpret_cast<const f32x2 *>(rope.table) + (u64)position * (rope.dims / 2);
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) exchange[i * WAVE + lane()] = head.x[i];
    wave_barrier();
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) {
        u32 d = i * WAVE + lane(), half = rope.dims / 2;
        if (d >= rope.dims) break;
        bool neox = rope.style == RF_ROPE_NEOX;
        bool is_first = neox ? d < half : d % 2 == 0;
        u32 partner = neox ? (is_first ? d + half : d - half) : d ^ 1;
        f32x2 turn = table[neox ? (is_first ? d : d - half) : d / 2];
        float across = exchange[partner] * turn[1];
        head.x[i] = fma(head.x[i], turn[0], is_first ? -across : across);
    }
    wave_barrier();
}

// Stores a head in the format of the cache, its elements in order.
template <KvHalf HALF>
RF_DEVICE void store_head(const RfKvCache &cache, const Head &head, u8 *page, u32 kv_head, u32 slot) {
    u8 *row = page + kv_row_offset<HALF>(cache, kv_head, slot);
    u32 head_dim = cache.head_dim;
    if (cache.type == RF_KV_F32) {
        write_head(reinterpret_cast<float *>(row), head, head_dim);
    } else if (cache.type == RF_KV_F16) {
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = i * WAVE + lane();
            if (d < head_dim) reinterpret_cast<f16 *>(row)[d] = (f16)head.x[i];
        }
    } else if (cache.type == RF_KV_FP8) {
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = i * WAVE + lane();
            if (d < head_dim) row[d] = fp8_e4m3_from_f32(head.x[i]);
        }
    } else {
        // As rf_quant has Q8_0: d = max|x| / 127 in f32, of which 1/d is taken before it is rounded to f16;
        // q = x · (1/d), ties away from zero.
        f16 *scales = reinterpret_cast<f16 *>(page + kv_scale_offset<HALF>(cache, kv_head, slot));
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            if (i * WAVE >= head_dim) break;
            u32 d = i * WAVE + lane();
            float scale = __builtin_fminf(wave_max(__builtin_fabsf(head.x[i])) / 127.0f, 65504.0f);
            float inverse = 1.0f / scale;
            float level = inverse < __builtin_inff() ? __builtin_fabsf(head.x[i] * inverse) : 0.0f;
            // Half less an ulp: with one half itself, 0.49999997 would become 1.
            i32 q = (i32)(level + 0x1.fffffep-2f);
            if (d < head_dim) row[d] = (u8)(head.x[i] < 0.0f ? -q : q);
            if (lane() == 0) scales[i] = (f16)scale;
        }
    }
}

// Stores the head of a token at its position.
template <KvHalf HALF>
RF_DEVICE void append_head(const RfBatch &batch, const RfKvCache &cache, const Head &head, u32 token, u32 kv_head) {
    u32 position = batch.positions[token];
    const u32 *table = batch.pages + batch.spans[batch.span_of[token]].first_page;
    store_head<HALF>(cache, head, kv_page_of(cache, table, position), kv_head, kv_slot(cache, position));
}

} // namespace

// rf_graph::reference::rope for every head. Reads and writes 4 bytes per element.
RF_KERNEL(HEAD_THREADS) rope_f32(RfRopeParams p) {
    RF_SHARED static float exchange[HEAD_WAVES][MAX_HEAD_DIM];
    u32 head_index = group_x() * HEAD_WAVES + wave(), token = group_y();
    if (head_index >= p.num_heads) return;
    u64 offset = ((u64)token * p.num_heads + head_index) * p.head_dim;
    Head head = read_head(p.x + offset, p.head_dim);
    rotate_head(head, p.rope, p.batch.positions[token], exchange[wave()]);
    write_head(p.out + offset, head, p.head_dim);
}

// Keys, then values. Reads 4 bytes per element, writes those of the cache.
RF_KERNEL(HEAD_THREADS) kv_append_f32(RfKvAppendParams p) {
    u32 heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim;
    u32 head_index = group_x() * HEAD_WAVES + wave(), token = group_y();
    if (head_index >= 2 * heads) return;
    bool is_key = head_index < heads;
    u32 kv_head = is_key ? head_index : head_index - heads;
    const float *x = is_key ? p.k : p.v;
    Head head = read_head(x + ((u64)token * heads + kv_head) * head_dim, head_dim);
    if (is_key) {
        append_head<KvHalf::Key>(p.batch, p.cache, head, token, kv_head);
    } else {
        append_head<KvHalf::Value>(p.batch, p.cache, head, token, kv_head);
    }
}

// Norms, rotation and append in one: heads of queries, of keys, of values. Reads 4 bytes per element, writes 4 per
// element of q and those of the cache.
RF_KERNEL(HEAD_THREADS) rope_append_f32(RfRopeAppendParams p) {
    RF_SHARED static float exchange[HEAD_WAVES][MAX_HEAD_DIM];
    u32 kv_heads = p.cache.num_kv_heads, head_dim = p.cache.head_dim;
    u32 head_index = group_x() * HEAD_WAVES + wave(), token = group_y();
    if (head_index >= p.num_heads + 2 * kv_heads) return;

    if (head_index >= p.num_heads + kv_heads) {
        u32 kv_head = head_index - p.num_heads - kv_heads;
        Head head = read_head(p.v + ((u64)token * kv_heads + kv_head) * head_dim, head_dim);
        append_head<KvHalf::Value>(p.batch, p.cache, head, token, kv_head);
        return;
    }

    bool is_query = head_index < p.num_heads;
    u32 kv_head = head_index - p.num_heads;
    u64 row = is_query ? (u64)token * p.num_heads + head_index : (u64)token * kv_heads + kv_head;
    const float *norm = is_query ? p.q_norm : p.k_norm;
    Head head = read_head((is_query ? p.q : p.k) + row * head_dim, head_dim);
    if (norm) norm_head(head, norm, p.eps, head_dim);
    rotate_head(head, p.rope, p.batch.positions[token], exchange[wave()]);
    if (is_query) {
        write_head(p.q_out + row * head_dim, head, head_dim);
    } else {
        append_head<KvHalf::Key>(p.batch, p.cache, head, token, kv_head);
    }
}
