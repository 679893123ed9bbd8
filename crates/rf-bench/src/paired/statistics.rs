//! Ratios of paired measurements, their confidence intervals, and verdicts.
//!
//! The parent module explains the choice of the statistics.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rf_profile::baseline::Verdict;
use rf_profile::stats::upper_median;
use serde::{Deserialize, Serialize};

/// Resamples of the bootstrap: enough for a standard error.
const RESAMPLES: usize = 400;

/// Passes before a workload has a verdict.
pub(crate) const MIN_PASSES: usize = 3;

/// Error probability of each interval: of `Ok` for one workload, of a change for all of them.
const ALPHA: f64 = 0.05;

/// Standard errors on each side of a 95 % confidence interval.
const Z: f64 = 1.96;

/// Four alternating slices: two of each side, in nanoseconds per run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedBlock {
    /// The side that is compared against. Each slice is adjacent to the slice of `head` with the
    /// same index.
    pub base: [f64; 2],
    /// This build.
    pub head: [f64; 2],
}

/// The measurement of a workload by one pair of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Blocks, in order.
    pub blocks: Vec<PairedBlock>,
}

/// The ratio of a workload, head over base: 1.05 is 5 % slower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimated ratio.
    pub ratio: f64,
    /// 95 % confidence interval of this workload.
    pub interval: (f64, f64),
    /// Confidence interval at a family-wise level of 95 %.
    pub family_interval: (f64, f64),
}

/// The median time of a run on both sides, base first.
pub(crate) fn times(passes: &[Pass]) -> Option<(f64, f64)> {
    let blocks = || passes.iter().flat_map(|pass| &pass.blocks);
    let mut base: Vec<f64> = blocks().flat_map(|block| block.base).collect();
    let mut head: Vec<f64> = blocks().flat_map(|block| block.head).collect();
    upper_median(&mut base).zip(upper_median(&mut head))
}

/// Estimates the ratio of a workload, one of `workloads` that are compared. `None` for less than
/// two passes. The result depends on the passes alone: the bootstrap has a fixed seed.
pub(crate) fn estimate(passes: &[Pass], workloads: usize) -> Option<Estimate> {
    let of_passes: Vec<Vec<f64>> = passes.iter().map(Pass::log_ratios).collect();
    if passes.len() < 2 || of_passes.iter().any(Vec::is_empty) {
        return None;
    }
    let center = upper_median(&mut of_passes.concat())?;
    let mut rng = Pcg64::seed_from_u64(passes.len() as u64);
    let mut below = |n: usize| ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize;
    let (mut sum, mut sample) = (0.0, Vec::new());
    for _ in 0..RESAMPLES {
        sample.clear();
        for _ in 0..passes.len() {
            let ratios = &of_passes[below(passes.len())];
            sample.extend((0..ratios.len()).map(|_| ratios[below(ratios.len())]));
        }
        sum += (upper_median(&mut sample)? - center).powi(2);
    }
    // A bootstrap over few passes underestimates their variance by n / (n - 1).
    let count = passes.len() as f64;
    let error = (sum / RESAMPLES as f64 * count / (count - 1.0)).sqrt();
    let interval = |z: f64| ((center - z * error).exp(), (center + z * error).exp());
    // Chernoff's bound of the normal quantile at ALPHA / workloads: the surplus covers that the
    // interval is computed after every pass.
    let family_z = (2.0 * (2.0 * workloads.max(1) as f64 / ALPHA).ln()).sqrt();
    Some(Estimate {
        ratio: center.exp(),
        interval: interval(Z),
        family_interval: interval(family_z),
    })
}

/// The verdict of a workload after so many passes; `None` while it is undecided.
pub(crate) fn verdict(estimate: &Estimate, passes: usize, threshold: f64) -> Option<Verdict> {
    let (slower, faster) = (1.0 + threshold, 1.0 / (1.0 + threshold));
    let (low, high) = estimate.interval;
    let (family_low, family_high) = estimate.family_interval;
    if passes < MIN_PASSES {
        None
    } else if family_low > slower {
        Some(Verdict::Regression)
    } else if family_high < faster {
        Some(Verdict::Improved)
    } else if low >= faster && high <= slower {
        Some(Verdict::Ok)
    } else {
        None
    }
}

