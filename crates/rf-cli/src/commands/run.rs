//! `rf-cli run`: one prompt and its answer, or a chat.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rf_engine::sampling::SamplerConfig;
use rf_engine::{Engine, GenerateOptions, Model, Outcome, Session, StopReason, Timings};
use rf_tokenizer::{EncodeOptions, Message, RenderOptions};
use serde_json::json;

use super::chat;
use crate::args::{ComputeArgs, ModelArgs, SamplingArgs};
use crate::device::DeviceArgs;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::{Loaded, Source};
use crate::recording::{self, Recording};
use crate::terminal::Palette;
use crate::{demo, loading, sources, terminal};

/// Arguments of `rf-cli run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_help = "\
The text goes to stdout as it comes, a line of figures to stderr. Models with a chat template answer \
the prompt, others continue it. Ctrl-C stops the answer.

Examples:
  rf-cli run                                          chat with the demo model
  rf-cli run \"Tell me a story about a fox and a lost key.\"
  rf-cli run --raw \"Once upon a time\"
  rf-cli run -m model.gguf --system \"Answer in one line.\" \"What is a GGUF file?\"
  git diff | rf-cli run -m model.gguf -f - -n 200 --temp 0
  rf-cli run -m model.gguf --json \"Hello\" | jq .timings
  rf-cli run -m model.gguf --trace run.json \"Hello\"")]
