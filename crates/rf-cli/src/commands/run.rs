//! `rf-cli run`: one prompt and its answer, or a chat.

mod prompt;
mod tools;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use rocmforge::engine::{
    Engine, GenerateOptions, GenerationOutcome, MixedPrompt, Model, PromptProgress, Speculation,
    StopReason,
};
use rocmforge::grammar::{Grammar, GrammarConstraint};
use rocmforge::messages::{ChatPrompt, Conversation, Message, Prompt};
use rocmforge::{LoadedModel, Media, MediaEncoders, OpenModel, Purpose};

use self::tools::ToolArgs;
use super::answer::{OutputForm, conversation_prompt, extras, flow, json, logprobs_json, summary};
use super::display::{Presentation, PromptBar, Question, stream};
use super::prompt_cache::Prefilled;
use super::{chat, prompt_cache};
use crate::adapters::AdapterArgs;
use crate::args::{ComputeArgs, DeviceArgs, GrammarArgs, ModelArgs, SamplingArgs, TemplateArgs};
use crate::device::Placement;
use crate::drafts::DraftArgs;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::ModelFile;
use crate::media::ProjectorArgs;
use crate::recording::{self, Outputs, Recording};
use crate::screen::Look;
use crate::terminal::Palette;
use crate::{device, escapes, loading, media, picture, sources, terminal};

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
  git diff | rf-cli run -m model.gguf \"Explain this change.\"
  rf-cli run -m model.gguf --image cat.jpg \"What is on this picture?\"
  rf-cli run -m model.gguf --json \"Hello\" | jq .timings
  rf-cli run -m model.gguf --json-schema @person.json \"Invent a person.\"
  rf-cli run -m model.gguf --trace run.json \"Hello\"")]
