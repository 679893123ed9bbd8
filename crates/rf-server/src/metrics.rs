//! Counters and measurements of the server, per model. [`exposition`] writes it for Prometheus.

mod adapters;
mod exposition;
mod histogram;
mod http;
mod keys;
#[cfg(unix)]
mod process;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rocmforge::engine::StopReason;
use rocmforge::engine::scheduler::{Event, SchedulerStats};

use adapters::{AdapterCounts, AdapterMeter};
pub(crate) use exposition::{dropped, write};
use histogram::Histogram;
pub(crate) use http::HttpMetrics;
pub(crate) use keys::KeyRejection;

use crate::error::ApiErrorKind;
use crate::traces::{PromptPhases, RequestTrace};

/// Counters and distributions of one model.
#[derive(Debug)]
pub(crate) struct Metrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    drafted_tokens: AtomicU64,
    accepted_tokens: AtomicU64,
    finished_stop: AtomicU64,
    finished_length: AtomicU64,
    finished_abort: AtomicU64,
    finished_error: AtomicU64,
    /// One per reason, in the order of [`Rejection::ALL`].
    rejected: [AtomicU64; Rejection::ALL.len()],
    /// The counts of earlier schedulers of the model, which ended when it was unloaded.
    earlier_preemptions: AtomicU64,
    earlier_steps: Mutex<StepCounts>,
    /// The requests of each adapter that clients name.
    adapters: Arc<AdapterCounts>,
    ttft: Histogram,
    inter_token: Histogram,
    time_per_output_token: Histogram,
    latency: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    inference_time: Histogram,
    preemptions: Histogram,
    prompt_length: Histogram,
    computed_length: Histogram,
    generation_length: Histogram,
    longest_choice: Histogram,
    choices: Histogram,
    max_tokens: Histogram,
}

impl Metrics {
    /// No request yet, of a model with this context.
    pub(crate) fn new(context_tokens: usize) -> Self {
        let latency = || Histogram::new(histogram::LATENCY.to_vec());
        let length = || Histogram::new(histogram::lengths(context_tokens));
        Self {
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            drafted_tokens: AtomicU64::new(0),
            accepted_tokens: AtomicU64::new(0),
            finished_stop: AtomicU64::new(0),
            finished_length: AtomicU64::new(0),
            finished_abort: AtomicU64::new(0),
            finished_error: AtomicU64::new(0),
            rejected: Default::default(),
            earlier_preemptions: AtomicU64::new(0),
            earlier_steps: Mutex::default(),
            adapters: Arc::default(),
            ttft: Histogram::new(histogram::TTFT.to_vec()),
            inter_token: Histogram::new(histogram::INTER_TOKEN.to_vec()),
            time_per_output_token: Histogram::new(histogram::INTER_TOKEN.to_vec()),
            latency: latency(),
            queue_time: latency(),
            prefill_time: latency(),
            decode_time: latency(),
            inference_time: latency(),
            preemptions: Histogram::new(histogram::CHOICES.to_vec()),
            prompt_length: length(),
            computed_length: length(),
            generation_length: length(),
            longest_choice: length(),
            choices: Histogram::new(histogram::CHOICES.to_vec()),
            max_tokens: length(),
        }
    }

    /// A request did not get into the queue.
    pub(crate) fn count_rejected(&self, reason: Rejection) {
        self.rejected[reason as usize].fetch_add(1, Relaxed);
    }

    /// Keeps what a scheduler counted that is about to end.
    pub(crate) fn keep(&self, stats: &SchedulerStats) {
        self.earlier_preemptions.fetch_add(stats.preemptions, Relaxed);
        self.earlier_steps.lock().unwrap_or_else(PoisonError::into_inner).add(stats);
    }

    /// Steps by their number of tokens, with those of `stats`.
    fn steps(&self, stats: &SchedulerStats) -> StepCounts {
        let mut steps = *self.earlier_steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.add(stats);
        steps
    }

    /// Part of the prompts' tokens that the cache had, from 0 to 1.
    pub(crate) fn cache_hit_rate(&self) -> f64 {
        let prompt_tokens = self.prompt_tokens.load(Relaxed);
        self.cached_tokens.load(Relaxed) as f64 / prompt_tokens.max(1) as f64
    }
}