impl Pass {
    /// The logarithm of head over base for each pair of adjacent slices.
    fn log_ratios(&self) -> Vec<f64> {
        let pairs = self.blocks.iter().flat_map(|PairedBlock { base, head }| base.iter().zip(head));
        pairs.map(|(base, head)| (head / base).ln()).filter(|ratio| ratio.is_finite()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: f64 = 0.025;

    /// The workloads of a comparison in these tests.
    const WORKLOADS: usize = 60;

    /// Passes before a synthetic comparison ends without a verdict.
    const MAX_PASSES: usize = 40;

    /// A machine whose noise has the given sizes, as fractions of the time of a run.
    #[derive(Clone, Copy)]
    struct Machine {
        /// Standard deviation of what a process pair draws: placement in memory.
        placement: f64,
        /// Standard deviation of a slice.
        slice: f64,
        /// Probability that a slice is contended and takes up to three times as long.
        contention: f64,
        /// Slow-down of the whole machine in its slow state, which it enters and leaves at random.
        slow_state: f64,
    }

    const QUIET: Machine =
        Machine { placement: 0.002, slice: 0.003, contention: 0.0, slow_state: 0.0 };
    const NOISY: Machine =
        Machine { placement: 0.005, slice: 0.05, contention: 0.2, slow_state: 0.4 };
    const HOPELESS: Machine =
        Machine { placement: 0.3, slice: 0.5, contention: 0.9, slow_state: 0.5 };

    struct Source(Pcg64);

    impl Source {
        fn uniform(&mut self) -> f64 {
            f64::from(self.0.next_u32()) / f64::from(u32::MAX)
        }

        /// The sum of twelve uniform numbers, nearly normal.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        fn pass(&mut self, machine: Machine, ratio: f64) -> Pass {
            let base = 1e6 * (machine.placement * self.normal()).exp();
            let head = 1e6 * ratio * (machine.placement * self.normal()).exp();
            let mut is_slow = false;
            let mut slice = |time: f64| {
                is_slow ^= self.uniform() < 0.1;
                let state = if is_slow { 1.0 + machine.slow_state } else { 1.0 };
                let is_contended = self.uniform() < machine.contention;
                let contention = if is_contended { 1.0 + 2.0 * self.uniform() } else { 1.0 };
                time * state * contention * (machine.slice * self.normal()).exp()
            };
            let mut blocks = Vec::new();
            for _ in 0..40 {
                let [a, b, c, d] = [base, head, head, base].map(&mut slice);
                blocks.push(PairedBlock { base: [a, d], head: [b, c] });
            }
            Pass { blocks }
        }
    }

    /// The verdict on a true ratio, and the passes that it took.
    fn judge(machine: Machine, ratio: f64, seed: u64) -> (Verdict, usize) {
        let mut source = Source(Pcg64::seed_from_u64(seed));
        let mut passes = Vec::new();
        while passes.len() < MAX_PASSES {
            passes.push(source.pass(machine, ratio));
            let estimate = estimate(&passes, WORKLOADS);
            let verdict = estimate.and_then(|e| verdict(&e, passes.len(), THRESHOLD));
            if let Some(verdict) = verdict {
                return (verdict, passes.len());
            }
        }
        (Verdict::Inconclusive, passes.len())
    }

    /// How many of `count` comparisons end with the verdict, and their mean number of passes.
    fn count(machine: Machine, ratio: f64, count: u64, expected: Verdict) -> (u64, f64) {
        let judged: Vec<_> = (0..count).map(|seed| judge(machine, ratio, seed)).collect();
        let hits = judged.iter().filter(|(verdict, _)| *verdict == expected).count() as u64;
        let passes: usize = judged.iter().map(|(_, passes)| passes).sum();
        (hits, passes as f64 / count as f64)
    }

    #[test]
    fn a_planted_slow_down_of_5_percent_is_found() {
        for machine in [QUIET, NOISY] {
            let (found, passes) = count(machine, 1.05, 20, Verdict::Regression);
            assert_eq!(found, 20, "{passes}");
            let (found, _) = count(machine, 1.0 / 1.05, 10, Verdict::Improved);
            assert_eq!(found, 10);
        }
    }

    #[test]
    fn an_unchanged_build_has_no_change() {
        for machine in [QUIET, NOISY] {
            let (ok, passes) = count(machine, 1.0, 2 * WORKLOADS as u64, Verdict::Ok);
            assert_eq!(ok, 2 * WORKLOADS as u64, "{passes}");
        }
    }

    #[test]
    fn noise_beyond_the_threshold_is_inconclusive_and_never_ok() {
        for ratio in [1.0, 1.05] {
            let (inconclusive, _) = count(HOPELESS, ratio, 4, Verdict::Inconclusive);
            assert_eq!(inconclusive, 4, "{ratio}");
        }
    }

    #[test]
    fn few_passes_decide_nothing() {
        let mut source = Source(Pcg64::seed_from_u64(1));
        let passes: Vec<Pass> = (0..2).map(|_| source.pass(QUIET, 2.0)).collect();
        assert_eq!(estimate(&passes[..1], 1), None);
        assert_eq!(estimate(&[], 1), None);
        let estimate = estimate(&passes, 1).unwrap();
        assert!((estimate.ratio - 2.0).abs() < 0.05, "{estimate:?}");
        assert_eq!(verdict(&estimate, passes.len(), THRESHOLD), None);
    }
}
