//! Measures launch overhead, memory use, and the state of the GPU during the run.
//!
//! `cargo run -p rf-profile --example 05-launch-memory-monitor`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use rf_hip::{DeviceBuffer, Runtime, Stream};
use rf_profile::Error;
use rf_profile::launch::LaunchOverheadTracker;
use rf_profile::memory::MemoryTracker;
use rf_profile::monitor::Monitor;

fn main() -> Result<(), Error> {
    let monitor = Monitor::detect().map(|monitor| monitor.start(Duration::from_millis(100)));
    let mut memory = MemoryTracker::new();
    if let Err(error) = launches(&mut memory) {
        println!("launches skipped: {error}");
    }
    memory.sample_process()?;
    println!("{}", memory.report());
    match monitor {
        Ok(sampling) => println!("{}", sampling.stop().table()),
        Err(error) => println!("monitor skipped: {error}"),
    }
    Ok(())
}

fn launches(memory: &mut MemoryTracker) -> Result<(), Error> {
    let context = Runtime::load()?.device(0)?.context()?;
    memory.sample_device(&context)?;
    let stream = Stream::new(&context)?;
    let buffer: DeviceBuffer<f32> = DeviceBuffer::new(&context, 1 << 16)?;
    memory.sample_device(&context)?;
    for launches_per_wait in [1, 100] {
        let mut tracker = LaunchOverheadTracker::new();
        for _ in 0..100 {
            for _ in 0..launches_per_wait {
                tracker.launch("clear", || buffer.fill_zero(&stream))?;
            }
            tracker.synchronize(|| stream.synchronize())?;
        }
        if let Some(report) = tracker.report() {
            println!("{report}\n");
        }
    }
    Ok(())
}
