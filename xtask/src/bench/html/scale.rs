//! From figures to places in a plot.

use std::ops::Range;

/// A linear axis.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) from: Range<f64>,
    pub(super) to: Range<f64>,
}

/// A logarithmic axis over whole decades.
#[derive(Clone, Debug)]
pub(super) struct Decades {
    /// Powers of ten.
    pub(super) from: Range<i32>,
    pub(super) to: Range<f64>,
}

impl Linear {
    /// Where a value lies; beyond the ends it stays at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let Range { start, end } = self.from;
        let share = if end > start { (value - start) / (end - start) } else { 0.5 };
        place(&self.to, share)
    }
}

impl Decades {
    /// The decades in which positive values lie, at least one; `None` without any.
    pub(super) fn around(values: impl IntoIterator<Item = f64>, to: Range<f64>) -> Option<Self> {
        let logs = values.into_iter().filter(|v| *v > 0.0 && v.is_finite()).map(f64::log10);
        let bounds = logs.fold(None, |bounds: Option<(f64, f64)>, log| {
            let (low, high) = bounds.unwrap_or((log, log));
            Some((low.min(log), high.max(log)))
        });
        let (low, high) = bounds?;
        let first = low.floor() as i32;
        Some(Self { from: first..(high.ceil() as i32).max(first + 1), to })
    }

    /// Where a positive value lies; beyond the ends it stays at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (start, end) = (f64::from(self.from.start), f64::from(self.from.end));
        place(&self.to, (value.max(f64::MIN_POSITIVE).log10() - start) / (end - start))
    }
}

fn place(to: &Range<f64>, share: f64) -> f64 {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 };
    to.start + share * (to.end - to.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_the_ends() {
        let axis = Linear { from: 10.0..20.0, to: 0.0..100.0 };
        assert_eq!((axis.at(15.0), axis.at(0.0), axis.at(99.0)), (50.0, 0.0, 100.0));
        assert_eq!(Linear { from: 1.0..1.0, to: 0.0..100.0 }.at(1.0), 50.0);
        // Upside down, as SVG has it.
        assert_eq!(Linear { from: 0.0..1.0, to: 100.0..0.0 }.at(0.25), 75.0);
    }

    #[test]
    fn decades_hold_all_values() {
        let axis = Decades::around([0.5, 0.0, 300.0], 0.0..400.0).unwrap();
        assert_eq!(axis.from, -1..3);
        assert!((axis.at(1.0) - 100.0).abs() < 1e-9 && (axis.at(10.0) - 200.0).abs() < 1e-9);
        assert_eq!(Decades::around([1.0], 0.0..1.0).unwrap().from, 0..1);
        assert!(Decades::around([0.0, f64::NAN], 0.0..1.0).is_none());
    }
}
