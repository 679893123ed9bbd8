// Embedding rows with the norm that follows them, for every format: see rf/embed.h.
#include "rf/embed.h"

using namespace rf;

RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_f32_f32_q8(RfEmbedParams p) { embed_rms_norm<FloatRow<float>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_f16_f32_q8(RfEmbedParams p) { embed_rms_norm<FloatRow<f16>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_bf16_f32_q8(RfEmbedParams p) { embed_rms_norm<FloatRow<u16>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q4_0_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q4_0>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q4_1_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q4_1>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q5_0_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q5_0>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q5_1_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q5_1>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q8_0_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q8_0>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q2_k_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q2_K>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q3_k_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q3_K>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q4_k_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q4_K>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q5_k_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q5_K>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_q6_k_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Q6_K>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_mxfp4_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Mxfp4>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_mxfp6_e2m3_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Mxfp6E2M3>>(p); }
RF_KERNEL(MAX_WAVES * WAVE) embed_rms_norm_mxfp6_e3m2_f32_q8(RfEmbedParams p) { embed_rms_norm<BlockRow<Mxfp6E3M2>>(p); }
