// Latent attention over a cache of f16: attention_latent_f16_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/latent.h.
#include "rf/latent.h"

using namespace rf;

RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_f16_d128(RfLatentParams p) {
    attention_latent<RF_KV_F16, 128>(p);
}
RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_f16_d576(RfLatentParams p) {
    attention_latent<RF_KV_F16, 576>(p);
}
