// Prefill attention over a cache of fp8: attention_prefill_fp8_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/attention_prefill.h.
#include "rf/attention_prefill.h"

using namespace rf;

#define PREFILL(NAME, DIM, WAVES, KEYS)                                                                                \
    RF_LARGE_KERNEL((WAVES) * WAVE) NAME(RfAttentionParams p) {                                                        \
        attention_prefill<RF_KV_FP8, DIM, WAVES, KEYS>(p);                                                             \
    }

PREFILL(attention_prefill_fp8_d64, 64, 4, 64)
PREFILL(attention_prefill_fp8_d96, 96, 3, 32)
PREFILL(attention_prefill_fp8_d128, 128, 4, 32)
PREFILL(attention_prefill_fp8_d256, 256, 2, 16)
PREFILL_WIDE(attention_prefill_fp8_d128_wide, RF_KV_FP8)
