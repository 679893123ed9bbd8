//! Traces of requests for a collector of OpenTelemetry, with the feature `otel`.
//!
//! A request that generates is a span, and below it each of its prompts is three: the queue, the
//! prefill and the decode. They have the names of the semantic conventions for generative AI:
//! names of models, counts, kinds of errors, and no text of a request. A request may name its
//! parent in the header `traceparent`.
//!
//! The protocol is OTLP over HTTP in its JSON form, written here: the crates of OpenTelemetry would
//! add 15 packages to the lock file.

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod ids;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod span;
#[cfg(feature = "otel")]
mod tracer;

use std::time::Instant;

#[cfg(not(feature = "otel"))]
pub(crate) use off::{RequestTrace, Tracer};
#[cfg(feature = "otel")]
pub(crate) use tracer::{RequestTrace, Tracer};

/// The times and counts of a prompt, when it has ended.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only spans have it"))]
pub(crate) struct PromptPhases {
    pub(crate) submitted: Instant,
    /// The end of the queue.
    pub(crate) started: Option<Instant>,
    /// The end of the prefill.
    pub(crate) first_token: Option<Instant>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) generated_tokens: u64,
    /// `stop`, `length`, `abort` or `error`.
    pub(crate) finish_reason: &'static str,
}

/// The facts about a request that are known at its end.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only spans have it"))]
pub(crate) struct RequestEnd<'a> {
    pub(crate) route: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) request_id: &'a str,
    pub(crate) status: u16,
    /// The kind of an error.
    pub(crate) error: Option<&'a str>,
    pub(crate) usage: Option<rocmforge::Usage>,
}