/// Why a request did not get into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    QueueFull,
    ContextExceeded,
    InvalidRequest,
    ShuttingDown,
    /// Other requests use up a limit of its key.
    KeyLimit,
    /// Its key may not do it.
    Forbidden,
}

impl Rejection {
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::QueueFull, "queue_full"),
        (Self::ContextExceeded, "context_exceeded"),
        (Self::InvalidRequest, "invalid_request"),
        (Self::ShuttingDown, "shutting_down"),
        (Self::KeyLimit, "key_limit"),
        (Self::Forbidden, "forbidden"),
    ];

    /// The reason of an error of the scheduler.
    pub(crate) fn of(kind: ApiErrorKind) -> Self {
        match kind {
            ApiErrorKind::QueueFull => Self::QueueFull,
            ApiErrorKind::ContextExceeded => Self::ContextExceeded,
            ApiErrorKind::Unavailable => Self::ShuttingDown,
            ApiErrorKind::Forbidden => Self::Forbidden,
            _ => Self::InvalidRequest,
        }
    }

    /// The reason of an error because of the request's key.
    pub(crate) fn of_key(kind: ApiErrorKind) -> Self {
        match kind {
            ApiErrorKind::QueueFull => Self::KeyLimit,
            kind => Self::of(kind),
        }
    }
}

/// Steps of the scheduler by their number of tokens.
#[derive(Clone, Copy, Debug, Default)]
struct StepCounts {
    counts: [u64; SchedulerStats::STEP_TOKEN_BOUNDS.len() + 1],
    tokens: u64,
}

impl StepCounts {
    fn add(&mut self, stats: &SchedulerStats) {
        for (count, more) in self.counts.iter_mut().zip(stats.steps_by_tokens) {
            *count += more;
        }
        self.tokens += stats.step_tokens;
    }

    /// Upper bounds and how many steps are at or below each; the last bound is infinite.
    fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds = SchedulerStats::STEP_TOKEN_BOUNDS.iter().map(|bound| *bound as f64);
        histogram::cumulative(bounds, self.counts.iter().copied())
    }
}

/// Measures one prompt from its submission to its end. It runs on the engine's thread, so a slow
/// reader does not change the times.
pub(crate) struct RequestMeter {
    metrics: Arc<Metrics>,
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    /// The newest token of each choice.
    newest: Vec<Option<Instant>>,
    generated_tokens: u64,
    /// Tokens of the longest choice that has ended.
    longest_choice: usize,
    preemptions: usize,
    unfinished: usize,
    is_length: bool,
    has_failed: bool,
    /// False for a request that the queue refused, which is a rejection and no answer.
    is_queued: Arc<AtomicBool>,
    adapter: Option<AdapterMeter>,
    trace: Option<Arc<RequestTrace>>,
    prompt_tokens: usize,
    cached_tokens: usize,
}

