//! Measures the choices of launches on a card: the work of `rf-cli tune`.
//!
//! A [`Trial`] is a value of a [`Knob`] for the matrices or the cache of a model. Its results are
//! compared with those of the formulas' choice before it is timed. The time is that of a step with
//! copies of the op that read more memory than any cache holds, so the fixed cost of a step makes
//! gains look smaller, not larger. Matmuls of several tokens are those of feed-forward layers, one
//! after the other: their epilogues, and waiting for one another, are a part of their time. Steps
//! of both choices alternate: A-B-A-B.

use std::time::{Duration, Instant};

use rf_graph::{Backend, BackendError, DType, KvType, OperandFormat, Output};
use rf_oracle::case::{
    Case, CaseBatch, Schedule, Timer, attention, feed_forward, gated_unit, matmul,
};
use rf_oracle::conformance::Deviation;

use crate::GpuBackend;
use crate::params::{FEW_TOKENS, MIN_SPLIT_KEYS, MatmulDevice, MatrixUnit};
use crate::selftest::copies;
use crate::tuning::{Knob, Tuning};

/// Weights or a cache of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// Weight matrices.
    Matrix {
        /// Format of the weights.
        dtype: DType,
        /// Output features.
        rows: usize,
        /// Input features.
        columns: usize,
    },
    /// A KV cache.
    Cache {
        /// Type of the cache.
        kv: KvType,
        /// Query heads.
        num_heads: usize,
        /// Key and value heads.
        num_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
}

/// A value of a knob to measure.
#[derive(Clone, Debug)]
pub struct Trial {
    knob: Knob,
    value: u32,
    subject: Subject,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum TrialVerdict {
    /// The results are right.
    Measured(TrialComparison),
    /// The results differ from those of the formulas' choice.
    Wrong {
        /// NMSE of the difference.
        nmse: f64,
        /// The NMSE that is allowed.
        allowed: f64,
    },
}

/// Times of a step: with the formulas' choice, and with the value of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrialComparison {
    /// The smaller median of two, in seconds, with the formulas' choice.
    pub default_s: f64,
    /// The smaller median of two, in seconds, with the value of the trial.
    pub tuned_s: f64,
    /// True if both medians with the value are smaller by [`MIN_GAIN`] than both without.
    pub is_faster: bool,
}

/// The least gain for which a value replaces the choice of a formula, as a part of the time.
pub const MIN_GAIN: f64 = 0.03;

/// Depth at which attention of one token is timed.
const DEPTH: usize = 4096;

/// The trials for these subjects on a device, in the order of [`Knob::ALL`].
pub fn trials(backend: &GpuBackend, subjects: &[Subject]) -> Vec<Trial> {
    let device = backend.matmul_device();
    let mut trials = Vec::new();
    for knob in Knob::ALL {
        for &subject in subjects {
            let format = subject.format();
            let is_supported = !knob.is_of_code() || backend.compiles();
            if !is_supported
                || !applies(knob, format, device)
                || backend.code_digest(knob, format).is_none()
            {
                continue;
            }
            let default = default_value(knob, format, device);
            let values = knob.values().iter().filter(|value| Some(**value) != default);
            trials.extend(values.map(|&value| Trial { knob, value, subject }));
        }
    }
    trials
}

/// Columns of a usual matrix.
const COLUMNS: usize = 4096;

/// Returns true if a device has launches with a choice for a format.
fn applies(knob: Knob, format: OperandFormat, device: MatmulDevice) -> bool {
    use Knob::{SkinnyGroups16, SkinnyGroups32, SkinnyGroups64};
    let untuned = MatmulDevice { tuning: Tuning::NONE, ..device };
    match (knob, format) {
        (
            Knob::MatvecWaves | Knob::GluWaves | Knob::MatvecRowsSteps | Knob::GluSteps,
            OperandFormat::Weight(dtype),
        ) => !dtype.is_float(),
        (Knob::PrefillBits, OperandFormat::Weight(dtype)) => {
            !dtype.is_float() && device.matrix_unit != MatrixUnit::None
        }
        (Knob::PrefillTile | Knob::PrefillCuMode, OperandFormat::Weight(dtype)) => {
            untuned.halves(dtype, COLUMNS)
        }
        (SkinnyGroups16 | SkinnyGroups32 | SkinnyGroups64, OperandFormat::Weight(dtype)) => {
            device.is_skinny(dtype, COLUMNS)
        }
        (Knob::SkinnyTokens, OperandFormat::Weight(dtype)) => {
            device.is_skinny(dtype, COLUMNS) && untuned.halves(dtype, COLUMNS)
        }
        (Knob::MatvecTokens, OperandFormat::Weight(dtype)) => {
            !dtype.is_float() && device.matrix_unit == MatrixUnit::None
        }
        (Knob::DecodeGroups | Knob::DecodeKeys, OperandFormat::Cache(_)) => true,
        _ => false,
    }
}

