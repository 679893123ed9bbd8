//! Distributions in buckets, with vLLM's bounds.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Time to first token, in seconds.
pub(super) const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Time between two tokens, in seconds.
pub(super) const INTER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Time of a request, in seconds.
pub(super) const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Choices per request.
pub(super) const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// 1, 2, 5, 10, 20, 50 and so on, up to `most`.
pub(super) fn lengths(most: usize) -> Vec<f64> {
    let powers = std::iter::successors(Some(1_usize), |power| power.checked_mul(10));
    let series = powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit)));
    series.take_while(|bound| *bound <= most).map(|bound| bound as f64).collect()
}

/// Upper bounds, an infinite one after them, and how many values are at or below each.
pub(super) fn cumulative(
    bounds: impl Iterator<Item = f64>,
    counts: impl Iterator<Item = u64>,
) -> Vec<(f64, u64)> {
    let mut total = 0;
    let totals = counts.map(|count| {
        total += count;
        total
    });
    bounds.chain([f64::INFINITY]).zip(totals).collect()
}

/// Counts of values per bucket, and their sum.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Vec<f64>,
    /// One more than bounds: the last one is for values above all of them.
    counts: Vec<AtomicU64>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// Upper bounds in ascending order.
    pub(super) fn new(bounds: Vec<f64>) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    pub(super) fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The update always has a value, so it does not fail.
        let _: Result<u64, u64> = self.sum.fetch_update(Relaxed, Relaxed, add);
    }

    /// Upper bounds and how many values are at or below each; the last bound is infinite.
    pub(super) fn cumulative(&self) -> Vec<(f64, u64)> {
        cumulative(self.bounds.iter().copied(), self.counts.iter().map(|count| count.load(Relaxed)))
    }

    pub(super) fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_in_every_bucket_at_or_above_them() {
        let histogram = Histogram::new(vec![1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.cumulative(), [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert!((histogram.sum() - 12.0).abs() < 1e-9);
    }

    #[test]
    fn lengths_end_at_the_context() {
        assert_eq!(lengths(60), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(lengths(0), [0.0; 0]);
    }
}
