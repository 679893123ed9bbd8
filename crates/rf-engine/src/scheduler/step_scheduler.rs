//! Steps: which sequences are in the next one, and what becomes of them.

mod admission;
mod plan;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::scheduler::drafter::Drafter;
use crate::scheduler::event::{Event, Observer};
use crate::scheduler::options::SchedulerOptions;
use crate::scheduler::request::{Request, RequestId};
use crate::scheduler::sequence::{Sequence, by_group};
use crate::scheduler::stats::SchedulerStats;
use crate::scheduler::step::{self, Chooser, Computed};
use crate::scheduler::submission::{ActiveRequest, RequestEnd, RequestLimits, Submission};
use crate::scheduler::submit_error::SubmitError;
use crate::scheduler::waiting::Waiting;
use crate::session::Session;
use crate::speculation::Speculation;

/// Serves requests step by step on an engine of the caller, which all calls must share.
///
/// A [`Scheduler`](super::Scheduler) is this on a separate thread, with a queue, and
/// [`Engine::generate`] is this with one request.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use rf_engine::scheduler::{Event, Request, SchedulerOptions, StepScheduler};
/// use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
/// use rf_oracle::ReferenceBackend;
///
/// let model = Model::open("../../golden/arch/smollm3.gguf")?;
/// let options = EngineOptions::default().with_context_tokens(Some(64));
/// let mut engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ())?;
///
/// // Three answers to one prompt.
/// let mut steps = StepScheduler::new(&engine, SchedulerOptions::default())?;
/// let options = GenerateOptions::default().with_max_tokens(4);
/// let request = Request::new(vec![1, 2, 3], options).with_num_choices(3);
/// steps.submit(&mut engine, request)?;
/// let mut texts = vec![String::new(); 3];
/// while !steps.is_idle() {
///     steps.step(&mut engine, None, &mut |_, event| {
///         match event {
///             Event::Token { choice, text, .. } | Event::Finished { choice, text, .. } => {
///                 texts[choice] += &text;
///             }
///             _ => {}
///         }
///         ControlFlow::Continue(())
///     });
/// }
/// # assert_eq!(steps.stats(&engine).prompt_tokens, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StepScheduler {
    options: SchedulerOptions,
    limits: RequestLimits,
    /// Requests that were submitted here.
    num_requests: u64,
    requests: HashMap<RequestId, ActiveRequest>,
    waiting: Waiting,
    /// Ascending by rank.
    running: Vec<Sequence>,
    /// The first waiting sequence does not fit until a sequence releases pages.
    is_blocked: bool,
    drafter: Drafter,
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

impl StepScheduler {
    /// A scheduler without requests.
    ///
    /// # Errors
    ///
    /// If an option is 0, or the engine was loaded to embed.
    pub fn new(engine: &Engine, options: SchedulerOptions) -> Result<Self, Error> {
        let options = options.for_engine(engine)?;
        Ok(Self {
            limits: RequestLimits::new(engine, &options),
            options,
            num_requests: 0,
            requests: HashMap::new(),
            waiting: Waiting::default(),
            running: Vec::new(),
            is_blocked: false,
            drafter: Drafter::default(),
            stats: SchedulerStats::default(),
            ended: Vec::new(),
            last_events: Vec::new(),
            logits: Vec::new(),
            masked: Vec::new(),
        })
    }

    /// Adds a request. The length of the queue is not limited here.
    ///
    /// # Errors
    ///
    /// If the request is invalid or can never fit.
    pub fn submit(
        &mut self,
        engine: &mut Engine,
        request: Request,
    ) -> Result<RequestId, SubmitError> {
        let submission = self.limits.check(request)?;
        Ok(self.add(engine, submission))
    }

    /// [`submit`](Self::submit) with a session, which stays as it is if the request is refused.
    pub(crate) fn submit_with(
        &mut self,
        engine: &mut Engine,
        request: Request,
        session: &mut Session,
    ) -> Result<RequestId, SubmitError> {
        let default = session.adapters().clone();
        let request = Request { adapters: request.adapters.or(Some(default)), ..request };
        let mut submission = self.limits.check(request)?;
        submission.session = Some(std::mem::replace(session, engine.session()));
        submission.request.returns_session = true;
        Ok(self.add(engine, submission))
    }

    fn add(&mut self, engine: &mut Engine, mut submission: Submission) -> RequestId {
        self.num_requests += 1;
        let id = RequestId(self.num_requests);
        submission.id = id;
        self.enqueue(engine, submission);
        id
    }

    /// Ends a request with [`StopReason::Cancelled`](crate::StopReason::Cancelled). The next step
    /// sends its last events. Does nothing if it has ended already.
    pub fn cancel(&mut self, id: RequestId) {
        self.end(id, RequestEnd::Cancelled);
    }

