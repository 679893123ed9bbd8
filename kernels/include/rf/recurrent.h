// Recurrences over the tokens of each sequence, whose state per head is a matrix S [key_dim,
// value_dim]: rf_oracle::reference::recurrent.
//
// A workgroup has 32 columns of the matrix of one head, for all tokens of one sequence. A wave has
// 8 of the columns; each of the 4 lanes of a column holds a quarter of its rows in registers. The
// state is read and written once per launch, with all loads in flight, which bounds decode. Tokens
// are prepared a few at a time in LDS: queries and keys, values, and the two gates of the head.
//
// The arithmetic of a token does not depend on the batch: a prompt gives the bits of its tokens one
// by one.
#pragma once

#include "rf/activation.h"
#include "rf/params/recurrent.h"

namespace rf {

constexpr u32 RECURRENT_THREADS = 128;

// The columns of a workgroup, and of a wave.
constexpr u32 RECURRENT_COLUMNS = 32;
constexpr u32 WAVE_COLUMNS = 8;

// The number of tokens that are in LDS at a time.
constexpr u32 RECURRENT_TOKENS = 8;

// The state of a sequence.
RF_DEVICE float *state_of(const RfState &state, const RfBatch &batch, const RfSpan &span) {
    return state.first + batch.pages[span.first_page] * state.page_floats;
}

// The sum over the lanes of a column.
RF_DEVICE float column_sum(f32x4 parts) {
    float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    sum += xor_lane<8>(sum);
    return sum + xor_lane<16>(sum);
}

// The inputs of a column at a token. A lane's rows are every fourth vector of queries, keys and
// decays, which the rule of decays per row has.
struct RecurrentInput {
    const f32x4 *query;
    const f32x4 *key;
    const f32x4 *decays;
    float value;
    f32x2 gates;
};

// S ← g·S, δ = β·(v − Sᵀk), S ← S + k δᵀ, y = Sᵀq, with normalised queries and keys. The decay g is
// one of the head, or with CHANNELS one of each row of S.
template <bool HAS_CHANNELS>
struct DeltaRule {
    static constexpr bool CHANNELS = HAS_CHANNELS;
    // The decay of the head, and the share of the correction.
    RF_DEVICE_MEMBER static f32x2 gates(const RfRecurrenceParams &p, u32 head, u64 token) {
        u64 at = token * p.heads + head;
        if constexpr (CHANNELS) return f32x2{1.0f, sigmoid(p.beta[at])};
        float time = softplus(p.alpha[at] + p.decay_bias[head]);
        return f32x2{exp(time * p.decay[head]), sigmoid(p.beta[at])};
    }
    // The decay of a row.
    RF_DEVICE_MEMBER static float decay(const RfRecurrenceParams &p, u32 head, u64 token, u32 row) {
        u32 at = head * p.key_dim + row;
        float gate = p.alpha[token * p.heads * p.key_dim + at] + p.decay_bias[at], factor = p.decay[head];
        return exp(p.bound < 0.0f ? p.bound * sigmoid(factor * gate) : softplus(gate) * factor);
    }
    // The factors of a query and a key, from their sums of squares.
    RF_DEVICE_MEMBER static float query_factor(const RfRecurrenceParams &p, float squares) {
        return rsqrt(squares + p.eps) * rsqrt((float)p.key_dim);
    }
    RF_DEVICE_MEMBER static float key_factor(const RfRecurrenceParams &p, float squares) {
        return rsqrt(squares + p.eps);
    }
    template <u32 STEPS>
    RF_DEVICE_MEMBER static float step(const RfRecurrenceParams &, u32, f32x4 (&state)[STEPS], const RecurrentInput &in) {
        f32x4 predicted = {0.0f, 0.0f, 0.0f, 0.0f}, y = predicted;
#pragma unroll
        for (u32 s = 0; s < STEPS; s++) {
            f32x4 key = in.key[4 * s];
            if constexpr (CHANNELS) {
                state[s] *= in.decays[4 * s];
            } else {
                state[s] *= in.gates[0];
            }
            for (u32 i = 0; i < 4; i++) predicted[i] = fma(state[s][i], key[i], predicted[i]);
        }
        float delta = in.gates[1] * (in.value - column_sum(predicted));
#pragma unroll
        for (u32 s = 0; s < STEPS; s++) {
            f32x4 key = in.key[4 * s], query = in.query[4 * s];
            for (u32 i = 0; i < 4; i++) {
                state[s][i] = fma(key[i], delta, state[s][i]);
                y[i] = fma(state[s][i], query[i], y[i]);
            }
        }
        return column_sum(y);
    }
};

// S ← exp(Δa)·S + B (Δx)ᵀ, y = SᵀC + d·x, where B is the key and C the query.
struct StateSpaceRule {
    static constexpr bool CHANNELS = false;
    // The decay, and the time step.
    RF_DEVICE_MEMBER static f32x2 gates(const RfRecurrenceParams &p, u32 head, u64 token) {
        float time = softplus(p.alpha[token * p.heads + head] + p.decay_bias[head]);
        return f32x2{exp(time * p.decay[head]), time};
    }
    RF_DEVICE_MEMBER static float query_factor(const RfRecurrenceParams &, float) { return 1.0f; }
    RF_DEVICE_MEMBER static float key_factor(const RfRecurrenceParams &, float) { return 1.0f; }
    template <u32 STEPS>
    RF_DEVICE_MEMBER static float step(const RfRecurrenceParams &p, u32 head, f32x4 (&state)[STEPS],
                                       const RecurrentInput &in) {
        f32x4 y = {0.0f, 0.0f, 0.0f, 0.0f};
        float x = in.gates[1] * in.value;
#pragma unroll
        for (u32 s = 0; s < STEPS; s++) {
            f32x4 key = in.key[4 * s], query = in.query[4 * s];
            for (u32 i = 0; i < 4; i++) {
                state[s][i] = fma(state[s][i], in.gates[0], key[i] * x);
                y[i] = fma(state[s][i], query[i], y[i]);
            }
        }
        return fma(p.skip[head], in.value, column_sum(y));
    }
};

// A recurrence with at most D rows per head. Grid: x = 32 columns each, y = head, z = span.
template <u32 D, typename Rule>
RF_DEVICE void recur(const RfRecurrenceParams &p) {
    constexpr u32 STEPS = D / 16, WAVES = RECURRENT_THREADS / WAVE;
    RF_SHARED static f32x4 queries[RECURRENT_TOKENS][D / 4], keys[RECURRENT_TOKENS][D / 4];
    RF_SHARED static float values[RECURRENT_TOKENS][RECURRENT_COLUMNS];
    RF_SHARED static f32x4 decays[Rule::CHANNELS ? RECURRENT_TOKENS : 1][D / 4];
    RF_SHARED static f32x2 gates[RECURRENT_TOKENS];

    u32 head = group_y();
    u32 key_head = p.interleaved ? head % p.key_heads : head / (p.heads / p.key_heads);
    RfSpan span = p.batch.spans[group_z()];
    u32 part = lane() / WAVE_COLUMNS, slot = wave() * WAVE_COLUMNS + lane() % WAVE_COLUMNS;
    u32 first_column = group_x() * RECURRENT_COLUMNS, column = first_column + slot;
    bool inside = column < p.value_dim;
    float *matrix = state_of(p.state, p.batch, span) + (u64)head * p.key_dim * p.value_dim;

    f32x4 state[STEPS];
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) state[s] = f32x4{0.0f, 0.0f, 0.0f, 0.0f};
    if (span.past_tokens > 0) {
#pragma unroll
        for (u32 s = 0; s < STEPS; s++) {
            for (u32 i = 0; i < 4; i++) {
                // No branch around a load: what is outside reads the first row or column.
                u32 row = 16 * s + 4 * part + i;
                bool is_row = row < p.key_dim;
                float element = matrix[(is_row ? row : 0) * p.value_dim + (inside ? column : 0)];
                state[s][i] = is_row && inside ? element : 0.0f;
            }
        }
    }

