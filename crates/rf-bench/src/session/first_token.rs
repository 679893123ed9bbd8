//! Time to first token (TTFT) and its phases.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rf_profile::ttft::{Phase, TtftBreakdown};
use rf_profile::{SpanLog, SpanRecorder};
use rocmforge::GenerateOptions;
use rocmforge::engine::{EncodeOptions, SyntheticFeeder, TrackKind, time_of_events};
use tracing_subscriber::layer::SubscriberExt;

use crate::Error;
use crate::results::PhaseTime;

/// The text that prompts repeat.
const TEXT: &str =
    "The fox looked for the key under the old bridge, where the water was slow and clear. ";

/// Capacity of the timeline in events, more than one prompt produces.
const MAX_EVENTS: usize = 1 << 20;

/// A repeatable measurement of a prompt and its first generated token.
pub(super) struct FirstToken<'a> {
    feeder: &'a mut SyntheticFeeder,
    text: String,
    tokens: usize,
    spans: SpanLog,
    subscriber: tracing::Dispatch,
}

impl<'a> FirstToken<'a> {
    /// Prepares a prompt of `tokens` tokens.
    pub(super) fn new(feeder: &'a mut SyntheticFeeder, tokens: usize) -> Result<Self, Error> {
        let text = text_of(feeder, tokens)?;
        let (recorder, spans) = SpanRecorder::new();
        let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(recorder));
        Ok(Self { feeder, text, tokens, spans, subscriber })
    }

    /// Tokenises the text, processes the prompt and samples one token, as `rf-cli run` does. The
    /// spans of the engine provide the times.
    pub(super) fn run(&mut self) -> Result<TtftBreakdown, Error> {
        let options = GenerateOptions::default().with_max_tokens(1);
        let Self { feeder, text, tokens, spans, subscriber } = self;
        feeder.truncate(0)?;
        spans.clear();
        tracing::dispatcher::with_default(subscriber, || -> Result<(), Error> {
            let encoded = tracing::info_span!("tokenize")
                .in_scope(|| feeder.engine.model().tokenizer().encode(text, EncodeOptions::PROMPT));
            let prompt = &encoded[..encoded.len().min(*tokens)];
            let session = &mut feeder.sessions[0];
            let go_on = &mut |_: &str| ControlFlow::Continue(());
            feeder.engine.generate(session, prompt, &options, go_on)?;
            Ok(())
        })?;
        Ok(TtftBreakdown::from_spans(&spans.spans()))
    }

    /// Returns the phases of a breakdown, in milliseconds. One more run, with the profile on,
    /// measures the ops and copies within the prompt.
    pub(super) fn phases(&mut self, mut breakdown: TtftBreakdown) -> Result<Vec<PhaseTime>, Error> {
        for (phase, time) in self.inside_prefill()? {
            breakdown.record_within(Phase::Prefill, phase, time);
        }
        let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::ModelLoad);
        let measured = phases.filter_map(|phase| {
            let ms = 1e3 * breakdown.time(phase)?.as_secs_f64();
            Some(PhaseTime { name: phase.label().to_owned(), ms })
        });
        Ok(measured.collect())
    }

    /// Times of embedding and of copies within prefill; empty if the executor has no timeline.
    fn inside_prefill(&mut self) -> Result<Vec<(Phase, Duration)>, Error> {
        if !(self.feeder.engine.profile(true) && self.feeder.engine.record_timeline(MAX_EVENTS)) {
            return Ok(Vec::new());
        }
        let ran = self.run();
        let timelines = self.feeder.engine.timelines();
        self.feeder.engine.profile(false);
        ran?;
        let kinds = [
            (Phase::Embed, TrackKind::Ops),
            (Phase::HostToDevice, TrackKind::Transfers),
            (Phase::DeviceToHost, TrackKind::Transfers),
        ];
        let now = Instant::now();
        let times = kinds.into_iter().filter_map(|(phase, kind)| {
            Some((phase, time_of_events(&timelines, kind, phase.span(), now)?))
        });
        Ok(times.collect())
    }
}

/// The time to first token of a breakdown.
pub(super) fn total(breakdown: &TtftBreakdown) -> Result<Duration, Error> {
    breakdown.total().ok_or(Error::NoFirstToken)
}

/// Returns a text of at least `tokens` tokens.
fn text_of(feeder: &SyntheticFeeder, tokens: usize) -> Result<String, Error> {
    let tokenizer = feeder.engine.model().tokenizer();
    let once = tokenizer.encode(TEXT, EncodeOptions::PROMPT).len().max(1);
    let text = TEXT.repeat(2 * tokens.div_ceil(once) + 1);
    let got = tokenizer.encode(&text, EncodeOptions::PROMPT).len();
    if got < tokens { Err(Error::ShortPrompt { tokens: got, needed: tokens }) } else { Ok(text) }
}
