// Prefill matmuls with weights in the codebook formats: rf/matmul.h.
#include "rf/matmul.h"

RF_CODEBOOK_FORMATS(RF_MATMUL)
