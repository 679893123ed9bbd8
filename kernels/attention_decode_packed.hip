// Decode attention over a cache of q4_0 or q5_0: attention_decode_packed_d<head_dim>_g<heads>, for
// head sizes up to <head_dim> and <heads> query heads per wave. Grid and work:
// rf/attention_decode.h.
#include "rf/attention_decode.h"

using namespace rf;

#define DECODE(NAME, LANES, HEADS, PARTS)                                                                              \
    RF_DECODE_KERNEL(HEADS, PARTS) NAME(RfAttentionParams p) {                                                         \
        attention_decode<KV_PACKED, LANES, HEADS, PARTS>(p);                                                          \
    }

DECODE(attention_decode_packed_d64_g1, 8, 1, 1)
DECODE(attention_decode_packed_d64_g2, 8, 2, 1)
DECODE(attention_decode_packed_d64_g4, 8, 4, 1)
DECODE(attention_decode_packed_d128_g1, 16, 1, 1)
DECODE(attention_decode_packed_d128_g2, 16, 2, 1)
DECODE(attention_decode_packed_d128_g4, 16, 4, 1)
DECODE(attention_decode_packed_d256_g1, 32, 1, 1)
DECODE(attention_decode_packed_d256_g2, 32, 2, 1)
DECODE(attention_decode_packed_d256_g4, 32, 4, 1)
DECODE(attention_decode_packed_d512_g2, 32, 2, 2)
