// Prefill matmuls on f16 matrix units with weights in super-blocks of 256: rf/matmul_half.h.
#include "rf/matmul_half.h"

RF_K_QUANT_FORMATS(RF_HALF_MATMUL)