pub(crate) struct RunArgs {
    /// What to say; without it -f, standard input when piped, or a chat on a terminal
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// The same, as in llama.cpp
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    prompt_flag: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// File with the prompt, one line break at its end left out; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_flag"])]
    file: Option<PathBuf>,
    /// Tokens to generate at most; -1 until the model ends or the context is full
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    predict: i64,
    /// Tokens of prompt and answer together; 0 for the model's own context [default: that, at most 4096]
    #[arg(short, long, value_name = "CTX")]
    ctx_size: Option<usize>,
    /// Answer with the model's chat template, or fail if it has none
    #[arg(long, conflicts_with = "raw")]
    chat: bool,
    /// Continue the text, without the chat template
    #[arg(long)]
    raw: bool,
    /// System message that comes before the conversation
    #[arg(long, visible_alias = "system-prompt", value_name = "S", conflicts_with = "raw")]
    system: Option<String>,
    /// Stop before this text (repeatable)
    #[arg(long, visible_alias = "reverse-prompt", value_name = "STR")]
    stop: Vec<String>,
    /// Go on when the model ends its answer
    #[arg(long)]
    ignore_eos: bool,
    /// Forget the older half of a full context and go on
    #[arg(long)]
    context_shift: bool,
    /// With --raw on a terminal: do not show the prompt before the text
    #[arg(long)]
    no_display_prompt: bool,
    #[arg(long, help = "Print one JSON object: prompt_ids, ids, text, stop_reason, timings")]
    json: bool,
    /// Print no line of figures
    #[arg(short, long)]
    quiet: bool,
    /// Print which ops ran where, how long they took and what limits them, what the first token waited for, and where
    /// memory went; taking the times costs some speed
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Write a timeline of the run, to be opened in Perfetto or Chrome's tracing page
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli run`.
pub(crate) fn run(arguments: &RunArgs) -> Result<()> {
    let mut recording = Recording::start(arguments.trace.as_deref(), arguments.verbose);
    let ended = answer_or_chat(arguments, recording.as_mut());
    // An answer that was stopped has its timeline too.
    let recorded = recording.map_or(Ok(()), Recording::finish);
    ended.and(recorded)
}

fn answer_or_chat(arguments: &RunArgs, recording: Option<&mut Recording>) -> Result<()> {
    let started = Instant::now();
    let options = arguments.generate_options()?;
    loading::check_context(arguments.ctx_size)?;
    let cpu = loading::cpu_options(&arguments.compute)?;
    let prompt = arguments.prompt()?;
    let model =
        tracing::info_span!("model_load").in_scope(|| loading::open_model(&arguments.model))?;
    let is_chat = arguments.is_chat(&model)?;
    let engine_options = loading::engine_options(&model, &arguments.compute, arguments.ctx_size)?;
    let request = prompt.map(|prompt| arguments.request(&model, &prompt, is_chat)).transpose()?;
    let placement = arguments.device.open(cpu)?;
    let source = Source { path: arguments.model.model.as_deref(), started, quiet: arguments.quiet };
    let Loaded { mut engine, load_time, .. } =
        loading::load(model, &placement, engine_options, source)?;
    if recording.is_some() {
        recording::watch(&mut engine);
    }
    let (engine, ended) = if let Some(request) = request {
        let ended = arguments.answer(&mut engine, &request, &options, load_time);
        (engine, ended)
    } else {
        let system = arguments.system.as_deref();
        (chat::Chat::new(engine, options, system, load_time, arguments.quiet).run()?, Ok(()))
    };
    if let Some(recording) = recording {
        recording.take_in(&engine, &placement);
    }
    ended
}

/// A prompt as the model gets it.
struct Request {
    ids: Vec<u32>,
    /// What to show before the answer.
    shown: Option<String>,
}

impl RunArgs {
    fn generate_options(&self) -> Result<GenerateOptions> {
        if self.predict == 0 {
            return Err(bad_input!(
                "-n 0 asks for no tokens: give 1 or more, or -1 to go on until the model ends"
            ));
        }
        let temperature = match self.model.model {
            Some(_) => SamplerConfig::default().temperature,
            None => demo::TEMPERATURE,
        };
        Ok(GenerateOptions {
            sampler: self.sampling.config(temperature)?,
            max_tokens: usize::try_from(self.predict).ok(),
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            context_shift: self.context_shift,
        })
    }

    /// The prompt; `None` for a chat at the terminal.
    fn prompt(&self) -> Result<Option<String>> {
        let text = match (self.prompt.as_ref().or(self.prompt_flag.as_ref()), &self.file) {
            (Some(prompt), _) if prompt != "-" => return Ok(Some(prompt.clone())),
            (Some(_), _) => sources::piped_text()?.unwrap_or_default(),
            (None, Some(file)) => sources::file_text(file)?,
            (None, None) => match sources::piped_text()? {
                Some(text) => text,
                None if io::stdout().is_terminal() && !self.json && !self.raw => return Ok(None),
                None => String::new(),
            },
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() && self.model.model.is_none() && self.file.is_none() && !self.raw {
            terminal::note(format_args!(
                "no prompt given, so the demo model is asked: {}",
                demo::PROMPT
            ));
            return Ok(Some(demo::PROMPT.to_owned()));
        }
        Ok(Some(text.to_owned()))
    }

    fn is_chat(&self, model: &Model) -> Result<bool> {
        let has_template = model.chat_template().is_some();
        if !has_template && (self.chat || self.system.is_some()) {
            return Err(bad_input!(
                "the model has no chat template: leave out --chat and --system to continue the text, or take \
                 a model that was trained for chat"
            ));
        }
        Ok(has_template && !self.raw)
    }

    fn request(&self, model: &Model, prompt: &str, is_chat: bool) -> Result<Request> {
        let _span = tracing::info_span!("tokenize").entered();
        let empty = || {
            bad_input!("the prompt is empty: give one as an argument, with -f FILE, or by a pipe")
        };
        if is_chat && prompt.trim().is_empty() {
            return Err(empty());
        }
        let ids = if is_chat {
            let system = self.system.iter().map(|text| Message::new("system", text));
            let messages: Vec<_> = system.chain([Message::new("user", prompt)]).collect();
            conversation_ids(model, &messages)?
        } else {
            text_ids(model, prompt)
        };
        if ids.is_empty() {
            return Err(empty());
        }
        let show = !is_chat && !self.no_display_prompt && io::stdout().is_terminal();
        Ok(Request { ids, shown: show.then(|| prompt.to_owned()) })
    }

    fn answer(
        &self,
        engine: &mut Engine,
        request: &Request,
        options: &GenerateOptions,
        load_time: Duration,
    ) -> Result<()> {
        let mut session = engine.session();
        if self.json {
            let watch = Watch::new();
            let outcome =
                engine.generate(&mut session, &request.ids, options, &mut |_| flow(&watch))?;
            let out = &mut io::stdout().lock();
            writeln!(out, "{}", json(&request.ids, &outcome, load_time))?;
            return end(&outcome);
        }
        if let Some(shown) = &request.shown {
            write!(io::stdout().lock(), "{}", Palette::stdout().dim(shown))?;
        }
        let outcome = stream(engine, &mut session, &request.ids, options)?;
        if !self.quiet {
            let memory = engine.memory();
            let bytes = memory.weights_bytes + memory.kv_bytes + memory.buffers_bytes;
            terminal::note(Palette::stderr().dim(summary(&outcome.timings, bytes)));
        }
        end(&outcome)
    }
}

/// An interrupted answer ends the program as Ctrl-C does.
fn end(outcome: &Outcome) -> Result<()> {
    if outcome.stop_reason == StopReason::Cancelled { Err(Interrupted.into()) } else { Ok(()) }
}

fn flow(watch: &Watch) -> ControlFlow<()> {
    if watch.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The ids of a conversation up to where the assistant answers.
pub(super) fn conversation_ids(model: &Model, messages: &[Message]) -> Result<Vec<u32>> {
    let template = model.chat_template().context("the model has no chat template")?;
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let text = template.render(messages, &options)?;
    let tokenizer = model.tokenizer();
    let options = EncodeOptions { add_special: false, parse_special: true };
    let mut ids = tokenizer.encode(&text, options);
    // Most templates write the BOS token themselves, and two of them would confuse the model.
    if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos())
        && ids.first() != Some(&bos)
    {
        ids.insert(0, bos);
    }
    Ok(ids)
}

/// The ids of a text to continue; an empty one starts from BOS.
fn text_ids(model: &Model, text: &str) -> Vec<u32> {
    let tokenizer = model.tokenizer();
    let mut ids = tokenizer.encode(text, EncodeOptions::PROMPT);
    if tokenizer.adds_eos() {
        ids.pop();
    }
    if ids.is_empty() {
        ids.extend(tokenizer.bos());
    }
    ids
}

/// Generates to stdout, with a line break at the end.
pub(super) fn stream(
    engine: &mut Engine,
    session: &mut Session,
    ids: &[u32],
    options: &GenerateOptions,
) -> Result<Outcome> {
    let watch = Watch::new();
    let mut out = io::stdout().lock();
    let mut failed = None;
    let outcome = engine.generate(session, ids, options, &mut |text| {
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

/// Figures of an answer in one line.
pub(super) fn summary(timings: &Timings, memory_bytes: u64) -> String {
    let speed = |per_second: Option<f64>| {
        per_second.map(|speed| format!(" ({speed:.1} t/s)")).unwrap_or_default()
    };
    format!(
        "prompt {} tokens{}, generated {} tokens{}, first after {:.0} ms, memory {}",
        timings.prompt_tokens,
        speed(timings.prompt_tokens_per_second()),
        timings.generated_tokens,
        speed(timings.decode_tokens_per_second()),
        timings.ttft_us as f64 / 1e3,
        terminal::bytes(memory_bytes)
    )
}

fn json(prompt_ids: &[u32], outcome: &Outcome, load_time: Duration) -> serde_json::Value {
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
            "load_ms": load_time.as_secs_f64() * 1e3,
        },
    })
}
