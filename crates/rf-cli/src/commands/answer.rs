//! Answers of a model: prompts as token ids, text on stdout, a line of metrics.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result};
use rocmforge::engine::scheduler::Constraint;
use rocmforge::engine::{
    Engine, Extras, GenerateOptions, MixedPrompt, Model, Outcome, Session, Speculation, StopReason,
    Timings,
};
use rocmforge::grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use rocmforge::messages::{
    Answer, AnswerCall, ChatPrompt, Conversation, Delta, Message, OutputParser, Prompt, Tool,
};
use serde_json::json;

use crate::failure::bad_input;
use crate::interrupt::Watch;
use crate::terminal::Palette;
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

/// The prompt of a conversation, up to the place of the answer.
pub(super) fn conversation_prompt(
    model: &Model,
    messages: &[Message],
    tools: &[Tool],
) -> Result<ChatPrompt> {
    let conversation =
        Conversation::default().with_messages(messages.to_vec()).with_tools(tools.to_vec());
    Ok(model.chat_prompt(&conversation)?)
}

/// Prints the parts of an answer: content and tool calls to stdout, reasoning dimmed to stderr.
struct Display {
    parser: OutputParser,
    answer: Answer,
    shows_reasoning: bool,
    /// The last piece was reasoning, whose line has not ended.
    is_reasoning: bool,
    /// The last piece was content, whose line has not ended.
    is_in_line: bool,
}

impl Display {
    fn new(prompt: Option<&Prompt>, shows_reasoning: bool) -> Self {
        let parser = prompt.map_or_else(OutputParser::plain, Prompt::parser);
        Self {
            parser,
            answer: Answer::default(),
            shows_reasoning,
            is_reasoning: false,
            is_in_line: false,
        }
    }

    /// Shows the parts of the answer that are certain now.
    fn show(&mut self, deltas: Vec<Delta>, out: &mut impl Write) -> io::Result<()> {
        for delta in deltas {
            match &delta {
                Delta::Reasoning(text) if self.shows_reasoning => {
                    let text = Palette::stderr().dim(terminal::shown(text));
                    write!(io::stderr().lock(), "{text}")?;
                    self.is_reasoning = true;
                }
                Delta::Content(text) => {
                    self.end_reasoning()?;
                    out.write_all(text.as_bytes())?;
                    self.is_in_line = !text.ends_with('\n');
                }
                _ => {}
            }
            let ended = match &delta {
                Delta::CallEnd { index, complete: true } => Some(*index),
                _ => None,
            };
            self.answer.extend([delta]);
            if let Some(call) = ended.and_then(|index| self.answer.calls.get(index)) {
                let line = call_json(call);
                self.end_reasoning()?;
                self.end_line(out)?;
                writeln!(out, "{line}")?;
            }
        }
        out.flush()
    }

    fn end_line(&mut self, out: &mut impl Write) -> io::Result<()> {
        if std::mem::take(&mut self.is_in_line) { writeln!(out) } else { Ok(()) }
    }

    fn end_reasoning(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_reasoning) { writeln!(io::stderr().lock()) } else { Ok(()) }
    }
}

/// A tool call as one line of JSON, in the form of a message of `OpenAI`'s API.
fn call_json(call: &AnswerCall) -> serde_json::Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// Generates to stdout, with a line break at the end. `prompt` says how to read the answer; without
/// one it is text. Returns the parts of the answer, too.
pub(super) fn stream(
    engine: &mut Engine,
    session: &mut Session,
    (mixed, prompt): (MixedPrompt, Option<&Prompt>),
    options: &GenerateOptions,
    extras: Extras<'_>,
    quiet: bool,
) -> Result<(Outcome, Answer)> {
    let watch = Watch::new();
    let mut out = io::stdout().lock();
    let mut display = Display::new(prompt, !quiet);
    let mut failed = None;
    let outcome = engine.generate_mixed(session, mixed, options, extras, &mut |text| {
        let deltas = display.parser.push(text);
        if let Err(error) = display.show(deltas, &mut out) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        flow(&watch)
    })?;
    if failed.is_none() {
        let rest = display.parser.finish();
        let end = || {
            display.show(rest, &mut out)?;
            display.end_reasoning()?;
            // A text without any content ends with a line break, too.
            display.is_in_line |= display.answer == Answer::default();
            display.end_line(&mut out)
        };
        failed = end().err();
    }
    if let Some(error) = failed {
        return Err(error).context("cannot write to standard output");
    }
    if outcome.stop_reason == StopReason::ContextFull {
        terminal::note(format_args!(
            "the context of {} tokens is full: give a larger one with -c, or --context-shift",
            engine.context_tokens()
        ));
    }
    Ok((outcome, display.answer))
}

/// A constraint and drafts for a generation.
pub(super) fn extras(
    constraint: Option<GrammarConstraint>,
    speculation: Option<&mut Speculation>,
) -> Extras<'_> {
    let constraint = constraint.map(|constraint| Box::new(constraint) as Box<dyn Constraint>);
    Extras::default().with_constraint(constraint).with_speculation(speculation)
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
    outcome: &Outcome,
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
