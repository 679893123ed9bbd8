//! Statistics of samples.

/// Summary statistics of a set of samples, in the unit of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples.
    pub total: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median, the 50th percentile.
    pub median: f64,
    /// 95th percentile, see [`percentile`].
    pub p95: f64,
    /// 99th percentile, see [`percentile`].
    pub p99: f64,
    /// Median absolute deviation: the median of the distances to the median.
    pub mad: f64,
}

impl Summary {
    /// Summarizes `samples`. Returns `None` if there are none or one is not finite.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::stats::Summary;
    ///
    /// let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
    /// assert_eq!((summary.min, summary.median, summary.max), (1.0, 2.5, 4.0));
    /// assert_eq!(Summary::of(&[]), None);
    /// ```
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let total: f64 = sorted.iter().sum();
        let median = percentile(&sorted, 50.0);
        let mut distances: Vec<f64> = sorted.iter().map(|sample| (sample - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len() as u64,
            total,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            mean: total / sorted.len() as f64,
            median,
            p95: percentile(&sorted, 95.0),
            p99: percentile(&sorted, 99.0),
            mad: percentile(&distances, 50.0),
        })
    }

    /// Spread as a fraction of the median: 1.4826 · MAD / |median|, or 0 if the median is 0.
    ///
    /// It is robust against outliers. For normally distributed samples it estimates the relative
    /// standard deviation.
    pub fn relative_spread(&self) -> f64 {
        const MAD_TO_SIGMA: f64 = 1.4826;
        if self.median == 0.0 { 0.0 } else { (MAD_TO_SIGMA * self.mad / self.median).abs() }
    }
}

/// Percentile of sorted samples with linear interpolation; 0 for no samples.
///
/// The method is "type 7" of Hyndman and Fan, which spreadsheets and `NumPy` use.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = percent.clamp(0.0, 100.0) / 100.0 * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Upper median of samples: the middle one, or the upper of the two middle ones; `None` for no
/// samples. Reorders the samples.
///
/// Unlike [`Summary::median`] the result is always a sample. It is found in linear time without
/// sorting.
pub fn upper_median(samples: &mut [f64]) -> Option<f64> {
    let middle = samples.len() / 2;
    let is_empty = samples.is_empty();
    (!is_empty).then(|| *samples.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_linearly() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        // NumPy: np.percentile(np.arange(1, 101), [50, 95, 99])
        assert_eq!(percentile(&sorted, 50.0), 50.5);
        assert!((percentile(&sorted, 95.0) - 95.05).abs() < 1e-9);
        assert!((percentile(&sorted, 99.0) - 99.01).abs() < 1e-9);
        assert_eq!(percentile(&sorted, 100.0), 100.0);
        assert_eq!(percentile(&[7.0], 95.0), 7.0);
    }

    #[test]
    fn the_upper_median_is_a_sample() {
        assert_eq!(upper_median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(upper_median(&mut [4.0, 1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(upper_median(&mut []), None);
    }

    #[test]
    fn the_spread_of_one_outlier_is_small() {
        let quiet = Summary::of(&[10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 50.0]).unwrap();
        assert!(quiet.relative_spread() < 0.02, "{quiet:?}");
        assert_eq!(quiet.max, 50.0);
    }

    #[test]
    fn samples_that_are_not_finite_have_no_summary() {
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }
}
