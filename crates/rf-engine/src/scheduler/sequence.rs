//! Sequences: the choices of requests that are served.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rf_kv::PageCounts;

use crate::generation::StopReason;
use crate::media::PromptMedia;
use crate::sampling::TokenLogprob;
use crate::scheduler::event::Event;
use crate::scheduler::request::{GroupId, RequestId};
use crate::scheduler::submission::{ActiveRequest, Choice, Submission};
use crate::session::Session;
use crate::speculation::Draft;
use crate::timings::{Timings, micros};

/// The order of the sequences of a group, and of those that run: priority, then arrival, then
/// choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) priority: Reverse<i32>,
    pub(super) request: RequestId,
    choice: usize,
}

/// Rows of logits per step of a prompt whose log probabilities are wanted.
const MAX_LOGIT_ROWS: usize = 64;

/// Log probabilities of a prompt's tokens.
pub(super) struct PromptLogprobs {
    /// Most probable tokens per position.
    count: usize,
    /// The element `i` is that of token `i + 1`.
    found: Vec<TokenLogprob>,
}

impl PromptLogprobs {
    fn new(count: usize) -> Self {
        Self { count, found: Vec::new() }
    }

    /// Adds the log probability of the token after `position`, from the logits. A position that was
    /// computed before, because the sequence was preempted, adds nothing.
    pub(super) fn add(&mut self, position: usize, logits: &[f32], next: u32) {
        if position == self.found.len() {
            self.found.push(TokenLogprob::new(logits, next, self.count));
        }
    }

    /// The log probabilities of all tokens but the first one.
    pub(super) fn into_found(self) -> Vec<TokenLogprob> {
        self.found
    }
}

/// A draft that a step computes.
pub(super) struct PlannedDraft {
    pub(super) draft: Draft,
    /// The newest token and the draft.
    pub(super) fed: Vec<u32>,
}

