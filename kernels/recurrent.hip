// Kernels with recurrent states: short convolutions, the gated delta rule, the state space of
// Mamba 2 and the selective scan of Mamba 1.
#include "rf/recurrent.h"

using namespace rf;

namespace {

// Tokens of a workgroup of a convolution, and its largest number of taps.
constexpr u32 CONV_TOKENS = 32;
constexpr u32 MAX_TAPS = 4;

// The largest number of elements of the state of a channel of a scan.
constexpr u32 MAX_SCAN_DIM = 16;

} // namespace

// rf_oracle::reference::causal_conv: a lane per column. Grid: x = 128 columns each, y = 32 tokens
// each, z = span. Only the workgroups of the first tokens of a span access its state, and they read
// the old one before they write the new one. Reads and writes 4 bytes per column and token.
RF_KERNEL(RECURRENT_THREADS) causal_conv_f32(RfCausalConvParams p) {
    follow_previous_kernels();
    u32 column = group_x() * RECURRENT_THREADS + thread_x();
    RfSpan span = p.batch.spans[group_z()];
    u32 first = group_y() * CONV_TOKENS, kept = p.taps - 1;
    if (column >= p.width || first >= span.num_tokens) return;
    u32 end = span.num_tokens - first < CONV_TOKENS ? span.num_tokens : first + CONV_TOKENS;
    const float *x = p.x + (u64)span.first_token * p.width + column;
    float *out = p.out + (u64)span.first_token * p.width + column;
    float *state = state_of(p.state, p.batch, span) + column;

    // Absent taps are 0 and before the others. The window ends with the current token.
    float filter[MAX_TAPS], window[MAX_TAPS];
#pragma unroll
    for (u32 i = 0; i < MAX_TAPS; i++) {
        u32 back = MAX_TAPS - 1 - i;
        filter[i] = back <= kept ? p.filter[(u64)(kept - back) * p.width + column] : 0.0f;
        window[i] = 0.0f;
        if (back == 0 || back > kept) continue;
        if (first > 0) {
            window[i] = x[(u64)(first - back) * p.width];
        } else if (span.past_tokens > 0) {
            window[i] = state[(u64)(kept - back) * p.width];
        }
    }
    // After a token the window moves by one, so that it ends with the place of the next one.
    float bias = p.bias ? p.bias[column] : 0.0f;
    for (u32 t = first; t < end; t++) {
        window[MAX_TAPS - 1] = x[(u64)t * p.width];
        float y = 0.0f;
#pragma unroll
        for (u32 i = 0; i < MAX_TAPS; i++) y = fma(filter[i], window[i], y);
        y += bias;
        out[(u64)t * p.width] = p.silu ? activate(RF_SILU, y) : y;
#pragma unroll
        for (u32 i = 0; i + 1 < MAX_TAPS; i++) window[i] = window[i + 1];
    }

    if (first > 0) return;
#pragma unroll
    for (u32 i = 0; i + 1 < MAX_TAPS; i++) {
        u32 back = MAX_TAPS - 1 - i;
        if (back > kept) continue;
        float row = end < span.num_tokens ? x[(u64)(span.num_tokens - back) * p.width] : window[i];
        state[(u64)(kept - back) * p.width] = row;
    }
}

// rf_oracle::reference: one token of the gated delta rule after the other.
RF_KERNEL(RECURRENT_THREADS) delta_net_f32_d128(RfRecurrenceParams p) {
    follow_previous_kernels();
    recur<128, DeltaRule<false>>(p);
}
RF_LARGE_KERNEL(RECURRENT_THREADS) delta_net_f32_d256(RfRecurrenceParams p) {
    follow_previous_kernels();
    recur<256, DeltaRule<false>>(p);
}
RF_KERNEL(RECURRENT_THREADS) channel_delta_net_f32_d128(RfRecurrenceParams p) {
    follow_previous_kernels();
    recur<128, DeltaRule<true>>(p);
}

// rf_oracle::reference: one token of the selective state space after the other.
RF_KERNEL(RECURRENT_THREADS) state_space_f32_d128(RfRecurrenceParams p) {
    follow_previous_kernels();
    recur<128, StateSpaceRule>(p);
}
RF_LARGE_KERNEL(RECURRENT_THREADS) state_space_f32_d256(RfRecurrenceParams p) {
    follow_previous_kernels();
    recur<256, StateSpaceRule>(p);
}

// rf_oracle::reference: one token of the selective scan after the other. A lane per channel has its
// column of the state in registers. Grid: x = 128 channels each, y = span.
RF_KERNEL(RECURRENT_THREADS) selective_scan_f32(RfScanParams p) {
    follow_previous_kernels();
    u32 channel = group_x() * RECURRENT_THREADS + thread_x();
    if (channel >= p.channels) return;
    RfSpan span = p.batch.spans[group_y()];
    float *column = state_of(p.state, p.batch, span) + channel;
    float state[MAX_SCAN_DIM], decay[MAX_SCAN_DIM];
#pragma unroll
    for (u32 n = 0; n < MAX_SCAN_DIM; n++) {
        bool is_row = n < p.state_dim;
        decay[n] = is_row ? p.decay[(u64)n * p.channels + channel] : 0.0f;
        state[n] = is_row && span.past_tokens > 0 ? column[(u64)n * p.channels] : 0.0f;
    }
    float skip = p.skip[channel];
    for (u32 t = 0; t < span.num_tokens; t++) {
        u64 token = span.first_token + t, at = token * p.channels + channel;
        const float *b = p.b + token * p.state_dim, *c = p.c + token * p.state_dim;
        float x = p.x[at], time = softplus(p.dt[at]), delta = time * x, y = skip * x;
#pragma unroll
        for (u32 n = 0; n < MAX_SCAN_DIM; n++) {
            if (n >= p.state_dim) continue;
            state[n] = fma(b[n], delta, state[n] * exp(time * decay[n]));
            y = fma(state[n], c[n], y);
        }
        p.out[at] = y;
    }
#pragma unroll
    for (u32 n = 0; n < MAX_SCAN_DIM; n++) {
        if (n < p.state_dim) column[(u64)n * p.channels] = state[n];
    }
}