    /// Returns true if all requests have ended.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Computes one batch and passes the events of its requests to `emit`, whose `Break` cancels a
    /// request. While a sequence runs alone, `speculation` drafts for it. Does nothing without
    /// requests.
    pub fn step(
        &mut self,
        engine: &mut Engine,
        speculation: Option<&mut Speculation>,
        mut emit: &mut dyn FnMut(RequestId, Event) -> ControlFlow<()>,
    ) {
        self.step_observed(engine, speculation, &mut emit);
    }

    /// The state after the last step.
    pub fn stats(&self, engine: &Engine) -> SchedulerStats {
        SchedulerStats { waiting: self.waiting.len(), ..self.stats_of_started(engine) }
    }

    /// The state of [`stats`](Self::stats) without the requests that have not started.
    fn stats_of_started(&self, engine: &Engine) -> SchedulerStats {
        let pool = engine.kv_stats();
        let (host, disk) = engine.tier_stats();
        SchedulerStats {
            running: self.running.len(),
            waiting: self.waiting.num_preempted(),
            kv_pages_total: pool.total_pages,
            kv_pages_used: pool.used_pages,
            host,
            disk,
            ..self.stats
        }
    }

    /// Computes one [`step`](Self::step) and reports to an observer.
    pub(super) fn step_observed(
        &mut self,
        engine: &mut Engine,
        mut speculation: Option<&mut Speculation>,
        observer: &mut dyn Observer,
    ) {
        self.settle(engine, observer);
        self.plan(engine, speculation.as_deref_mut(), observer);
        self.settle(engine, observer);
        observer.note_stats(&|| self.stats_of_started(engine));
        self.compute(engine, speculation, observer);
        self.settle(engine, observer);
        observer.note_stats(&|| self.stats_of_started(engine));
        // The states of sequences that have ended.
        engine.export_pages();
    }

    /// Tokens in the cache of the first running sequence of a request.
    pub(crate) fn computed_tokens(&self, id: RequestId) -> usize {
        let sequence = self.running.iter().find(|sequence| sequence.rank.request == id);
        sequence.map_or(0, |sequence| sequence.session.len())
    }

    /// The options, as far as the engine can use them.
    pub(super) fn options(&self) -> &SchedulerOptions {
        &self.options
    }

    /// Adds a request that was checked.
    pub(super) fn enqueue(&mut self, engine: &mut Engine, mut submission: Submission) {
        let session = match submission.session.take() {
            Some(session) => continued(engine, session, &submission),
            None => engine.session_with(submission.adapters.clone()),
        };
        let Some((request, first)) = Sequence::first(submission, session) else { return };
        self.requests.insert(first.rank.request, request);
        self.waiting.insert(first);
        // It may come before the sequence that does not fit.
        self.is_blocked = false;
    }

    /// Cancels all requests.
    pub(super) fn cancel_all(&mut self) {
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in all {
            self.cancel(id);
        }
    }

    /// Ends a request before its choices do.
    fn end(&mut self, id: RequestId, end: RequestEnd) {
        if let Some(request) = self.requests.get_mut(&id)
            && request.end.is_none()
        {
            request.end = Some(end);
            self.ended.push(id);
        }
    }

