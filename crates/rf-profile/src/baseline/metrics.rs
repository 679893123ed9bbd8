//! Metrics of a benchmark.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::stats::Summary;

/// The direction of improvement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Lower is better: times, bytes.
    #[default]
    Lower,
    /// Higher is better: throughputs, percentages of a peak.
    Higher,
}

/// The metrics of a benchmark. Results from older formats and publications may lack some of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Unit of the values, such as `ms`, `tokens/s` or `GB/s`.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Arithmetic mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg: Option<f64>,
    /// Smallest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Median, the 50th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Number of samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Noise as a fraction of the median (0.02 is 2 %): the expected difference of a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Field `control` of files from earlier versions: accepted, ignored, never written.
    #[doc(hidden)]
    #[serde(default, skip_serializing, deserialize_with = "ignored")]
    pub control: (),
}

fn ignored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(drop)
}

impl Metrics {
    /// Computes the metrics of consecutive samples. The noise is their
    /// [`relative_spread`](Summary::relative_spread).
    ///
    /// # Errors
    ///
    /// [`Error::Samples`] if there are none or one is not finite.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::baseline::{Better, Metrics};
    ///
    /// let metrics = Metrics::from_samples("ms", Better::Lower, &[10.0, 10.2, 9.9])?;
    /// assert_eq!((metrics.p50, metrics.iterations), (Some(10.0), Some(3)));
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn from_samples(unit: &str, better: Better, samples: &[f64]) -> Result<Self, Error> {
        let summary = Summary::of(samples).ok_or_else(|| Error::Samples {
            name: unit.to_owned(),
            reason: if samples.is_empty() { "there are none" } else { "one is not finite" },
        })?;
        Ok(Self {
            unit: unit.to_owned(),
            better,
            avg: Some(summary.mean),
            min: Some(summary.min),
            max: Some(summary.max),
            p50: Some(summary.median),
            p95: Some(summary.p95),
            p99: Some(summary.p99),
            iterations: Some(summary.count),
            noise: Some(summary.relative_spread()),
            control: (),
        })
    }

    /// Computes the metrics of several rounds with pauses or other work in between.
    ///
    /// The noise is the median spread within a round or half the range of the medians of the
    /// rounds, whichever is greater: clock frequencies and other load change more slowly than one
    /// round takes.
    ///
    /// # Errors
    ///
    /// The errors of [`Metrics::from_samples`].
    pub fn from_rounds(unit: &str, better: Better, rounds: &[Vec<f64>]) -> Result<Self, Error> {
        let all: Vec<f64> = rounds.iter().flatten().copied().collect();
        let mut metrics = Self::from_samples(unit, better, &all)?;
        let of_rounds: Vec<Summary> =
            rounds.iter().filter_map(|round| Summary::of(round)).collect();
        let within: Vec<f64> = of_rounds.iter().map(Summary::relative_spread).collect();
        let medians: Vec<f64> = of_rounds.iter().map(|round| round.median).collect();
        if let (Some(within), Some(medians)) = (Summary::of(&within), Summary::of(&medians))
            && medians.median != 0.0
        {
            let between = ((medians.max - medians.min) / 2.0 / medians.median).abs();
            metrics.noise = Some(within.median.max(between));
        }
        Ok(metrics)
    }

    /// A single value without a distribution, such as a number of bytes or a published result.
    ///
    /// # Errors
    ///
    /// [`Error::Samples`] if the value is not finite.
    pub fn single(unit: &str, better: Better, value: f64) -> Result<Self, Error> {
        if !value.is_finite() {
            return Err(Error::Samples { name: unit.to_owned(), reason: "it is not finite" });
        }
        Ok(Self { unit: unit.to_owned(), better, avg: Some(value), ..Self::default() })
    }

    /// The representative value: the median, else the mean, else the minimum.
    pub fn value(&self) -> Option<f64> {
        self.p50.or(self.avg).or(self.min)
    }

    /// The noise or, if it is not recorded, an estimate from the 95th percentile; 0 without either.
    pub fn noise_or_estimate(&self) -> f64 {
        // Distance of the 95th percentile of a normal distribution from its mean.
        const SIGMAS_OF_P95: f64 = 1.645;
        self.noise.unwrap_or_else(|| match (self.value(), self.p95) {
            (Some(value), Some(p95)) if value != 0.0 => {
                ((p95 - value) / SIGMAS_OF_P95 / value).abs()
            }
            _ => 0.0,
        })
    }

    /// Returns the same metric of both, in the unit of `self`: the median if both have it, else the
    /// mean, else the minimum. `None` if they have none in common or the units do not convert.
    pub(super) fn in_common(&self, other: &Self) -> Option<(f64, f64)> {
        let factor = conversion(&other.unit, &self.unit)?;
        let pairs = [(self.p50, other.p50), (self.avg, other.avg), (self.min, other.min)];
        let (ours, theirs) = pairs.into_iter().find_map(|(ours, theirs)| Some((ours?, theirs?)))?;
        Some((ours, theirs * factor))
    }

    /// Returns the best sample of each, in the unit of `self`.
    pub(super) fn best_in_common(&self, other: &Self) -> Option<(f64, f64)> {
        let factor = conversion(&other.unit, &self.unit)?;
        let best = |metrics: &Self| match self.better {
            Better::Lower => metrics.min,
            Better::Higher => metrics.max,
        };
        Some((best(self)?, best(other)? * factor))
    }
}

/// The factor that converts values from the unit `from` to the unit `to`; `None` if they do not
/// convert.
fn conversion(from: &str, to: &str) -> Option<f64> {
    let nanoseconds = |unit| match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    if from == to { Some(1.0) } else { Some(nanoseconds(from)? / nanoseconds(to)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_drift_are_noisier_than_each_alone() {
        let rounds = [vec![10.0, 10.01, 9.99], vec![11.0, 11.01, 10.99]];
        let metrics = Metrics::from_rounds("ms", Better::Lower, &rounds).unwrap();
        assert!((metrics.noise.unwrap() - 0.5 / 10.5).abs() < 1e-9, "{metrics:?}");
        assert_eq!(metrics.iterations, Some(6));
    }

    #[test]
    fn the_control_of_earlier_versions_is_ignored() {
        let text = r#"{"unit": "ms", "better": "lower", "p50": 1.0, "control": {"waited": 0.1}}"#;
        let metrics: Metrics = serde_json::from_str(text).unwrap();
        assert_eq!(metrics.p50, Some(1.0));
        assert!(!serde_json::to_string(&metrics).unwrap().contains("control"));
    }

    #[test]
    fn values_are_compared_in_one_unit() {
        let ms = Metrics::single("ms", Better::Lower, 2.0).unwrap();
        let us = Metrics::single("us", Better::Lower, 500.0).unwrap();
        assert_eq!(ms.in_common(&us), Some((2.0, 0.5)));
        let speed = Metrics::single("tokens/s", Better::Higher, 1.0).unwrap();
        assert_eq!(ms.in_common(&speed), None);
        assert!(Metrics::single("ms", Better::Lower, f64::NAN).is_err());
    }

    #[test]
    fn noise_that_was_not_recorded_is_estimated() {
        let metrics =
            Metrics { p50: Some(10.0), p95: Some(11.645), unit: "ms".into(), ..Metrics::default() };
        assert!((metrics.noise_or_estimate() - 0.1).abs() < 1e-9);
    }
}
