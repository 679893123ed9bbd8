//! Measures times on the CPU and, if available, on the GPU.
//!
//! `cargo run -p rf-profile --example 02-timers`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::hint::black_box;

use rf_hip::{DeviceBuffer, Runtime, Stream};
use rf_profile::timer::{CpuTimer, Host};
use rf_profile::{Error, Timings, time_kernel};

fn main() -> Result<(), Error> {
    let timings = Timings::new();

    let mut timer = CpuTimer::for_kernel("start and stop");
    timer.start(&Host)?;
    black_box((0..1_000_000_u64).sum::<u64>());
    timer.stop(&Host)?;
    timings.record(timer.name(), timer.elapsed()?);

    for length in 1..=1000_u64 {
        time_kernel!(
            timings,
            "growing sum",
            black_box((0..length * 100).map(black_box).sum::<u64>())
        );
    }
    {
        let _scope = timings.scope("until the end of a scope");
        black_box(vec![0_u8; 1 << 20]);
    }
    if let Err(error) = on_the_gpu(&timings) {
        println!("GPU skipped: {error}\n");
    }
    println!("{}", timings.table());
    Ok(())
}

fn on_the_gpu(timings: &Timings) -> Result<(), Error> {
    let context = Runtime::load()?.device(0)?.context()?;
    let stream = Stream::new(&context)?;
    let buffer: DeviceBuffer<f32> = DeviceBuffer::new(&context, 1 << 24)?;
    for _ in 0..20 {
        time_kernel!(timings, "clear 64 MiB on the GPU", &stream, buffer.fill_zero(&stream))??;
    }
    Ok(())
}
