// Matrix × vector for quantised weights: the main operation of decode.
//
// A lane processes a block of 32 columns of a row at a time, so that a wave reads 512 consecutive
// bytes of 4-bit weights with one instruction. A wave computes ROWS rows, which share the
// activations. Bytes moved: the weights once; activations are in the caches. Work per block and
// row: 8 dot4, the unpacking (3 operations per 8 weights of 4 bits) and about 4 f32 operations.
//
// An RMS norm between two matmuls is divided between them (params/matvec.h): it needs no launch of
// its own, and no workgroup waits for it. Several tokens read and unpack the weights once, and take
// 8 dot4 each per block and row.
#pragma once

#include "rf/estimate.h"
#include "rf/formats.h"
#include "rf/params/matvec.h"
#include "rf/weight_ring.h"

namespace rf {

// Choices that `rf-cli tune` replaces for a card (RF_MATVEC_*, see crates/rf-kernels/src/tuning):
// the rows of a wave for one token, and on AMD the steps of weights that it has in flight while
// it multiplies those before; 0 steps for none. An AMD SIMD switches between up to 16 waves, an
// NVIDIA scheduler with so few rows between about four: there the next weights are in LDS.
#ifndef RF_MATVEC_ROWS
#define RF_MATVEC_ROWS 2
#endif
#ifndef RF_MATVEC_STEPS
#define RF_MATVEC_STEPS 0
#endif

// The most tokens of kernels with epilogues. More would spill registers in some formats.
constexpr u32 FUSED_TOKENS = 4;

// Rows per wave, such that the sums and unpacked weights of all tokens fit in registers. Few for
// one token: the number of rows is limited, and all processors should be busy. On NVIDIA two tokens
// have as few, which leaves registers for the next weights.
template <typename F, u32 TOKENS>
constexpr u32 MATVEC_ROWS = TOKENS == 1                  ? RF_MATVEC_ROWS
                            : TOKENS == 4 || LOADS_EARLY ? 2
                                                         : (TOKENS == 2 ? 4 : 2) / F::PARTS;

// Before a norm, a workgroup computes a block of 32 rows: `waves` is 16 with two rows each, or 8
// with four.
constexpr u32 MATVEC_WAVES = 8;
constexpr u32 MATVEC_THREADS = MATVEC_WAVES * WAVE, MATVEC_THREADS_1 = 2 * MATVEC_THREADS;

// Whether waves stream their rows (stream_rows), as far as registers allow.
template <typename F, u32 TOKENS, u32 STEPS>
constexpr bool MATVEC_STREAMS = (COPY_ASYNC || STEPS > 0) && TOKENS <= 2 && F::PARTS == 1;

// One block of a row of activations.
struct ActivationBlock {
    u32x4 first;
    u32x4 last;
    f32x2 meta; // d, d·Σq

    RF_DEVICE_MEMBER static ActivationBlock fetch(const i8 *q, const float *meta, u32 columns, u32 block) {
        return {at<u32x4>(q, block), at<u32x4>(q + columns / 2, block), at<f32x2>(meta, block)};
    }
    RF_DEVICE_MEMBER u32 word(u32 j) const { return j < 4 ? first[j] : last[j - 4]; }
#if RF_NVIDIA
    // Half k % 2 of word k / 2 of either half of the block: their bytes in turns, as the nibbles of
    // 4-bit formats.
    RF_DEVICE_MEMBER u32 pair(u32 k) const {
        return __nvvm_prmt(first[k / 2], last[k / 2], k % 2 == 0 ? 0x5140 : 0x7362);
    }
#endif
};

// Σ w·x over a block: scale · d · Σ q_w·q_x − minimum · d · Σ q_x, with a scale per half if F has
// one.
template <typename F>
RF_DEVICE float block_dot(const u32 w[8], const u32 large[8], const BlockScales &s, const ActivationBlock &x) {
    if constexpr (F::HALVES) {
        i32 first = 0, last = 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            first = dot4(w[j], x.word(j), first);
            last = dot4(w[j + 4], x.word(j + 4), last);
        }
        float sum = fma(s.scale[0], (float)first, s.scale[1] * (float)last);
        if constexpr (F::MINIMA) {
            i32 first_sum = 0, last_sum = 0;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                first_sum = dot4(0x01010101u, x.word(j), first_sum);
                last_sum = dot4(0x01010101u, x.word(j + 4), last_sum);
            }
            sum -= fma(s.minimum[0], (float)first_sum, s.minimum[1] * (float)last_sum);
        }
        return sum * x.meta[0];
    } else {
        i32 dot = 0;
#pragma unroll
        for (u32 j = 0; j < 8; j++) dot = dot4(w[j], x.word(j), dot);
        if constexpr (F::PARTS == 2) {
            i32 more = 0;
#pragma unroll
            for (u32 j = 0; j < 8; j++) more = dot4(large[j], x.word(j), more);
            dot += F::LARGE * more;
        }
        float sum = s.scale[0] * x.meta[0] * (float)dot;
        if constexpr (F::MINIMA) sum = fma(-s.minimum[0], x.meta[1], sum);
        return sum;
    }
}

