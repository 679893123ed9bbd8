// The operand of a matmul. Twin: crates/rf-kernels/src/params/rows.rs.
#pragma once

#include "rf/params/weight.h"

// An operand of a matmul, computed once per row: as int8, f16, f32 or several of them; a null
// pointer disables a form. For int8 and f16 `columns` is a multiple of 32, otherwise of 4.
struct RfOperand {
    RfActivations q8; // [rows, columns]
    float *f32;       // [rows, columns]
    RfHalves f16;     // [rows, columns]
};
