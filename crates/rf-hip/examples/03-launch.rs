//! Loads a kernel and launches it with a structure of parameters.
//!
//! `cargo run -p rf-hip --example 03-launch`. On NVIDIA the example loads PTX; on AMD it compiles
//! the source with libhiprtc or clang.

#![expect(clippy::print_stdout, reason = "prints the result of an example")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel")]

#[path = "../tests/axpy/mod.rs"]
mod axpy;

use axpy::{Axpy, BLOCK};
use rf_hip::{DeviceBuffer, Error, LaunchConfig, Module, Runtime, Stream};

const LEN: usize = 1_000_000;

fn main() -> Result<(), Error> {
    let runtime = match Runtime::load() {
        Ok(runtime) if runtime.device_count()? > 0 => runtime,
        Ok(_) => {
            println!("skipped: the runtime finds no device");
            return Ok(());
        }
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let context = runtime.device(0)?.context()?;
    let image = match axpy::image(context.info()) {
        Ok(image) => image,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    let module = Module::load(&context, &image)?;
    let function = module.function("axpy_f32")?;
    println!("{} on {}: {:?}", function.name(), context.info().name, function.info()?);

    let stream = Stream::new(&context)?;
    let numbers: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let x = DeviceBuffer::from_slice(&stream, &numbers)?;
    let y = DeviceBuffer::from_slice(&stream, &vec![1.0f32; LEN])?;
    let params = Axpy { x: x.address(), y: y.address(), len: LEN as u32, a: 2.0 };
    // SAFETY: `Axpy` is the kernel's parameter; both buffers have `len` floats and live until the
    // kernel is done.
    unsafe { stream.launch(&function, LaunchConfig::linear(LEN, BLOCK), &params) }?;
    let result = y.to_vec(&stream)?;

    let right = |x: f32, y: f32| y.to_bits() == (2.0 * x + 1.0).to_bits();
    let wrong = numbers.iter().zip(&result).filter(|&(&x, &y)| !right(x, y)).count();
    println!("y[1] = {}, y[{}] = {}; {wrong} wrong", result[1], LEN - 1, result[LEN - 1]);
    Ok(())
}
