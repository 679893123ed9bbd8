//! The measurements: a child process makes them, and this one keeps the results.

use std::ops::ControlFlow;
use std::time::Duration;

use rf_graph::{DType, KvType};
use rf_kernels::tune::{Subject, TrialComparison};
use rf_kernels::tuning::Knob;
use serde::{Deserialize, Serialize};

use super::{TuningChoice, TuningFailure, TuningTable};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::lines::{Lines, LinesEnd, opening_limit};
use crate::probe::Prober;

/// The longest time of a trial of launches.
const TRIAL_LIMIT: Duration = Duration::from_mins(2);

/// The longest time of a trial of code, which is compiled first.
const CODE_TRIAL_LIMIT: Duration = Duration::from_mins(6);

/// The measurements of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TunePlan {
    /// Matrices and caches.
    pub subjects: Vec<TuneSubject>,
    /// Selects trials whose knob and format contain this text, as in `prefill` or `waves Q4_K`.
    pub filter: String,
    /// Time of each of the four measurements of a trial.
    pub block: Duration,
    /// Values that failed earlier, with the digest of their code.
    pub failures: Vec<TuningFailure>,
}

impl TunePlan {
    /// Sets [`subjects`](Self::subjects).
    #[must_use]
    pub fn with_subjects(mut self, subjects: Vec<TuneSubject>) -> Self {
        self.subjects = subjects;
        self
    }

    /// Sets [`filter`](Self::filter).
    #[must_use]
    pub fn with_filter(mut self, filter: String) -> Self {
        self.filter = filter;
        self
    }

    /// Sets [`block`](Self::block).
    #[must_use]
    pub fn with_block(mut self, block: Duration) -> Self {
        self.block = block;
        self
    }

    /// Sets [`failures`](Self::failures).
    #[must_use]
    pub fn with_failures(mut self, failures: Vec<TuningFailure>) -> Self {
        self.failures = failures;
        self
    }
}

/// Matrices or a KV cache of one format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TuneSubject {
    /// Weight matrices.
    Matrix {
        /// Name of the format.
        format: String,
        /// Output features.
        rows: usize,
        /// Input features.
        columns: usize,
    },
    /// A KV cache.
    Cache {
        /// Name of the type.
        format: String,
        /// Query heads.
        num_heads: usize,
        /// Key and value heads.
        num_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
}

impl TunePlan {
    /// Returns true if the filter names a knob and a format.
    pub fn selects(&self, knob: &str, format: &str) -> bool {
        format!("{knob} {format}").to_lowercase().contains(&self.filter.to_lowercase())
    }
}

impl TuneSubject {
    /// The subject by its formats; `None` for an unknown one.
    pub(super) fn subject(&self) -> Option<Subject> {
        match self {
            Self::Matrix { format, rows, columns } => {
                let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == format)?;
                Some(Subject::Matrix { dtype, rows: *rows, columns: *columns })
            }
            Self::Cache { format, num_heads, num_kv_heads, head_dim } => {
                let kv = KvType::ALL.into_iter().find(|kv| kv.name() == format)?;
                let (num_heads, num_kv_heads, head_dim) = (*num_heads, *num_kv_heads, *head_dim);
                Some(Subject::Cache { kv, num_heads, num_kv_heads, head_dim })
            }
        }
    }
}

/// The progress of tuning.
#[derive(Debug)]
#[non_exhaustive]
pub enum TuneEvent<'a> {
    /// The GPU is open.
    Open {
        /// Number of trials.
        trials: usize,
    },
    /// A trial begins.
    Begin(&'a TrialName),
    /// A trial ended.
    Trial(&'a TrialName, &'a TrialEnd),
    /// Nothing new; the caller may stop.
    Idle,
}

/// A value of a knob for a format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialName {
    /// Name of the knob.
    pub knob: String,
    /// Name of the format.
    pub format: String,
    /// The value.
    pub value: u32,
    /// Digest of the code.
    pub code: String,
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TrialEnd {
    /// The value works.
    Measured {
        /// Time of a step, in microseconds.
        us: f64,
        /// Time of that step with the choice of the formulas, in microseconds.
        default_us: f64,
        /// True if the value is faster beyond doubt.
        is_faster: bool,
    },
    /// The value does not work.
    Failed(String),
    /// There was no measurement, and the value may work.
    NotMeasured(String),
}

impl From<TrialComparison> for TrialEnd {
    fn from(comparison: TrialComparison) -> Self {
        let TrialComparison { default_s, tuned_s, is_faster } = comparison;
        let us = |seconds: f64| (seconds * 1e9).round() / 1e3;
        Self::Measured { us: us(tuned_s), default_us: us(default_s), is_faster }
    }
}

/// A line of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TuningMessage {
    /// The GPU is open; the number of trials.
    Open(usize),
    /// A trial begins.
    Begin(TrialName),
    /// A trial ended. After some errors the device is lost, and so is the child.
    End(TrialEnd),
}

