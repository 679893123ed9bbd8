//! The thread of the engine: which sequences are in the next step, and what becomes of them.

mod admission;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use rf_kv::{OutOfPages, PageCounts, PageGroup};

use crate::engine::Engine;
use crate::error::Error;
use crate::scheduler::drafter::Drafter;
use crate::scheduler::event::Event;
use crate::scheduler::handle::{Message, Shared};
use crate::scheduler::options::SchedulerOptions;
use crate::scheduler::request::RequestId;
use crate::scheduler::sequence::{ActiveRequest, End, Sequence, Submission};
use crate::scheduler::stats::SchedulerStats;
use crate::scheduler::step::{self, Chooser, Computed};
use crate::scheduler::waiting::Waiting;
use crate::speculation::Speculation;

/// The state of the thread.
pub(super) struct Worker {
    engine: Engine,
    options: SchedulerOptions,
    shared: Arc<Shared>,
    requests: HashMap<RequestId, ActiveRequest>,
    waiting: Waiting,
    /// Ascending by rank.
    running: Vec<Sequence>,
    /// The first waiting sequence does not fit until a sequence gives pages back.
    is_blocked: bool,
    drafter: Option<Drafter>,
    stats: SchedulerStats,
    /// Requests that end before their choices do.
    ended: Vec<RequestId>,
    /// Last events of choices and requests. They are sent after the statistics count them.
    last_events: Vec<(RequestId, Event)>,
    /// Logits of a step; kept, because a new buffer would cost more than sampling.
    logits: Vec<f32>,
    /// Logits of one row under a constraint.
    masked: Vec<f32>,
}

