//! Answers of a model: prompts as token ids, the form of answers, metrics, JSON.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use rocmforge::engine::scheduler::{Constraint, TokenLogprob};
use rocmforge::engine::{
    GenerateExtras, GenerationOutcome, MixedPrompt, Model, Speculation, Timings, Tokenizer,
};
use rocmforge::grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use rocmforge::messages::{
    Answer, AnswerCall, ChatPrompt, Conversation, Message, Prompt, ToolChoice,
};
use serde_json::json;

use crate::failure::bad_input;
use crate::interrupt::Watch;
use crate::{drafts, terminal};

/// The form that all answers must have: demanded calls, or a grammar.
#[derive(Debug)]
pub(super) struct OutputForm {
    grammar: Option<Grammar>,
    compiler: GrammarCompiler,
}

impl OutputForm {
    /// The form for answers of `model`; `None` if they may be anything. Checks the grammar.
    pub(super) fn new(
        model: &Model,
        grammar: Option<Grammar>,
        choice: &ToolChoice,
    ) -> Result<Option<Self>> {
        if grammar.is_none() && !choice.demands_call() {
            return Ok(None);
        }
        let compiler = GrammarCompiler::new(model.tokenizer())?;
        if let Some(grammar) = &grammar {
            compiler.compile(grammar).map_err(|error| bad_input!("{error}"))?;
        }
        Ok(Some(Self { grammar, compiler }))
    }

    /// A constraint for one answer, to a conversation or a text.
    pub(super) fn constraint(&self, prompt: Option<&Prompt>) -> Result<Option<GrammarConstraint>> {
        Ok(self.compiler.compile_output(prompt, self.grammar.as_ref(), true)?)
    }
}

/// The prompt of a conversation, up to the place of the answer. `base` has its tools.
pub(super) fn conversation_prompt(
    model: &Model,
    messages: &[Message],
    base: &Conversation,
) -> Result<ChatPrompt> {
    Ok(model.chat_prompt(&base.clone().with_messages(messages.to_vec()))?)
}

/// A constraint and drafts for a generation.
pub(super) fn extras(
    constraint: Option<GrammarConstraint>,
    speculation: Option<&mut Speculation>,
) -> GenerateExtras<'_> {
    let constraint = constraint.map(|constraint| Box::new(constraint) as Box<dyn Constraint>);
    GenerateExtras::default().with_constraint(constraint).with_speculation(speculation)
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

/// An answer as JSON. `prompt` says how to read it; without one it is text. Rows of pictures have
/// no token id.
pub(super) fn json(
    (mixed, prompt): (&MixedPrompt, Option<&Prompt>),
    outcome: &GenerationOutcome,
    load_time: Duration,
) -> serde_json::Value {
    let timings = &outcome.timings;
    let ms = |us: u64| us as f64 / 1e3;
    let mut json = json!({
        "prompt_ids": mixed.tokens().collect::<Vec<_>>(),
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
    });
    if let Some(prompt) = prompt {
        let mut parser = prompt.parser();
        let mut answer: Answer = parser.push(&outcome.text).into_iter().collect();
        answer.extend(parser.finish());
        json["content"] = answer.content.into();
        if !answer.reasoning.is_empty() {
            json["reasoning"] = answer.reasoning.into();
        }
        let calls = answer.calls.iter().filter(|call| call.complete);
        let calls: Vec<_> = calls.map(call_json).collect();
        if !calls.is_empty() {
            json["tool_calls"] = calls.into();
        }
    }
    json
}

/// The tokens of an answer with their log probabilities, in the form of `OpenAI`'s API.
pub(super) fn logprobs_json(
    tokenizer: &Tokenizer,
    outcome: &GenerationOutcome,
) -> serde_json::Value {
    let token = |id: u32, logprob: f32| {
        let bytes = tokenizer.piece(id).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // JSON has no infinity.
        json!({ "token": text, "logprob": logprob.max(-9999.0), "bytes": bytes })
    };
    let entry = |(&id, found): (&u32, &TokenLogprob)| {
        let mut entry = token(id, found.logprob);
        let top = found.top.iter().map(|&(id, logprob)| token(id, logprob));
        entry["top_logprobs"] = top.collect();
        entry
    };
    let content = outcome.ids.iter().zip(&outcome.logprobs).map(entry);
    json!({ "content": content.collect::<Vec<_>>() })
}

/// A tool call as one line of JSON, in the form of a message of `OpenAI`'s API.
pub(super) fn call_json(call: &AnswerCall) -> serde_json::Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}
