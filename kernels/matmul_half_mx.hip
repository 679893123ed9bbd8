// Prefill matmuls on f16 matrix units with weights in microscaling formats: rf/matmul_half.h.
#include "rf/matmul_half.h"

RF_MICROSCALING_FORMATS(RF_HALF_MATMUL)
