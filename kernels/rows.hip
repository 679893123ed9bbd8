// Row-wise kernels on activations, which run between the matmuls.
#include "rf/activation.h"
#include "rf/params/sums.h"
#include "rf/rows.h"
#include "rf/signal.h"

using namespace rf;

// Threads per workgroup of kernels with one vector of four columns per lane.
constexpr u32 ROW_THREADS = 128;

// Threads per workgroup of kernels with whole rows, and the vectors that each keeps in registers:
// rows of 16384 columns.
[[maybe_unused]] constexpr u32 WHOLE_ROW_THREADS = 512, WHOLE_ROW_HELD = 8;

namespace {

// Columns of x.
struct PlainSource {
    const f32x4 *x;

    RF_DEVICE_MEMBER f32x4 load(u32 vector) const { return x[vector]; }
    RF_DEVICE_MEMBER void keep(u32, f32x4) const {}
    RF_DEVICE_MEMBER f32x4 again(u32 vector) const { return x[vector]; }
};

// Columns of x + residual. The sum is stored, possibly in place of x.
struct ResidualSource {
    const f32x4 *x;
    const f32x4 *residual;
    f32x4 *sum;

    RF_DEVICE_MEMBER f32x4 load(u32 vector) const { return x[vector] + residual[vector]; }
    RF_DEVICE_MEMBER void keep(u32 vector, f32x4 v) const { sum[vector] = v; }
    RF_DEVICE_MEMBER f32x4 again(u32 vector) const { return sum[vector]; }
};

// Uses the fewest registers per lane that the length of the row allows.
template <typename Source>
RF_DEVICE void rms_norm_of(const Source &source, const RfRmsNormParams &p, u64 row) {
    if (p.columns <= VECTOR * p.threads) {
        rms_norm_row<1>(source, p.weight, p.eps, p.out, row, p.columns, p.threads);
    } else if (p.columns <= 2 * VECTOR * p.threads) {
        rms_norm_row<2>(source, p.weight, p.eps, p.out, row, p.columns, p.threads);
    } else {
        rms_norm_row<4>(source, p.weight, p.eps, p.out, row, p.columns, p.threads);
    }
}

// Columns of a group of the norm in RfGluParams: those of a wave.
constexpr u32 GATED_NORM_GROUP = WAVE * VECTOR;

RF_DEVICE f32x4 normalised(f32x4 x, const RfGluParams &p) {
    float sum = wave_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
    float scale = rsqrt(sum / (float)GATED_NORM_GROUP + p.eps);
    return x * scale * reinterpret_cast<const f32x4 *>(p.norm)[lane()];
}

// 1 + factor · ln(1 + ⌊(position + offset) / period⌋).
RF_DEVICE float position_scale(const RfMapParams &p, u32 position) {
    float steps = (float)((position + p.offset) / p.period + 1);
    return 1.0f + p.parameter * (log2(steps) * 0.693147182f);
}

// The function of an element x of a column. `factor` is the parameter or the scale of the position.
RF_DEVICE float mapped(const RfMapParams &p, float x, float factor, const float *gate, u32 column) {
    switch (p.function) {
    case RF_SCALE:
    case RF_POSITION_SCALE: return x * factor;
    case RF_SOFTCAP: return factor * tanh(x / factor);
    case RF_SQUARED_RELU: x = __builtin_fmaxf(x, 0.0f); return x * x;
    case RF_CLAMP: return __builtin_fminf(__builtin_fmaxf(x, p.parameter), p.limit);
    case RF_GELU_ERF: return gelu_erf(x);
    case RF_XIELU: {
        if (x > 0.0f) return fma(factor * x, x, p.beta * x);
        return fma(expm1_of_negative(__builtin_fminf(x, p.eps)) - x, p.alpha_n, p.beta * x);
    }
    case RF_SIGMOID_GATE: return x * sigmoid(gate[column / p.gate_group]);
    case RF_SOFTPLUS_GATE: return x * softplus(gate[column / p.gate_group]);
    default: return activate(p.function, x);
    }
}

// The elements of a lane: out = function(a, b).
template <typename Function>
RF_DEVICE void for_pairs(const RfPairParams &p, Function function) {
    u64 first = ((u64)group_x() * ROW_THREADS + thread_x()) * VECTOR;
    if (first + VECTOR <= p.count) {
        f32x4 a = *reinterpret_cast<const f32x4 *>(p.a + first), b = *reinterpret_cast<const f32x4 *>(p.b + first);
        *reinterpret_cast<f32x4 *>(p.out + first) = function(a, b);
    } else {
        for (u64 i = first; i < p.count; i++) p.out[i] = function(p.a[i], p.b[i]);
    }
}

// Waits for the signals of all summands. Numbers count up, and a signal may have a later one. Every
// thread polls, so that it sees what was written before.
RF_DEVICE void await_signals(const RfSumPartsParams &p) {
    // Minutes: a device that is lost does not occupy the others for ever.
    constexpr u32 MOST_POLLS = 1u << 28;
    constexpr u32 MOST = sizeof(p.summands) / sizeof(RfPartSummand);
    bool is_polled = false;
#pragma unroll
    for (u32 i = 0; i < MOST; i++) is_polled |= p.summands[i].signal != nullptr;
    if (!is_polled) return;
    for (u32 polls = 0;; polls++) {
        bool is_done = true;
#pragma unroll
        for (u32 i = 0; i < MOST; i++) {
            const u32 *signal = p.summands[i].signal;
            if (signal) is_done &= (int)(signal_number(signal) - p.summands[i].number) >= 0;
        }
        if (is_done) return;
        if (polls == MOST_POLLS) fail_launch();
    }
}

// The elements from `at` on: the summands in their order, and the residual. All loads are in flight
// together, because those of other devices' summands take long.
template <typename T>
RF_DEVICE T sum_of_parts(const RfSumPartsParams &p, u64 at) {
    constexpr u32 MOST = sizeof(p.summands) / sizeof(RfPartSummand);
    T x[MOST] = {}, residual = {};
    if (p.residual) residual = *reinterpret_cast<const T *>(p.residual + at);
#pragma unroll
    for (u32 i = 0; i < MOST; i++) {
        if (i < p.num_summands) x[i] = *reinterpret_cast<const T *>(p.summands[i].x + at);
    }
    T sum = x[0];
#pragma unroll
    for (u32 i = 1; i < MOST; i++) {
        if (i < p.num_summands) sum = sum + x[i];
    }
    return p.residual ? sum + residual : sum;
}

RF_DEVICE const f32x4 *vectors_of(const float *x, u64 row, u32 columns) {
    return reinterpret_cast<const f32x4 *>(x + row * columns);
}

// A vector of a row of the gated unit; with a norm the whole wave computes one.
RF_DEVICE f32x4 glu_of(const RfGluParams &p, u64 row, u32 vector) {
    f32x4 gate = vectors_of(p.gate, row, p.columns)[vector], up = vectors_of(p.up, row, p.columns)[vector], v;
    if (p.norm) up = normalised(up, p);
    for (u32 i = 0; i < VECTOR; i++) v[i] = gated_unit(p.activation, gate[i], up[i]);
    return v;
}

} // namespace

