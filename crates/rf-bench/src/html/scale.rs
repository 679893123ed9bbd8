//! From figures to places in a plot.

use std::ops::{Range, RangeInclusive};

/// A linear axis.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) from: Range<f64>,
    pub(super) to: Range<f64>,
}

/// A logarithmic axis.
#[derive(Clone, Debug)]
pub(super) struct Logarithmic {
    /// Powers of ten.
    pub(super) from: Range<f64>,
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

impl Logarithmic {
    /// An axis on which positive values lie, with a margin, and at least one power of ten; `None` without any.
    pub(super) fn around(values: impl IntoIterator<Item = f64>, to: Range<f64>) -> Option<Self> {
        const MARGIN: f64 = 0.15;
        let logs = values.into_iter().filter(|v| *v > 0.0 && v.is_finite()).map(f64::log10);
        let bounds = logs.fold(None, |bounds: Option<(f64, f64)>, log| {
            let (low, high) = bounds.unwrap_or((log, log));
            Some((low.min(log), high.max(log)))
        });
        let (low, high) = bounds?;
        let (low, high) = (low - MARGIN, high + MARGIN);
        let low = if low.ceil() <= high { low } else { low.floor() };
        Some(Self { from: low..high, to })
    }

    /// Powers of ten that have a place.
    pub(super) fn powers(&self) -> RangeInclusive<i32> {
        self.from.start.ceil() as i32..=self.from.end.floor() as i32
    }

    /// The least and the greatest value that have a place.
    pub(super) fn ends(&self) -> (f64, f64) {
        (10_f64.powf(self.from.start), 10_f64.powf(self.from.end))
    }

    /// Where a positive value lies; beyond the ends it stays at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let Range { start, end } = self.from;
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
        let point = Linear { from: 1.0..1.0, to: 0.0..100.0 };
        // As SVG has it.
        let upside_down = Linear { from: 0.0..1.0, to: 100.0..0.0 };
        assert_eq!((point.at(1.0), upside_down.at(0.25)), (50.0, 75.0));
    }

    #[test]
    fn powers_of_ten_are_equally_far_apart() {
        let axis = Logarithmic::around([0.5, 0.0, 300.0], 0.0..400.0).unwrap();
        assert_eq!(axis.powers(), 0..=2);
        let [one, ten, hundred] = [1.0, 10.0, 100.0].map(|value| axis.at(value));
        assert!((ten - one - (hundred - ten)).abs() < 1e-9 && ten > one);
        let (least, most) = axis.ends();
        assert!(least < 0.5 && most > 300.0 && axis.at(0.5) > 0.0 && axis.at(300.0) < 400.0);
        assert_eq!(Logarithmic::around([2.0, 3.0], 0.0..1.0).unwrap().powers(), 0..=0);
        assert!(Logarithmic::around([0.0, f64::NAN], 0.0..1.0).is_none());
    }
}