    for (u32 first = 0; first < span.num_tokens; first += RECURRENT_TOKENS) {
        u32 rest = span.num_tokens - first, count = rest < RECURRENT_TOKENS ? rest : RECURRENT_TOKENS;
        u64 first_token = span.first_token + first;
        if (first > 0) barrier();
        for (u32 t = wave(); t < count; t += WAVES) {
            const float *row = p.x + (first_token + t) * p.columns + key_head * p.key_dim;
            float query[D / WAVE], key[D / WAVE], query_squares = 0.0f, key_squares = 0.0f;
#pragma unroll
            for (u32 i = 0; i < D / WAVE; i++) {
                u32 at = i * WAVE + lane();
                query[i] = at < p.key_dim ? row[p.queries + at] : 0.0f;
                key[i] = at < p.key_dim ? row[p.keys + at] : 0.0f;
                query_squares = fma(query[i], query[i], query_squares);
                key_squares = fma(key[i], key[i], key_squares);
            }
            float query_factor = Rule::query_factor(p, wave_sum(query_squares));
            float key_factor = Rule::key_factor(p, wave_sum(key_squares));
#pragma unroll
            for (u32 i = 0; i < D / WAVE; i++) {
                u32 at = i * WAVE + lane();
                reinterpret_cast<float *>(queries[t])[at] = query[i] * query_factor;
                reinterpret_cast<float *>(keys[t])[at] = key[i] * key_factor;
                if constexpr (Rule::CHANNELS) {
                    float decay = at < p.key_dim ? Rule::decay(p, head, first_token + t, at) : 0.0f;
                    reinterpret_cast<float *>(decays[t])[at] = decay;
                }
            }
        }
        for (u32 i = thread_x(); i < count * RECURRENT_COLUMNS; i += RECURRENT_THREADS) {
            u32 t = i / RECURRENT_COLUMNS, at = first_column + i % RECURRENT_COLUMNS;
            const float *row = p.x + (first_token + t) * p.columns + p.values + head * p.value_dim;
            values[t][i % RECURRENT_COLUMNS] = at < p.value_dim ? row[at] : 0.0f;
        }
        if (thread_x() < count) gates[thread_x()] = Rule::gates(p, head, first_token + thread_x());
        barrier();
        for (u32 t = 0; t < count; t++) {
            const f32x4 *own_decays = nullptr;
            if constexpr (Rule::CHANNELS) own_decays = decays[t] + part;
            RecurrentInput in = {queries[t] + part, keys[t] + part, own_decays, values[t][slot], gates[t]};
            float y = Rule::step(p, head, state, in);
            if (part == 0 && inside) p.out[((first_token + t) * p.heads + head) * p.value_dim + column] = y;
        }
    }

    if (!inside) return;
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) {
        for (u32 i = 0; i < 4; i++) {
            u32 row = 16 * s + 4 * part + i;
            if (row < p.key_dim) matrix[row * p.value_dim + column] = state[s][i];
        }
    }
}

} // namespace rf
