// Prefill matmuls with float weights: rf/matmul_float.h.
#include "rf/matmul_float.h"

RF_FLOAT_FORMATS(RF_FLOAT_MATMUL)
