//! An answer while it is generated: content and tool calls on stdout, reasoning and the progress of
//! the prompt on stderr.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rocmforge::engine::{
    Engine, GenerateOptions, GenerationOutcome, MixedPrompt, PromptProgress, Session, Speculation,
    StopReason,
};
use rocmforge::grammar::GrammarConstraint;
use rocmforge::messages::{Answer, Delta, OutputParser, Prompt};

use super::answer::{call_json, extras, flow};
use crate::interrupt::Watch;
use crate::screen::{Look, TextOutput};
use crate::terminal::{self, Palette};

/// A prompt to answer.
pub(super) struct Question<'a> {
    pub(super) prompt: MixedPrompt,
    /// Says how to read the answer; without it the answer is text.
    pub(super) chat: Option<&'a Prompt>,
    /// The start of the text, shown before what is generated.
    pub(super) shown: Option<&'a str>,
    /// Restricts the answer.
    pub(super) constraint: Option<GrammarConstraint>,
    /// Drafts tokens of the answer.
    pub(super) speculation: Option<&'a mut Speculation>,
}

/// The way in which answers are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presentation {
    pub(super) look: Look,
    /// Print no metrics, no notes and no reasoning.
    pub(super) quiet: bool,
    /// False if only the prompt is computed, so that there is no line to end.
    pub(super) is_answered: bool,
}

/// Generates to stdout, with a line break at the end. Returns the parts of the answer, too.
pub(super) fn stream(
    engine: &mut Engine,
    session: &mut Session,
    question: Question<'_>,
    options: &GenerateOptions,
    presentation: Presentation,
    watch: &Watch,
) -> Result<(GenerationOutcome, Answer)> {
    let mut out = io::stdout().lock();
    let is_answered = presentation.is_answered;
    let mut display = Display::new(question.chat, presentation);
    let mut failed = None;
    let bar = PromptBar::new(question.prompt.len(), engine.batch_tokens());
    let mut shown = question.shown;
    let mut on_prompt = |progress: PromptProgress| {
        bar.show(progress.done_tokens, progress.cached_tokens);
        flow(watch)
    };
    let extras = extras(question.constraint, question.speculation).with_on_prompt(&mut on_prompt);
    let outcome = engine.generate_mixed(session, question.prompt, options, extras, &mut |text| {
        bar.clear();
        let deltas = display.parser.push(text);
        let start = shown.take();
        let written = start.map_or(Ok(()), |start| display.show_start(start, &mut out));
        if let Err(error) = written.and_then(|()| display.show(deltas, &mut out)) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        flow(watch)
    });
    bar.clear();
    let outcome = outcome?;
    if failed.is_none() {
        let rest = display.parser.finish();
        let end = || {
            if let Some(start) = shown {
                display.show_start(start, &mut out)?;
            }
            display.show(rest, &mut out)?;
            display.end_reasoning()?;
            // A text without any content ends with a line break, too.
            display.is_in_line |= is_answered && display.answer == Answer::default();
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

/// Prints the parts of an answer.
struct Display {
    parser: OutputParser,
    answer: Answer,
    content: TextOutput,
    /// `None` if reasoning is not shown.
    reasoning: Option<TextOutput>,
    /// The last piece was reasoning, whose line has not ended.
    is_reasoning: bool,
    /// The last piece was content, whose line has not ended.
    is_in_line: bool,
}

impl Display {
    fn new(prompt: Option<&Prompt>, presentation: Presentation) -> Self {
        let Presentation { look, quiet, .. } = presentation;
        let reasoning_look = if look == Look::Plain { look } else { Look::Wrapped };
        Self {
            parser: prompt.map_or_else(OutputParser::plain, Prompt::parser),
            answer: Answer::default(),
            content: TextOutput::stdout(look),
            reasoning: (!quiet).then(|| TextOutput::stderr(reasoning_look)),
            is_reasoning: false,
            is_in_line: false,
        }
    }

    /// Shows the text that an answer continues.
    fn show_start(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut shown = Vec::new();
        self.content.write(text, &mut shown)?;
        write!(out, "{}", Palette::stdout().dim(String::from_utf8_lossy(&shown)))?;
        self.is_in_line = !text.ends_with('\n');
        Ok(())
    }

    /// Shows the parts of the answer that are certain now.
    fn show(&mut self, deltas: Vec<Delta>, out: &mut impl Write) -> io::Result<()> {
        for delta in deltas {
            match &delta {
                Delta::Reasoning(text) => {
                    if let Some(reasoning) = &mut self.reasoning {
                        let mut shown = Vec::new();
                        reasoning.write(text, &mut shown)?;
                        write_dim(&shown)?;
                        self.is_reasoning = true;
                    }
                }
                Delta::Content(text) => {
                    self.end_reasoning()?;
                    self.content.write(text, out)?;
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
        self.content.finish(out)?;
        if std::mem::take(&mut self.is_in_line) { writeln!(out) } else { Ok(()) }
    }

    fn end_reasoning(&mut self) -> io::Result<()> {
        let is_reasoning = std::mem::take(&mut self.is_reasoning);
        let Some(reasoning) = self.reasoning.as_mut().filter(|_| is_reasoning) else {
            return Ok(());
        };
        let mut rest = Vec::new();
        reasoning.finish(&mut rest)?;
        write_dim(&rest)?;
        writeln!(io::stderr().lock())
    }
}

fn write_dim(text: &[u8]) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let text = Palette::stderr().dim(String::from_utf8_lossy(text));
    write!(io::stderr().lock(), "{text}")
}

/// The progress of a prompt of several batches: tokens, throughput, and the time that is left.
pub(super) struct PromptBar {
    bar: ProgressBar,
    start: Instant,
}

impl PromptBar {
    /// The bar of a prompt, hidden if one batch has room for it.
    pub(super) fn new(tokens: usize, batch_tokens: usize) -> Self {
        let bar = if tokens > batch_tokens {
            terminal::prompt_progress(tokens as u64)
        } else {
            ProgressBar::hidden()
        };
        bar.tick();
        Self { bar, start: Instant::now() }
    }

    /// Shows how many tokens are done, of which some were in the cache.
    pub(super) fn show(&self, done_tokens: usize, cached_tokens: usize) {
        self.bar.set_position(done_tokens as u64);
        let computed = done_tokens.saturating_sub(cached_tokens);
        let seconds = self.start.elapsed().as_secs_f64();
        if computed > 0 && seconds > 0.0 {
            let rate = computed as f64 / seconds;
            let tokens = self.bar.length().unwrap_or(0) as usize;
            let left = tokens.saturating_sub(done_tokens) as f64 / rate;
            self.bar.set_message(format!("{rate:.1} t/s, {left:.0} s left"));
        }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
