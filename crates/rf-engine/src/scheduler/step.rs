//! One step: computes a batch and chooses the next tokens.

use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use rf_graph::Candidate;
use rf_tokenizer::Tokenizer;

use crate::engine::{Engine, Outputs, SequenceInput};
use crate::generation::{NextToken, StopReason, TokenPiece};
use crate::sampling::TokenLogprob;
use crate::scheduler::constraint::{ConstraintError, TimedConstraint, TokenMask};
use crate::scheduler::event::{Event, Observer, RequestError};
use crate::scheduler::sequence::Sequence;
use crate::scheduler::submission::{ActiveRequest, Choice};
use crate::speculation::Draft;

/// The result of a batch: one row per sequence that takes a token now.
pub(super) struct Computed {
    pub(super) rows: Vec<SampledSequence>,
    /// Tokens of prompts whose log probabilities are wanted.
    prompts: Vec<PromptRows>,
    vocab_size: usize,
    best: Option<(usize, Vec<Candidate>)>,
}

/// A sequence whose next token is chosen in this step.
pub(super) struct SampledSequence {
    /// Index of the sequence.
    pub(super) sequence: usize,
    /// Index of its output in the batch. Those of its draft follow.
    output: usize,
    /// The tokens that its constraint allows.
    pub(super) mask: Option<Mask>,
}

/// Logits of successive tokens of a prompt.
struct PromptRows {
    /// Index of the sequence.
    sequence: usize,
    /// Index of the first output in the batch.
    output: usize,
    /// Positions of the tokens.
    positions: Range<usize>,
}

/// The tokens that a constraint allows, or its failure.
pub(super) type Mask = Result<TokenMask, RequestError>;

impl Computed {
    /// The output of a row, from the logits of the batch. `is_shared` states whether several
    /// choices begin with it.
    pub(super) fn output<'a>(
        &'a self,
        row: &SampledSequence,
        logits: &'a mut [f32],
        is_shared: bool,
    ) -> SequenceOutput<'a> {
        SequenceOutput { computed: self, logits, first: row.output, is_shared }
    }

    /// Adds the log probabilities of prompts to their sequences.
    pub(super) fn note_prompts(&self, sequences: &mut [Sequence], logits: &[f32]) {
        for PromptRows { sequence, output, positions } in &self.prompts {
            let Sequence { tokens, prompt_logprobs: Some(logprobs), .. } =
                &mut sequences[*sequence]
            else {
                continue;
            };
            let rows = logits[output * self.vocab_size..].chunks_exact(self.vocab_size);
            for (position, logits) in positions.clone().zip(rows) {
                if let Some(next) = tokens.get(position + 1) {
                    logprobs.add(position, logits, *next);
                }
            }
        }
    }
}

/// The candidates for the next token of a sequence, and for those after it while they are the
/// drafted ones.
pub(super) struct SequenceOutput<'a> {
    computed: &'a Computed,
    /// Logits of the whole batch.
    logits: &'a mut [f32],
    /// Index of the first row.
    first: usize,
    is_shared: bool,
}

impl SequenceOutput<'_> {
    /// The candidates after `drafted` tokens of the draft.
    fn next(&self, drafted: usize) -> NextToken<'_> {
        let at = self.first + drafted;
        if let Some((k, best)) = &self.computed.best {
            return NextToken::Best(&best[at * k..(at + 1) * k]);
        }
        NextToken::Logits(&self.logits[self.range(drafted)])
    }

    fn range(&self, drafted: usize) -> Range<usize> {
        let (at, width) = (self.first + drafted, self.computed.vocab_size);
        at * width..(at + 1) * width
    }
}

/// A mask that is computed while the backend computes the batch.
struct MaskJob<'a> {
    row: usize,
    constraint: &'a mut TimedConstraint,
    mask: Option<Mask>,
}