// Formats whose values are cheaper to get as differences of two words, each of four columns in the
// order of ActivationBlock::pair.
template <typename F>
concept Splits = requires(const typename F::Raw &raw, u32 words[8]) { F::split(raw, words, words); };

// One step of a wave: block `block` of ROWS rows of weights and of TOKENS rows of activations.
template <typename F, u32 ROWS, u32 TOKENS>
RF_DEVICE void accumulate(float (&sums)[ROWS][TOKENS], const typename F::Raw (&raw)[ROWS],
                          const ActivationBlock (&x)[TOKENS]) {
    if constexpr (Splits<F>) {
        static_assert(!F::HALVES, "the words mix both halves");
        u32 words[TOKENS][8];
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++)
#pragma unroll
            for (u32 k = 0; k < 8; k++) words[t][k] = x[t].pair(k);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u32 plus[8], minus[8];
            F::split(raw[r], plus, minus);
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) {
                i32 up = 0, down = 0;
#pragma unroll
                for (u32 k = 0; k < 8; k++) {
                    up = dot4(plus[k], words[t][k], up);
                    down = dot4(minus[k], words[t][k], down);
                }
                sums[r][t] += F::scales(raw[r]).scale[0] * x[t].meta[0] * (float)(up - down);
            }
        }
        return;
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        u32 w[8], large[8];
        F::unpack(raw[r], w);
        if constexpr (F::PARTS == 2) F::unpack_large(raw[r], large);
        BlockScales scales = F::scales(raw[r]);
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) sums[r][t] += block_dot<F>(w, large, scales, x[t]);
    }
}

template <u32 TOKENS>
RF_DEVICE void fetch_activations(ActivationBlock (&block_x)[TOKENS], const RfActivations &x, u32 columns, u32 block) {
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++)
        block_x[t] = ActivationBlock::fetch(x.q + (u64)t * columns, x.meta + (u64)t * (columns / 16), columns, block);
}

// STEPS steps of ROWS rows of weights in their memory format. Blocks beyond the rows are the last
// one of each, and are multiplied with zeros.
template <typename F, u32 STEPS, u32 ROWS>
struct WeightSteps {
    typename F::Raw raw[STEPS][ROWS];

    // Step i of those that start at block `first`.
    RF_DEVICE_MEMBER void fetch(u32 i, const RfWeight (&row_weight)[ROWS], u32 first, u32 blocks) {
        u32 block = first + i * WAVE;
        block = block < blocks ? block : blocks - 1;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) raw[i][r] = F::fetch(row_weight[r], block);
    }

    template <u32 TOKENS>
    RF_DEVICE_MEMBER void add_to(float (&sums)[ROWS][TOKENS], u32 i, const RfActivations &x, u32 columns,
                                 u32 first) const {
        u32 blocks = columns / 32, block = first + i * WAVE;
        // The same for all lanes.
        if (block - lane() >= blocks) return;
        ActivationBlock block_x[TOKENS];
        fetch_activations(block_x, x, columns, block < blocks ? block : blocks - 1);
        if (block >= blocks) {
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) block_x[t].meta = f32x2{0.0f, 0.0f};
        }
        accumulate<F>(sums, raw[i], block_x);
    }
};

// The common factor of a token of an operand that is not normalised, or 1: each lane holds a part
// of the sum of `squares`.
RF_DEVICE float norm_squares(const RfNormIn &norm, u32 token = 0) {
    float squares = 0.0f;
#pragma unroll 4
    for (u32 i = lane(); i < norm.count; i += WAVE) squares += norm.squares[token * norm.count + i];
    return squares;
}
RF_DEVICE float norm_factor(const RfNormIn &norm, float squares, u32 columns) {
    if (norm.count == 0) return 1.0f;
    return rsqrt(wave_sum(squares) * reciprocal_estimate((float)columns) + norm.eps);
}

