//! The arithmetic peak of this CPU, measured on registers.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rf_graph::Peak;

use crate::Isa;
use crate::simd::{Kernel, LANES, Simd};

/// Operations per vector: one f32 multiply-add per lane, and four int8 multiply-adds per lane.
const F32_OPERATIONS: usize = 2 * LANES;
const INT8_OPERATIONS: usize = 4 * F32_OPERATIONS;

impl Isa {
    /// Measures multiply-adds on registers, on `threads` threads at the same time. Takes 0.1 s.
    ///
    /// ```
    /// use rf_cpu::Isa;
    ///
    /// let peak = Isa::best().measure_peak(1);
    /// assert!(peak.f32_operations_per_s > Some(1e6));
    /// ```
    pub fn measure_peak(self, threads: usize) -> Peak {
        // 12 chains hide the latency of two units. 6 chains fit into 16 registers of half a vector.
        // The better result counts.
        let f32 = |rounds| (self.run(Fma::<6> { rounds }), self.run(Fma::<12> { rounds }));
        let int8 = |rounds| (self.run(Dot::<6> { rounds }), self.run(Dot::<12> { rounds }));
        Peak {
            f32_operations_per_s: Some(best(threads, F32_OPERATIONS, &f32)),
            int8_operations_per_s: Some(best(threads, INT8_OPERATIONS, &int8)),
        }
    }
}

/// Measures 6 and 12 chains of `rounds` rounds each.
type Pass<'a> = dyn Fn(usize) -> (Duration, Duration) + Sync + 'a;

/// Operations per second of the best pass. A pass takes as long as its slowest thread.
fn best(threads: usize, operations: usize, pass: &Pass<'_>) -> f64 {
    const PASSES: usize = 8;
    const ROUNDS: usize = 1 << 18;
    let threads = threads.max(1);
    let together = Barrier::new(threads);
    let work = || {
        let passes = (0..PASSES).map(|_| {
            together.wait();
            pass(ROUNDS)
        });
        passes.collect::<Vec<_>>()
    };
    let times: Vec<Vec<(Duration, Duration)>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let speed = |chains: usize, time: Option<Duration>| {
        let done = (chains * ROUNDS * operations * threads) as f64;
        time.filter(|time| !time.is_zero()).map_or(0.0, |time| done / time.as_secs_f64())
    };
    let of_pass = |number: usize| {
        let few = times.iter().map(|thread| thread[number].0).max();
        let many = times.iter().map(|thread| thread[number].1).max();
        speed(6, few).max(speed(12, many))
    };
    (0..PASSES).map(of_pass).fold(0.0, f64::max)
}

/// `CHAINS` dependent chains of `x · a + b`.
struct Fma<const CHAINS: usize> {
    rounds: usize,
}

/// `CHAINS` dependent chains of byte dot products.
struct Dot<const CHAINS: usize> {
    rounds: usize,
}

impl<const CHAINS: usize> Kernel for Fma<CHAINS> {
    type Output = Duration;

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "required of every Kernel")]
    fn run<S: Simd>(self, s: S) -> Duration {
        let start = Instant::now();
        let (a, b) = (s.splat(black_box(0.5)), s.splat(black_box(0.25)));
        let mut chains = [b; CHAINS];
        for _ in 0..self.rounds {
            for x in &mut chains {
                *x = s.fma(*x, a, b);
            }
        }
        black_box(chains.map(|x| s.max_lane(x)));
        start.elapsed()
    }
}

impl<const CHAINS: usize> Kernel for Dot<CHAINS> {
    type Output = Duration;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "required of every Kernel")]
    fn run<S: Simd>(self, s: S) -> Duration {
        let start = Instant::now();
        // Bytes of 0 keep the sums in range. `black_box` hides the value from the compiler.
        let (w, x) = (s.splat_i(black_box(0)), s.splat_i(black_box(0)));
        let mut chains = [w; CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut chains {
                *sum = s.dot_u7(*sum, w, x);
            }
        }
        black_box(chains.map(|sum| s.max_lane(s.to_f(sum))));
        start.elapsed()
    }
}