/// Computes the planned tokens of all sequences in one batch. Unless the backend selects the best
/// tokens, `logits` begin with those of all rows.
///
/// # Errors
///
/// If the backend fails. All sequences with planned tokens are part of the failure.
pub(super) fn compute(
    engine: &mut Engine,
    sequences: &mut [Sequence],
    logits: &mut Vec<f32>,
) -> Result<Computed, RequestError> {
    let (mut feeds, mut rows, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut prompts, mut num_outputs) = (Vec::new(), 0);
    // As many of the best tokens as every sequence is content with.
    let mut best = Some(0);
    for (index, sequence) in sequences.iter_mut().enumerate() {
        let Sequence {
            session, tokens, media, choice, planned_tokens, prompt_logprobs, draft, ..
        } = sequence;
        if *planned_tokens == 0 {
            continue;
        }
        session.set_media(media);
        session.set_tentative(draft.is_some());
        let end = session.len() + *planned_tokens;
        let takes_token = draft.is_some() || end == tokens.len();
        let first_output = num_outputs;
        let ids = match &*draft {
            Some(draft) => &draft.fed[..],
            None => &tokens[session.len()..end],
        };
        let outputs = if prompt_logprobs.is_some() {
            let positions = session.len()..end;
            prompts.push(PromptRows { sequence: index, output: num_outputs, positions });
            num_outputs += *planned_tokens;
            best = None;
            Outputs::All
        } else if draft.is_some() {
            let outputs = 1 + draft.as_ref().map_or(0, |planned| planned.draft.ids.len());
            num_outputs += outputs;
            Outputs::Tail(outputs)
        } else if takes_token {
            num_outputs += 1;
            Outputs::Last
        } else {
            Outputs::None
        };
        feeds.push(SequenceInput { session, ids, outputs });
        if takes_token {
            if let Some(constraint) = &mut choice.constraint {
                jobs.push(MaskJob { row: rows.len(), constraint, mask: None });
            }
            best = best.zip(choice.best_needed).map(|(a, b)| a.max(b));
            let output = if draft.is_some() { first_output } else { num_outputs - 1 };
            rows.push(SampledSequence { sequence: index, output, mask: None });
        }
    }
    let vocab_size = engine.model().config().vocab_size;
    let max_top_k = engine.max_top_k();
    let best = best.filter(|k| (1..=max_top_k).contains(k));
    let batch = || match best {
        Some(k) => Ok(Some((k, engine.forward_top_k(&mut feeds, k)?))),
        None => engine.forward_into(&mut feeds, logits).map(|()| None),
    };
    let batch = || catch_unwind(AssertUnwindSafe(batch));
    let best = if jobs.is_empty() {
        batch()
    } else {
        thread::scope(|scope| {
            let jobs = &mut jobs;
            let work = move || jobs.iter_mut().for_each(MaskJob::run);
            // Without a thread the masks are computed afterwards.
            drop(thread::Builder::new().name("rf-masks".into()).spawn_scoped(scope, work));
            batch()
        })
    };
    let best = best.map_err(|payload| RequestError::from_panic(&*payload))??;
    for mut job in jobs {
        job.run();
        rows[job.row].mask = job.mask;
    }
    Ok(Computed { rows, prompts, vocab_size, best })
}

impl MaskJob<'_> {
    fn run(&mut self) {
        self.mask.get_or_insert_with(|| allowed(self.constraint));
    }
}

/// The tokens that a constraint allows.
fn allowed(constraint: &mut TimedConstraint) -> Mask {
    let mask = catch_unwind(AssertUnwindSafe(|| constraint.allowed()));
    Ok(mask.map_err(|payload| RequestError::from_panic(&*payload))??)
}

/// The mask of a choice for a token that was not the first of the batch.
fn mask_of(choice: &mut Choice) -> Option<Mask> {
    choice.constraint.as_mut().map(allowed)
}

/// Chooses tokens and sends them.
pub(super) struct Chooser<'a> {
    tokenizer: &'a Tokenizer,
    masked: &'a mut Vec<f32>,
    observer: &'a mut dyn Observer,
    generated_tokens: u64,
}

/// `Break` if the receiver takes no more events, and an error if the request fails.
type Sent = Result<ControlFlow<()>, RequestError>;

impl<'a> Chooser<'a> {
    /// `masked` is a buffer for logits.
    pub(super) fn new(
        tokenizer: &'a Tokenizer,
        masked: &'a mut Vec<f32>,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self { tokenizer, masked, observer, generated_tokens: 0 }
    }

    /// Tokens chosen so far.
    pub(super) fn generated_tokens(&self) -> u64 {
        self.generated_tokens
    }

    /// Chooses the next token of a sequence, and those after it while they are the drafted ones.
    /// `mask` is that of the first one.
    pub(super) fn advance_drafted(
        &mut self,
        sequence: &mut Sequence,
        request: &ActiveRequest,
        output: &mut SequenceOutput<'_>,
        mut mask: Option<Mask>,
        draft: &Draft,
    ) -> Sent {
        let len_tokens = sequence.tokens.len();
        loop {
            let drafted = sequence.tokens.len() - len_tokens;
            let sent = self.advance(sequence, request, (output, drafted), mask);
            let generated = &sequence.tokens[len_tokens..];
            let goes_on = matches!(sent, Ok(ControlFlow::Continue(()))) && sequence.end.is_none();
            if !goes_on || generated.is_empty() || !draft.ids.starts_with(generated) {
                return sent;
            }
            mask = mask_of(&mut sequence.choice);
        }
    }

