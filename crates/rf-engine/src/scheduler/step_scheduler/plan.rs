//! The tokens of the next step, and the sequences that lose their pages to others.

use std::cmp::Reverse;
use std::time::Duration;

use rf_kv::{OutOfPages, PageCounts};

use super::StepScheduler;
use crate::engine::Engine;
use crate::error::Error;
use crate::scheduler::drafter::Room;
use crate::scheduler::event::Observer;
use crate::scheduler::request::RequestId;
use crate::scheduler::sequence::{Sequence, by_group};
use crate::scheduler::submission::RequestEnd;
use crate::scheduler::waiting::{Order, Place};
use crate::speculation::Speculation;

/// The time that the constraints of a step may take together. All sequences wait for them, so it
/// bounds the time between two tokens.
const STEP_CONSTRAINT_TIME: Duration = Duration::from_millis(100);

/// Tokens of a step that are left for prompts.
struct Budget {
    /// For the first prompt in order, and then for the next ones.
    in_order: usize,
    /// For the shortest prompt.
    shortest: usize,
}

impl StepScheduler {
    /// Plans the tokens of the next step: one for each sequence that decodes, then prompts.
    pub(super) fn plan(
        &mut self,
        engine: &mut Engine,
        speculation: Option<&mut Speculation>,
        observer: &mut dyn Observer,
    ) {
        let imported_tokens = self.import(engine);
        self.limit_constraint_time();
        let mut budget = self.plan_running(imported_tokens);
        let mut has_preempted = false;
        while !self.pages_planned().fits_in(engine.available_pages()) {
            has_preempted = true;
            match self.running.as_slice() {
                _ if self.waiting.release() => {}
                // Alone it would fit, if sessions outside of the scheduler held no pages.
                [last] => {
                    let (id, needed) = (last.rank.request, last.pages_planned());
                    return self.fail_for_pages(engine, id, needed);
                }
                _ => drop(self.preempt_victim()),
            }
            budget = self.plan_running(imported_tokens);
        }
        if !has_preempted {
            self.admit(engine, &mut budget.in_order, Order::Turn, observer);
        }
        let mut budget = budget.in_order + budget.shortest;
        loop {
            if !has_preempted {
                self.admit(engine, &mut budget, Order::Length, observer);
            }
            if !self.extend_shortest(engine, &mut budget) {
                break;
            }
        }
        debug_assert!(
            self.pages_planned().fits_in(engine.available_pages()),
            "the pages of all planned tokens are available"
        );
        // Several sequences are a large batch without a draft.
        if let (Some(speculation), [sequence]) = (speculation, self.running.as_mut_slice()) {
            let room = Room {
                batch_tokens: self.options.max_batched_tokens,
                sequence_tokens: self.limits.max_sequence_tokens(),
            };
            self.drafter.plan(engine, speculation, sequence, room);
        }
    }

    /// Lets running sequences sit this step out if their constraints would together take longer
    /// than [`STEP_CONSTRAINT_TIME`], by the times of their newest tokens. Those that have sat out
    /// longest come first, so that each has its turn.
    fn limit_constraint_time(&mut self) {
        let constrained = |sequence: &&mut Sequence| sequence.choice.constraint.is_some();
        let mut sequences: Vec<_> = self.running.iter_mut().filter(constrained).collect();
        sequences.sort_by_key(|sequence| Reverse(sequence.steps_sat_out));
        let mut planned = Duration::ZERO;
        for sequence in sequences {
            let time = sequence.choice.constraint_time();
            // The first one may take as long as it needs, and leaves time for faster ones.
            if planned.is_zero() || planned + time <= STEP_CONSTRAINT_TIME {
                planned += time.min(STEP_CONSTRAINT_TIME / 2);
                sequence.steps_sat_out = 0;
            } else {
                sequence.steps_sat_out += 1;
            }
        }
    }

    /// Copies pages back to the device for the sequences that wait for them. Returns as many tokens
    /// as they would be in a step: copying a page takes less time than computing it, so that this
    /// delays the others less than a prompt does.
    fn import(&mut self, engine: &mut Engine) -> usize {
        let page_tokens = engine.page_tokens();
        let most = self.options.max_batched_tokens.div_ceil(page_tokens);
        let mut left = most;
        for sequence in &mut self.running {
            if left == 0 || !sequence.session.is_importing() {
                continue;
            }
            left -= engine.read_back(&mut sequence.session, left);
            if sequence.session.is_empty() {
                // A page was lost. The others may still be there.
                let adapters = sequence.session.adapters().clone();
                sequence.session = engine.session_with_prefix(adapters, &sequence.tokens);
                let request = self.requests.get_mut(&sequence.rank.request);
                if let Some(start) = request.and_then(|request| request.start.as_mut()) {
                    start.cached_tokens = start.cached_tokens.min(sequence.session.len());
                }
            }
        }
        (most - left) * page_tokens
    }