impl RequestMeter {
    /// A prompt that waits from now on, perhaps for the model with an adapter.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        job: &rocmforge::Job,
        adapter: Option<&str>,
        trace: Option<Arc<RequestTrace>>,
    ) -> Self {
        metrics.choices.observe(job.num_choices as f64);
        if let Some(max_tokens) = job.options.max_tokens {
            metrics.max_tokens.observe(max_tokens as f64);
        }
        let adapter = adapter.map(|name| AdapterMeter::new(&metrics.adapters, name));
        Self {
            metrics,
            submitted: Instant::now(),
            started: None,
            first_token: None,
            newest: vec![None; job.num_choices],
            generated_tokens: 0,
            longest_choice: 0,
            preemptions: 0,
            unfinished: job.num_choices,
            is_length: false,
            has_failed: false,
            is_queued: Arc::new(AtomicBool::new(true)),
            adapter,
            trace,
            prompt_tokens: 0,
            cached_tokens: 0,
        }
    }

    /// Sets what becomes true once the queue has the request.
    pub(crate) fn with_is_queued(mut self, is_queued: Arc<AtomicBool>) -> Self {
        self.is_queued = is_queued;
        self
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Started { prompt_tokens, cached_tokens, .. } => {
                self.start(*prompt_tokens, *cached_tokens);
            }
            Event::Token { choice, .. } => self.token(*choice),
            Event::Failed(_) => self.has_failed = true,
            Event::Finished { reason, timings, .. } => {
                self.preemptions += timings.preemptions;
                self.longest_choice = self.longest_choice.max(timings.generated_tokens);
                let metrics = &self.metrics;
                metrics.drafted_tokens.fetch_add(timings.drafted_tokens as u64, Relaxed);
                metrics.accepted_tokens.fetch_add(timings.accepted_tokens as u64, Relaxed);
                self.is_length |= matches!(
                    reason,
                    StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit
                );
                self.unfinished = self.unfinished.saturating_sub(1);
                if self.unfinished == 0 {
                    self.finish();
                }
            }
            _ => {}
        }
    }

    fn start(&mut self, prompt_tokens: usize, cached_tokens: usize) {
        let now = Instant::now();
        self.started = Some(now);
        (self.prompt_tokens, self.cached_tokens) = (prompt_tokens, cached_tokens);
        if let Some(adapter) = &mut self.adapter {
            adapter.start();
        }
        let metrics = &self.metrics;
        metrics.prompt_tokens.fetch_add(prompt_tokens as u64, Relaxed);
        metrics.cached_tokens.fetch_add(cached_tokens as u64, Relaxed);
        metrics.prompt_length.observe(prompt_tokens as f64);
        metrics.computed_length.observe(prompt_tokens.saturating_sub(cached_tokens) as f64);
        metrics.queue_time.observe(seconds(self.submitted, now));
    }

    fn token(&mut self, choice: usize) {
        let now = Instant::now();
        let metrics = &self.metrics;
        metrics.generated_tokens.fetch_add(1, Relaxed);
        self.generated_tokens += 1;
        if self.first_token.is_none() {
            self.first_token = Some(now);
            metrics.ttft.observe(seconds(self.submitted, now));
        }
        let Some(newest) = self.newest.get_mut(choice) else { return };
        if let Some(last) = newest.replace(now) {
            metrics.inter_token.observe(seconds(last, now));
        }
    }

    fn finish(&self) {
        let now = Instant::now();
        let metrics = &self.metrics;
        let finished =
            if self.is_length { &metrics.finished_length } else { &metrics.finished_stop };
        finished.fetch_add(1, Relaxed);
        metrics.preemptions.observe(self.preemptions as f64);
        metrics.latency.observe(seconds(self.submitted, now));
        metrics.generation_length.observe(self.generated_tokens as f64);
        metrics.longest_choice.observe(self.longest_choice as f64);
        let Some(started) = self.started else { return };
        metrics.inference_time.observe(seconds(started, now));
        let Some(first_token) = self.first_token else { return };
        let decode = seconds(first_token, now);
        metrics.prefill_time.observe(seconds(started, first_token));
        metrics.decode_time.observe(decode);
        if self.generated_tokens > 1 {
            metrics.time_per_output_token.observe(decode / (self.generated_tokens - 1) as f64);
        }
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        if let Some(trace) = &self.trace {
            trace.prompt(&PromptPhases {
                submitted: self.submitted,
                started: self.started,
                first_token: self.first_token,
                prompt_tokens: self.prompt_tokens,
                cached_tokens: self.cached_tokens,
                generated_tokens: self.generated_tokens,
                finish_reason: match (self.unfinished, self.has_failed, self.is_length) {
                    (0, _, true) => "length",
                    (0, _, false) => "stop",
                    (_, true, _) => "error",
                    (_, false, _) => "abort",
                },
            });
        }
        let is_refused = !self.has_failed && !self.is_queued.load(Relaxed);
        if self.unfinished > 0 && !is_refused {
            let metrics = &self.metrics;
            let finished =
                if self.has_failed { &metrics.finished_error } else { &metrics.finished_abort };
            finished.fetch_add(1, Relaxed);
        }
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}