/// A choice with its tokens and its part of the KV cache.
pub(super) struct Sequence {
    pub(super) rank: Rank,
    /// The requests with which it takes turns.
    pub(super) group: GroupId,
    /// The turn of its group when it last waited.
    pub(super) turn: u64,
    /// True until its request starts.
    pub(super) is_queued: bool,
    /// The lowest number that no other running sequence had when it started.
    pub(super) slot: usize,
    pub(super) choice: Choice,
    /// The prompt and the generated tokens. The session has computed the first ones.
    pub(super) tokens: Vec<u32>,
    /// The media of the prompt.
    pub(super) media: Arc<PromptMedia>,
    /// Tokens that a full context has dropped.
    pub(super) dropped_tokens: usize,
    pub(super) session: Session,
    /// Choices that begin when the prompt is computed.
    pub(super) followers: Vec<Choice>,
    /// Tokens to compute in this step.
    pub(super) planned_tokens: usize,
    /// Successive steps without the sequence, because its constraint takes long. 0 if it is in this
    /// one.
    pub(super) steps_sat_out: usize,
    /// A guess of the tokens after the last one, which this step computes, too.
    pub(super) draft: Option<PlannedDraft>,
    /// Tokens that are computed again, because others of their draft were rejected.
    replayed_tokens: usize,
    /// Drafted tokens so far.
    drafted_tokens: usize,
    /// Drafted tokens that were accepted.
    accepted_tokens: usize,
    /// Log probabilities of the prompt, until they are sent.
    pub(super) prompt_logprobs: Option<PromptLogprobs>,
    preemptions: usize,
    /// Why the generation has ended, if it has.
    pub(super) end: Option<StopReason>,
    prompt_end: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Sequence {
    /// A sequence that begins with `tokens`.
    pub(super) fn new(
        rank: Rank,
        group: GroupId,
        choice: Choice,
        tokens: Vec<u32>,
        session: Session,
    ) -> Self {
        Self {
            rank,
            group,
            turn: 0,
            is_queued: true,
            slot: 0,
            choice,
            tokens,
            media: Arc::default(),
            dropped_tokens: 0,
            session,
            followers: Vec::new(),
            planned_tokens: 0,
            steps_sat_out: 0,
            draft: None,
            replayed_tokens: 0,
            drafted_tokens: 0,
            accepted_tokens: 0,
            prompt_logprobs: None,
            preemptions: 0,
            end: None,
            prompt_end: None,
            first_token: None,
            last_token: None,
        }
    }

    /// The first sequence of a request, which has `session`.
    pub(super) fn first(submission: Submission, session: Session) -> Option<(ActiveRequest, Self)> {
        let Submission {
            id,
            request,
            prompt,
            media,
            choices,
            priority,
            group,
            prompt_logprobs,
            ..
        } = submission;
        let mut choices = choices.into_iter();
        let choice = choices.next()?;
        let rank = Rank { priority: Reverse(priority), request: id, choice: choice.index };
        let prompt_logprobs = prompt_logprobs.map(PromptLogprobs::new);
        let first = Self::new(rank, group, choice, prompt, session);
        Some((request, Self { media, followers: choices.collect(), prompt_logprobs, ..first }))
    }

    /// Tokens that are not in the KV cache. While the sequence lives, there is at least one.
    pub(super) fn uncomputed_tokens(&self) -> usize {
        self.tokens.len() - self.session.len()
    }

    /// Pages that computing all tokens and `more_tokens` takes, in steps of at most `step_tokens`.
    pub(super) fn pages_needed(&self, more_tokens: usize, step_tokens: usize) -> PageCounts {
        let step_tokens = step_tokens.min(self.uncomputed_tokens());
        self.session.pages_needed_in_steps(self.tokens.len() + more_tokens, step_tokens)
    }

    /// Pages that this step takes.
    pub(super) fn pages_planned(&self) -> PageCounts {
        self.session.pages_needed(self.session.len() + self.planned_tokens)
    }

    /// Returns true if the sequence is not in this step.
    pub(super) fn waits(&self) -> bool {
        self.session.is_importing() || self.steps_sat_out > 0
    }

    /// Tokens that this step could compute besides those that are planned.
    pub(super) fn plannable_tokens(&self) -> usize {
        if self.waits() {
            return 0;
        }
        // Every token of such a prompt has a row of logits.
        let most = if self.prompt_logprobs.is_some() { MAX_LOGIT_ROWS } else { usize::MAX };
        self.uncomputed_tokens().min(most).saturating_sub(self.planned_tokens)
    }

    /// Tokens that are neither computed nor planned.
    pub(super) fn unplanned_tokens(&self) -> usize {
        self.uncomputed_tokens() - self.planned_tokens
    }

    /// Plans as many further tokens as fit into `budget`, and takes them from it. Rows that see
    /// each other both ways are planned together, even if they exceed the budget.
    pub(super) fn plan(&mut self, budget: &mut usize) {
        let more = self.plannable_tokens().min(*budget);
        if more == 0 {
            return;
        }
        let computed = self.session.len();
        let planned = computed + self.planned_tokens;
        let end = self.media.whole_step(planned, planned + more);
        self.planned_tokens = end - computed;
        *budget = budget.saturating_sub(end - planned);
    }

    /// Gives the pages back, because others need them.
    pub(super) fn preempt(&mut self) {
        self.preemptions += 1;
        self.release();
    }

    /// Gives the pages back. The tokens will be computed again.
    pub(super) fn release(&mut self) {
        self.session.reset();
        self.planned_tokens = 0;
        self.steps_sat_out = 0;
        self.replayed_tokens = 0;
        self.draft = None;
    }

    /// If there are more than `most_tokens` tokens, drops the older half of those before the newest
    /// one, except a leading `bos`. The rest is computed again at its new positions.
    pub(super) fn shift(&mut self, most_tokens: usize, bos: Option<u32>) {
        // Several tokens may have been forced at once.
        while self.choice.shifts && self.tokens.len() > most_tokens {
            let keep = usize::from(self.tokens.first().copied() == bos);
            let dropped = (self.tokens.len() - 1 - keep).div_ceil(2);
            self.tokens.drain(keep..keep + dropped);
            self.dropped_tokens += dropped;
            self.release();
        }
    }

    /// Returns true if the sequence has generated tokens.
    pub(super) fn has_generated(&self) -> bool {
        self.choice.generation.generated_tokens() > 0
    }

    /// Returns true if the sequence has generated tokens and computes the newest one next, perhaps
    /// with some before it that are computed again.
    pub(super) fn decodes(&self) -> bool {
        let waits = self.session.is_importing();
        !waits && self.has_generated() && self.uncomputed_tokens() <= 1 + self.replayed_tokens
    }

    /// Plans a step with the uncomputed tokens and a draft.
    pub(super) fn plan_draft(&mut self, draft: Draft) {
        let newest = self.tokens[self.session.len()..].iter();
        let fed: Vec<u32> = newest.chain(&draft.ids).copied().collect();
        self.planned_tokens = fed.len();
        self.draft = Some(PlannedDraft { draft, fed });
    }

    /// Drops the tokens of a computed draft that were not generated, and returns the number of the
    /// others. The sequence had `len_tokens` tokens before the step.
    pub(super) fn confirm(
        &mut self,
        draft: &Draft,
        len_tokens: usize,
        page_tokens: usize,
    ) -> usize {
        let generated = &self.tokens[len_tokens..];
        let pairs = draft.ids.iter().zip(generated);
        let accepted = pairs.take_while(|(drafted, generated)| drafted == generated).count();
        let drafted = draft.ids.len();
        let _span = tracing::debug_span!("verify", drafted, accepted).entered();
        // While the sequence lives, a token is not computed.
        let computed_tokens = (len_tokens + accepted).min(self.tokens.len() - 1);
        self.session.confirm(computed_tokens, page_tokens);
        self.replayed_tokens = computed_tokens - self.session.len();
        self.drafted_tokens += drafted;
        self.accepted_tokens += accepted;
        accepted
    }

    /// The first token is chosen now, unless it was chosen before.
    pub(super) fn end_prompt(&mut self) {
        self.prompt_end.get_or_insert_with(Instant::now);
    }

    /// A token was generated now.
    pub(super) fn touch(&mut self) {
        let now = Instant::now();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// The followers as sequences that share the computed prompt.
    pub(super) fn fork_followers(&mut self) -> Vec<Self> {
        let followers = std::mem::take(&mut self.followers).into_iter();
        let forks = followers.map(|choice| {
            let rank = Rank { choice: choice.index, ..self.rank };
            let (tokens, session) = (self.tokens.clone(), self.session.fork());
            let fork = Self::new(rank, self.group, choice, tokens, session);
            let media = Arc::clone(&self.media);
            Self { turn: self.turn, is_queued: false, media, ..fork }
        });
        forks.collect()
    }

    /// The last event of the choice.
    pub(super) fn finished(&mut self, reason: StopReason, request: &ActiveRequest) -> Event {
        let has_stopped = reason == StopReason::StopString;
        let text = if has_stopped { String::new() } else { self.choice.generation.finish() };
        let session = request.returns_session.then(|| {
            self.session.set_tentative(false);
            if self.session.is_importing() {
                self.session.reset();
            }
            let (pool, adapters) = (&self.session.pool, self.session.adapters());
            let empty = Session::new(Arc::clone(pool), adapters.clone());
            Box::new(std::mem::replace(&mut self.session, empty))
        });
        let is_room = reason == StopReason::Length && !request.is_limited;
        Event::Finished {
            choice: self.choice.index,
            reason: if is_room { StopReason::ContextFull } else { reason },
            text,
            stop_string: self.choice.generation.stop_string().map(str::to_owned),
            timings: self.timings(request),
            session,
        }
    }

    /// The last events of the choice and its followers.
    pub(super) fn cancelled(&mut self, request: &ActiveRequest) -> Vec<Event> {
        // No text follows a stop string.
        let reason = self.end.filter(|end| *end == StopReason::StopString);
        let mut events = vec![self.finished(reason.unwrap_or(StopReason::Cancelled), request)];
        for follower in std::mem::take(&mut self.followers) {
            self.choice = follower;
            events.push(self.finished(StopReason::Cancelled, request));
        }
        events
    }

    fn timings(&self, request: &ActiveRequest) -> Timings {
        let mut timings = Timings {
            generated_tokens: self.choice.generation.generated_tokens(),
            preemptions: self.preemptions,
            drafted_tokens: self.drafted_tokens,
            accepted_tokens: self.accepted_tokens,
            ..Timings::default()
        };
        let Some(start) = request.start else { return timings };
        timings.prompt_tokens = request.prompt_tokens - start.cached_tokens;
        timings.cached_tokens = start.cached_tokens;
        timings.queue_us = micros(start.time - request.arrival);
        timings.prompt_us = self.prompt_end.map_or(0, |end| micros(end - start.time));
        if let (Some(first), Some(last)) = (self.first_token, self.last_token) {
            timings.ttft_us = micros(first - request.arrival);
            timings.decode_us = micros(last - first);
        }
        timings
    }
}

/// The number of running sequences of each group.
pub(crate) fn by_group(running: &[Sequence]) -> HashMap<GroupId, usize> {
    let mut counts = HashMap::new();
    for sequence in running {
        *counts.entry(sequence.group).or_default() += 1;
    }
    counts
}
