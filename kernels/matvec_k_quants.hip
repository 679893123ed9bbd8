// Matrix × 1, 2, 4 or 8 columns with weights in super-blocks of 256: rf/matvec.h.
#include "rf/matvec_glu.h"

RF_K_QUANT_FORMATS(RF_MATVEC)
