//! Measuring the limits of a machine: memory bandwidth, transfers and launches.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rf_hip::{Context, DeviceBuffer, PinnedBuffer, Stream};

use super::MachineLimits;
use crate::{Error, KernelTimer};

impl MachineLimits {
    /// Measures the memory bandwidth of the host: `threads` threads read 256 MiB together or
    /// update them in place, and the fastest of eight passes counts. The throughput of arithmetic
    /// depends on the instruction set, so the caller measures it with its own kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Samples`] if the clock is too coarse.
    pub fn measure_host(threads: usize) -> Result<Self, Error> {
        const BYTES: usize = 256 << 20;
        const PASSES: usize = 4;
        let threads = threads.max(1);
        let words = BYTES / size_of::<u64>() / threads;
        let barrier = Barrier::new(threads);
        // Each thread fills its own part, so the part is local to it; all read at the same time.
        let times: Vec<Vec<Duration>> = thread::scope(|scope| {
            let work = || {
                let mut data = vec![1_u64; words];
                let mut pass = |in_place: bool| {
                    barrier.wait();
                    let start = Instant::now();
                    if in_place {
                        for x in black_box(&mut data) {
                            *x = x.wrapping_add(1);
                        }
                        // Every byte is read and written: twice the bytes of a pass that reads.
                        return start.elapsed() / 2;
                    }
                    black_box(sum(black_box(&data)));
                    start.elapsed()
                };
                (0..2 * PASSES).map(|number| pass(number % 2 == 1)).collect()
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
        });
        // A pass takes as long as its slowest thread.
        let slowest = |pass: usize| times.iter().filter_map(|times| times.get(pass)).max();
        let best = (0..2 * PASSES).filter_map(slowest).min().copied().unwrap_or_default();
        if best.is_zero() {
            return Err(Error::Samples {
                name: "memory bandwidth".to_owned(),
                reason: "the clock did not move",
            });
        }
        let bytes = (words * threads * size_of::<u64>()) as f64;
        Ok(Self {
            source: format!("measured with {threads} threads"),
            bandwidth_bytes_per_s: Some(bytes / best.as_secs_f64()),
            ..Self::default()
        })
    }

    /// Measures a device: its memory bandwidth by copies within its memory, the transfer bandwidth
    /// by a copy from pinned host memory, and the least time of a queued operation. Arithmetic is
    /// left to the caller, as in [`MachineLimits::measure_host`].
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`].
    pub fn measure_device(context: &Context) -> Result<Self, Error> {
        const LEN: usize = 64 << 20;
        let stream = Stream::new(context)?;
        let (from, to) =
            (DeviceBuffer::<u32>::zeroed(context, LEN)?, DeviceBuffer::new(context, LEN)?);
        let pinned = PinnedBuffer::<u32>::new(context, LEN)?;
        let tiny = DeviceBuffer::<u32>::new(context, 1)?;
        let copy = best_of(&stream, || to.copy_from_device(&stream, 0, &from, 0..LEN))?;
        let upload = best_of(&stream, || to.copy_from_pinned(&stream, 0, &pinned, 0..LEN))?;
        let launch = best_of(&stream, || tiny.fill_zero(&stream))?;
        let bytes = (LEN * size_of::<u32>()) as f64;
        let per_s =
            |bytes: f64, time: Duration| (!time.is_zero()).then(|| bytes / time.as_secs_f64());
        Ok(Self {
            source: format!("measured on {}", context.info().name),
            // Every byte is read and written.
            bandwidth_bytes_per_s: per_s(2.0 * bytes, copy),
            transfer_bytes_per_s: per_s(bytes, upload),
            launch_s: Some(launch.as_secs_f64()),
            ..Self::default()
        })
    }
}

/// The least time of some repetitions.
fn best_of(
    stream: &Stream,
    work: impl Fn() -> Result<(), rf_hip::Error>,
) -> Result<Duration, Error> {
    const REPETITIONS: usize = 10;
    let mut timer: KernelTimer = KernelTimer::for_kernel("limit");
    let mut best = Duration::MAX;
    for _ in 0..REPETITIONS {
        timer.start(stream)?;
        work()?;
        timer.stop(stream)?;
        best = best.min(timer.elapsed()?);
    }
    Ok(best)
}

/// The sum of all words, with eight independent accumulators.
fn sum(data: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    let chunks = data.chunks_exact(8);
    let rest: u64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*value);
        }
    }
    sums.iter().fold(rest, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let values: Vec<u64> = (0..1003).collect();
        assert_eq!(sum(&values), 1002 * 1003 / 2);
    }

    #[test]
    fn the_host_has_a_bandwidth_and_its_arithmetic_is_left_to_the_caller() {
        let limits = MachineLimits::measure_host(2).unwrap();
        assert!(limits.bandwidth_bytes_per_s.unwrap() > 0.0, "{limits:?}");
        assert_eq!(limits.source, "measured with 2 threads");
        assert_eq!((limits.f32_operations_per_s, limits.int8_operations_per_s), (None, None));
    }

    #[test]
    fn a_device_is_measured_if_there_is_one() {
        let context = rf_hip::Runtime::load().and_then(|runtime| runtime.device(0)?.context());
        match context
            .map_err(Error::from)
            .and_then(|context| MachineLimits::measure_device(&context))
        {
            Ok(limits) => assert!(limits.bandwidth_bytes_per_s.unwrap() > 0.0, "{limits:?}"),
            Err(error) => rf_testing::skip!("{error}"),
        }
    }
}