pub(crate) struct RunArgs {
    /// Answer PROMPT, followed by the text of -f and of piped standard input. A model file may come
    /// before PROMPT [default: chat on the terminal]
    #[arg(value_name = "PROMPT", num_args = 0..=2)]
    words: Vec<String>,
    /// Answer PROMPT, as llama.cpp's -p: escapes such as \n are resolved
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT")]
    prompt_flag: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Read the prompt from FILE; - for standard input. One line break at its end is removed
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Generate at most N tokens; -1 = until the model ends its answer or the context is full, 0 =
    /// only compute the prompt, as for --prompt-cache
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    predict: i64,
    /// Limit prompt and answer to CTX tokens together; 0 = trained context [default: trained
    /// context, capped at 4096]
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
    /// Begin the conversation with the system message in FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "system"])]
    system_prompt_file: Option<PathBuf>,
    #[command(flatten)]
    offer: ToolArgs,
    #[arg(
        help = "Ask about the picture in FILE, a PNG, JPEG, WebP, GIF or BMP file (repeatable). Pictures come before \
                the prompt, or with --raw where it has <__media__>"
    )]
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    image: Vec<PathBuf>,
    #[arg(
        help = "Ask about the sound in FILE, a WAV or MP3 file (repeatable). Sounds come after pictures, before the \
                prompt, or with --raw where it has <__media__>"
    )]
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    audio: Vec<PathBuf>,
    /// End a chat after its first answer (-st)
    #[arg(long)]
    single_turn: bool,
    /// Stop the answer before the text STR (repeatable)
    #[arg(long, visible_alias = "reverse-prompt", value_name = "STR")]
    stop: Vec<String>,
    /// Continue after the token with which the model ends its answer
    #[arg(long)]
    ignore_eos: bool,
    /// When the context is full, drop its older half and continue
    #[arg(long)]
    context_shift: bool,
    /// Do not show the prompt before the text (with --raw on a terminal)
    #[arg(long)]
    no_display_prompt: bool,
    /// Save the computed prompt in FILE. A later run whose prompt begins the same resumes from it
    #[arg(long, value_name = "FILE")]
    prompt_cache: Option<PathBuf>,
    #[arg(long, help = "Print one JSON object: prompt_ids, ids, text, stop_reason, timings")]
    json: bool,
    #[arg(
        help = "With --json, print the log probability of each token, and those of the N most probable ones in its \
                place (at most 20), as OpenAI's API does"
    )]
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u8).range(0..=20))]
    logprobs: Option<u8>,
    /// Print no metrics and no notes
    #[arg(short, long)]
    quiet: bool,
    /// Show the text as it is on a terminal, too: without styles for Markdown, and lines not
    /// wrapped at words
    #[arg(long)]
    plain: bool,
    /// Print the time and the roofline of every op, the parts of TTFT and the memory in use. Timing
    /// the ops costs some speed
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Write a timeline of the run to FILE, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Draw the roofline of the ops to FILE, an SVG picture; - draws it with characters on stderr
    #[arg(long, value_name = "FILE")]
    roofline: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    form: GrammarArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    projector: ProjectorArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli run`.
pub(crate) fn run(arguments: &RunArgs) -> Result<()> {
    if let Some(trace) = &arguments.trace {
        sources::check_output(trace)?;
        sources::check_is_no_input(trace, arguments.inputs())?;
    }
    if let Some(roofline) = &arguments.roofline {
        picture::check(roofline)?;
        sources::check_is_no_input(roofline, arguments.inputs())?;
    }
    let mut recording = Recording::start(Outputs {
        trace: arguments.trace.clone(),
        roofline: arguments.roofline.clone(),
        reports: arguments.verbose,
    });
    let ended = answer_or_chat(arguments, recording.as_mut());
    // A stopped answer has a timeline, too.
    let recorded = recording.map_or(Ok(()), Recording::finish);
    ended.and(recorded)
}

fn answer_or_chat(arguments: &RunArgs, recording: Option<&mut Recording>) -> Result<()> {
    let flag = arguments.prompt_flag.as_deref();
    let words = prompt::words(&arguments.words, flag, arguments.model.is_demo())?;
    let is_demo = arguments.model.is_demo() && words.model.is_none();
    let looks_like_name = words.prompt.as_deref().is_some_and(prompt::looks_like_model_name);
    if is_demo && looks_like_name && !arguments.quiet {
        terminal::note("no model is named with -m or -hf, so the demo model answers");
    }
    let options = arguments.generate_options()?;
    let grammar = arguments.form.grammar()?;
    loading::check_context(arguments.ctx_size)?;
    arguments.compute.cpu()?;
    arguments.template.choice()?;
    let source = prompt::PromptSource {
        file: arguments.file.as_deref(),
        json: arguments.json,
        raw: arguments.raw,
    };
    let prompt = prompt::prompt(&source, words.prompt.as_deref(), is_demo)?;
    let companions = arguments.projector.companions();
    let file = ModelFile::with_companions(&arguments.model, companions)?
        .or_path(words.model.as_deref(), companions)?;
    let started = Instant::now();
    let files = arguments.media()?;
    let open = arguments.open(&file)?;
    let model = open.model();
    let system = arguments.system()?;
    let base = arguments.offer.conversation()?;
    let is_chat = arguments.is_chat(model, system.is_some() || !base.tools.is_empty())?;
    let Some(prompt) = prompt else {
        if arguments.predict == 0 {
            return Err(bad_input!(
                "-n 0 generates nothing in a chat: give 1 or more, or -1 to continue until the model ends"
            ));
        }
        if !files.is_empty() {
            return Err(bad_input!(
                "--image and --audio need a prompt: give one, or /image and /audio in the chat"
            ));
        }
        if arguments.prompt_cache.is_some() {
            return Err(bad_input!(
                "--prompt-cache needs a prompt: give one, or save a chat with /save"
            ));
        }
        chat::check_chats(model)?;
        let settings = chat::ChatSettings::new(arguments.sampling.clone(), arguments.predict);
        let conversation = (system.as_deref(), base);
        let shown = arguments.presentation(true);
        let chat = chat::Chat::new(options, settings, conversation, shown, arguments.single_turn);
        return arguments.chat(chat, open, &file, (grammar.as_ref(), recording));
    };
    let options = options.with_sampler(arguments.sampling.for_model(model)?);
    let form = OutputForm::new(model, grammar, &base.tool_choice)?;
    let before = || {
        let system = system.as_deref().map(|text| Message::new("system", text));
        system.into_iter().collect()
    };
    let request = arguments.request(model, &prompt, is_chat.then(before), &base, form.as_ref())?;
    let open = open.with(|loader| loader.purpose(Purpose::Texts));
    // A prompt of text needs no encoder, unless it is named.
    let needs_encoder = !files.is_empty() || arguments.projector.is_named();
    let open = if needs_encoder { open } else { open.without_projector() };
    let (loaded, placement) = arguments.load(&open)?;
    let LoadedModel { mut engine, mut speculation, encoders, .. } = loaded;
    let request = request.with_media(&engine, encoders.as_deref(), &files)?;
    let load_time = started.elapsed();
    if recording.is_some() {
        recording::start_profiling(&mut engine);
    }
    let drafts = speculation.as_mut();
    let ended = arguments.answer(&mut engine, request, &options, drafts, load_time);
    if let Some(recording) = recording {
        recording.capture(&mut engine, &placement);
    }
    ended
}

/// A tokenised prompt.
struct Request {
    prompt: MixedPrompt,
    /// The text of the prompt, with a mark for each picture.
    text: String,
    /// The chat prompt, which has the format of the answer; `None` for a text that is continued.
    chat: Option<Prompt>,
    /// Control tokens whose text is a part of the answer.
    rendered_tokens: Vec<u32>,
    /// Text to show before the answer.
    shown: Option<String>,
    /// The form of the answer.
    constraint: Option<GrammarConstraint>,
}

impl RunArgs {
    /// The files that are read.
    fn inputs(&self) -> impl Iterator<Item = &Path> {
        let named = [&self.file, &self.model.model, &self.system_prompt_file, &self.offer.tools];
        named.into_iter().flatten().chain(&self.image).chain(&self.audio).map(PathBuf::as_path)
    }

    /// The pictures and sounds of the prompt.
    fn media(&self) -> Result<Vec<Media>> {
        let images = self.image.iter().map(|path| media::image(path));
        images.chain(self.audio.iter().map(|path| media::audio(path))).collect()
    }

    /// Opens a model with the options of the command line.
    fn open(&self, file: &ModelFile) -> Result<OpenModel> {
        let loader = loading::sized(file.loader(), &self.compute, self.ctx_size)?;
        let loader = self.adapters.add_to(self.projector.add_to(loader));
        let loader = self.drafts.add_to(self.template.choice()?.add_to(loader))?;
        let open =
            tracing::info_span!("model_load").in_scope(|| loading::open_generator(loader))?;
        self.drafts.note_heads(&open);
        loading::warn_of_context(open.model(), self.ctx_size);
        // What does not fit the model is refused before its weights are loaded.
        self.sampling.for_model(open.model())?;
        Ok(open)
    }

    fn load(&self, open: &OpenModel) -> Result<(LoadedModel, Placement)> {
        let placement = device::open(self.device.options(self.compute.cpu()?))?;
        let loaded = loading::load(open, &placement, self.quiet, &mut |_| ())?;
        if let Some(division) = loaded.layers.division.as_ref().filter(|_| self.verbose) {
            terminal::note(division);
        }
        Ok((loaded, placement))
    }

    /// Chats, with one model after another.
    fn chat(
        &self,
        mut chat: chat::Chat,
        open: OpenModel,
        file: &ModelFile,
        (grammar, recording): (Option<&Grammar>, Option<&mut Recording>),
    ) -> Result<()> {
        let is_recorded = recording.is_some();
        let choice = chat.base.tool_choice.clone();
        let load = |open: OpenModel| {
            let started = Instant::now();
            // Only a conversation goes back to earlier turns.
            let open = open.with(|loader| loader.purpose(Purpose::Chat));
            let form = OutputForm::new(open.model(), grammar.cloned(), &choice)?;
            let (loaded, placement) = self.load(&open)?;
            let mut model = chat::ChatModel::new(loaded, form, started.elapsed());
            if is_recorded {
                recording::start_profiling(model.engine());
            }
            anyhow::Ok((model, placement))
        };
        let other = |path: &Path| {
            let companions = self.projector.companions();
            let open = self.open(&ModelFile::default().or_path(Some(path), companions)?)?;
            chat::check_chats(open.model())?;
            Ok(open)
        };
        let mut input = chat::Chat::input()?;
        let mut file = file.clone();
        let (mut model, mut placement) = load(open)?;
        while let chat::ChatEnd::OtherModel(open) = chat.run(&mut model, &mut input, &other)? {
            // The memory of one model is room for the other.
            drop(model);
            let path = open.model().gguf().paths().first().cloned();
            (model, placement) = match load(*open) {
                Ok(loaded) => {
                    file = ModelFile::of_path(path);
                    loaded
                }
                Err(error) => {
                    chat::report(&error);
                    load(self.open(&file)?)?
                }
            };
        }
        input.close();
        if let Some(recording) = recording {
            recording.capture(model.engine(), &placement);
        }
        Ok(())
    }

    fn presentation(&self, is_chat: bool) -> Presentation {
        let has_form = self.form.is_given();
        let look = match is_chat {
            _ if self.plain || has_form => Look::Plain,
            true => Look::Markdown,
            false => Look::Wrapped,
        };
        Presentation { look, quiet: self.quiet, is_answered: true }
    }

    fn generate_options(&self) -> Result<GenerateOptions> {
        self.sampling.check()?;
        Ok(GenerateOptions::default()
            .with_max_tokens(usize::try_from(self.predict).ok())
            .with_stop(self.stop.iter().map(|text| escapes::resolved(text)).collect())
            .with_ignore_eos(self.ignore_eos)
            .with_context_shift(self.context_shift))
    }

    fn system(&self) -> Result<Option<String>> {
        match &self.system_prompt_file {
            Some(file) => sources::file_text(file).map(Some),
            None => Ok(self.system.clone()),
        }
    }

    fn is_chat(&self, model: &Model, has_system: bool) -> Result<bool> {
        if let Some(error) = model.chat_template_error().filter(|_| !self.raw) {
            return Err(bad_input!(
                "{error}: give --raw to continue the text without a template, or another template \
                 with --chat-template, such as chatml"
            ));
        }
        let has_template = model.chat_template().is_some();
        if !has_template && (self.chat || has_system) {
            return Err(bad_input!(
                "the model has no chat template: leave out --chat and --system to continue the text, or use \
                 a model that was trained for chat"
            ));
        }
        Ok(has_template && !self.raw)
    }

    /// Tokenises the prompt: of a conversation with these messages before it, or a text.
    fn request(
        &self,
        model: &Model,
        prompt: &str,
        conversation: Option<Vec<Message>>,
        base: &Conversation,
        form: Option<&OutputForm>,
    ) -> Result<Request> {
        let is_chat = conversation.is_some();
        let num_media = self.image.len() + self.audio.len();
        let _span = tracing::info_span!("tokenize").entered();
        let empty = || {
            bad_input!("the prompt is empty: give one as an argument, with -f FILE, or by a pipe")
        };
        if is_chat && prompt.trim().is_empty() {
            return Err(empty());
        }
        let (chat, text, ids, rendered_tokens) = if let Some(mut messages) = conversation {
            let marks = rocmforge::media_marker().repeat(num_media);
            messages.push(Message::new("user", marks + prompt));
            let ChatPrompt { ids, rendered_tokens, prompt } =
                conversation_prompt(model, &messages, base)?;
            let text = prompt.text.clone();
            (Some(prompt), text, ids, rendered_tokens)
        } else {
            let text = rocmforge::marked_text(prompt, num_media);
            (None, text, model.text_ids(prompt), Vec::new())
        };
        if ids.is_empty() && num_media == 0 {
            return Err(if is_chat {
                bad_input!(
                    "the chat template renders this conversation as nothing: give another one with \
                     --chat-template, or --raw to continue the text"
                )
            } else {
                empty()
            });
        }
        let show = !is_chat && !self.no_display_prompt && io::stdout().is_terminal();
        let constraint = form.map_or(Ok(None), |form| form.constraint(chat.as_ref()))?;
        let shown = show.then(|| prompt.to_owned());
        Ok(Request { prompt: ids.into(), text, chat, rendered_tokens, shown, constraint })
    }

    fn answer(
        &self,
        engine: &mut Engine,
        request: Request,
        options: &GenerateOptions,
        mut speculation: Option<&mut Speculation>,
        load_time: Duration,
    ) -> Result<()> {
        let prefilled = match &self.prompt_cache {
            Some(path) => Some(prompt_cache::prefill(engine, path, request.prompt.ids())?),
            None => None,
        };
        let (mut session, prefill, unsaved) = match prefilled {
            Some(Prefilled { session, tokens, time, unsaved }) => {
                (session, Some((tokens, time)), unsaved)
            }
            None => (engine.session(), None, None),
        };
        let add_prefill = |outcome: &mut GenerationOutcome| {
            if let Some((tokens, time)) = prefill {
                outcome.timings.add_prefill(tokens, time);
            }
        };
        let options = &options.clone().with_rendered_tokens(request.rendered_tokens);
        let chat = request.chat.as_ref();
        let watch = Watch::new();
        if self.json {
            let bar = PromptBar::new(request.prompt.len(), engine.batch_tokens());
            let mut on_prompt = |progress: PromptProgress| {
                bar.show(progress.done_tokens, progress.cached_tokens);
                flow(&watch)
            };
            let extras = extras(request.constraint, speculation)
                .with_logprobs(self.logprobs.map(usize::from))
                .with_on_prompt(&mut on_prompt);
            let (prompt, on_text) = (request.prompt.clone(), &mut |_: &str| flow(&watch));
            let mut outcome =
                engine.generate_mixed(&mut session, prompt, options, extras, on_text)?;
            bar.clear();
            add_prefill(&mut outcome);
            let out = &mut io::stdout().lock();
            let mut json = json((&request.prompt, chat), &outcome, load_time);
            if self.logprobs.is_some() {
                json["logprobs"] = logprobs_json(engine.model().tokenizer(), &outcome);
            }
            writeln!(out, "{json}")?;
            return end(&outcome, unsaved);
        }
        let shown = request.shown.as_deref();
        let is_answered = options.max_tokens != Some(0);
        let question = Question {
            prompt: request.prompt,
            chat,
            shown,
            constraint: request.constraint,
            speculation: speculation.as_deref_mut(),
        };
        let presentation = Presentation { is_answered, ..self.presentation(chat.is_some()) };
        let (mut outcome, _) =
            stream(engine, &mut session, question, options, presentation, &watch)?;
        add_prefill(&mut outcome);
        if !self.quiet {
            let bytes = rocmforge::memory_bytes(engine, speculation.as_deref());
            terminal::note(Palette::stderr().dim(summary(&outcome.timings, bytes)));
        }
        end(&outcome, unsaved)
    }
}

impl Request {
    /// The request with the rows of its pictures and sounds.
    fn with_media(
        self,
        engine: &Engine,
        encoders: Option<&MediaEncoders>,
        files: &[Media],
    ) -> Result<Self> {
        if files.is_empty() {
            return Ok(self);
        }
        let _span = tracing::info_span!("encode_media").entered();
        let prompt = rocmforge::mixed_prompt(engine.model(), encoders, &self.text, files)?;
        Ok(Self { prompt, ..self })
    }
}

/// Turns an interrupted answer into the exit code of Ctrl-C, and reports a prompt that was not
/// saved after the answer.
fn end(outcome: &GenerationOutcome, unsaved: Option<anyhow::Error>) -> Result<()> {
    match unsaved {
        _ if outcome.stop_reason == StopReason::Cancelled => Err(Interrupted.into()),
        Some(error) => Err(error),
        None => Ok(()),
    }
}