    /// Chooses the first token of a sequence that shares its row with another one, and so `mask`:
    /// their constraints are in the same state.
    pub(super) fn advance_fork(
        &mut self,
        fork: &mut Sequence,
        request: &ActiveRequest,
        output: &mut SequenceOutput<'_>,
        mask: Option<Mask>,
    ) -> Sent {
        self.advance(fork, request, (output, 0), mask)
    }

    /// Chooses the next token of a sequence, after some tokens of its draft, and sends it and the
    /// tokens that its constraint forces after it. Panics become errors.
    fn advance(
        &mut self,
        sequence: &mut Sequence,
        request: &ActiveRequest,
        output: (&mut SequenceOutput<'_>, usize),
        mask: Option<Mask>,
    ) -> Sent {
        let advance = || {
            sequence.end_prompt();
            if let Some(prompt) = sequence.prompt_logprobs.take() {
                let logprobs = prompt.into_found();
                if self.send(sequence, Event::Prompt { logprobs }).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if sequence.choice.generation.is_at_limit() {
                // No tokens were requested, only the prompt.
                sequence.end = Some(StopReason::Length);
                return Ok(ControlFlow::Continue(()));
            }
            let mask = match mask {
                Some(Err(RequestError::Constraint(_))) if sequence.choice.gave_up() => {
                    sequence.end = Some(StopReason::ConstraintLimit);
                    return Ok(ControlFlow::Continue(()));
                }
                mask => mask.transpose()?,
            };
            let (id, logprob) = self.sample(sequence, request, output, mask)?;
            if self.push(sequence, id, logprob)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.push_forced(sequence, request)
        };
        catch_unwind(AssertUnwindSafe(advance))
            .unwrap_or_else(|payload| Err(RequestError::from_panic(&*payload)))
    }

    fn sample(
        &mut self,
        sequence: &mut Sequence,
        request: &ActiveRequest,
        (output, drafted): (&mut SequenceOutput<'_>, usize),
        mask: Option<TokenMask>,
    ) -> Result<(u32, Option<TokenLogprob>), RequestError> {
        let _span = tracing::debug_span!("sample").entered();
        let generation = &mut sequence.choice.generation;
        let next = output.next(drafted);
        let NextToken::Logits(logits) = next else { return Ok((generation.sample(next)?, None)) };
        let id = match mask {
            None => generation.sample(next)?,
            // The logits before the mask are needed again.
            Some(mask) if output.is_shared || request.logprobs.is_some() => {
                self.masked.clear();
                self.masked.extend_from_slice(logits);
                mask.apply(self.masked);
                generation.sample(NextToken::Logits(self.masked))?
            }
            Some(mask) => {
                let range = output.range(drafted);
                let logits = &mut output.logits[range];
                mask.apply(logits);
                return Ok((generation.sample(NextToken::Logits(logits))?, None));
            }
        };
        Ok((id, request.logprobs.map(|count| TokenLogprob::new(logits, id, count))))
    }

    fn push_forced(&mut self, sequence: &mut Sequence, request: &ActiveRequest) -> Sent {
        // The logits of a forced token are not computed, so log probabilities need sampling.
        if sequence.end.is_some() || request.logprobs.is_some() {
            return Ok(ControlFlow::Continue(()));
        }
        let forced = sequence.choice.constraint.as_mut().map(TimedConstraint::forced);
        for id in forced.unwrap_or_default() {
            if id >= self.tokenizer.vocab_size() {
                let message = format!("token id {id} is forced and is not in the vocabulary");
                return Err(ConstraintError(message).into());
            }
            let sent = self.push(sequence, id, None)?;
            if sent.is_break() || sequence.end.is_some() {
                return Ok(sent);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Adds a token to a sequence and sends it.
    fn push(&mut self, sequence: &mut Sequence, id: u32, logprob: Option<TokenLogprob>) -> Sent {
        sequence.tokens.push(id);
        sequence.touch();
        self.generated_tokens += 1;
        let choice = &mut sequence.choice;
        let TokenPiece { text, mut end } = choice.generation.push(self.tokenizer, id)?;
        let goes_on = !matches!(end, Some(StopReason::Eog | StopReason::StopString));
        if goes_on && let Some(constraint) = &mut choice.constraint {
            match constraint.accept(id) {
                Err(_) if constraint.gave_up() => end = Some(StopReason::ConstraintLimit),
                accepted => {
                    accepted?;
                    // Complete output is complete, even if its last token is also the last one
                    // allowed.
                    if constraint.is_finished() {
                        end = Some(StopReason::Constraint);
                    }
                }
            }
        }
        sequence.end = end;
        let event = Event::Token { choice: choice.index, id, text, logprob };
        Ok(self.send(sequence, event))
    }

    fn send(&mut self, sequence: &Sequence, event: Event) -> ControlFlow<()> {
        self.observer.event(sequence.rank.request, event)
    }
}