    /// Frees the pages of ended requests, and then sends last events.
    fn settle(&mut self, engine: &Engine, observer: &mut dyn Observer) {
        let mut gone = Vec::new();
        loop {
            for id in std::mem::take(&mut self.ended) {
                gone.push(id);
                self.clear(id);
            }
            let last_events = std::mem::take(&mut self.last_events);
            if !last_events.is_empty() {
                observer.note_stats(&|| self.stats_of_started(engine));
            }
            for (id, event) in last_events {
                gone.push(id);
                let is_active = self.requests.get(&id).is_some_and(|request| request.end.is_none());
                if is_active && observer.event(id, event).is_break() {
                    self.cancel(id);
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

    /// Computes the planned tokens and chooses the next ones.
    fn compute(
        &mut self,
        engine: &mut Engine,
        mut speculation: Option<&mut Speculation>,
        observer: &mut dyn Observer,
    ) {
        let tokens: usize = self.running.iter().map(|sequence| sequence.planned_tokens).sum();
        if tokens == 0 {
            return;
        }
        let decodes_alone = matches!(self.running.as_slice(), [sequence] if sequence.decodes());
        let start = Instant::now();
        let computed = phase(&self.running, tokens)
            .in_scope(|| step::compute(engine, &mut self.running, &mut self.logits));
        if decodes_alone && let Some(speculation) = &mut speculation {
            speculation.note_batch(tokens, start.elapsed());
        }
        match computed {
            Ok(computed) => {
                self.stats.count_step(tokens);
                computed.note_prompts(&mut self.running, &self.logits);
                // A window of a prompt has given back the pages that it has passed.
                self.is_blocked &= !(engine.has_window_pages() && self.computes_prompts());
                self.choose(computed, engine.page_tokens(), speculation, observer);
                self.finish(engine);
            }
            Err(error) => {
                let planned = self.running.iter().filter(|sequence| sequence.planned_tokens > 0);
                let failed: Vec<RequestId> = planned.map(|s| s.rank.request).collect();
                for id in failed {
                    self.end(id, RequestEnd::Failed(error.clone()));
                }
            }
        }
    }

    /// Returns true if the step has computed more than one token of a sequence.
    fn computes_prompts(&self) -> bool {
        self.running.iter().any(|sequence| sequence.planned_tokens > 1)
    }

    /// Chooses the next tokens. Followers of a sequence begin with its prompt.
    fn choose(
        &mut self,
        mut computed: Computed,
        page_tokens: usize,
        mut speculation: Option<&mut Speculation>,
        observer: &mut dyn Observer,
    ) {
        let tokenizer = self.limits.model.tokenizer();
        let mut chooser = Chooser::new(tokenizer, &mut self.masked, observer);
        let has_followers = self.running.iter().any(|sequence| !sequence.followers.is_empty());
        let mut counts = if has_followers { by_group(&self.running) } else { HashMap::new() };
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
            let mask = row.mask.take();
            let mask_of_forks = if followers.is_empty() { None } else { mask.clone() };
            let output = &mut computed.output(&row, &mut self.logits, !followers.is_empty());
            let mut result = chooser.advance_drafted(sequence, request, output, mask, &draft);
            if !draft.ids.is_empty() {
                let accepted = sequence.confirm(&draft, len_tokens, page_tokens);
                if let Some(speculation) = &mut speculation {
                    speculation.note_result(&draft, accepted);
                }
            }
            for mut fork in followers {
                let of_group = counts.entry(fork.group).or_default();
                let has_room = self.running.len() + forks.len() < self.options.max_num_seqs
                    && *of_group < self.options.max_seqs_per_request;
                if has_room && matches!(result, Ok(ControlFlow::Continue(()))) {
                    let mask = mask_of_forks.clone();
                    result = chooser.advance_fork(&mut fork, request, output, mask);
                    *of_group += 1;
                    forks.push(fork);
                } else {
                    fork.release();
                    self.waiting.insert(fork);
                }
            }
            request.end = match result {
                Ok(ControlFlow::Continue(())) => continue,
                Ok(ControlFlow::Break(())) => Some(RequestEnd::Cancelled),
                Err(error) => Some(RequestEnd::Failed(error)),
            };
            self.ended.push(id);
        }
        self.stats.generation_tokens += chooser.generated_tokens();
        for fork in forks {
            self.insert(fork);
        }
    }

    /// Removes the sequences that have ended.
    fn finish(&mut self, engine: &mut Engine) {
        let requests = &self.requests;
        let is_active = |id| requests.get(&id).is_some_and(|request| request.end.is_none());
        let has_ended =
            |sequence: &mut Sequence| sequence.end.is_some() && is_active(sequence.rank.request);
        let ended: Vec<Sequence> = self.running.extract_if(.., has_ended).collect();
        for mut sequence in ended {
            let id = sequence.rank.request;
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let Some(reason) = sequence.end else { continue };
            if self.options.prefix_cache {
                engine.set_slot(sequence.slot, sequence.session.adapters(), &sequence.tokens);
            }
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
        let choices = std::mem::take(&mut request.unfinished_choices) as u64;
        match request.end.take() {
            Some(RequestEnd::Failed(error)) => {
                self.stats.finished.failed += choices;
                self.last_events.push((id, Event::Failed(error)));
            }
            Some(RequestEnd::Cancelled) | None => {
                self.stats.finished.cancelled += choices;
                for mut sequence in sequences {
                    let events = sequence.cancelled(request);
                    self.last_events.extend(events.into_iter().map(|event| (id, event)));
                }
            }
        }
    }
}

/// The part of a session that a prompt continues.
fn continued(engine: &mut Engine, mut session: Session, submission: &Submission) -> Session {
    let prompt = &submission.prompt;
    session.set_adapters(submission.adapters.clone());
    if submission.prompt_logprobs.is_some() {
        // Logits of cached tokens are not there.
        session.reset();
        return session;
    }
    let common = session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
    // The last token is always computed: its logits are not in the cache.
    session.truncate_or_reset(common.min(prompt.len() - 1));
    engine.keep_states(&mut session, prompt);
    session
}

/// The span of a step. Those of a sequence alone are the phases of rf-profile.
fn phase(running: &[Sequence], tokens: usize) -> tracing::Span {
    match running {
        [sequence] if sequence.has_generated() => {
            let position = sequence.tokens.len() - 1;
            let drafted = sequence.draft.as_ref().map_or(0, |planned| planned.draft.ids.len());
            tracing::debug_span!("decode", position, drafted)
        }
        [_] => tracing::info_span!("prefill", tokens),
        _ => tracing::debug_span!("step", tokens, sequences = running.len()),
    }
}
