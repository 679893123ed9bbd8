// Embedding rows with the norm of the first layer, for every format: rf/embed.h.
#include "rf/embed.h"

using namespace rf;

#define EMBED_NORM(NAME, ROW)                                                  \
    RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_##NAME##_f32_q8(RfEmbedParams p) { \
        embed_rms_norm<ROW>(p);                                                \
    }
#define EMBED_NORM_FLOAT(NAME, FORMAT, NUMBER) EMBED_NORM(NAME, FORMAT##Row)
#define EMBED_NORM_BLOCKS(NAME, FORMAT, NUMBER) EMBED_NORM(NAME, BlockRow<FORMAT>)
RF_FORMATS(EMBED_NORM_FLOAT, EMBED_NORM_BLOCKS, EMBED_NORM_BLOCKS, EMBED_NORM_BLOCKS, EMBED_NORM_BLOCKS)
