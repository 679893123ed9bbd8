// Prefill matmuls with weights in super-blocks of 256: rf/matmul.h.
#include "rf/matmul.h"

RF_K_QUANT_FORMATS(RF_MATMUL)
