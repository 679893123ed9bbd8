// Latent attention over a cache of fp8: attention_latent_fp8_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/latent.h.
#include "rf/latent.h"

using namespace rf;

RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_fp8_d128(RfLatentParams p) {
    attention_latent<RF_KV_FP8, 128>(p);
}
RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_fp8_d576(RfLatentParams p) {
    attention_latent<RF_KV_FP8, 576>(p);
}