// sums[r][t] = Σ over the columns, for rows at arbitrary addresses; the same in every lane. With
// AWAITS the activations are those of a previous kernel, which may not be done.
template <typename F, bool AWAITS, u32 ROWS, u32 TOKENS>
RF_DEVICE void row_sums(float (&sums)[ROWS][TOKENS], const RfWeight (&row_weight)[ROWS], const RfActivations &x,
                        u32 tokens, const RfNormIn &norm, u32 columns) {
    u32 blocks = columns / 32;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) sums[r][t] = 0.0f;
    u32 first = lane();
    float squares[TOKENS] = {};
    if constexpr (AWAITS) await_previous_kernels();
    if constexpr (TOKENS <= FUSED_TOKENS) {
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) squares[t] = norm_squares(norm, TOKENS == 1 || t >= tokens ? 0 : t);
    }
    for (; first < blocks; first += WAVE) {
        // The offset of every load. Without `opaque` the compiler computes a 64-bit address for
        // each.
        u32 block = opaque(first), block_of_x = opaque(first);
        typename F::Raw raw[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) raw[r] = F::fetch(row_weight[r], block);
        ActivationBlock block_x[TOKENS];
        fetch_activations(block_x, x, columns, block_of_x);
        accumulate<F>(sums, raw, block_x);
    }
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++) {
        float factor = TOKENS <= FUSED_TOKENS ? norm_factor(norm, squares[t], columns) : 1.0f;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            sums[r][t] = wave_sum(sums[r][t]);
            if constexpr (TOKENS <= FUSED_TOKENS) sums[r][t] *= factor;
        }
    }
}

// Brings the activations to the cache of the multiprocessor. Otherwise every step of the first rows
// would wait for its part.
template <u32 TOKENS>
RF_DEVICE void touch_activations(const RfActivations &x, u32 columns, u32 threads) {
    constexpr u32 LINE_BYTES = 128;
    auto touch = [&](const void *from, u32 bytes) {
        for (u32 at = thread_x() * LINE_BYTES; at < bytes; at += threads * LINE_BYTES)
            touch_line(static_cast<const u8 *>(from) + at);
    };
    touch(x.q, TOKENS * columns);
    touch(x.meta, TOKENS * columns / 4);
}

// stream_rows with the next weights in LDS: a wave requests a step as soon as it has read the one
// DEPTH before, across the ends of groups.
template <typename F, u32 ROWS, u32 TOKENS, typename RowsOf, typename Ready, typename Start, typename Done>
RF_DEVICE void stream_through_lds(u32 count, u32 threads, const RfActivations &x, u32 columns, RowsOf rows_of,
                                  Ready ready, Start start, Done done) {
    using Ring = WeightRing<F, ROWS>;
    u32 blocks = columns / 32, steps = (blocks + WAVE - 1) / WAVE, next_group = 0, next_step = 0;
    Ring ring;
    ring.lds = shared_memory<u8>() + wave() * RING_BYTES;
    auto request = [&](u32 place) {
        if (next_group < count) {
            if (next_step == 0) {
                RfWeight next_weight[ROWS];
                rows_of(next_group, next_weight);
                ring.start(next_weight);
            }
            ring.request(place);
            bool ends = ++next_step == steps;
            next_group += ends ? 1 : 0;
            next_step = ends ? 0 : next_step;
        }
        copy_async_commit();
    };
#pragma unroll 1
    for (u32 place = 0; place < Ring::DEPTH; place++) request(place);
    ready();
    touch_activations<TOKENS>(x, columns, threads);
    u32 place = 0;
#pragma unroll 1
    for (u32 group = 0; group < count; group++) {
        RfWeight row_weight[ROWS];
        rows_of(group, row_weight);
        start(group);
        float sums[ROWS][TOKENS] = {};
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            // Lanes beyond the rows have the last block, multiplied with zeros.
            u32 block = step * WAVE + lane(), last = blocks - 1;
            bool inside = block < blocks;
            ActivationBlock block_x[TOKENS];
            fetch_activations(block_x, x, columns, inside ? block : last);
            copy_async_wait_but<Ring::DEPTH - 1>();
            wave_barrier();
            typename F::Raw raw[ROWS];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
                raw[r] = F::fetch(ring.row(row_weight, r, place, step), inside ? lane() : last % WAVE);
            wave_barrier();
            request(place);
            place = place + 1 < Ring::DEPTH ? place + 1 : 0;
            if (!inside) {
#pragma unroll
                for (u32 t = 0; t < TOKENS; t++) block_x[t].meta = f32x2{0.0f, 0.0f};
            }
            accumulate<F>(sums, raw, block_x);
        }
        done(group, sums);
    }
}

