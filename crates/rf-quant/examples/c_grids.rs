//! Prints the codebooks of the IQ formats as the C header `kernels/include/rf/grids.h`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(rf_quant::c_grids().as_bytes())
}
