// Embedding rows and whole matrices as f32, for every format: see rf/embed.h.
#include "rf/embed.h"

using namespace rf;

RF_KERNEL(EMBED_THREADS) embed_f32_f32(RfEmbedParams p) { embed<FloatRow<float>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_f16_f32(RfEmbedParams p) { embed<FloatRow<f16>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_bf16_f32(RfEmbedParams p) { embed<FloatRow<u16>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q4_0_f32(RfEmbedParams p) { embed<BlockRow<Q4_0>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q4_1_f32(RfEmbedParams p) { embed<BlockRow<Q4_1>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q5_0_f32(RfEmbedParams p) { embed<BlockRow<Q5_0>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q5_1_f32(RfEmbedParams p) { embed<BlockRow<Q5_1>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q8_0_f32(RfEmbedParams p) { embed<BlockRow<Q8_0>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q2_k_f32(RfEmbedParams p) { embed<BlockRow<Q2_K>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q3_k_f32(RfEmbedParams p) { embed<BlockRow<Q3_K>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q4_k_f32(RfEmbedParams p) { embed<BlockRow<Q4_K>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q5_k_f32(RfEmbedParams p) { embed<BlockRow<Q5_K>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_q6_k_f32(RfEmbedParams p) { embed<BlockRow<Q6_K>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_mxfp4_f32(RfEmbedParams p) { embed<BlockRow<Mxfp4>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_mxfp6_e2m3_f32(RfEmbedParams p) { embed<BlockRow<Mxfp6E2M3>, true>(p); }
RF_KERNEL(EMBED_THREADS) embed_mxfp6_e3m2_f32(RfEmbedParams p) { embed<BlockRow<Mxfp6E3M2>, true>(p); }

RF_KERNEL(EMBED_THREADS) dequantize_f32_f32(RfEmbedParams p) { embed<FloatRow<float>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_f16_f32(RfEmbedParams p) { embed<FloatRow<f16>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_bf16_f32(RfEmbedParams p) { embed<FloatRow<u16>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q4_0_f32(RfEmbedParams p) { embed<BlockRow<Q4_0>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q4_1_f32(RfEmbedParams p) { embed<BlockRow<Q4_1>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q5_0_f32(RfEmbedParams p) { embed<BlockRow<Q5_0>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q5_1_f32(RfEmbedParams p) { embed<BlockRow<Q5_1>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q8_0_f32(RfEmbedParams p) { embed<BlockRow<Q8_0>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q2_k_f32(RfEmbedParams p) { embed<BlockRow<Q2_K>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q3_k_f32(RfEmbedParams p) { embed<BlockRow<Q3_K>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q4_k_f32(RfEmbedParams p) { embed<BlockRow<Q4_K>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q5_k_f32(RfEmbedParams p) { embed<BlockRow<Q5_K>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_q6_k_f32(RfEmbedParams p) { embed<BlockRow<Q6_K>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_mxfp4_f32(RfEmbedParams p) { embed<BlockRow<Mxfp4>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_mxfp6_e2m3_f32(RfEmbedParams p) { embed<BlockRow<Mxfp6E2M3>, false>(p); }
RF_KERNEL(EMBED_THREADS) dequantize_mxfp6_e3m2_f32(RfEmbedParams p) { embed<BlockRow<Mxfp6E3M2>, false>(p); }
