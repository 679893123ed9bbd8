//! Records launches in a graph and repeats them with one call.
//!
//! `cargo run --release -p rf-hip --example 04-graph`

#![expect(clippy::print_stdout, reason = "prints the result of an example")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel")]

#[path = "../tests/axpy/mod.rs"]
mod axpy;

use std::time::Instant;

use axpy::{Axpy, BLOCK};
use rf_hip::{DeviceBuffer, Error, LaunchConfig, Module, Runtime, Stream};

const LEN: usize = 1024;
const LAUNCHES: usize = 200;

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
    let function = Module::load(&context, &image)?.function("axpy_f32")?;
    let stream = Stream::new(&context)?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let y = DeviceBuffer::<f32>::zeroed(&context, LEN)?;
    let params = Axpy { x: x.address(), y: y.address(), len: LEN as u32, a: 1.0 };

    let queue_all = || -> Result<(), Error> {
        for _ in 0..LAUNCHES {
            // SAFETY: `Axpy` is the kernel's parameter; both buffers have `len` floats and outlive
            // the stream's work and the graph.
            unsafe { stream.launch(&function, LaunchConfig::linear(LEN, BLOCK), &params) }?;
        }
        Ok(())
    };

    let start = Instant::now();
    queue_all()?;
    stream.synchronize()?;
    println!("{LAUNCHES} launches: {:.0} us", start.elapsed().as_secs_f64() * 1e6);

    let graph = match stream.capture(queue_all) {
        Ok(graph) => graph,
        Err(error) if error.is_unsupported() => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    println!("captured {} nodes", graph.node_count()?);
    let exec = graph.instantiate()?;
    exec.launch(&stream)?;
    stream.synchronize()?;

    let start = Instant::now();
    exec.launch(&stream)?;
    stream.synchronize()?;
    println!("one launch of the graph: {:.0} us", start.elapsed().as_secs_f64() * 1e6);

    // One direct run and two of the graph; every launch adds 1.
    println!("y[0] = {}, expected {}", y.to_vec(&stream)?[0], 3 * LAUNCHES);
    Ok(())
}
