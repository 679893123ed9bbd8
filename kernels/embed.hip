// Rows of embedding tables as f32, for every format: rf/embed.h.
#include "rf/embed.h"

using namespace rf;

#define EMBED(NAME, ROW) \
    RF_KERNEL(EMBED_THREADS) embed_##NAME##_f32(RfEmbedParams p) { embed<ROW>(p); }
#define EMBED_FLOAT(NAME, FORMAT, NUMBER) EMBED(NAME, FORMAT##Row)
#define EMBED_BLOCKS(NAME, FORMAT, NUMBER) EMBED(NAME, BlockRow<FORMAT>)
RF_FORMATS(EMBED_FLOAT, EMBED_BLOCKS, EMBED_BLOCKS, EMBED_BLOCKS, EMBED_BLOCKS)
