//! Copies that block, copies that do not, and how fast they are.
//!
//! `cargo run --release -p rf-hip --example 02-memory`

#![expect(clippy::print_stdout, reason = "an example shows what it measured")]

use rf_hip::{DeviceBuffer, Error, Event, PinnedBuffer, Runtime, Stream};

const LEN: usize = 16 << 20;

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
    let stream = Stream::new(&context)?;

    // A slice goes over when the call returns.
    let small = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    println!("there and back: {:?}", small.to_vec(&stream)?);

    // Pinned memory goes over while the thread does something else.
    let mut source = PinnedBuffer::<u32>::new(&context, LEN)?;
    for (i, value) in (0u32..).zip(source.iter_mut()) {
        *value = i;
    }
    let mut target = PinnedBuffer::<u32>::new(&context, LEN)?;
    let device = DeviceBuffer::<u32>::new(&context, LEN)?;
    let copy = DeviceBuffer::<u32>::new(&context, LEN)?;

    let marks = (0..4).map(|_| Event::new(&context, true)).collect::<Result<Vec<_>, _>>()?;
    marks[0].record(&stream)?;
    device.copy_from_pinned(&stream, 0, &source, 0..LEN)?;
    marks[1].record(&stream)?;
    copy.copy_from_device(&stream, 0, &device, 0..LEN)?;
    marks[2].record(&stream)?;
    copy.copy_to_pinned(&stream, 0, &mut target, 0..LEN)?;
    marks[3].record(&stream)?;
    target.wait()?;
    println!(
        "{LEN} numbers came back {}",
        if target[..] == source[..] { "equal" } else { "WRONG" }
    );

    for (way, marks) in
        ["to the device", "on the device", "to the host"].iter().zip(marks.windows(2))
    {
        let us = Event::elapsed_us(&marks[0], &marks[1])?;
        println!("{way}: {:.1} GB/s", device.size_bytes() as f64 / us / 1000.0);
    }
    Ok(())
}
