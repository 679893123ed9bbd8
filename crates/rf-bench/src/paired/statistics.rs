//! Ratios of paired measurements, their confidence intervals, and verdicts.
//!
//! The parent module explains the choice of the statistics.

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use rf_profile::{baseline::Verdict, stats::percentile};
use serde::{Deserialize, Serialize};

/// Resamples of the bootstrap.
const RESAMPLES: usize = 4000;

/// Resamples of the blocks of a pass.
const RESAMPLES_OF_BLOCKS: usize = 50;

/// Passes before a workload is `Ok`.
pub const MIN_PASSES: usize = 4;

/// Passes before a workload is a `Regression` or `Improved`.
pub const MIN_PASSES_OF_CHANGE: usize = 6;

/// Error probability of each interval: of `Ok` for one workload, of a change for all of them.
const ALPHA: f64 = 0.05;

/// Percentile of the slice values that stands for a side of a pass.
const LOW: f64 = 12.5;

/// Four slices in turns: two of each side, in nanoseconds per run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The side that is compared against.
    pub base: [f64; 2],
    /// This build.
    pub head: [f64; 2],
}

/// The measurement of a workload by one pair of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Blocks, in order.
    pub blocks: Vec<Block>,
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

/// The time of a run on both sides in one pass, base first.
pub fn pass_times(pass: &Pass) -> Option<(f64, f64)> {
    Scratch::default().times(pass.blocks.iter())
}

/// Estimates the ratio of a workload, one of `workloads` that are compared. `None` for less than
/// two passes. The result depends on the passes alone: the bootstrap has a fixed seed.
pub fn estimate(passes: &[Pass], workloads: usize) -> Option<Estimate> {
    if passes.len() < 2 {
        return None;
    }
    let mut scratch = Scratch::default();
    let ratios = passes.iter().map(|pass| scratch.log_ratio(pass.blocks.iter()));
    let center = trimmed_mean(&mut ratios.collect::<Option<Vec<f64>>>()?)?;
    let mut rng = Pcg64::seed_from_u64(passes.len() as u64);
    let mut below = |n: usize| ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize;
    // A bootstrap over few passes underestimates their variance by n / (n - 1).
    let count = passes.len() as f64;
    let inflation = (count / (count - 1.0)).sqrt();
    // Resamples of the blocks of each pass, drawn once: what a resample of passes draws from.
    let mut of_blocks: Vec<[f64; RESAMPLES_OF_BLOCKS]> = Vec::with_capacity(passes.len());
    for Pass { blocks } in passes {
        let mut drawn = [0.0; RESAMPLES_OF_BLOCKS];
        for ratio in &mut drawn {
            let blocks = (0..blocks.len()).map(|_| &blocks[below(blocks.len())]);
            *ratio = scratch.log_ratio(blocks)?;
        }
        of_blocks.push(drawn);
    }
    let mut resampled = Vec::with_capacity(RESAMPLES);
    let mut sample = vec![0.0; passes.len()];
    for _ in 0..RESAMPLES {
        for ratio in &mut sample {
            *ratio = of_blocks[below(passes.len())][below(RESAMPLES_OF_BLOCKS)];
        }
        resampled.push(center + inflation * (trimmed_mean(&mut sample)? - center));
    }
    resampled.sort_unstable_by(f64::total_cmp);
    let interval = |alpha: f64| {
        let at = |percent: f64| percentile(&resampled, percent).exp();
        (at(50.0 * alpha), at(100.0 - 50.0 * alpha))
    };
    Some(Estimate {
        ratio: center.exp(),
        interval: interval(ALPHA),
        family_interval: interval(ALPHA / workloads.max(1) as f64),
    })
}

/// The verdict of a workload after so many passes; `None` while it is undecided.
pub fn verdict(estimate: &Estimate, passes: usize, threshold: f64) -> Option<Verdict> {
    let (slower, faster) = (1.0 + threshold, 1.0 / (1.0 + threshold));
    let (low, high) = estimate.interval;
    let (family_low, family_high) = estimate.family_interval;
    if passes >= MIN_PASSES_OF_CHANGE && family_low > slower {
        Some(Verdict::Regression)
    } else if passes >= MIN_PASSES_OF_CHANGE && family_high < faster {
        Some(Verdict::Improved)
    } else if passes >= MIN_PASSES && low >= faster && high <= slower {
        Some(Verdict::Ok)
    } else {
        None
    }
}

/// Buffers for the slice values of both sides.
#[derive(Default)]
struct Scratch {
    base: Vec<f64>,
    head: Vec<f64>,
}

impl Scratch {
    fn log_ratio<'a>(&mut self, blocks: impl Iterator<Item = &'a Block>) -> Option<f64> {
        let (base, head) = self.times(blocks)?;
        (base > 0.0 && head > 0.0).then(|| (head / base).ln())
    }

    fn times<'a>(&mut self, blocks: impl Iterator<Item = &'a Block>) -> Option<(f64, f64)> {
        self.base.clear();
        self.head.clear();
        for block in blocks {
            self.base.extend(block.base);
            self.head.extend(block.head);
        }
        let low = |values: &mut Vec<f64>| {
            values.sort_unstable_by(f64::total_cmp);
            (!values.is_empty()).then(|| percentile(values, LOW))
        };
        low(&mut self.base).zip(low(&mut self.head))
    }
}

/// The mean without the highest and the lowest quarter. Sorts the values.
fn trimmed_mean(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let trim = values.len() / 4;
    let kept = &values[trim..values.len() - trim];
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
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
        Machine { placement: 0.01, slice: 0.01, contention: 0.2, slow_state: 0.2 };
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
            for _ in 0..8 {
                let [a, b, c, d] = [base, head, head, base].map(&mut slice);
                blocks.push(Block { base: [a, d], head: [b, c] });
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
