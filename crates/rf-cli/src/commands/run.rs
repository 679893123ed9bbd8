//! `rf-cli run`: one prompt and its answer, or a chat.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::Constraint;
use rf_engine::{Engine, GenerateOptions, Model, Outcome, StopReason};
use rf_grammar::GrammarConstraint;
use rf_tokenizer::Message;
use serde_json::json;

use super::answer::{OutputForm, conversation_ids, flow, stream, summary};
use super::chat;
use crate::args::{ComputeArgs, DeviceArgs, GrammarArgs, ModelArgs, SamplingArgs};
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::{LoadedModel, Source};
use crate::recording::{self, Recording};
use crate::terminal::Palette;
use crate::{demo, device, loading, sources, terminal};

/// Arguments of `rf-cli run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_help = "\
Streams the text to stdout and prints a line of metrics on stderr: tokens, throughput (t/s), time to first \
token (TTFT) and memory. Models with a chat template answer the prompt, others continue it. Ctrl-C stops the \
answer.

Examples:
  rf-cli run                                          chat with the demo model
  rf-cli run \"Tell me a story about a fox and a lost key.\"
  rf-cli run --raw \"Once upon a time\"
  rf-cli run -m model.gguf --system \"Answer in one line.\" \"What is a GGUF file?\"
  git diff | rf-cli run -m model.gguf -f - -n 200 --temp 0
  rf-cli run -m model.gguf --json \"Hello\" | jq .timings
  rf-cli run -m model.gguf --json-schema @person.json \"Invent a person.\"
  rf-cli run -m model.gguf --trace run.json \"Hello\"")]
