// Latent attention over a cache of q8_0: attention_latent_q8_0_d<head_dim>, for head sizes up to
// <head_dim>. Grid and work: rf/latent.h.
#include "rf/latent.h"

using namespace rf;

RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_q8_0_d128(RfLatentParams p) {
    attention_latent<RF_KV_Q8_0, 128>(p);
}
RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_q8_0_d576(RfLatentParams p) {
    attention_latent<RF_KV_Q8_0, 576>(p);
}
