// Prefill attention over a cache of f16: attention_prefill_f16_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/attention_prefill.h.
#include "rf/attention_prefill.h"

using namespace rf;

// AT_ONCE: workgroups on a multiprocessor of NVIDIA, which limits the registers of a thread.
#if RF_NVIDIA
#define PREFILL_KERNEL(WAVES, AT_ONCE) RF_KERNEL_AT_ONCE((WAVES) * WAVE, AT_ONCE)
#else
#define PREFILL_KERNEL(WAVES, AT_ONCE) RF_LARGE_KERNEL((WAVES) * WAVE)
#endif
#define PREFILL(NAME, DIM, WAVES, KEYS, AT_ONCE)                                                                       \
    PREFILL_KERNEL(WAVES, AT_ONCE) NAME(RfAttentionParams p) {                                                         \
        attention_prefill<RF_KV_F16, DIM, WAVES, KEYS>(p);                                                             \
    }

PREFILL(attention_prefill_f16_d64, 64, 4, 64, 3)
PREFILL(attention_prefill_f16_d96, 96, 3, 32, 4)
PREFILL(attention_prefill_f16_d128, 128, 4, 32, 2)
PREFILL(attention_prefill_f16_d256, 256, 2, 16, 4)
PREFILL_WIDE(attention_prefill_f16_d128_wide, RF_KV_F16)
