//! Answers of a model: prompts as token ids, text on stdout, a line of metrics.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result};
use rocmforge::engine::scheduler::Constraint;
use rocmforge::engine::{
    Engine, Extras, GenerateOptions, Model, Outcome, Session, Speculation, StopReason, Timings,
};
use rocmforge::grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use rocmforge::messages::Message;
use rocmforge::messages::{Conversation, Prompt};
use serde_json::json;

use crate::failure::bad_input;
use crate::interrupt::Watch;
use crate::{drafts, terminal};

/// The form that all answers must have.
#[derive(Debug)]
pub(super) struct OutputForm {
    grammar: Grammar,
    compiler: GrammarCompiler,
}

impl OutputForm {
    /// The form for answers of `model`. Checks the grammar.
    pub(super) fn new(model: &Model, grammar: Grammar) -> Result<Self> {
        let compiler = GrammarCompiler::new(model.tokenizer())?;
        compiler.compile(&grammar).map_err(|error| bad_input!("{error}"))?;
        Ok(Self { grammar, compiler })
    }

    /// A constraint for one answer, to a conversation or a text.
    pub(super) fn constraint(&self, prompt: Option<&Prompt>) -> Result<GrammarConstraint> {
        Ok(match prompt {
            Some(prompt) => self.compiler.compile_answer(prompt, &self.grammar)?,
            None => self.compiler.compile(&self.grammar)?,
        })
    }
}

/// The prompt of a conversation, up to the place of the answer, and its ids.
pub(super) fn conversation_ids(model: &Model, messages: &[Message]) -> Result<(Prompt, Vec<u32>)> {
    let template = model.chat_template().context("the model has no chat template")?;
    let conversation = Conversation { messages: messages.to_vec(), ..Conversation::default() };
    let prompt = conversation.prompt(template)?;
    let ids = model.rendered_ids(&prompt.text);
    Ok((prompt, ids))
}

/// Generates to stdout, with a line break at the end.
pub(super) fn stream(
    engine: &mut Engine,
    session: &mut Session,
    ids: &[u32],
    options: &GenerateOptions,
    extras: Extras<'_>,
) -> Result<Outcome> {
    let watch = Watch::new();
    let mut out = io::stdout().lock();
    let mut failed = None;
    let outcome = engine.generate_with(session, ids, options, extras, &mut |text| {
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        flow(&watch)
    })?;
    if let Some(error) = failed {
        return Err(error).context("cannot write to standard output");
    }
    if !outcome.text.ends_with('\n') {
        writeln!(out)?;
    }
    if outcome.stop_reason == StopReason::ContextFull {
        terminal::note(format_args!(
            "the context of {} tokens is full: give a larger one with -c, or --context-shift",
            engine.context_tokens()
        ));
    }
    Ok(outcome)
}

/// A constraint and drafts for a generation.
pub(super) fn extras(
    constraint: Option<GrammarConstraint>,
    speculation: Option<&mut Speculation>,
) -> Extras<'_> {
    let constraint = constraint.map(|constraint| Box::new(constraint) as Box<dyn Constraint>);
    Extras { constraint, speculation, ..Extras::default() }
}

/// Stops a generation after Ctrl-C.
pub(super) fn flow(watch: &Watch) -> ControlFlow<()> {
    if watch.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The metrics of an answer in one line.
pub(super) fn summary(timings: &Timings, memory_bytes: u64) -> String {
    let throughput = |per_second: Option<f64>| {
        per_second.map(|rate| format!(" ({rate:.1} t/s)")).unwrap_or_default()
    };
    let cached = match timings.cached_tokens {
        0 => String::new(),
        tokens => format!(", {tokens} from the cache"),
    };
    format!(
        "prompt {} tokens{}{cached}, generated {} tokens{}{}, TTFT {:.0} ms, memory {}",
        timings.prompt_tokens,
        throughput(timings.prompt_tokens_per_second()),
        timings.generated_tokens,
        throughput(timings.decode_tokens_per_second()),
        drafts::acceptance(timings),
        timings.ttft_us as f64 / 1e3,
        terminal::bytes(memory_bytes)
    )
}

/// An answer as JSON.
pub(super) fn json(
    prompt_ids: &[u32],
    outcome: &Outcome,
    load_time: Duration,
) -> serde_json::Value {
    let timings = &outcome.timings;
    let ms = |us: u64| us as f64 / 1e3;
    json!({
        "prompt_ids": prompt_ids,
        "ids": outcome.ids,
        "text": outcome.text,
        "stop_reason": outcome.stop_reason.as_str(),
        "seed": outcome.seed,
        "timings": {
            "prompt_tokens": timings.prompt_tokens,
            "prompt_ms": ms(timings.prompt_us),
            "prompt_per_second": timings.prompt_tokens_per_second(),
            "generated_tokens": timings.generated_tokens,
            "decode_ms": ms(timings.decode_us),
            "decode_per_second": timings.decode_tokens_per_second(),
            "ttft_ms": ms(timings.ttft_us),
            "drafted_tokens": timings.drafted_tokens,
            "accepted_tokens": timings.accepted_tokens,
            "load_ms": load_time.as_secs_f64() * 1e3,
        },
    })
}
