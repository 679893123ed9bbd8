// Prefill matmuls with weights in blocks of 32: rf/matmul.h.
#include "rf/matmul.h"

RF_BLOCK32_FORMATS(RF_MATMUL)
