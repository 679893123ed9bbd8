// Matrix × 1, 2, 4 or 8 columns with weights in the codebook formats: rf/matvec.h.
#include "rf/matvec_glu.h"

RF_CODEBOOK_FORMATS(RF_MATVEC)