impl Worker {
    pub(super) fn new(
        engine: Engine,
        speculation: Option<Speculation>,
        options: SchedulerOptions,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            engine,
            options,
            shared,
            requests: HashMap::new(),
            waiting: Waiting::default(),
            running: Vec::new(),
            is_blocked: false,
            drafter: speculation.map(Drafter::new),
            stats: SchedulerStats::default(),
            ended: Vec::new(),
            last_events: Vec::new(),
            logits: Vec::new(),
            masked: Vec::new(),
        }
    }

    /// Serves requests until the shutdown.
    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        while self.receive(inbox) {
            self.settle();
            self.plan();
            self.settle();
            self.step();
            self.settle();
        }
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in all {
            self.end(id, End::Cancelled);
        }
        self.settle();
    }

    /// Takes all messages, and sleeps until there is one if there is nothing to compute. Returns
    /// false at the shutdown.
    fn receive(&mut self, inbox: &Receiver<Message>) -> bool {
        if self.requests.is_empty() && !inbox.recv().is_ok_and(|message| self.take(message)) {
            return false;
        }
        while let Ok(message) = inbox.try_recv() {
            if !self.take(message) {
                return false;
            }
        }
        true
    }

    /// Takes a message. Returns false at the shutdown.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Submit(submission) => self.enqueue(submission),
            Message::Cancel(id) => self.end(id, End::Cancelled),
            Message::Shutdown => return false,
        }
        true
    }

    fn enqueue(&mut self, submission: Submission) {
        let id = submission.id;
        let (request, first) = Sequence::from_submission(submission, self.engine.session());
        self.requests.insert(id, request);
        if let Some(first) = first {
            self.waiting.insert_queued(first);
        }
        // It may come before the sequence that does not fit.
        self.is_blocked = false;
    }

    /// Ends a request before its choices do.
    fn end(&mut self, id: RequestId, end: End) {
        if let Some(request) = self.requests.get_mut(&id)
            && request.end.is_none()
        {
            request.end = Some(end);
            self.ended.push(id);
        }
    }

    /// Frees the pages of ended requests, publishes the statistics and then sends last events.
    fn settle(&mut self) {
        let mut gone = Vec::new();
        loop {
            for id in std::mem::take(&mut self.ended) {
                gone.push(id);
                self.clear(id);
            }
            let pool = self.engine.kv_stats();
            let states = self.engine.kv_stats_of(PageGroup::State);
            self.shared.publish(&SchedulerStats {
                running: self.running.len(),
                waiting: self.waiting.num_preempted(),
                kv_pages_total: pool.total_pages,
                kv_pages_used: pool.used_pages,
                host_states: states.stored,
                host_state_loads: states.loads,
                ..self.stats
            });
            for (id, event) in std::mem::take(&mut self.last_events) {
                gone.push(id);
                let Some(request) = self.requests.get_mut(&id) else { continue };
                if request.end.is_none() && request.send(event).is_break() {
                    self.end(id, End::SinkBroken);
                }
            }
            if self.ended.is_empty() {
                break;
            }
        }
        for id in gone {
            if self.requests.get(&id).is_some_and(|request| request.unfinished_choices == 0) {
                self.requests.remove(&id);
            }
        }
    }

    /// Plans the tokens of the next step: one for each sequence that decodes, then prompts.
    fn plan(&mut self) {
        let mut budget = self.plan_running();
        let mut has_preempted = false;
        while !self.pages_planned().fits_in(self.engine.available_pages()) {
            has_preempted = true;
            match self.running.as_slice() {
                // Alone it would fit, if sessions outside of the scheduler held no pages.
                [last] => return self.fail_for_pages(last.rank.request, last.pages_planned()),
                _ => self.preempt_last(),
            }
            budget = self.plan_running();
        }
        if !has_preempted {
            self.admit(budget);
        }
        debug_assert!(
            self.pages_planned().fits_in(self.engine.available_pages()),
            "the pages of all planned tokens are available"
        );
        self.plan_draft();
    }

    /// Adds a draft to the plan if one sequence runs alone. Several are a large batch without one.
    fn plan_draft(&mut self) {
        let (Some(drafter), [sequence]) = (&mut self.drafter, self.running.as_mut_slice()) else {
            return;
        };
        let max_tokens = self.options.max_batched_tokens;
        if let Err(error) = drafter.plan(&mut self.engine, sequence, max_tokens) {
            tracing::warn!(%error, "no more drafts");
            self.drafter = None;
        }
    }

    /// Pages that the planned tokens take.
    fn pages_planned(&self) -> PageCounts {
        self.running.iter().map(Sequence::pages_planned).sum()
    }

    /// Plans the tokens of running sequences and returns the rest of the budget.
    fn plan_running(&mut self) -> usize {
        let mut budget = self.options.max_batched_tokens;
        for sequence in &mut self.running {
            sequence.draft = None;
            sequence.planned_tokens = usize::from(sequence.uncomputed_tokens() == 1);
            budget -= sequence.planned_tokens;
        }
        for sequence in &mut self.running {
            if sequence.planned_tokens == 0 {
                budget -= sequence.plan(budget);
            }
        }
        budget
    }

    fn preempt_last(&mut self) {
        let Some(mut sequence) = self.running.pop() else { return };
        tracing::debug!(request = %sequence.rank.request, "preempted");
        sequence.preempt();
        self.waiting.insert_preempted(sequence);
        self.stats.preemptions += 1;
        self.is_blocked = false;
    }

    fn fail_for_pages(&mut self, id: RequestId, needed: PageCounts) {
        if let Err(error) = OutOfPages::check(needed, self.engine.available_pages()) {
            self.end(id, End::Failed(Error::from(error).into()));
        }
    }

    /// Computes the planned tokens and chooses the next ones.
    fn step(&mut self) {
        let tokens: usize = self.running.iter().map(|sequence| sequence.planned_tokens).sum();
        if tokens == 0 {
            return;
        }
        let span = tracing::debug_span!("step", tokens, sequences = self.running.len()).entered();
        let start = Instant::now();
        let computed = step::compute(&mut self.engine, &mut self.running, &mut self.logits);
        drop(span);
        if let (Some(drafter), [sequence]) = (&mut self.drafter, self.running.as_slice()) {
            drafter.note_step(sequence, start.elapsed());
        }
        match computed {
            Ok(computed) => {
                self.stats.count_step(tokens);
                computed.note_prompts(&mut self.running, &self.logits);
                // A window of a prompt has given back the pages that it has passed.
                self.is_blocked &= !(self.engine.has_window_pages() && self.computes_prompts());
                self.choose(computed);
                self.finish();
            }
            Err(error) => {
                let planned = self.running.iter().filter(|sequence| sequence.planned_tokens > 0);
                let failed: Vec<RequestId> = planned.map(|s| s.rank.request).collect();
                for id in failed {
                    self.end(id, End::Failed(error.clone()));
                }
            }
        }
    }

    /// Returns true if the step has computed more than one token of a sequence.
    fn computes_prompts(&self) -> bool {
        self.running.iter().any(|sequence| sequence.planned_tokens > 1)
    }

    /// Chooses the next tokens. Followers of a sequence begin with its prompt.
    fn choose(&mut self, mut computed: Computed) {
        let model = Arc::clone(self.engine.model());
        let mut chooser = Chooser::new(model.tokenizer(), &mut self.masked);
        let mut forks = Vec::new();
        for mut row in std::mem::take(&mut computed.rows) {
            let sequence = &mut self.running[row.sequence];
            let id = sequence.rank.request;
            let Some(request) = self.requests.get_mut(&id) else { continue };
            if request.end.is_some() {
                continue;
            }
            let draft = sequence.draft.take().map(|planned| planned.draft).unwrap_or_default();
            let len_tokens = sequence.tokens.len();
            let followers = sequence.fork_followers();
            let output = (&mut row, &computed, &self.logits[..]);
            let mut result = chooser.advance_drafted(sequence, request, output, &draft);
            if !draft.ids.is_empty() {
                let accepted = sequence.confirm(&draft, len_tokens, self.engine.page_tokens());
                if let Some(drafter) = &mut self.drafter {
                    drafter.note_result(&draft, accepted);
                }
            }
            for mut fork in followers {
                let has_room = self.running.len() + forks.len() < self.options.max_num_seqs;
                if has_room && matches!(result, Ok(ControlFlow::Continue(()))) {
                    let output = (&row, &computed, &self.logits[..]);
                    result = chooser.advance_fork(&mut fork, request, output);
                    forks.push(fork);
                } else {
                    fork.release();
                    self.waiting.insert_preempted(fork);
                }
            }
            request.end = match result {
                Ok(ControlFlow::Continue(())) => continue,
                Ok(ControlFlow::Break(())) => Some(End::SinkBroken),
                Err(error) => Some(End::Failed(error)),
            };
            self.ended.push(id);
        }
        self.stats.generation_tokens += chooser.generated_tokens();
        for fork in forks {
            self.insert(fork);
        }
    }

    /// Removes the sequences that have ended.
    fn finish(&mut self) {
        let requests = &self.requests;
        let is_active = |id| requests.get(&id).is_some_and(|request| request.end.is_none());
        let has_ended =
            |sequence: &mut Sequence| sequence.end.is_some() && is_active(sequence.rank.request);
        let ended: Vec<Sequence> = self.running.extract_if(.., has_ended).collect();
        for mut sequence in ended {
            let id = sequence.rank.request;
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let Some(reason) = sequence.end else { continue };
            let event = sequence.finished(reason, request);
            request.unfinished_choices -= 1;
            if let Event::Finished { reason, .. } = &event {
                self.stats.finished.count(*reason);
            }
            self.last_events.push((id, event));
            self.is_blocked = false;
        }
    }

    /// Removes all sequences of an ended request.
    fn clear(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if request.unfinished_choices == 0 {
            return;
        }
        let mut sequences: Vec<Sequence> =
            self.running.extract_if(.., |sequence| sequence.rank.request == id).collect();
        sequences.extend(self.waiting.remove(id));
        self.is_blocked = false;
        if request.start.is_none() {
            self.shared.end_queued();
        }
        let choices = std::mem::take(&mut request.unfinished_choices) as u64;
        match request.end.take() {
            Some(End::Failed(error)) => {
                tracing::warn!(request = %id, %error, "request failed");
                self.stats.finished.failed += choices;
                self.last_events.push((id, Event::Failed(error)));
            }
            Some(End::Cancelled) => {
                self.stats.finished.cancelled += choices;
                for mut sequence in sequences {
                    let events = sequence.cancelled(request);
                    self.last_events.extend(events.into_iter().map(|event| (id, event)));
                }
            }
            Some(End::SinkBroken) | None => self.stats.finished.cancelled += choices,
        }
    }
}
