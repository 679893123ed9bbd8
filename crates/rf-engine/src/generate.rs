//! Generation without a thread: a request alone on a [`StepScheduler`].

use std::ops::ControlFlow;

use crate::engine::Engine;
use crate::error::Error;
use crate::generation::{GenerateOptions, StopReason};
use crate::media::MixedPrompt;
use crate::sampling::TokenLogprob;
use crate::scheduler::{Constraint, Event, Request, RequestError, SchedulerOptions, StepScheduler};
use crate::session::Session;
use crate::setters::setters;
use crate::speculation::Speculation;
use crate::timings::Timings;

/// The result of a generation.
#[derive(Clone, Debug)]
pub struct GenerationOutcome {
    /// The generated tokens, including an end-of-generation token.
    pub ids: Vec<u32>,
    /// Log probabilities of the tokens, if requested.
    pub logprobs: Vec<TokenLogprob>,
    /// Text of the tokens, up to a stop string and without control tokens.
    pub text: String,
    /// The reason for its end.
    pub stop_reason: StopReason,
    /// Token counts and times.
    pub timings: Timings,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The parts of a generation besides the model.
#[derive(Default)]
#[non_exhaustive]
pub struct GenerateExtras<'a> {
    /// Restricts the output.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Drafts tokens.
    pub speculation: Option<&'a mut Speculation>,
    /// Log probabilities of the generated tokens, with as many of the most probable tokens at each
    /// position.
    pub logprobs: Option<usize>,
    /// Receives the progress of the prompt after each batch but the last, and may end the
    /// generation.
    pub on_prompt: Option<&'a mut dyn FnMut(PromptProgress) -> ControlFlow<()>>,
}

/// The part of a prompt that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptProgress {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Tokens that are in the cache: found there, or computed.
    pub done_tokens: usize,
    /// Tokens that were found in the cache.
    pub cached_tokens: usize,
}

impl<'a> GenerateExtras<'a> {
    setters! {
        with_constraint(constraint: Option<Box<dyn Constraint>>);
        with_speculation(speculation: impl Into<Option<&'a mut Speculation>>);
        with_logprobs(logprobs: impl Into<Option<usize>>);
        with_on_prompt(on_prompt: &'a mut dyn FnMut(PromptProgress) -> ControlFlow<()>);
    }
}

impl Engine {
    /// Continues `prompt`, the whole sequence from its first token. The prefix that the session has
    /// in its cache is reused; the rest is computed. `on_text` receives the text in pieces of whole
    /// characters and may end the generation.
    ///
    /// [`generate_choices`](Self::generate_choices) gives several answers to a prompt, and a
    /// [`StepScheduler`] serves several prompts.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, or a sampling parameter is invalid. The session is then
    /// unchanged. If the backend or sampling fails, the session is empty.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GenerationOutcome, Error> {
        self.generate_with(session, prompt, options, GenerateExtras::default(), on_text)
    }

    /// [`generate`](Self::generate) with a constraint on the output, drafts or log probabilities.
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate), and if the constraint fails. A failure of the
    /// drafts is a warning.
    pub fn generate_with(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        extras: GenerateExtras<'_>,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GenerationOutcome, Error> {
        self.generate_mixed(session, prompt.to_vec().into(), options, extras, on_text)
    }

    /// [`generate_with`](Self::generate_with) for a prompt with media.
    ///
    /// # Errors
    ///
    /// The errors of [`generate_with`](Self::generate_with), and if the model or its backend takes
    /// no media, or not these.
    pub fn generate_mixed(
        &mut self,
        session: &mut Session,
        prompt: MixedPrompt,
        options: &GenerateOptions,
        extras: GenerateExtras<'_>,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GenerationOutcome, Error> {
        let GenerateExtras { constraint, speculation, logprobs, on_prompt } = extras;
        let request = Request { logprobs, constraint, ..Request::new(prompt, options.clone()) };
        let on_text = &mut |_, text: &str| on_text(text);
        let mut outcomes =
            self.generate_alone(session, request, (speculation, on_prompt), on_text)?;
        Ok(outcomes.swap_remove(0))
    }

    /// Answers a request several times: with as many outcomes as it has choices, of which choice
    /// `i` uses `seed + i`. The prompt is computed once. `on_text` receives the text of each choice
    /// with its index, and may end all of them. The session continues with the first choice.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use rf_engine::scheduler::Request;
    /// use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
    /// use rf_oracle::ReferenceBackend;
    ///
    /// let model = Model::open("../../golden/arch/smollm3.gguf")?;
    /// let options = EngineOptions::default().with_context_tokens(Some(64));
    /// let mut engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ())?;
    /// let mut session = engine.session();
    ///
    /// let options = GenerateOptions::default().with_max_tokens(4);
    /// let request = Request::new(vec![1, 2, 3], options).with_num_choices(3);
    /// let on_text = &mut |_, _: &str| ControlFlow::Continue(());
    /// let outcomes = engine.generate_choices(&mut session, request, None, on_text)?;
    /// assert_eq!(outcomes.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`generate_with`](Self::generate_with), and if the number of choices is 0 or
    /// larger than [`Request::MAX_CHOICES`].
    pub fn generate_choices(
        &mut self,
        session: &mut Session,
        request: Request,
        speculation: Option<&mut Speculation>,
        on_text: &mut dyn FnMut(usize, &str) -> ControlFlow<()>,
    ) -> Result<Vec<GenerationOutcome>, Error> {
        self.generate_alone(session, request, (speculation, None), on_text)
    }