// Quantises activations to int8. Grid: x = 512 columns each, y = row. A lane processes four
// columns. Reads 4 bytes per column and writes 1.25 (and 4 as f32).
RF_KERNEL(ROW_THREADS) quantize_f32_q8(RfQuantizeParams p) {
    follow_previous_kernels();
    u32 vector = group_x() * ROW_THREADS + thread_x();
    u64 row = group_y();
    bool inside = vector < p.columns / VECTOR;
    f32x4 v = inside ? vectors_of(p.x, row, p.columns)[vector] : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
    store_operand(p.out, row, p.columns, vector, inside, v);
}

#if RF_MATRIX_UNIT
// As quantize_f32_q8, for operands that are also stored as f16, whose scale the whole row decides.
// Grid: x = row.
RF_KERNEL(WHOLE_ROW_THREADS) halve_f32_f16(RfQuantizeParams p) {
    follow_previous_kernels();
    u64 row = group_x();
    store_row<WHOLE_ROW_HELD>(p.out, row, p.columns, WHOLE_ROW_THREADS,
                              [&](u32 vector) { return vectors_of(p.x, row, p.columns)[vector]; });
}
#endif

// rf_oracle::reference::rms_norm over a complete row, with optional residual addition before and
// quantisation after. Grid: x = row. The columns are a multiple of 4. Reads 4 bytes per column (8
// with a residual); writes 1.25, and 4 for each f32 output.
RF_KERNEL(MAX_WAVES * WAVE) rms_norm_f32_q8(RfRmsNormParams p) {
    follow_previous_kernels();
    u64 row = group_x();
    const f32x4 *x = vectors_of(p.x, row, p.columns);
    if (p.residual) {
        f32x4 *sum = reinterpret_cast<f32x4 *>(p.sum + row * p.columns);
        rms_norm_of(ResidualSource{x, vectors_of(p.residual, row, p.columns), sum}, p, row);
    } else {
        rms_norm_of(PlainSource{x}, p, row);
    }
}

