// Matrix × 1, 2, 4 or 8 columns with weights in blocks of 32: rf/matvec.h.
#include "rf/matvec_glu.h"

RF_BLOCK32_FORMATS(RF_MATVEC)