/// The value that the formulas choose for a format, where they choose one for all shapes.
fn default_value(knob: Knob, format: OperandFormat, device: MatmulDevice) -> Option<u32> {
    let untuned = MatmulDevice { tuning: Tuning::NONE, ..device };
    match (knob, format) {
        (Knob::MatvecWaves | Knob::MatvecTokens, _) => Some(8),
        (Knob::DecodeKeys, _) => Some(MIN_SPLIT_KEYS as u32),
        (Knob::PrefillBits, OperandFormat::Weight(dtype)) => {
            Some(if untuned.halves(dtype, COLUMNS) { 16 } else { 8 })
        }
        (Knob::PrefillTile, _) if device.matrix_unit != MatrixUnit::Nvidia => Some(256),
        (Knob::SkinnyGroups16, _) => Some(device.skinny_groups(16)),
        (Knob::SkinnyGroups32, _) => Some(device.skinny_groups(32)),
        (Knob::SkinnyGroups64, _) => Some(device.skinny_groups(64)),
        (Knob::SkinnyTokens, _) => Some(device.few_tokens as u32),
        (Knob::MatvecRowsSteps, _) => Some(20),
        (Knob::GluSteps | Knob::PrefillCuMode, _) => Some(0),
        _ => None,
    }
}

impl Subject {
    /// The format.
    pub fn format(&self) -> OperandFormat {
        match *self {
            Self::Matrix { dtype, .. } => OperandFormat::Weight(dtype),
            Self::Cache { kv, .. } => OperandFormat::Cache(kv),
        }
    }
}

impl Trial {
    /// The knob.
    pub fn knob(&self) -> Knob {
        self.knob
    }

    /// The format.
    pub fn format(&self) -> OperandFormat {
        self.subject.format()
    }

    /// The value.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// The op and the batch on which the knob acts.
    fn case(&self) -> Case {
        match self.subject {
            Subject::Matrix { dtype, rows, columns } => {
                let tokens = match self.knob {
                    Knob::PrefillBits | Knob::PrefillTile | Knob::PrefillCuMode => 512,
                    // The fewest for which the value makes a difference: of several values that
                    // are faster, the smallest has the shortest time.
                    Knob::SkinnyTokens => (2 * self.value as usize).min(FEW_TOKENS),
                    Knob::MatvecTokens => 2 * self.value as usize,
                    Knob::SkinnyGroups16 => 8,
                    Knob::SkinnyGroups32 => 32,
                    Knob::SkinnyGroups64 => 64,
                    _ => 1,
                };
                let schedule = Schedule::single(tokens);
                let has_whole_blocks = rows.is_multiple_of(dtype.block_elements());
                match self.knob {
                    Knob::GluWaves | Knob::GluSteps => gated_unit(dtype, rows, columns, schedule),
                    _ if tokens > 1 && has_whole_blocks => {
                        feed_forward(dtype, [rows.min(columns), rows.max(columns)], schedule)
                    }
                    _ => matmul(dtype, rows, columns, schedule),
                }
            }
            Subject::Cache { kv, num_heads, num_kv_heads, head_dim } => {
                attention(kv, [num_heads, num_kv_heads, head_dim], Schedule::at_depth(DEPTH, 1))
            }
        }
    }