// rf_oracle::reference::glu, quantised; with a norm, a wave has a group of it. Grid: x = 512
// columns each, y = row. Reads 8 bytes per column and writes 1.25 (and 4 as f32).
RF_KERNEL(ROW_THREADS) glu_f32_q8(RfGluParams p) {
    follow_previous_kernels();
    u32 vector = group_x() * ROW_THREADS + thread_x();
    u64 row = group_y();
    bool inside = vector < p.columns / VECTOR;
    // With a norm, whole waves are inside.
    f32x4 v = inside ? glu_of(p, row, vector) : f32x4{0.0f, 0.0f, 0.0f, 0.0f};
    store_operand(p.out, row, p.columns, vector, inside, v);
}

#if RF_MATRIX_UNIT
// As glu_f32_q8, for operands that are also stored as f16, whose scale the whole row decides. Grid:
// x = row.
RF_KERNEL(WHOLE_ROW_THREADS) glu_f32_f16(RfGluParams p) {
    follow_previous_kernels();
    u64 row = group_x();
    store_row<WHOLE_ROW_HELD>(p.out, row, p.columns, WHOLE_ROW_THREADS,
                              [&](u32 vector) { return glu_of(p, row, vector); });
}
#endif

// rf_oracle::reference::glu with f32 output only, for any number of columns: a lane per element.
// Grid: x over all elements.
RF_KERNEL(ROW_THREADS) glu_f32(RfGluParams p) {
    follow_previous_kernels();
    u64 i = (u64)group_x() * ROW_THREADS + thread_x();
    if (i < (u64)p.rows * p.columns) p.out.f32[i] = gated_unit(p.activation, p.gate[i], p.up[i]);
}

// rf_oracle::reference::rms_norm over groups of any size: a wave per group, four per workgroup.
// Grid: x.
RF_KERNEL(ROW_THREADS) rms_norm_f32(RfGroupNormParams p) {
    follow_previous_kernels();
    u32 group = group_x() * (ROW_THREADS / WAVE) + wave();
    if (group >= p.groups) return;
    const float *x = p.x + (u64)group * p.group;
    const float *weight = p.weight + (u64)(group % p.weights) * p.group;
    float *out = p.out + (u64)group * p.group;
    float sum = 0.0f;
    for (u32 i = lane(); i < p.group; i += WAVE) sum = fma(x[i], x[i], sum);
    float scale = rsqrt(wave_sum(sum) / (float)p.group + p.eps);
    for (u32 i = lane(); i < p.group; i += WAVE) out[i] = x[i] * scale * weight[i];
}

// Op::LayerNorm of rf_graph: a wave per row, four per workgroup. Grid: x. Reads x three times,
// the second and third time from the cache.
RF_KERNEL(ROW_THREADS) layer_norm_f32(RfGroupNormParams p) {
    follow_previous_kernels();
    u32 group = group_x() * (ROW_THREADS / WAVE) + wave();
    if (group >= p.groups) return;
    const float *x = p.x + (u64)group * p.group;
    float *out = p.out + (u64)group * p.group;
    float sum = 0.0f;
    for (u32 i = lane(); i < p.group; i += WAVE) sum += x[i];
    float mean = wave_sum(sum) / (float)p.group;
    float squares = 0.0f;
    for (u32 i = lane(); i < p.group; i += WAVE) squares = fma(x[i] - mean, x[i] - mean, squares);
    float scale = rsqrt(wave_sum(squares) / (float)p.group + p.eps);
    for (u32 i = lane(); i < p.group; i += WAVE) {
        float y = (x[i] - mean) * scale * p.weight[i];
        out[i] = p.bias ? y + p.bias[i] : y;
    }
}

// Sums and products. Grid: x = 512 elements each; elements beyond the last multiple of four are
// processed one by one.
RF_KERNEL(ROW_THREADS) add_f32(RfPairParams p) {
    follow_previous_kernels();
    for_pairs(p, [](auto a, auto b) { return a + b; });
}
RF_KERNEL(ROW_THREADS) mul_f32(RfPairParams p) {
    follow_previous_kernels();
    for_pairs(p, [](auto a, auto b) { return a * b; });
}

// Tells kernels of other devices, which poll the signal, that the kernels before this one are done.
// They see what these wrote. Grid: 1.
RF_KERNEL(WAVE) signal_summand(RfSignalParams p) {
    follow_previous_kernels();
    if (thread_x() == 0) raise_signal(p.signal, p.number);
}