impl TuningTable {
    /// Measures the trials of a plan on a GPU and adds their results. `observe` sees every step,
    /// with the table so far, and may break off. Returns false then.
    ///
    /// # Errors
    ///
    /// If no child starts, or none opens the GPU.
    pub fn measure(
        &mut self,
        (prober, gpu): (&Prober, &Gpu),
        plan: &TunePlan,
        observe: &mut dyn FnMut(&Self, TuneEvent<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let plan = serde_json::to_string(plan)?;
        let (mut done, mut total) = (0, None);
        loop {
            let before = done;
            let skip = done.to_string();
            let arguments = ["--tune", &plan, "--skip", &skip];
            let mut lines = Lines::<TuningMessage>::start(prober, gpu, &arguments)?;
            let (mut running, mut limit) = (None::<TrialName>, opening_limit(gpu));
            let end = loop {
                let stopped = &mut || observe(self, TuneEvent::Idle).is_break();
                let message = match lines.next(limit, stopped) {
                    Ok(message) => message,
                    Err(end) => break end,
                };
                let observed = match message {
                    TuningMessage::Open(trials) if total.is_none() => {
                        total = Some(trials);
                        observe(self, TuneEvent::Open { trials })
                    }
                    TuningMessage::Open(_) => ControlFlow::Continue(()),
                    TuningMessage::Begin(trial) => {
                        let is_of_code = Knob::named(&trial.knob).is_some_and(Knob::is_of_code);
                        limit = if is_of_code { CODE_TRIAL_LIMIT } else { TRIAL_LIMIT };
                        let observed = observe(self, TuneEvent::Begin(&trial));
                        running = Some(trial);
                        observed
                    }
                    TuningMessage::End(end) => {
                        done += 1;
                        let Some(trial) = running.take() else { continue };
                        self.add(&trial, &end);
                        observe(self, TuneEvent::Trial(&trial, &end))
                    }
                };
                if observed.is_break() {
                    break LinesEnd::Stopped;
                }
            };
            let problem = match end {
                LinesEnd::Stopped => return Ok(false),
                LinesEnd::Ended(_) if total.is_some_and(|total| done >= total) => return Ok(true),
                LinesEnd::Ended(how) => format!("the process ended ({how})"),
                LinesEnd::Silent => {
                    format!("the driver hangs: no result within {} s", limit.as_secs())
                }
            };
            match running {
                Some(trial) => {
                    done += 1;
                    let end = TrialEnd::Failed(problem);
                    self.add(&trial, &end);
                    if observe(self, TuneEvent::Trial(&trial, &end)).is_break() {
                        return Ok(false);
                    }
                }
                // A child that loses the device ends after it reported why.
                None if done > before => {}
                None => return Err(Error::Probe(format!("{gpu} cannot be tuned: {problem}"))),
            }
        }
    }

    /// Adds the result of a trial.
    pub(super) fn add(&mut self, trial: &TrialName, end: &TrialEnd) {
        let TrialName { knob, format, value, code } = trial;
        match end {
            TrialEnd::Measured { us, default_us, is_faster } => {
                let choice = self.choice(knob, format, code);
                if choice.value == Some(*value) {
                    // Measured again.
                    choice.value = None;
                }
                if choice.value.is_none() {
                    (choice.us, choice.default_us) = (*default_us, *default_us);
                }
                if *is_faster && (choice.value.is_none() || *us < choice.us) {
                    (choice.value, choice.us) = (Some(*value), *us);
                    choice.default_us = *default_us;
                }
            }
            TrialEnd::Failed(reason) => {
                let is_of = |choice: &&mut TuningChoice| {
                    (&choice.knob, &choice.format, choice.value) == (knob, format, Some(*value))
                };
                if let Some(choice) = self.choices.iter_mut().find(is_of) {
                    (choice.value, choice.us) = (None, choice.default_us);
                }
                self.failures.retain(|failure| {
                    (&failure.knob, &failure.format, failure.value) != (knob, format, *value)
                });
                self.failures.push(TuningFailure {
                    knob: knob.clone(),
                    format: format.clone(),
                    code: code.clone(),
                    value: *value,
                    reason: reason.clone(),
                });
            }
            TrialEnd::NotMeasured(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(us: f64, default_us: f64) -> TrialEnd {
        TrialEnd::Measured { us, default_us, is_faster: us < 0.97 * default_us }
    }

    fn added(results: &[(u32, TrialEnd)]) -> TuningTable {
        let mut table = TuningTable::default();
        for (value, end) in results {
            let trial = TrialName {
                knob: "decode_keys".into(),
                format: "f16".into(),
                value: *value,
                code: "ab".into(),
            };
            table.add(&trial, end);
        }
        table
    }

    #[test]
    fn the_fastest_value_is_chosen_and_else_the_default_is_kept() {
        let choice = |results: &[(u32, TrialEnd)]| added(results).choices[0].value;
        assert_eq!(choice(&[(32, measured(99.0, 100.0))]), None);
        let three = [
            (32, measured(90.0, 100.0)),
            (128, measured(80.0, 100.0)),
            (256, measured(85.0, 99.0)),
        ];
        assert_eq!(choice(&three), Some(128));
        // A later run in which the value is no faster removes it.
        let again = [(128, measured(80.0, 100.0)), (128, measured(100.0, 100.0))];
        assert_eq!(choice(&again), None);
    }

    #[test]
    fn a_value_that_fails_is_reported_once_and_not_chosen() {
        let failed = |reason: &str| TrialEnd::Failed(reason.into());
        let table = added(&[(32, failed("first")), (32, failed("wrong: NMSE 0.1"))]);
        assert!(table.choices.is_empty());
        assert_eq!(table.failures.len(), 1);
        assert_eq!(table.failures[0].reason, "wrong: NMSE 0.1");
        let chosen = added(&[(32, measured(90.0, 100.0)), (32, failed("it crashed"))]);
        assert_eq!((chosen.choices[0].value, chosen.failures.len()), (None, 1));
        let not = added(&[(32, TrialEnd::NotMeasured("out of memory".into()))]);
        assert!(not.choices.is_empty() && not.failures.is_empty());
    }
}
