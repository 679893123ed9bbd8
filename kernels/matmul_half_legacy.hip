// Prefill matmuls on f16 matrix units with weights in blocks of 32: rf/matmul_half.h.
#include "rf/matmul_half.h"

RF_BLOCK32_FORMATS(RF_HALF_MATMUL)