// Op::AllReduce of rf_graph. Polls the signals of summands first. The norm lacks its factor
// (params/matvec.h), so that no workgroup needs the whole row. Grid: x = 512 elements each;
// elements beyond the last multiple of four are processed one by one. Reads 4 bytes per element and
// summand, and 4 of a residual; writes 4, and 1.25 with a norm (and 4 as f32).
RF_KERNEL(ROW_THREADS) sum_parts_f32_q8(RfSumPartsParams p) {
    await_previous_kernels();
    await_signals(p);
    // Kernels that start before would keep those for which others wait from this device.
    allow_next_kernel();
    u64 first = ((u64)group_x() * ROW_THREADS + thread_x()) * VECTOR;
    bool inside = first + VECTOR <= p.count;
    const RfNormOut &norm = p.norm_out;
    f32x4 v = {0.0f, 0.0f, 0.0f, 0.0f}, weight = v;
    // A norm is of few rows: their elements are counted in 32 bits.
    u32 row = norm.squares ? (u32)first / p.columns : 0, vector = ((u32)first - row * p.columns) / VECTOR;
    if (inside) {
        if (norm.squares) weight = reinterpret_cast<const f32x4 *>(norm.weight)[vector];
        v = sum_of_parts<f32x4>(p, first);
        *reinterpret_cast<f32x4 *>(p.out + first) = v;
    } else {
        for (u64 i = first; i < p.count; i++) p.out[i] = sum_of_parts<float>(p, i);
    }
    if (!norm.squares) return;
    float squares = wave_sum<8>(square_sum(v, 0.0f));
    if (inside && vector % 8 == 0) norm.squares[first / 32] = squares;
    store_operand(norm.out, row, p.columns, vector, inside, v * weight);
}

// rf_oracle::reference::map and gated, and Op::ScaleByPosition. Grid: x = 512 columns each,
// y = row. A lane processes four columns. Reads 4 bytes per column, and 4 of a gate per column.
RF_KERNEL(ROW_THREADS) map_f32(RfMapParams p) {
    follow_previous_kernels();
    u32 first = (group_x() * ROW_THREADS + thread_x()) * VECTOR;
    u64 row = group_y();
    float factor = p.function == RF_POSITION_SCALE ? position_scale(p, p.positions[row]) : p.parameter;
    const float *x = p.x + row * p.columns;
    const float *gate = p.gate + row * p.gate_columns;
    float *out = p.out + row * p.columns;
    // Rows of other lengths are not aligned to 16 bytes.
    if (p.columns % VECTOR == 0) {
        if (first >= p.columns) return;
        f32x4 v = *reinterpret_cast<const f32x4 *>(x + first);
        for (u32 i = 0; i < VECTOR; i++) v[i] = mapped(p, v[i], factor, gate, first + i);
        *reinterpret_cast<f32x4 *>(out + first) = v;
    } else {
        for (u32 i = first; i < first + VECTOR && i < p.columns; i++) out[i] = mapped(p, x[i], factor, gate, i);
    }
}

// Copies rows, or a part of each, or of each group of columns. Grid: x = 512 columns each, y = row.
RF_KERNEL(ROW_THREADS) copy_rows_f32(RfCopyRowsParams p) {
    follow_previous_kernels();
    u32 first = (group_x() * ROW_THREADS + thread_x()) * VECTOR;
    u32 row = p.indices ? p.indices[group_y()] : group_y();
    const float *x = p.x + (u64)row * p.x_columns + p.start;
    float *out = p.out + (u64)group_y() * p.columns;
    auto source = [&](u32 column) { return x + column / p.part * p.group + column % p.part; };
    // Other rows and parts are not aligned to 16 bytes.
    if ((p.x_columns | p.group | p.start | p.part) % VECTOR == 0) {
        if (first < p.columns) *reinterpret_cast<f32x4 *>(out + first) = *reinterpret_cast<const f32x4 *>(source(first));
    } else {
        for (u32 i = first; i < first + VECTOR && i < p.columns; i++) out[i] = *source(i);
    }
}

// Op::JoinGroups of rf_graph. Grid: x = 512 columns of out each, y = row. Reads and writes 4 bytes
// per column.
RF_KERNEL(ROW_THREADS) join_groups_f32(RfJoinParams p) {
    follow_previous_kernels();
    u32 part = p.a_part + p.b_part, columns = p.groups * part;
    u32 first = (group_x() * ROW_THREADS + thread_x()) * VECTOR;
    u64 row = group_y();
    const float *a = p.a + row * p.groups * p.a_part, *b = p.b + row * p.groups * p.b_part;
    float *out = p.out + row * columns;
    auto source = [&](u32 column) {
        u32 group = column / part, at = column % part;
        return at < p.a_part ? a + group * p.a_part + at : b + group * p.b_part + (at - p.a_part);
    };
    // Other parts are not aligned to 16 bytes.
    if ((p.a_part | p.b_part) % VECTOR == 0) {
        if (first < columns) *reinterpret_cast<f32x4 *>(out + first) = *reinterpret_cast<const f32x4 *>(source(first));
    } else {
        for (u32 i = first; i < first + VECTOR && i < columns; i++) out[i] = *source(i);
    }
}
