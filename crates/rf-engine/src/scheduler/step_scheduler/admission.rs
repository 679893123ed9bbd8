//! The start of waiting sequences.

use std::ops::ControlFlow;
use std::time::Instant;

use rf_kv::PageCounts;

use super::StepScheduler;
use crate::engine::Engine;
use crate::scheduler::event::{Event, Observer};
use crate::scheduler::sequence::{Sequence, by_group};
use crate::scheduler::submission::Start;
use crate::scheduler::waiting::{Order, Place};

/// Sequences that wait for their prefix are passed over, but not more in one step: each costs a
/// search in the prefix cache.
const MAX_PASSED_OVER: usize = 16;

/// The outcome of an attempt to start a waiting sequence.
enum Admission {
    /// It runs.
    Started,
    /// It waits for a running one to compute its prefix.
    AwaitsPrefix(Box<Sequence>),
    /// Pages were taken back from others, so that it may fit now.
    Again,
    /// It does not fit.
    Blocked,
}

impl StepScheduler {
    /// Starts waiting sequences while there is room, and plans their tokens. In the order of
    /// length, running prompts that are shorter come first.
    pub(super) fn admit(
        &mut self,
        engine: &mut Engine,
        budget: &mut usize,
        order: Order,
        observer: &mut dyn Observer,
    ) {
        let mut passed_over = Vec::new();
        // In most steps nothing waits, and counting the running sequences would be for nothing.
        while self.waiting.len() > 0
            && *budget > 0
            && !self.is_blocked
            && passed_over.len() < MAX_PASSED_OVER
        {
            let most = self.options.max_seqs_per_request;
            let Some(place) = self.waiting.next(order, &by_group(&self.running), most) else {
                break;
            };
            if order == Order::Length && self.is_shorter_than(&place) {
                break;
            }
            let has_slot = self.running.len() < self.options.max_num_seqs;
            if !has_slot && !self.make_way(&place, budget) {
                break;
            }
            match self.admit_first(engine, &place, budget, observer) {
                Admission::Started => self.waiting.pass_turn(place.group),
                Admission::Again => {}
                Admission::AwaitsPrefix(sequence) => passed_over.push(*sequence),
                Admission::Blocked => break,
            }
        }
        for sequence in passed_over {
            self.waiting.insert(sequence);
        }
    }

    /// Starts the first sequence of a group, if its pages are available.
    fn admit_first(
        &mut self,
        engine: &mut Engine,
        place: &Place,
        budget: &mut usize,
        observer: &mut dyn Observer,
    ) -> Admission {
        let Some(mut sequence) = self.waiting.take(place.group) else { return Admission::Again };
        let id = sequence.rank.request;
        // Without its request it is dropped.
        let Some(request) = self.requests.get(&id) else { return Admission::Again };
        let seeks_prefix = self.options.prefix_cache && request.use_prefix_cache;
        let seeks_prefix = seeks_prefix && sequence.session.is_empty();
        if seeks_prefix {
            let adapters = sequence.session.adapters().clone();
            sequence.session = engine.session_with_prefix(adapters, &sequence.tokens);
            // Every full page can be the end of a cached prefix, unless the model has recurrent
            // states: those after its last token are kept in few places.
            if !engine.is_recurrent() && self.is_computing_prefix(engine, &sequence) {
                sequence.release();
                return Admission::AwaitsPrefix(Box::new(sequence));
            }
        }
        // The others keep the pages for the tokens they have, and one each to grow.
        let (page, step) = (engine.page_tokens(), self.options.max_batched_tokens);
        let others: PageCounts = self.running.iter().map(|o| o.pages_needed(page, step)).sum();
        let needed = sequence.pages_needed(0, step);
        if !(others + needed).fits_in(engine.available_pages()) {
            if seeks_prefix {
                sequence.release();
            }
            let has_made_way = self.waiting.release() || self.make_way(place, budget);
            self.waiting.insert(sequence);
            if has_made_way {
                return Admission::Again;
            }
            self.is_blocked = true;
            if self.running.is_empty() {
                self.fail_for_pages(engine, id, needed);
            }
            return Admission::Blocked;
        }
        sequence.plan(budget);
        if std::mem::take(&mut sequence.is_queued) && self.start(&sequence, observer).is_break() {
            self.cancel(id);
        }
        self.insert(sequence);
        Admission::Started
    }

    /// Returns true if a running sequence is about to compute the next page of `sequence`. It will
    /// be in the prefix cache, and computing it twice would take longer than waiting.
    fn is_computing_prefix(&self, engine: &Engine, sequence: &Sequence) -> bool {
        let end_tokens = sequence.session.len() + engine.page_tokens();
        // The last token is computed in any case.
        if end_tokens >= sequence.tokens.len() {
            return false;
        }
        let prefix = &sequence.tokens[..end_tokens];
        self.running.iter().any(|other| {
            let publishes = || {
                let request = self.requests.get(&other.rank.request);
                request.is_some_and(|request| request.use_prefix_cache && request.end.is_none())
            };
            let has_prefix = other.session.len() < end_tokens && other.tokens.starts_with(prefix);
            has_prefix && other.session.adapters() == sequence.session.adapters() && publishes()
        })
    }

    /// Notes and reports the start of a request.
    fn start(&mut self, first: &Sequence, observer: &mut dyn Observer) -> ControlFlow<()> {
        let Some(request) = self.requests.get_mut(&first.rank.request) else {
            return ControlFlow::Continue(());
        };
        let (prompt_tokens, cached_tokens) = (request.prompt_tokens, first.session.len());
        request.start = Some(Start { time: Instant::now(), cached_tokens });
        self.stats.prompt_tokens += prompt_tokens as u64;
        if self.options.prefix_cache && request.use_prefix_cache {
            self.stats.prefix_cache_queries += prompt_tokens as u64;
            self.stats.prefix_cache_hits += cached_tokens as u64;
        }
        let seed = first.choice.generation.seed();
        let id = first.rank.request;
        observer.event(id, Event::Started { prompt_tokens, cached_tokens, seed })
    }

    /// Adds a sequence to those that run.
    pub(super) fn insert(&mut self, mut sequence: Sequence) {
        let is_free = |slot: &usize| self.running.iter().all(|other| other.slot != *slot);
        sequence.slot = (0..=self.running.len()).find(is_free).unwrap_or_default();
        let at = self.running.partition_point(|other| other.rank < sequence.rank);
        self.running.insert(at, sequence);
    }
}
