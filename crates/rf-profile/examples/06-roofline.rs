//! Measures the memory bandwidth of this machine, and the share of it that an operation reaches.
//!
//! `cargo run -p rf-profile --release --example 06-roofline`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::hint::black_box;
use std::time::Instant;

use rf_hip::Runtime;
use rf_profile::Error;
use rf_profile::roofline::{MachineLimits, OpMeasurement, table};

fn main() -> Result<(), Error> {
    let limits = MachineLimits::measure_host(1)?;
    let speed = limits.bandwidth_bytes_per_s.unwrap_or_default();
    println!("{}: {:.1} GB/s\n", limits.source, speed / 1e9);
    println!("{}", table(&limits.judge(&[scale(1 << 24), scale(1 << 10)])));

    match Runtime::load()
        .map_err(Error::from)
        .and_then(|runtime| MachineLimits::measure_device(&runtime.device(0)?.context()?))
    {
        Ok(limits) => println!("{limits:?}"),
        Err(error) => println!("GPU skipped: {error}"),
    }
    Ok(())
}

/// Multiplies each of `length` numbers, 10 times.
fn scale(length: usize) -> OpMeasurement {
    const COUNT: u64 = 10;
    let mut data = vec![1.0_f32; length];
    let start = Instant::now();
    for _ in 0..COUNT {
        for x in black_box(&mut data) {
            *x *= 1.5;
        }
    }
    let amount = (COUNT as usize * length) as f64;
    OpMeasurement {
        name: format!("scale {length}"),
        count: COUNT,
        time: start.elapsed(),
        // Read and written.
        bytes: 8.0 * amount,
        f32_operations: amount,
        ..OpMeasurement::default()
    }
}