// stream_rows with the next weights in registers: STEPS steps in flight while those before are
// multiplied.
template <typename F, u32 STEPS, u32 ROWS, u32 TOKENS, typename RowsOf, typename Ready, typename Start, typename Done>
RF_DEVICE void stream_through_registers(u32 count, const RfActivations &x, u32 columns, RowsOf rows_of, Ready ready,
                                        Start start, Done done) {
    constexpr u32 SPAN = STEPS * WAVE;
    u32 blocks = columns / 32, group = 0, first = lane();
    RfWeight row_weight[ROWS];
    rows_of(group, row_weight);
    WeightSteps<F, STEPS, ROWS> weights;
#pragma unroll
    for (u32 i = 0; i < STEPS; i++) weights.fetch(i, row_weight, first, blocks);
    ready();
    start(group);
    float sums[ROWS][TOKENS] = {};
#pragma unroll 1
    while (true) {
        u32 current = first;
        first += SPAN;
        // The same for all lanes.
        bool ends = first - lane() >= blocks;
        if (ends) {
            first = lane();
            group++;
            if (group < count) rows_of(group, row_weight);
        }
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            weights.add_to(sums, i, x, columns, current);
            // Also after the last group: the number of loads behind a branch would not be known, so
            // a wait for those before them would be one for them, too.
            weights.fetch(i, row_weight, first, blocks);
            forget_memory();
        }
        if (ends) {
            done(group - 1, sums);
            if (group == count) return;
            start(group);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                for (u32 t = 0; t < TOKENS; t++) sums[r][t] = 0.0f;
        }
    }
}

// The sums of `count` groups of ROWS rows, one after the other, for TOKENS tokens, by a workgroup
// of `threads` threads. Weights are requested ahead, the first ones before `ready` waits for the
// activations. rows_of(i, row_weight) sets the rows of group i, start(i) precedes its sums, done(i,
// sums) gets the sums of each lane.
template <typename F, u32 STEPS, u32 ROWS, u32 TOKENS, typename RowsOf, typename Ready, typename Start, typename Done>
RF_DEVICE void stream_rows(u32 count, u32 threads, const RfActivations &x, u32 columns, RowsOf rows_of, Ready ready,
                           Start start, Done done) {
    if constexpr (COPY_ASYNC) {
        stream_through_lds<F, ROWS, TOKENS>(count, threads, x, columns, rows_of, ready, start, done);
    } else {
        stream_through_registers<F, STEPS, ROWS, TOKENS>(count, x, columns, rows_of, ready, start, done);
    }
}

// The planes of ROWS consecutive rows. Planes have space after their last row (see
// params/weight.h), so a wave needs no bounds check.
template <typename F, u32 ROWS, u32 ALL>
RF_DEVICE void neighbours(RfWeight (&row_weight)[ALL], u32 at, const RfWeight &weight, u32 row, u32 blocks) {
    row_weight[at] = row_of<F>(weight, row, blocks);
#pragma unroll
    for (u32 r = 1; r < ROWS; r++) row_weight[at + r] = row_of<F>(row_weight[at + r - 1], 1, blocks);
}

// Lane r of the wave writes row `row + r` of a projection for all tokens; `values` are what it
// wrote.
template <u32 ROWS, u32 TOKENS>
RF_DEVICE void write_rows(const float (&sums)[ROWS][TOKENS], const RfProjection &to, const float *residual, u32 row,
                          u32 tokens, float (&values)[TOKENS]) {
    u32 mine = row + lane();
    if (lane() >= ROWS || mine >= to.rows) return;
    float bias = to.bias ? to.bias[mine] : 0.0f;
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++) {
        if (t >= tokens) break;
        float value = sums[0][t];
        // The compiler would select between the addresses of two known values, which forces them
        // into memory.
#pragma unroll
        for (u32 r = 1; r < ROWS; r++) value = lane() == r ? opaque(sums[r][t]) : value;
        value += bias;
        u64 index = (u64)t * to.rows + mine;
        if (residual) value += residual[index];
        to.out[index] = value;
        values[t] = value;
    }
}

