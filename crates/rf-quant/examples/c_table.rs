//! Prints the table of formats as the C header `kernels/include/rf/format_table.h`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(rf_quant::C_TABLE.as_bytes())
}
