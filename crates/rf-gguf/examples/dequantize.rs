//! Dequantises one tensor of a file: `cargo run -p rf-gguf --example dequantize -- FILE TENSOR`.
//! Without arguments it reads the demo model.

#![expect(clippy::print_stdout, reason = "an example")]

use std::env;
use std::error::Error;

use rf_gguf::Gguf;
use rf_gguf::rf_quant::dequantize;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocmforge/demo/stories-7m-Q8_0.gguf");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let model = Gguf::open(arguments.next().unwrap_or(DEMO.into()))?;
    let name = arguments.next().unwrap_or("blk.0.attn_q.weight".into());
    let tensor = model.required_tensor(&name)?;
    let dtype = tensor.dtype()?;
    println!("{name}: {:?} values in {dtype}, {} bytes", tensor.shape(), tensor.size_bytes());

    // The whole tensor. Its bytes are read from the mapped file.
    let data = tensor.data();
    let mut values = vec![0.0; usize::try_from(tensor.elements())?];
    dequantize(dtype, &data, &mut values)?;
    let (least, largest) = values.iter().fold((0.0_f32, 0.0_f32), |(least, largest), &value| {
        (least.min(value), largest.max(value))
    });
    println!("between {least:.5} and {largest:.5}");

    // One row: the first axis is the contiguous one, and a row is a whole number of blocks.
    let columns = usize::try_from(*tensor.shape().first().ok_or("the tensor has no axis")?)?;
    let row_bytes = dtype.row_bytes(columns).ok_or("a row is not a whole number of blocks")?;
    let start = data.len().checked_sub(row_bytes).ok_or("the tensor has no row")?;
    let last = data.slice(start..data.len()).ok_or("the tensor has no row")?;
    let mut row = vec![0.0; columns];
    dequantize(dtype, &last, &mut row)?;
    assert!(values.ends_with(&row));
    println!("the last row begins with {:.5?}", &row[..columns.min(4)]);
    Ok(())
}