pub(crate) struct RunArgs {
    /// Answer this prompt [default: -f, standard input if piped, or a chat on a terminal]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Answer this prompt, as in llama.cpp
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    prompt_flag: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Read the prompt from FILE, without one line break at its end; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_flag"])]
    file: Option<PathBuf>,
    /// Generate at most N tokens; -1 until the model ends or the context is full
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    predict: i64,
    /// Allow N tokens of context, prompt and answer together; 0 for the context of the model
    /// [default: that, at most 4096]
    #[arg(short, long, value_name = "CTX")]
    ctx_size: Option<usize>,
    /// Answer with the model's chat template, or fail if it has none
    #[arg(long, conflicts_with = "raw")]
    chat: bool,
    /// Continue the text, without the chat template
    #[arg(long)]
    raw: bool,
    /// Begin the conversation with the system message S
    #[arg(long, visible_alias = "system-prompt", value_name = "S", conflicts_with = "raw")]
    system: Option<String>,
    /// Stop before the text STR (repeatable)
    #[arg(long, visible_alias = "reverse-prompt", value_name = "STR")]
    stop: Vec<String>,
    /// Continue when the model ends its answer
    #[arg(long)]
    ignore_eos: bool,
    /// Drop the older half of a full context and continue
    #[arg(long)]
    context_shift: bool,
    /// Do not show the prompt before the text (with --raw on a terminal)
    #[arg(long)]
    no_display_prompt: bool,
    #[arg(long, help = "Print one JSON object: prompt_ids, ids, text, stop_reason, timings")]
    json: bool,
    /// Print no metrics and no notes
    #[arg(short, long)]
    quiet: bool,
    /// Print the time and the limit of every op, the parts of TTFT and the memory in use; timing
    /// the ops costs some speed
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Write a timeline of the run to FILE, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    form: GrammarArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli run`.
pub(crate) fn run(arguments: &RunArgs) -> Result<()> {
    let mut recording = Recording::start(arguments.trace.as_deref(), arguments.verbose);
    let ended = answer_or_chat(arguments, recording.as_mut());
    // A stopped answer has a timeline, too.
    let recorded = recording.map_or(Ok(()), Recording::finish);
    ended.and(recorded)
}

fn answer_or_chat(arguments: &RunArgs, recording: Option<&mut Recording>) -> Result<()> {
    let options = arguments.generate_options()?;
    let grammar = arguments.form.grammar()?;
    loading::check_context(arguments.ctx_size)?;
    let cpu = arguments.compute.cpu()?;
    let prompt = arguments.prompt()?;
    let path = loading::model_file(&arguments.model)?;
    let started = Instant::now();
    let model =
        tracing::info_span!("model_load").in_scope(|| loading::open_model(path.as_deref()))?;
    let is_chat = arguments.is_chat(&model)?;
    let engine_options = loading::engine_options(&model, &arguments.compute, arguments.ctx_size)?;
    let form = grammar.map(|grammar| OutputForm::new(&model, grammar)).transpose()?;
    let request = prompt.map(|prompt| arguments.request(&model, &prompt, is_chat, form.as_ref()));
    let request = request.transpose()?;
    let placement = device::open(arguments.device.options(cpu))?;
    let source = Source { path: path.as_deref(), started, quiet: arguments.quiet };
    let LoadedModel { mut engine, load_time, .. } =
        loading::load(model, &placement, engine_options, source)?;
    if recording.is_some() {
        recording::start_profiling(&mut engine);
    }
    let (engine, ended) = if let Some(request) = request {
        let ended = arguments.answer(&mut engine, request, &options, load_time);
        (engine, ended)
    } else {
        let system = arguments.system.as_deref();
        let chat = chat::Chat::new(engine, options, form, system, load_time, arguments.quiet);
        (chat.run()?, Ok(()))
    };
    if let Some(recording) = recording {
        recording.capture(&engine, &placement);
    }
    ended
}

/// A tokenised prompt.
struct Request {
    ids: Vec<u32>,
    /// Text to show before the answer.
    shown: Option<String>,
    /// The form of the answer.
    constraint: Option<GrammarConstraint>,
}

impl RunArgs {
    fn generate_options(&self) -> Result<GenerateOptions> {
        if self.predict == 0 {
            return Err(bad_input!(
                "-n 0 generates nothing: give 1 or more, or -1 to continue until the model ends"
            ));
        }
        let temperature = if self.model.is_demo() {
            demo::TEMPERATURE
        } else {
            SamplerConfig::default().temperature
        };
        Ok(GenerateOptions {
            sampler: self.sampling.config(temperature)?,
            max_tokens: usize::try_from(self.predict).ok(),
            stop: self.stop.clone(),
            rendered_tokens: Vec::new(),
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
        if text.is_empty() && self.model.is_demo() && self.file.is_none() && !self.raw {
            terminal::note(format_args!(
                "no prompt given, so the demo model answers: {}",
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
                "the model has no chat template: leave out --chat and --system to continue the text, or use \
                 a model that was trained for chat"
            ));
        }
        Ok(has_template && !self.raw)
    }

    fn request(
        &self,
        model: &Model,
        prompt: &str,
        is_chat: bool,
        form: Option<&OutputForm>,
    ) -> Result<Request> {
        let _span = tracing::info_span!("tokenize").entered();
        let empty = || {
            bad_input!("the prompt is empty: give one as an argument, with -f FILE, or by a pipe")
        };
        if is_chat && prompt.trim().is_empty() {
            return Err(empty());
        }
        let (conversation, ids) = if is_chat {
            let system = self.system.iter().map(|text| Message::new("system", text));
            let messages: Vec<_> = system.chain([Message::new("user", prompt)]).collect();
            let (prompt, ids) = conversation_ids(model, &messages)?;
            (Some(prompt), ids)
        } else {
            (None, model.text_ids(prompt))
        };
        if ids.is_empty() {
            return Err(empty());
        }
        let show = !is_chat && !self.no_display_prompt && io::stdout().is_terminal();
        let constraint = form.map(|form| form.constraint(conversation.as_ref())).transpose()?;
        Ok(Request { ids, shown: show.then(|| prompt.to_owned()), constraint })
    }

    fn answer(
        &self,
        engine: &mut Engine,
        mut request: Request,
        options: &GenerateOptions,
        load_time: Duration,
    ) -> Result<()> {
        let mut session = engine.session();
        if self.json {
            let watch = Watch::new();
            let constraint = request.constraint.as_mut().map(|c| c as &mut dyn Constraint);
            let (ids, on_text) = (&request.ids, &mut |_: &str| flow(&watch));
            let outcome =
                engine.generate_constrained(&mut session, ids, options, constraint, on_text)?;
            let out = &mut io::stdout().lock();
            writeln!(out, "{}", json(&request.ids, &outcome, load_time))?;
            return end(&outcome);
        }
        if let Some(shown) = &request.shown {
            write!(io::stdout().lock(), "{}", Palette::stdout().dim(shown))?;
        }
        let outcome = stream(engine, &mut session, &request.ids, options, request.constraint)?;
        if !self.quiet {
            let bytes = engine.memory().total_bytes();
            terminal::note(Palette::stderr().dim(summary(&outcome.timings, bytes)));
        }
        end(&outcome)
    }
}

/// Turns an interrupted answer into the exit code of Ctrl-C.
fn end(outcome: &Outcome) -> Result<()> {
    if outcome.stop_reason == StopReason::Cancelled { Err(Interrupted.into()) } else { Ok(()) }
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
