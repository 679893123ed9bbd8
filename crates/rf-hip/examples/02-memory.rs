//! Blocking and asynchronous copies, with their throughput.
//!
//! `cargo run --release -p rf-hip --example 02-memory`

#![expect(clippy::print_stdout, reason = "prints the result of an example")]

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

    // The copy of a slice is done when the call returns.
    let small = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    println!("round trip: {:?}", small.to_vec(&stream)?);

    // Pinned memory is copied asynchronously.
    let mut source = PinnedBuffer::<u32>::new(&context, LEN)?;
    for (i, value) in (0u32..).zip(source.iter_mut()) {
        *value = i;
    }
    let mut target = PinnedBuffer::<u32>::new(&context, LEN)?;
    let device = DeviceBuffer::<u32>::new(&context, LEN)?;
    let copy = DeviceBuffer::<u32>::new(&context, LEN)?;

    let events = (0..4).map(|_| Event::new(&context, true)).collect::<Result<Vec<_>, _>>()?;
    stream.record(&events[0])?;
    device.copy_from_pinned(&stream, 0, &source, 0..LEN)?;
    stream.record(&events[1])?;
    copy.copy_from_device(&stream, 0, &device, 0..LEN)?;
    stream.record(&events[2])?;
    copy.copy_to_pinned(&stream, 0, &mut target, 0..LEN)?;
    stream.record(&events[3])?;
    target.wait()?;
    println!(
        "round trip of {LEN} numbers: {}",
        if target[..] == source[..] { "equal" } else { "DIFFERENT" }
    );

    for (direction, events) in
        ["to the device", "on the device", "to the host"].iter().zip(events.windows(2))
    {
        let us = Event::elapsed_us(&events[0], &events[1])?;
        println!("{direction}: {:.1} GB/s", device.size_bytes() as f64 / us / 1000.0);
    }
    Ok(())
}
