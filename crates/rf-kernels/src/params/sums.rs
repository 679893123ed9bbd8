//! Sums over the parts of a divided program: parameters and launch. The table is also
//! `kernels/include/rf/params/sums.h`.

use super::rows::{ROW_THREADS, VECTOR};
use super::table::params;
use super::{Address, Launch, NormOut};

/// The most summands of a launch.
const MAX_SUMMANDS: usize = 8;

params! {
    /// The summand of one part.
    struct PartSummand {
        /// `[rows, columns]`.
        x: *const f32,
        /// The signal that follows the last write to `x`, or null.
        signal: *const u32,
        /// The number of the signal.
        number: u32,
        /// Unused.
        reserved: u32,
    }

    /// The end of the writes to a summand.
    struct SignalParams {
        /// Written with `number`.
        signal: *mut u32,
        /// The number.
        number: u32,
        /// Unused.
        reserved: u32,
    }

    /// `out = Σₚ xₚ (+ residual)` in the order of the summands.
    struct SumPartsParams {
        /// The first [`num_summands`](Self::num_summands) entries are used.
        summands: [PartSummand; MAX_SUMMANDS],
        /// `[rows, columns]` or null.
        residual: *const f32,
        /// `[rows, columns]`; may be the first summand.
        out: *mut f32,
        /// RMSNorm epilogue, also with f16; only for columns that are a multiple of 32.
        norm_out: NormOut,
        /// Number of elements, rows · columns.
        count: u64,
        /// Number of summands.
        num_summands: u32,
        /// Width.
        columns: u32,
    }
}

impl PartSummand {
    /// A summand that is written before the launch.
    pub(crate) fn of(x: Address) -> Self {
        Self { x, ..Self::default() }
    }
}

impl SignalParams {
    /// The launch.
    pub(crate) fn launch() -> Launch {
        Launch::linear("signal_summand", 1, 32)
    }
}

impl SumPartsParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        let groups = self.count.div_ceil(u64::from(ROW_THREADS * VECTOR));
        Launch::linear("sum_parts_f32_q8", groups as usize, ROW_THREADS)
    }

    /// Adds a summand. Without room for it, returns the sum of those so far, whose launch comes
    /// first.
    pub(crate) fn add(&mut self, summand: PartSummand) -> Option<Self> {
        let so_far = if self.num_summands as usize == MAX_SUMMANDS { self.take() } else { None };
        self.summands[self.num_summands as usize] = summand;
        self.num_summands += 1;
        so_far
    }

    /// Returns the sum of the summands so far, without residual and norm. It becomes the only
    /// summand. `None` if there is no summand.
    pub(crate) fn take(&mut self) -> Option<Self> {
        let so_far = Self { residual: 0, norm_out: NormOut::default(), ..*self };
        if so_far.num_summands == 0 {
            return None;
        }
        (self.summands[0], self.num_summands) = (PartSummand::of(self.out), 1);
        Some(so_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_summands_are_added_in_their_order_by_several_launches() {
        const OUT: Address = 100;
        let mut last = SumPartsParams { residual: 7, out: OUT, ..SumPartsParams::default() };
        let first: Vec<_> = (1..=17).filter_map(|x| last.add(PartSummand::of(x))).collect();
        let launches: Vec<_> = first.into_iter().chain([last]).collect();
        let added = |params: &SumPartsParams| -> Vec<Address> {
            params.summands[..params.num_summands as usize].iter().map(|part| part.x).collect()
        };
        assert_eq!(added(&launches[0]), (1..=8).collect::<Vec<_>>());
        assert_eq!(added(&launches[1]), [OUT, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(added(&launches[2]), [OUT, 16, 17]);
        assert_eq!(launches.iter().map(|params| params.residual).collect::<Vec<_>>(), [0, 0, 7]);
        assert!(launches.iter().all(|params| params.out == OUT));
    }
}
