//! Sums over the parts of a divided program: one member exchanges the summands with the other
//! parts, then all members sum rows. The order of the parts is the order of the sum.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rf_graph::{BackendError, Member, Program, Reduction, Summands, ValueId};

use super::Region;
use super::phases::StepPart;
use super::rows::by_row;
use crate::team::{PieceDivision, Share};

/// The way to the other parts, which the members of a team share.
pub(super) struct SharedReduction {
    state: Mutex<State>,
    bytes: u64,
}

struct State {
    reduction: Reduction,
    /// Those of the present op; none after a failure.
    summands: Summands,
    /// The first failure of the region.
    failure: Option<BackendError>,
}

impl SharedReduction {
    pub(super) fn new(program: &Program) -> Self {
        let reduction = Reduction::new(program);
        let bytes = reduction.bytes();
        let state = State { reduction, summands: Summands::new(), failure: None };
        Self { state: Mutex::new(state), bytes }
    }

    pub(super) fn join(&self, member: Member) {
        self.state().reduction.join(member);
    }

    /// Bytes of the buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends a region. Returns its first failure.
    pub(super) fn finish(&self) -> Result<(), BackendError> {
        let mut state = self.state();
        // Parts reuse the buffers of earlier summands.
        state.summands.clear();
        state.failure.take().map_or(Ok(()), Err)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region<'_> {
    pub(super) fn all_reduce_deals(&self, out: ValueId) -> [PieceDivision; 2] {
        // Without rows, too: the other parts may have some.
        [PieceDivision::new(1, 1, 1), self.row_deal(out)]
    }

    pub(super) fn all_reduce(
        &self,
        share: &mut Share<'_>,
        part: StepPart,
        x: ValueId,
        out: ValueId,
    ) {
        match part {
            StepPart::First => by_row(share, |_| {
                let data = self.rows(x).data;
                // SAFETY: written in an earlier phase.
                let values = unsafe { data.get(0..data.len()) };
                let mut state = self.reduction.state();
                state.summands.clear();
                if state.failure.is_none() {
                    match state.reduction.gather(values) {
                        Ok(summands) => state.summands = summands,
                        Err(error) => state.failure = Some(error),
                    }
                }
            }),
            StepPart::Second => {
                let (out, summands) = (self.rows(out), self.reduction.state().summands.clone());
                let Some((first, others)) = summands.split_first() else {
                    return share.for_each(drop);
                };
                by_row(share, |row| {
                    let range = row * out.width..(row + 1) * out.width;
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    y.copy_from_slice(&first[range.clone()]);
                    for values in others {
                        y.iter_mut().zip(&values[range.clone()]).for_each(|(y, x)| *y += x);
                    }
                });
            }
        }
    }
}
