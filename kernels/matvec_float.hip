// Matrix × 1, 2, 4 or 8 columns with float weights: rf/matvec_float.h.
#include "rf/matvec_float.h"

RF_FLOAT_FORMATS(RF_MATVEC_FLOAT)