// Lane i of a wave holds value i of a block of activations.
RF_DEVICE void write_block(float value, const RfActivations &out, u64 row, u32 columns, u32 block) {
    float largest = wave_max(__builtin_fabsf(value));
    float d = largest / 127.0f;
    float q = d > 0.0f ? round_even(value / d) : 0.0f;
    i32 sum = wave_sum((i32)q);
    u32 half = lane() / 16;
    out.q[row * columns + half * (columns / 2) + block * 16 + lane() % 16] = (i8)q;
    if (lane() == 0) {
        float *meta = out.meta + row * (columns / 16) + block * 2;
        meta[0] = d;
        meta[1] = d * (float)sum;
    }
}

// The projection of a workgroup and its first row: workgroups are assigned to the projections in
// order.
struct Place {
    u32 projection;
    u32 row;
};
RF_DEVICE Place place_of(const RfProjection *projections, u32 count, u32 group, u32 rows_per_group) {
    u32 p = 0;
    for (; p + 1 < count; p++) {
        u32 groups = (projections[p].rows + rows_per_group - 1) / rows_per_group;
        if (group < groups) break;
        group -= groups;
    }
    return {p, group * rows_per_group};
}

// The projection of a slot: the bias of its expert, and its row of the output.
RF_DEVICE RfProjection projection_of(const RfProjection &experts, u32 slot, u32 expert) {
    RfProjection own = experts;
    own.out += (u64)slot * experts.rows;
    if (own.bias) own.bias += expert * experts.rows;
    return own;
}

// The groups of rows of one wave, as streams; `values` are those that lane r wrote last.
// `weight_row` is the row of the weights for row `row` of the projection.
template <typename F, u32 ROWS, u32 TOKENS>
RF_DEVICE void stream_projection(const RfMatvecParams &p, const RfProjection &to, const RfActivations &x,
                                 u32 weight_row, u32 row, const float *residual, float (&values)[TOKENS]) {
    u32 stride = p.waves * ROWS, left = (to.rows - row + stride - 1) / stride;
    u32 count = p.row_groups < left ? p.row_groups : left;
    float squares[TOKENS], factors[TOKENS], addends[TOKENS];
    stream_rows<F, RF_MATVEC_STEPS, ROWS, TOKENS>(
        count, p.waves * WAVE, x, p.columns,
        [&](u32 i, RfWeight(&row_weight)[ROWS]) {
            neighbours<F, ROWS>(row_weight, 0, to.weight, weight_row + i * stride, p.columns / 32);
        },
        [&] {
            if (!p.route) await_previous_kernels();
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) squares[t] = norm_squares(p.norm_in, t);
        },
        [&](u32 i) {
            if (i == 0) {
#pragma unroll
                for (u32 t = 0; t < TOKENS; t++) factors[t] = norm_factor(p.norm_in, squares[t], p.columns);
            }
            u32 mine = row + i * stride + lane();
            bool writes = lane() < ROWS && mine < to.rows;
            float bias = writes && to.bias ? to.bias[mine] : 0.0f;
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) addends[t] = writes && residual ? bias + residual[t * to.rows + mine] : bias;
        },
        [&](u32 i, const float(&sums)[ROWS][TOKENS]) {
            u32 mine = row + i * stride + lane();
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) {
                float value = wave_sum(sums[0][t]);
#pragma unroll
                for (u32 r = 1; r < ROWS; r++) {
                    float other = wave_sum(sums[r][t]);
                    value = lane() == r ? other : value;
                }
                values[t] = fma(value, factors[t], addends[t]);
                if (lane() < ROWS && mine < to.rows) to.out[t * to.rows + mine] = values[t];
            }
        });
}

