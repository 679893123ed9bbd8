// Prefill attention over a cache of q8_0: attention_prefill_q8_0_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/attention_prefill.h.
#include "rf/attention_prefill.h"

using namespace rf;

#define PREFILL(NAME, DIM, WAVES, KEYS)                                                                                \
    RF_LARGE_KERNEL((WAVES) * WAVE) NAME(RfAttentionParams p) {                                                        \
        attention_prefill<RF_KV_Q8_0, DIM, WAVES, KEYS>(p);                                                            \
    }

PREFILL(attention_prefill_q8_0_d64, 64, 4, 64)
PREFILL(attention_prefill_q8_0_d96, 96, 3, 32)
PREFILL(attention_prefill_q8_0_d128, 128, 4, 32)
PREFILL(attention_prefill_q8_0_d256, 256, 2, 16)
PREFILL_WIDE(attention_prefill_q8_0_d128_wide, RF_KV_Q8_0)
