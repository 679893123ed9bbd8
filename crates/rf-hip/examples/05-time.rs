//! Compiles a kernel, launches it, and measures its time with events.
//!
//! `cargo run --release -p rf-hip --example 05-time`, or on an emulated card
//! `cargo xtask emulate -- cargo run -p rf-hip --example 05-time`. There the events measure the
//! emulator.

#![expect(clippy::print_stdout, reason = "prints the result of an example")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel")]

#[path = "../tests/axpy/mod.rs"]
mod axpy;

use axpy::{Axpy, BLOCK};
use rf_hip::{Context, DeviceBuffer, Error, Event, LaunchConfig, Module, Runtime, Stream};

const LEN: usize = 100_000;
const LAUNCHES: usize = 5;

fn main() -> Result<(), Error> {
    match Runtime::load().and_then(|runtime| runtime.device(0)) {
        Ok(device) => time(&device.context()?),
        Err(error) => {
            println!("skipped: {error}");
            Ok(())
        }
    }
}

fn time(context: &Context) -> Result<(), Error> {
    let image = match axpy::image(context.info()) {
        Ok(image) => image,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    let function = Module::load(context, &image)?.function("axpy_f32")?;
    let stream = Stream::new(context)?;
    let x = DeviceBuffer::from_slice(&stream, &vec![1.0_f32; LEN])?;
    let y = DeviceBuffer::<f32>::zeroed(context, LEN)?;
    let params = Axpy { x: x.address(), y: y.address(), len: LEN as u32, a: 2.0 };

    let (start, end) = (Event::new(context, true)?, Event::new(context, true)?);
    let mut times_us = Vec::new();
    for _ in 0..LAUNCHES {
        stream.record(&start)?;
        // SAFETY: `Axpy` is the kernel's parameter; both buffers have `len` floats and live until
        // the kernel is done.
        unsafe { stream.launch(&function, LaunchConfig::linear(LEN, BLOCK), &params) }?;
        stream.record(&end)?;
        end.synchronize()?;
        times_us.push(Event::elapsed_us(&start, &end)?);
    }
    // The first launch also loads the code to the device.
    let best_us = times_us.iter().copied().fold(f64::INFINITY, f64::min);
    let bytes = 3 * size_of::<f32>() * LEN;
    println!("{} on {}: {times_us:.1?} µs", function.name(), context.info().name);
    println!("{:.2} GB/s in the best launch", bytes as f64 / best_us / 1e3);

    let expected = 2.0 * LAUNCHES as f32;
    let wrong =
        y.to_vec(&stream)?.iter().filter(|value| value.to_bits() != expected.to_bits()).count();
    println!("y[0..{LEN}] = {expected}; {wrong} wrong");
    Ok(())
}
