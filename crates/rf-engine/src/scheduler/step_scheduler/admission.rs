//! The start of waiting sequences.

use std::ops::ControlFlow;
use std::time::Instant;

use rf_kv::PageCounts;

use super::StepScheduler;
use crate::engine::Engine;
use crate::scheduler::event::{Event, Observer};
use crate::scheduler::sequence::Sequence;
use crate::scheduler::submission::Start;

impl StepScheduler {
    /// Starts waiting sequences in order while there is room, and plans their tokens.
    pub(super) fn admit(
        &mut self,
        engine: &mut Engine,
        mut budget: usize,
        observer: &mut dyn Observer,
    ) {
        while budget > 0 && self.running.len() < self.options.max_num_seqs && !self.is_blocked {
            let Some(mut sequence) = self.waiting.pop_first() else { return };
            let id = sequence.rank.request;
            let Some(request) = self.requests.get(&id) else { continue };
            let is_first = request.start.is_none();
            let seeks_prefix = self.options.prefix_cache && request.use_prefix_cache;
            let seeks_prefix = seeks_prefix && sequence.session.is_empty();
            if seeks_prefix {
                sequence.session = engine.session_with_prefix(&sequence.tokens);
                // Every full page can be the end of a cached prefix, unless the model has recurrent
                // states: those after its last token are kept in few places.
                if !engine.is_recurrent() && self.is_computing_prefix(engine, &sequence) {
                    sequence.release();
                    return self.put_back(sequence);
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
                if self.waiting.release() {
                    self.put_back(sequence);
                    continue;
                }
                self.is_blocked = true;
                if self.running.is_empty() {
                    self.fail_for_pages(engine, id, needed);
                }
                return self.put_back(sequence);
            }
            budget -= sequence.plan(budget);
            if is_first && self.start(&sequence, observer).is_break() {
                self.cancel(id);
            }
            self.insert(sequence);
        }
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
            other.session.len() < end_tokens && other.tokens.starts_with(prefix) && publishes()
        })
    }

    /// Lets a sequence that could not start wait again.
    fn put_back(&mut self, sequence: Sequence) {
        let request = self.requests.get(&sequence.rank.request);
        match request.and_then(|request| request.start) {
            None => self.waiting.insert_queued(sequence),
            Some(_) => self.waiting.insert_preempted(sequence),
        }
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
    pub(super) fn insert(&mut self, sequence: Sequence) {
        let at = self.running.partition_point(|other| other.rank < sequence.rank);
        self.running.insert(at, sequence);
    }
}