// One wave of a matmul; `values` are those that lane r wrote. With a route, group_y is the slot:
// one token, one expert.
template <typename F, u32 TOKENS>
RF_DEVICE void matvec_rows(const RfMatvecParams &p, const RfProjection &projection, u32 row, float (&values)[TOKENS]) {
    constexpr u32 ROWS = MATVEC_ROWS<F, TOKENS>;
    constexpr bool STREAMS = MATVEC_STREAMS<F, TOKENS, RF_MATVEC_STEPS>;
    if (row >= projection.rows) return;
    RfProjection own = projection;
    RfActivations x = p.x_q8;
    u32 weight_row = row;
    bool routed = TOKENS == 1 && p.route;
    if (routed) {
        await_previous_kernels();
        u32 slot = group_y(), token = slot / p.used;
        u32 expert = (u32)p.route[token * 2 * p.used + slot % p.used];
        u64 x_row = p.shared_x ? token : slot;
        x = {x.q + x_row * p.columns, x.meta + x_row * (p.columns / 16)};
        own = projection_of(projection, slot, expert);
        weight_row = expert * projection.rows + row;
    }
    if constexpr (STREAMS) {
        stream_projection<F, ROWS>(p, own, x, weight_row, row, routed ? nullptr : p.residual, values);
        return;
    }
    float sums[ROWS][TOKENS];
    RfWeight row_weight[ROWS];
    if (routed) {
        neighbours<F, ROWS>(row_weight, 0, projection.weight, weight_row, p.columns / 32);
        row_sums<F, false>(sums, row_weight, x, 1, p.norm_in, p.columns);
        write_rows(sums, own, nullptr, row, 1, values);
        return;
    }
    neighbours<F, ROWS>(row_weight, 0, projection.weight, row, p.columns / 32);
    row_sums<F, true>(sums, row_weight, p.x_q8, p.tokens, p.norm_in, p.columns);
    write_rows(sums, projection, p.residual, row, p.tokens, values);
}

// The weight of the norm for the row of a lane in the waves that write a token, read before the
// sums or by write_normed.
template <u32 TOKENS>
RF_DEVICE float norm_weight(const RfNormOut &norm) {
    return LOADS_EARLY && norm.squares && wave() < TOKENS ? norm.weight[group_x() * 32 + lane()] : 0.0f;
}

// Writes the 32 rows of a workgroup as the operand of the matmuls that follow a norm, a token per
// wave.
template <u32 TOKENS>
RF_DEVICE void write_normed(const RfNormOut &norm, float weight, const float (&values)[TOKENS], u32 tokens,
                            u32 rows_per_wave, u32 rows) {
    RF_SHARED float all[TOKENS][32];
    if (lane() < rows_per_wave) {
#pragma unroll
        for (u32 t = 0; t < TOKENS; t++) all[t][wave() * rows_per_wave + lane()] = values[t];
    }
    barrier();
    if (wave() >= (TOKENS == 1 ? 1 : tokens)) return;
    u32 token = TOKENS == 1 ? 0 : wave();
    float x = all[token][lane()];
    float squares = wave_sum(x * x);
    if (lane() == 0) norm.squares[token * (rows / 32) + group_x()] = squares;
    u32 row = group_x() * 32 + lane();
    x *= LOADS_EARLY ? weight : norm.weight[row];
    if (norm.out.f32) norm.out.f32[token * rows + row] = x;
    if (norm.out.q8.q) write_block(x, norm.out.q8, token, rows, group_x());
}

// One workgroup of a matmul whose projections have one format.
template <typename F, u32 TOKENS>
RF_DEVICE void matvec(const RfMatvecParams &p) {
    constexpr u32 ROWS = MATVEC_ROWS<F, TOKENS>;
    allow_next_kernel();
    load_grid<F>(p.waves * WAVE);
    Place place = place_of(p.projections, p.num_projections, group_x(), p.waves * ROWS * p.row_groups);
    const RfProjection &projection = p.projections[place.projection];
    float weight = norm_weight<TOKENS>(p.norm_out), values[TOKENS] = {};
    matvec_rows<F, TOKENS>(p, projection, place.row + wave() * ROWS, values);
    if constexpr (TOKENS <= FUSED_TOKENS) {
        if (p.norm_out.squares) write_normed(p.norm_out, weight, values, p.tokens, ROWS, projection.rows);
    }
}

// The same for projections of several formats. All threads of a workgroup take the same branch. The
// first format is void, so that a macro can write the list as `, F` for each format.
template <u32 TOKENS, typename, typename... FORMATS>
RF_DEVICE void matvec_mixed(const RfMatvecParams &p) {
    constexpr u32 ROWS = MATVEC_ROWS<Q4_0, TOKENS>;
    allow_next_kernel();
    Place place = place_of(p.projections, p.num_projections, group_x(), MATVEC_WAVES * ROWS * p.row_groups);
    // Copies in registers. Beyond a number of uses, clang copies parameters to scratch memory.
    const RfProjection projection = p.projections[place.projection];
    const RfMatvecParams rest = p;
    float values[TOKENS];
    (void)((projection.format == FORMATS::NUMBER &&
            (matvec_rows<FORMATS, TOKENS>(rest, projection, place.row + wave() * ROWS, values), true)) || ...);
}

} // namespace rf
