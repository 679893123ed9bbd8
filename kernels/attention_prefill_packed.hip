// Prefill attention over a cache of q4_0 or q5_0: attention_prefill_packed_d<head_dim>, for head
// sizes up to <head_dim>. Grid and work: rf/attention_prefill.h.
#include "rf/attention_prefill.h"

using namespace rf;

#define PREFILL(NAME, DIM, WAVES, KEYS)                                                                                \
    RF_LARGE_KERNEL((WAVES) * WAVE) NAME(RfAttentionParams p) {                                                        \
        attention_prefill<KV_PACKED, DIM, WAVES, KEYS>(p);                                                            \
    }

PREFILL(attention_prefill_packed_d64, 64, 4, 64)
PREFILL(attention_prefill_packed_d128, 128, 4, 32)
PREFILL(attention_prefill_packed_d256, 256, 2, 16)
