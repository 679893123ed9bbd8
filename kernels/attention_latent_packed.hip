// Latent attention over a cache of q4_0 or q5_0: attention_latent_packed_d<head_dim>, for head
// sizes up to <head_dim>. Grid and work: rf/latent.h.
#include "rf/latent.h"

using namespace rf;

RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_packed_d128(RfLatentParams p) {
    attention_latent<KV_PACKED, 128>(p);
}
RF_LARGE_KERNEL(LATENT_THREADS) attention_latent_packed_d576(RfLatentParams p) {
    attention_latent<KV_PACKED, 576>(p);
}
