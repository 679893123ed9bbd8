//! Phases: the parts of a batch's steps that the team runs together, and how they are dealt.

use super::Region;
use super::matmul::Scratch;
use super::profile::StepTimes;
use super::steps::Step;
use crate::team::{DisjointSlice, PieceDivision, Share, Work};

/// A step has up to two phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepPart {
    /// Prepares the operand of the second part. Most steps need none.
    First,
    Second,
}

/// The phases of a batch.
#[derive(Default)]
pub(super) struct Phases {
    /// The index of the step and its part, by phase.
    parts: Vec<(usize, StepPart)>,
    deals: Vec<PieceDivision>,
}

impl Phases {
    /// Replaces the phases by those of `steps`, given with the index of the first one.
    pub(super) fn plan(&mut self, region: &Region<'_>, first: usize, steps: &[Step]) {
        self.parts.clear();
        self.deals.clear();
        for (i, step) in (first..).zip(steps) {
            for (part, deal) in
                [StepPart::First, StepPart::Second].into_iter().zip(region.deals(step))
            {
                if deal.pieces() > 0 {
                    self.parts.push((i, part));
                    self.deals.push(deal);
                }
            }
        }
    }

    pub(super) fn deals(&self) -> &[PieceDivision] {
        &self.deals
    }
}

/// A batch as the work of a team.
pub(super) struct Walk<'a> {
    pub(super) region: &'a Region<'a>,
    pub(super) phases: &'a Phases,
    /// The steps of the program in their order.
    pub(super) steps: &'a [Step],
    /// Work space of each member.
    pub(super) scratch: DisjointSlice<'a, Scratch>,
    pub(super) times: Option<StepTimes<'a>>,
}

impl Work for Walk<'_> {
    fn run(&self, share: &mut Share<'_>) {
        let member = share.member;
        // SAFETY: each member accesses its own element.
        let [scratch] = (unsafe { self.scratch.get_mut(member..member + 1) }) else { return };
        let (step, part) = self.phases.parts[share.phase];
        let stopwatch = self.times.and_then(|times| times.stopwatch(member));
        self.region.step(share, &self.steps[step], part, scratch);
        if let Some(stopwatch) = stopwatch {
            stopwatch.stop(step);
        }
    }

    fn phase_ended(&self, phase: usize) {
        if let Some(times) = self.times {
            times.add_to(self.phases.parts[phase].0);
        }
    }
}