    /// Pages that the planned tokens take.
    fn pages_planned(&self) -> PageCounts {
        self.running.iter().map(Sequence::pages_planned).sum()
    }

    /// Plans the tokens of sequences that decode, and half of the rest for running prompts in
    /// order.
    fn plan_running(&mut self, imported_tokens: usize) -> Budget {
        let (most_tokens, bos) =
            (self.limits.max_sequence_tokens(), self.limits.model.tokenizer().bos());
        let mut budget = self.options.max_batched_tokens;
        for sequence in &mut self.running {
            sequence.draft = None;
            sequence.shift(most_tokens, bos);
            let decodes = sequence.uncomputed_tokens() == 1 && !sequence.waits();
            sequence.planned_tokens = usize::from(decodes);
            budget -= sequence.planned_tokens;
        }
        let budget = budget.saturating_sub(imported_tokens);
        let shortest = budget / 2;
        let mut in_order = budget - shortest;
        for sequence in &mut self.running {
            sequence.plan(&mut in_order);
        }
        Budget { in_order, shortest }
    }

    /// Plans further tokens of the running prompt with the shortest rest. Returns false if there
    /// is none.
    fn extend_shortest(&mut self, engine: &Engine, budget: &mut usize) -> bool {
        let Some(index) = self.shortest_prompt().filter(|_| *budget > 0) else { return false };
        let (tokens, before) = (self.running[index].planned_tokens, *budget);
        self.running[index].plan(budget);
        let has_pages = self.pages_planned().fits_in(engine.available_pages());
        if !has_pages {
            // The next step preempts for it, if need be.
            self.running[index].planned_tokens = tokens;
            *budget = before;
        }
        has_pages
    }

    /// The running prompt with the fewest tokens that are neither computed nor planned.
    fn shortest_prompt(&self) -> Option<usize> {
        let prompts = self.running.iter().enumerate().filter(|(_, s)| s.plannable_tokens() > 0);
        let shortest = prompts.min_by_key(|(_, s)| (s.rank.priority, s.unplanned_tokens(), s.rank));
        shortest.map(|(index, _)| index)
    }

    /// Returns true if a running prompt comes before a waiting one in the order of length.
    pub(super) fn is_shorter_than(&self, waiting: &Place) -> bool {
        self.shortest_prompt().is_some_and(|index| {
            let prompt = &self.running[index];
            (prompt.rank.priority, prompt.unplanned_tokens()) <= (waiting.priority, waiting.tokens)
        })
    }

    /// The sequence that is preempted next, with the number of those of its group: of the lowest
    /// priority and of the group with the most sequences, the last one.
    fn victim(&self) -> Option<(usize, usize)> {
        let lowest = self.running.last()?.rank.priority;
        let counts = by_group(&self.running);
        let of_lowest = self.running.iter().enumerate().filter(|(_, s)| s.rank.priority == lowest);
        let counted = of_lowest.map(|(at, s)| (counts.get(&s.group).copied().unwrap_or(0), at));
        counted.max().map(|(count, at)| (at, count))
    }

    /// Takes the pages of one sequence back. Returns how many tokens were planned for it.
    fn preempt_victim(&mut self) -> usize {
        let Some((at, _)) = self.victim() else { return 0 };
        let mut sequence = self.running.remove(at);
        let planned_tokens = sequence.planned_tokens;
        tracing::debug!(request = %sequence.rank.request, "preempted");
        sequence.preempt();
        self.waiting.insert(sequence);
        self.stats.preemptions += 1;
        self.is_blocked = false;
        planned_tokens
    }

    /// Preempts a sequence of a group that has at least two more than the group of `place`, if
    /// there is one. Its tokens of this step are added to the budget.
    pub(super) fn make_way(&mut self, place: &Place, budget: &mut usize) -> bool {
        let makes_way = self.victim().is_some_and(|(at, count)| {
            count >= place.running + 2 && self.running[at].rank.priority >= place.priority
        });
        if makes_way {
            *budget += self.preempt_victim();
        }
        makes_way
    }

    pub(super) fn fail_for_pages(&mut self, engine: &Engine, id: RequestId, needed: PageCounts) {
        if let Err(error) = OutOfPages::check(needed, engine.available_pages()) {
            self.end(id, RequestEnd::Failed(Error::from(error).into()));
        }
    }
}
