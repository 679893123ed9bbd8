// Prefill matmuls on f16 matrix units with weights in codebooks: rf/matmul_half.h.
#include "rf/matmul_half.h"

RF_CODEBOOK_FORMATS(RF_HALF_MATMUL)
