// Matmuls of 2 to 64 rows on f16 matrix units with weights in codebooks: rf/matmul_skinny.h.
#include "rf/matmul_skinny.h"

RF_CODEBOOK_FORMATS(RF_SKINNY)
