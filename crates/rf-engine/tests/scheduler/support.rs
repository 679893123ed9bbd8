//! Models, requests and their answers.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use rf_cpu::CpuBackend;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{
    Event, Handle, Request, RequestError, RequestId, Scheduler, SchedulerOptions, SchedulerStats,
    TokenLogprob,
};
use rf_engine::{
    Engine, EngineOptions, GenerateOptions, GenerationOutcome, Session, StopReason, Timings,
};
pub(crate) use rf_testing::{demo_model as demo, golden_model as data, prompt, tiny_model as tiny};

pub(crate) const PAGE_TOKENS: usize = 16;

pub(crate) const ENGINE: EngineOptions = EngineOptions::DEFAULT
    .with_context_tokens(Some(160))
    .with_batch_tokens(64)
    .with_page_tokens(PAGE_TOKENS)
    .with_kv_tokens(Some(64 * 160))
    .with_sequences(64);

pub(crate) const SCHEDULER: SchedulerOptions = SchedulerOptions::DEFAULT
    .with_max_num_seqs(64)
    .with_max_batched_tokens(64)
    .with_max_queued(200)
    .with_prefix_cache(true);

/// Tokens of the vocabulary of the tiny models.
pub(crate) const VOCAB_SIZE: usize = 272;

pub(crate) fn cpu() -> CpuBackend {
    rf_testing::engine::cpu(2)
}

pub(crate) fn engine(path: &Path, options: EngineOptions) -> Engine {
    rf_testing::engine::load(path, 2, options)
}

/// A scheduler of the tiny model.
pub(crate) fn start(engine_options: EngineOptions, options: SchedulerOptions) -> Scheduler {
    Scheduler::start(engine(&tiny(), engine_options), options).unwrap()
}

pub(crate) fn greedy(max_tokens: usize) -> GenerateOptions {
    with_sampler(SamplerConfig::greedy(), max_tokens)
}

/// Flat enough that seeds matter.
pub(crate) fn sampled(seed: u64, max_tokens: usize) -> GenerateOptions {
    let sampler = SamplerConfig::default().with_temperature(2.0).with_seed(seed);
    with_sampler(sampler, max_tokens)
}

pub(crate) fn with_sampler(sampler: SamplerConfig, max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default()
        .with_sampler(sampler)
        .with_max_tokens(max_tokens)
        .with_ignore_eos(true)
}

/// The answer without a scheduler.
pub(crate) fn alone(
    engine: &mut Engine,
    prompt: &[u32],
    options: &GenerateOptions,
) -> GenerationOutcome {
    let mut session = engine.session();
    engine.generate(&mut session, prompt, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// A choice of a finished request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) prompt_logprobs: Option<Vec<TokenLogprob>>,
    pub(crate) end: Option<StopReason>,
    pub(crate) timings: Timings,
    pub(crate) session: Option<Box<Session>>,
}

/// The events of a request.
pub(crate) struct Events {
    pub(crate) receiver: Receiver<Event>,
    pub(crate) num_choices: usize,
}

/// Passes events to a channel, and breaks without a receiver.
pub(crate) fn sink(sender: Sender<Event>) -> impl FnMut(Event) -> ControlFlow<()> + Send {
    move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// Submits a request after `change`.
pub(crate) fn submit(
    handle: &Handle,
    prompt: &[u32],
    options: &GenerateOptions,
    change: impl FnOnce(&mut Request),
) -> (RequestId, Events) {
    let (sender, receiver) = channel();
    let mut request = Request::new(prompt.to_vec(), options.clone());
    change(&mut request);
    let num_choices = request.num_choices;
    (handle.submit(request, sink(sender)).unwrap(), Events { receiver, num_choices })
}

/// The answer of a request alone on the scheduler.
pub(crate) fn ask(handle: &Handle, prompt: &[u32], options: &GenerateOptions) -> Answer {
    submit(handle, prompt, options, |_| ()).1.answer()
}

impl Events {
    /// All choices, in order. Checks the order of the events.
    pub(crate) fn answers(self) -> Result<Vec<Answer>, RequestError> {
        let mut answers: Vec<Answer> = (0..self.num_choices).map(|_| Answer::default()).collect();
        let mut has_started = false;
        for event in self.receiver {
            match event {
                Event::Started { .. } => {
                    assert!(!has_started, "a second start");
                    has_started = true;
                }
                Event::Prompt { logprobs } => {
                    assert!(has_started && answers[0].ids.is_empty(), "a prompt out of order");
                    let prompt = &mut answers[0].prompt_logprobs;
                    assert!(prompt.replace(logprobs).is_none(), "a second prompt");
                }
                Event::Token { choice, id, text, logprob } => {
                    let answer = &mut answers[choice];
                    assert!(has_started && answer.end.is_none(), "a token out of order");
                    answer.ids.push(id);
                    answer.text += &text;
                    answer.logprobs.extend(logprob);
                }
                Event::Finished { choice, reason, text, timings, session, .. } => {
                    let answer = &mut answers[choice];
                    assert_eq!(answer.end.replace(reason), None, "a second end");
                    answer.text += &text;
                    answer.timings = timings;
                    answer.session = session;
                    assert_eq!(timings.generated_tokens, answer.ids.len());
                }
                Event::Failed(error) => return Err(error),
                other => panic!("{other:?}"),
            }
        }
        assert!(answers.iter().all(|answer| answer.end.is_some()), "no end: {answers:?}");
        Ok(answers)
    }

    /// The only choice.
    pub(crate) fn answer(self) -> Answer {
        assert_eq!(self.num_choices, 1);
        self.answers().unwrap().remove(0)
    }

    /// Waits until `count` tokens were generated.
    pub(crate) fn wait_for_tokens(&self, count: usize) {
        let tokens = self.receiver.iter().filter(|event| matches!(event, Event::Token { .. }));
        assert_eq!(tokens.take(count).count(), count);
    }
}

/// Ends a scheduler and checks that nothing is left of its requests.
pub(crate) fn end(scheduler: Scheduler) -> SchedulerStats {
    let handle = scheduler.handle();
    scheduler.shutdown();
    let stats = handle.stats();
    assert_eq!((stats.running, stats.waiting, stats.kv_pages_used), (0, 0, 0), "{stats:?}");
    stats
}