    /// Compares the value with the formulas' choice. Each of the four times is the median of steps
    /// that last `block` together.
    ///
    /// # Errors
    ///
    /// If the device fails, or lacks the memory.
    pub fn run(&self, backend: &GpuBackend, block: Duration) -> Result<TrialVerdict, BackendError> {
        let mut tuning = *backend.tuning();
        tuning.set(self.knob, self.format(), None);
        let default = backend.with_tuning(tuning);
        tuning.set(self.knob, self.format(), Some(self.value));
        let tuned = backend.with_tuning(tuning);
        let case = self.case();
        // Both may differ from the exact result by the bound.
        let allowed = 4.0 * case.bound().with_f16_operands().nmse();
        let deviation = Deviation::between(&results(&tuned, &case)?, &results(&default, &case)?);
        if deviation.nmse.is_nan() || deviation.nmse > allowed {
            return Ok(TrialVerdict::Wrong { nmse: deviation.nmse, allowed });
        }
        let copies = match case.op() {
            // Three matrices each.
            "feed_forward" => 3,
            _ => copies(&case, case.cost()).next_multiple_of(3),
        };
        let timer = |backend: &GpuBackend| {
            Timer::new(backend, &case, case.timed_program(copies).fused_for(backend))
        };
        let mut timers = [timer(&default)?, timer(&tuned)?];
        // Warm up: plain launches, graph capture, first replay.
        for timer in &mut timers {
            for _ in 0..3 {
                timer.step()?;
            }
        }
        let mut step = |side: usize| {
            let start = Instant::now();
            timers[side].step()?;
            Ok(start.elapsed().as_secs_f64())
        };
        compare(block.as_secs_f64(), &mut step).map(TrialVerdict::Measured)
    }
}

/// The results of the timed batch.
fn results(backend: &GpuBackend, case: &Case) -> Result<Vec<Vec<f32>>, BackendError> {
    let program = case.timed_program(1).fused_for(backend);
    let width = program.graph.value(program.graph.output()).width;
    let mut executor = backend.compile(program, &mut |_| ())?;
    let [fill @ .., timed] = case.batches() else { return Ok(Vec::new()) };
    for batch in fill {
        batch.with_output_rows(&[], |batch| executor.forward(batch, Output::rows(&mut [])))?;
    }
    let rows: Vec<usize> = (0..CaseBatch::tokens(timed)).collect();
    let mut out = vec![f32::NAN; rows.len() * width];
    timed.with_output_rows(&rows, |batch| executor.forward(batch, Output::rows(&mut out)))?;
    Ok(vec![out])
}

/// Compares two kinds of steps, A-B-A-B. `step` runs one of side 0 or 1 and returns its seconds.
fn compare<E>(
    block_s: f64,
    step: &mut dyn FnMut(usize) -> Result<f64, E>,
) -> Result<TrialComparison, E> {
    const MIN_STEPS: usize = 5;
    let mut median = |side: usize| {
        let (mut times, mut sum_s) = (Vec::new(), 0.0);
        while times.len() < MIN_STEPS || sum_s < block_s {
            let seconds = step(side)?;
            sum_s += seconds;
            times.push(seconds);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    };
    let first: [f64; 2] = [median(0)?, median(1)?];
    let second: [f64; 2] = [median(0)?, median(1)?];
    let [default_s, tuned_s] = [0, 1].map(|side| first[side].min(second[side]));
    let is_faster = first[1].max(second[1]) <= (1.0 - MIN_GAIN) * default_s;
    Ok(TrialComparison { default_s, tuned_s, is_faster })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Steps that take these seconds: of either side before and after the first round.
    fn compared(default: [f64; 2], tuned: [f64; 2]) -> TrialComparison {
        let (mut last, mut turns) = (1, 0);
        let mut step = |side: usize| {
            if side != last {
                (last, turns) = (side, turns + 1);
            }
            let round = (turns - 1) / 2;
            Ok::<_, Infallible>([default, tuned][side][round])
        };
        let Ok(comparison) = compare(1.0, &mut step);
        assert_eq!(turns, 4);
        comparison
    }

    #[test]
    fn a_value_must_be_faster_by_three_percent_in_both_rounds() {
        let faster = compared([0.1, 0.11], [0.09, 0.095]);
        assert_eq!(faster, TrialComparison { default_s: 0.1, tuned_s: 0.09, is_faster: true });
        assert!(!compared([0.1, 0.1], [0.098, 0.098]).is_faster);
        // The clock of the card rose in between.
        assert!(!compared([0.1, 0.08], [0.09, 0.075]).is_faster);
        assert!(!compared([0.1, 0.1], [0.2, 0.05]).is_faster);
    }

    #[test]
    fn a_block_has_at_least_five_steps() {
        let mut count = 0;
        let mut step = |_| {
            count += 1;
            Ok::<_, Infallible>(10.0)
        };
        let Ok(_) = compare(1.0, &mut step);
        assert_eq!(count, 4 * 5);
    }
}