    /// Runs a request alone. Returns an outcome for each choice, and therefore at least one.
    fn generate_alone(
        &mut self,
        session: &mut Session,
        request: Request,
        (mut speculation, mut on_prompt): (Option<&mut Speculation>, Option<OnPrompt<'_>>),
        on_text: &mut dyn FnMut(usize, &str) -> ControlFlow<()>,
    ) -> Result<Vec<GenerationOutcome>, Error> {
        let (num_choices, most_tokens) = (request.num_choices, request.options.max_tokens);
        let alone = SchedulerOptions {
            max_num_seqs: num_choices.max(1),
            max_batched_tokens: self.batch_tokens(),
            prefix_cache: false,
            ..SchedulerOptions::default()
        };
        let mut steps = StepScheduler::new(self, alone)?;
        let id = steps.submit_with(self, request, session)?;
        let mut answers = Answers::new(num_choices);
        while !steps.is_idle() {
            steps.step(self, speculation.as_deref_mut(), &mut |_, event| {
                answers.take(event, session, on_text)
            });
            let Some(progress) = &mut answers.progress else { continue };
            progress.done_tokens = steps.computed_tokens(id);
            if let Some(on_prompt) = &mut on_prompt
                && progress.done_tokens < progress.tokens
                && on_prompt(*progress).is_break()
            {
                steps.cancel(id);
            }
        }
        if let Some(error) = answers.failed {
            return Err(error.into());
        }
        for outcome in &mut answers.outcomes {
            // The scheduler clamps the number of tokens to the room for them.
            let is_clamped = most_tokens.is_some_and(|most| outcome.ids.len() < most);
            if outcome.stop_reason == StopReason::Length && is_clamped {
                outcome.stop_reason = StopReason::ContextFull;
            }
        }
        Ok(answers.outcomes)
    }
}

/// Receives the progress of a prompt.
type OnPrompt<'a> = &'a mut dyn FnMut(PromptProgress) -> ControlFlow<()>;

/// The outcomes of a request so far.
struct Answers {
    outcomes: Vec<GenerationOutcome>,
    /// Set until the first token.
    progress: Option<PromptProgress>,
    failed: Option<RequestError>,
    /// True if `on_text` has ended the request.
    is_ended: bool,
}

impl Answers {
    fn new(num_choices: usize) -> Self {
        let outcome = || GenerationOutcome {
            ids: Vec::new(),
            logprobs: Vec::new(),
            text: String::new(),
            stop_reason: StopReason::Length,
            timings: Timings::default(),
            seed: 0,
        };
        let outcomes = std::iter::repeat_with(outcome).take(num_choices).collect();
        Self { outcomes, progress: None, failed: None, is_ended: false }
    }

    /// Takes an event. The session continues with the first choice.
    fn take(
        &mut self,
        event: Event,
        session: &mut Session,
        on_text: &mut dyn FnMut(usize, &str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !matches!(event, Event::Prompt { .. }) {
            self.progress = None;
        }
        let (choice, text) = match event {
            Event::Token { choice, id, text, logprob } => {
                let outcome = &mut self.outcomes[choice];
                outcome.ids.push(id);
                outcome.logprobs.extend(logprob);
                (choice, text)
            }
            Event::Finished { choice, reason, text, timings, session: computed, .. } => {
                let outcome = &mut self.outcomes[choice];
                outcome.stop_reason = reason;
                outcome.timings = timings;
                if let Some(computed) = computed.filter(|_| choice == 0) {
                    *session = *computed;
                }
                (choice, text)
            }
            Event::Started { seed, prompt_tokens, cached_tokens } => {
                for (index, outcome) in (0..).zip(&mut self.outcomes) {
                    outcome.seed = seed.wrapping_add(index);
                }
                self.progress = Some(PromptProgress {
                    tokens: prompt_tokens,
                    done_tokens: cached_tokens,
                    cached_tokens,
                });
                return ControlFlow::Continue(());
            }
            Event::Failed(error) => {
                self.failed = Some(error);
                return ControlFlow::Break(());
            }
            Event::Prompt { .. } => return ControlFlow::Continue(()),
        };
        let outcome = &mut self.outcomes[choice];
        outcome.text += &text;
        // Whoever has cancelled the generation takes no more text.
        self.is_ended |= outcome.stop_reason == StopReason::Cancelled;
        if text.is_empty() || self.is_ended {
            return ControlFlow::Continue(());
        }
        let flow = on_text(choice, &text);
        self.is_ended = flow.is_break();
        flow
    }
}
