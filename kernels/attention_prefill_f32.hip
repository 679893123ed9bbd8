// Prefill attention over a cache of f32: attention_prefill_f32_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/attention_prefill.h.
#include "rf/attention_prefill.h"

using namespace rf;

#define PREFILL(NAME, DIM, WAVES, KEYS)                                                                                \
    RF_LARGE_KERNEL((WAVES) * WAVE) NAME(RfAttentionParams p) {                                                        \
        attention_prefill<RF_KV_F32, DIM, WAVES, KEYS>(p);                                                             \
    }

PREFILL(attention_prefill_f32_d64, 64, 2, 16)
PREFILL(attention_prefill_f32_d128, 128, 4, 16)
PREFILL(attention_prefill_f32_d256, 256, 1, 16)
